/* SPDX-License-Identifier: MIT
 *
 * Exchanges gradients if all ranks share memory, so that each rank can read the gradients of the others. Each
 * rank adds up one part of each bucket, and computes the optimizer's step for the same part of the parameters. All
 * ranks then read all new parameters. So no work is done twice.
 *
 * There are two copies of the parameters and of the optimizer's state. Each step reads one copy and writes the other.
 * Ranks switch to the new copy only when all ranks have computed their part of the step. If a rank dies, no rank
 * switches, and the unfinished step is discarded. Ranks wait for three counts of each rank, which only increase:
 *
 *   SENT     number of buckets whose gradients are final
 *   SUMMED   number of steps for which the rank has added up its part of the gradients. The rank will not read other
 *            ranks' gradients of these steps again, and will not read data that are older than the previous step.
 *   STEPPED  number of steps for which the rank has computed its part of the new parameters
 */
#include "tensor/all_reduce_inner.h"

#include "base/clock.h"
#include "base/system.h"
#include "base/caches.h"
#include "base/parallel.h"
#include "kernels/elementwise/elementwise.h"

#include <string.h>

enum { SENT, SUMMED, STEPPED, COUNTS };
/* GRAIN: blocks per task. LINE: elements of a cache line. KEPT: maximum number of arrays per parameter (the parameter
 * itself, and two of optimizer state). FEW: data of more than FEW times the L2 cache are written past all caches. Even
 * if the data fit in L3, loading them before the write would take a third of the optimizer's step. */
enum { GRAIN = 4, LINE = 16, KEPT = 3, FEW = 8 };

typedef struct board {
    _Alignas(128) atomic_uint_least64_t count[COUNTS];
    double squares;
    double totals[ATTN__ALL_REDUCE_TOTALS];
} board;

/* The shared memory. It is freed when no tensor uses it any more. */
typedef struct mapping {
    attn__storage storage;
    attn__ranks_memory memory;
} mapping;

struct attn__shared {
    mapping *mapping;
    int rank, size;
    board *boards;
    float *gradients; /* all buckets of rank 0, then all buckets of rank 1, and so on */
    /* parameters and state, in the layout of one rank's gradients; each has two copies, which are alternately old and
     * new */
    float *arrays[KEPT][2];
    int kept;
    bool past;      /* true: the arrays are too large for the caches */
    uint64_t steps; /* number of steps that all ranks have completed */
    double squares; /* sum of squares of this rank's part of the gradients; after the last bucket, sum over all ranks */
    int64_t cursor; /* slot with which attn__all_reduce_next continues */
    attn__elementwise_fn add, square;
};

typedef struct piece {
    const attn__slot *slot;
    int64_t from, n; /* offset in the parameter, and number of elements */
    int64_t at;      /* offset of the piece in the memory of a rank's buckets */
} piece;

static float *gradients_of(const attn__all_reduce *e, int rank)
{
    return e->shared->gradients + rank * e->elements;
}

/* Returns where the part of rank `rank` begins, if n elements are divided among the ranks. The result is a multiple of
 * the elements of a cache line. */
static int64_t part_begin(const attn__shared *s, int64_t n, int rank)
{
    return rank == s->size ? n : n * rank / s->size / LINE * LINE;
}

/* Gets the next piece of a rank's part. *cursor is the slot at which the search continues. It becomes 0 after the last
 * piece. */
static bool next_piece(const attn__all_reduce *e, int rank, int64_t *cursor, piece *p)
{
    while (*cursor < e->nslots) {
        const attn__slot *slot = &e->slots[(*cursor)++];
        const attn__bucket *b = &e->buckets[slot->bucket];
        int64_t begin = part_begin(e->shared, b->elements, rank), end = part_begin(e->shared, b->elements, rank + 1);
        int64_t last = slot->at + slot->parameter->size;
        begin = begin > slot->at ? begin : slot->at;
        end = end < last ? end : last;
        *p = (piece){slot, begin - slot->at, end - begin, b->data - e->memory + begin};
        if (p->n > 0)
            return true;
    }
    *cursor = 0;
    return false;
}

/* ------------------------------------------------------------------------------------------------ making */

static void release_mapping(attn__storage *storage)
{
    /* the storage is the first member of the mapping */
    mapping *m = (mapping *)(void *)storage;
    attn__ranks_memory_free(&m->memory);
    attn__free(storage->context, m);
}

bool attn__shared_may_move(const attn_tensor *x)
{
    bool own = x->storage->refs == 1 && x->data == attn__storage_data(x->storage);
    /* the data may already be in the shared mapping of an earlier training */
    return own || x->storage->release == release_mapping;
}

/* Returns the size in bytes of the ranks' boards. A board holds a rank's counts. The size is a multiple of a memory
 * page, so that boards share no page with other data. */
static size_t boards_bytes(int size)
{
    enum { PAGE = 4096 };
    return ((size_t)size * sizeof(board) + PAGE - 1) / PAGE * PAGE;
}

static attn_status make_mapping(attn__all_reduce *e, attn__shared *s)
{
    attn__ranks_memory memory;
    size_t arrays = (size_t)s->size + 2 * (size_t)s->kept, each = attn__size_mul((size_t)e->elements, sizeof(float));
    size_t bytes = attn__size_add(boards_bytes(s->size), attn__size_mul(arrays, each));
    attn_status status = attn__ranks_memory_make(e->context, e->movable ? bytes : 0, &memory);
    if (status != ATTN_OK || !memory.data)
        return status;
    s->mapping = attn__alloc_zero(e->context, sizeof *s->mapping);
    if (!s->mapping) {
        attn__ranks_memory_free(&memory);
        return ATTN_ERROR_MEMORY;
    }
    *s->mapping = (mapping){{.context = e->context, .refs = 1, .release = release_mapping}, memory};
    s->boards = memory.data;
    s->gradients = (float *)(void *)((char *)memory.data + boards_bytes(s->size));
    for (int i = 0; i < 2 * s->kept; i++)
        s->arrays[i / 2][i % 2] = s->gradients + (s->size + i) * e->elements;
    return ATTN_OK;
}

/* Writes to each page once, because the first write to a page is slow. Each rank does this for its part. */
static void touch(attn__all_reduce *e)
{
    int64_t first, n = attn__ranks_share(e->context, e->elements, &first);
    memset(e->memory, 0, (size_t)e->elements * sizeof(float));
    for (int i = 0; i < 2 * e->shared->kept; i++)
        memset(e->shared->arrays[i / 2][i % 2] + first, 0, (size_t)n * sizeof(float));
}

attn_status attn__shared_create(attn__all_reduce *e)
{
    int64_t kept = e->state && e->nslots > 0 ? e->state->n / e->nslots + 1 : 0;
    if (!attn__ranks_together(e->context))
        return ATTN_OK;
    if (kept == 0 || kept > KEPT || e->state->n != (kept - 1) * e->nslots) {
        kept = 0; /* continue with 0 instead of returning, because the other ranks wait for this value */
        e->movable = false;
    }
    attn__shared *s = attn__alloc_zero(e->context, sizeof *s);
    if (!s)
        return ATTN_ERROR_MEMORY;
    const attn__elementwise_table *rows = attn__elementwise_for(false, e->context->isa);
    s->rank = attn_ranks_rank(e->context);
    s->size = attn_ranks_size(e->context);
    s->kept = (int)kept;
    s->past = attn__size_mul(2 * (size_t)kept, attn__size_mul((size_t)e->elements, sizeof(float))) >
              FEW * (size_t)attn__caches_here()->l2;
    s->add = rows->run[ATTN__ELEMENTWISE_ADD];
    s->square = rows->run[ATTN__ELEMENTWISE_SQUARES];
    attn_status status = make_mapping(e, s);
    if (status != ATTN_OK || !s->mapping) {
        attn__free(e->context, s);
        return status;
    }
    e->shared = s;
    e->memory = gradients_of(e, s->rank);
    touch(e);
    return ATTN_OK;
}

/* Returns the tensor whose data are in array k. This is the parameter for k = 0, and a tensor of the optimizer's state
 * for k > 0. */
static attn_tensor *tensor_of(const attn__all_reduce *e, const attn__slot *slot, int k)
{
    return k == 0 ? slot->parameter : e->state->items[slot->index * (e->shared->kept - 1) + k - 1].tensor;
}

static float *array_at(const attn__all_reduce *e, int k, uint64_t steps, int64_t at)
{
    return e->shared->arrays[k][steps % 2] + at;
}

static void point_tensors(attn__all_reduce *e)
{
    for (int64_t i = 0; i < e->nslots; i++) {
        const attn__slot *slot = &e->slots[i];
        int64_t at = e->buckets[slot->bucket].data - e->memory + slot->at;
        for (int k = 0; k < e->shared->kept; k++)
            tensor_of(e, slot, k)->data = array_at(e, k, e->shared->steps, at);
    }
}

attn_status attn__shared_adopt(attn__all_reduce *e)
{
    attn__shared *s = e->shared;
    int64_t cursor = 0;
    piece p;
    while (next_piece(e, s->rank, &cursor, &p)) {
        for (int k = 0; k < s->kept; k++)
            memcpy(array_at(e, k, 0, p.at), (const float *)tensor_of(e, p.slot, k)->data + p.from,
                   (size_t)p.n * sizeof(float));
    }
    uint64_t there = 1; /* this sum is a barrier: it ends when all ranks have copied their parts */
    attn_status status = attn__ranks_sum(e->context, &there, 1, ATTN__MAX_U64);
    if (status != ATTN_OK)
        return status;
    for (int64_t i = 0; i < e->nslots * s->kept; i++) {
        attn_tensor *x = tensor_of(e, &e->slots[i / s->kept], (int)(i % s->kept));
        attn__storage_unref(x->storage);
        attn__storage_ref(&s->mapping->storage);
        x->storage = &s->mapping->storage;
    }
    point_tensors(e);
    return ATTN_OK;
}

/* The tensors keep their shared memory, which becomes private to this rank. */
void attn__shared_destroy(attn__all_reduce *e)
{
    if (!e->shared)
        return;
    attn__ranks_memory_part(&e->shared->mapping->memory);
    attn__storage_unref(&e->shared->mapping->storage);
    attn__free(e->context, e->shared);
    e->shared = NULL;
    e->memory = NULL;
}

/* ----------------------------------------------------------------------------------------------- waiting */

typedef struct awaited {
    const attn__shared *shared;
    int which;
    uint64_t count;
} awaited;

static bool all_have(const void *user)
{
    const awaited *a = user;
    for (int r = 0; r < a->shared->size; r++)
        if (atomic_load_explicit(&a->shared->boards[r].count[a->which], memory_order_acquire) < a->count)
            return false;
    return true;
}

static void tell(const attn__shared *s, int which, uint64_t count)
{
    atomic_store_explicit(&s->boards[s->rank].count[which], count, memory_order_release);
}

static attn_status await(attn__all_reduce *e, int which, uint64_t count)
{
    const awaited a = {e->shared, which, count};
    double began = attn__now();
    attn_status status = attn__ranks_await(e->context, all_have, &a);
    e->waited += attn__seconds_since(began);
    return status;
}

void attn__shared_begin(attn__all_reduce *e)
{
    e->shared->squares = 0;
    e->shared->cursor = 0;
}

/* --------------------------------------------------------------------------------------------- gradients */

static uint64_t sent_with(const attn__all_reduce *e, int64_t bucket)
{
    return e->shared->steps * (uint64_t)e->nbuckets + (uint64_t)bucket + 1;
}

void attn__shared_send(attn__all_reduce *e, int64_t bucket)
{
    tell(e->shared, SENT, sent_with(e, bucket));
}

typedef struct sum_job {
    const attn__all_reduce *e;
    int64_t at, n;   /* offset in the memory of a rank's buckets, and number of elements */
    double *squares; /* one a block */
} sum_job;

/* Adds up the values of all ranks: first this rank's own, then those of the other ranks in a fixed order. The result is
 * therefore the same in every run. */
static void sum_blocks(void *user, int64_t begin, int64_t end)
{
    const sum_job *job = user;
    const attn__shared *s = job->e->shared;
    for (int64_t block = begin; block < end; block++) {
        int64_t from = block * ATTN__ELEMENTWISE_BLOCK,
                n = job->n - from < ATTN__ELEMENTWISE_BLOCK ? job->n - from : ATTN__ELEMENTWISE_BLOCK;
        float *sum = job->e->memory + job->at + from;
        attn__elementwise_args args = {.x = sum, .y = sum};
        for (int r = 0; r < s->size; r++) {
            args.x2 = gradients_of(job->e, r) + job->at + from;
            if (r != s->rank)
                s->add(&args, 0, n);
        }
        attn__elementwise_args square = {.x = sum, .y = job->squares + block, .n = n};
        s->square(&square, 0, 1);
    }
}

static void sum_part(attn__all_reduce *e, const attn__bucket *b)
{
    enum { SUMS = 256 };
    double squares[SUMS];
    attn__shared *s = e->shared;
    int64_t first = part_begin(s, b->elements, s->rank), end = part_begin(s, b->elements, s->rank + 1);
    int64_t most = (int64_t)SUMS * ATTN__ELEMENTWISE_BLOCK;
    for (int64_t from = first; from < end; from += most) {
        int64_t n = end - from < most ? end - from : most,
                blocks = (n + ATTN__ELEMENTWISE_BLOCK - 1) / ATTN__ELEMENTWISE_BLOCK;
        sum_job job = {e, b->data - e->memory + from, n, squares};
        attn__parallel_range(e->context->threads, blocks, GRAIN, sum_blocks, &job);
        for (int64_t i = 0; i < blocks; i++)
            s->squares += squares[i];
    }
}

bool attn__shared_test(attn__all_reduce *e, int64_t bucket)
{
    const awaited a = {e->shared, SENT, sent_with(e, bucket)};
    if (!all_have(&a))
        return false;
    sum_part(e, &e->buckets[bucket]);
    return true;
}

attn_status attn__shared_wait(attn__all_reduce *e, int64_t bucket)
{
    attn_status status = await(e, SENT, sent_with(e, bucket));
    if (status == ATTN_OK)
        sum_part(e, &e->buckets[bucket]);
    return status;
}

attn_status attn__shared_finish(attn__all_reduce *e)
{
    attn__shared *s = e->shared;
    board *own = &s->boards[s->rank];
    own->squares = s->squares;
    memcpy(own->totals, e->totals, sizeof own->totals);
    tell(s, SUMMED, s->steps + 1);
    attn_status status = await(e, SUMMED, s->steps + 1);
    if (status != ATTN_OK)
        return status;
    s->squares = 0;
    memset(e->totals, 0, sizeof e->totals);
    for (int r = 0; r < s->size; r++) {
        s->squares += s->boards[r].squares;
        for (int i = 0; i < ATTN__ALL_REDUCE_TOTALS; i++)
            e->totals[i] += s->boards[r].totals[i];
    }
    return ATTN_OK;
}

/* ---------------------------------------------------------------------------------------------- the step */

bool attn__all_reduce_is_shared(const attn__all_reduce *e)
{
    return e && e->shared;
}

double attn__all_reduce_squares(const attn__all_reduce *e)
{
    return e->shared->squares;
}

static bool any_has_gradient(const attn__all_reduce *e, const attn__slot *slot)
{
    const attn__bucket *b = &e->buckets[slot->bucket];
    int64_t at = b->data - e->memory + slot->flag;
    for (int r = 0; r < e->shared->size; r++)
        if (gradients_of(e, r)[at] > 0)
            return true;
    return false;
}

/* Copies a piece's old values to the new copy, because no rank has a gradient of the parameter. */
static void keep(const attn__all_reduce_piece *old, int kept)
{
    memcpy(old->p2, old->p, (size_t)old->n * sizeof(float));
    for (int k = 0; k < kept - 1; k++)
        memcpy(old->s2[k], old->s[k], (size_t)old->n * sizeof(float));
}

bool attn__all_reduce_next(attn__all_reduce *e, attn__all_reduce_piece *out)
{
    attn__shared *s = e->shared;
    piece p;
    while (next_piece(e, s->rank, &s->cursor, &p)) {
        *out = (attn__all_reduce_piece){.parameter = p.slot->parameter,
                                        .p = array_at(e, 0, s->steps, p.at),
                                        .p2 = array_at(e, 0, s->steps + 1, p.at),
                                        .g = e->memory + p.at,
                                        .n = p.n,
                                        .past = s->past};
        for (int k = 1; k < s->kept; k++) {
            out->s[k - 1] = array_at(e, k, s->steps, p.at);
            out->s2[k - 1] = array_at(e, k, s->steps + 1, p.at);
        }
        if (any_has_gradient(e, p.slot))
            return true;
        keep(out, s->kept);
    }
    return false;
}

attn_status attn__all_reduce_commit(attn__all_reduce *e)
{
    attn__shared *s = e->shared;
    tell(s, STEPPED, s->steps + 1);
    attn_status status = await(e, STEPPED, s->steps + 1);
    if (status != ATTN_OK)
        return status;
    s->steps++;
    point_tensors(e);
    e->open = false;
    return ATTN_OK;
}
