/* SPDX-License-Identifier: MIT
 *
 * decode.c - attention of up to 16 queries over many keys, as in decoding with a KV cache, forward and backward.
 *
 * A work item is a part of the keys of one batch item, or of several batch items with adjacent rows, such as the heads
 * of one token.  The heads of a work item alternate block by block, so that memory is read in order. One head after the
 * other would take twice as long, because a row has few cache lines and the next row is kilobytes away.  Meanwhile the
 * next block of each head is prefetched.  Grouped heads are queries of one item in canonical form and share the loads
 * of keys.  If there are few items, their keys are divided into parts, so that all threads have work. The sums of the
 * parts are merged by log-sum-exp.  The results do not depend on the number of threads, because the division into parts
 * and heads does not. Memory does not grow with the keys.  For packed sequences and in batch-invariant contexts, keys
 * are not divided into parts.
 *
 * Backward,
 *
 *     P = 2^(q k - lse)     dS = P (dout v - delta)     dq = sum over keys of dS k     dk = dS q     dv = P dout
 *
 * each key and value is read once, and each of their gradients is written once, in memory order.  dq is summed over the
 * parts in order.
 */
#include "attend/block/dropout.h"
#include "attend/block/finite.h"
#include "attend/block/gradient_sums.h"
#include "attend/block/items.h"
#include "attend/block/rows.h"
#include "attend/block/scores.h"
#include "attend/block/tile.h"
#include "attend/plan/solver.h"
#include "attend/problem/operand.h"
#include "base/arena.h"
#include "base/integers.h"
#include "base/normal.h"
#include "base/parallel.h"
#include "kernels/decode/decode.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/softmax_backward/softmax_backward.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { QUERIES = 16, HEADS = 64, BLOCK = 64, ITEMS = 16, PART = 256 };

typedef struct decode {
    const attn__decode_kernel *kernel;
    attn__tile_plan tiles;
    int64_t heads, head_step;               /* number of batch items of a work item; stride between their indices */
    int64_t parts, part;                    /* number of parts into which keys are divided; keys per part */
    int64_t channels, values;               /* channels of q and v, rounded up to whole vectors */
    const int64_t *channel[ATTN__OPERANDS]; /* offsets of channels of q, o and their gradients; NULL: adjacent */
    bool stream;                            /* dk and dv do not fit in the cache and are written past it */
} decode;

/* ------------------------------------------------------------------------------------------------ plan */

static const char *refuse_usual(const attn__canonical *canonical)
{
    const char *unusual =
        attn__refuse_unusual(canonical, canonical->backward ? ATTN__WEIGHTS_KINDS : ATTN__HARDMAX_TOO);
    if (!unusual)
        unusual = attn__refuse_top_k(canonical);
    if (unusual)
        return unusual;
    if (canonical->problem.nrelatives)
        return "does not support relative tables";
    if (canonical->query.size > QUERIES)
        return "supports at most 16 queries";
    if (!attn__offsets_adjacent(&canonical->contract, ATTN__STRIDE(dim.k)) ||
        !attn__offsets_adjacent(&canonical->value, ATTN__STRIDE(dim.v)))
        return "needs adjacent channels in k and v";
    return NULL;
}

/* Returns the largest number of parts of the keys. It is 1 if the order of sums must not depend on lengths. */
static int64_t max_parts(const attn__canonical *canonical)
{
    bool fixed = canonical->extras & (ATTN__PACKED | ATTN__BATCH_INVARIANT);
    return fixed ? 1 : attn__max(1, canonical->key.size / PART);
}

/* Returns how many indices of a batch axis run together. Their rows must fit within the stride between keys, so that
 * rows are read in memory order.  Queries and sums must fit in the L1 cache, and all threads must have work. */
static int64_t side_by_side(const decode *f, const attn__canonical *canonical, int axis)
{
    enum { HEADS_FLOATS = 8192 };
    const attn_dim *head = &canonical->batch.axis[axis].dim, *key = &canonical->key.axis[canonical->key.n - 1].dim;
    int64_t max = HEADS_FLOATS / (canonical->query.size * (f->channels + f->values)), n = head->n;
    max = attn__min(attn__min(max, HEADS), canonical->batch.size * max_parts(canonical) / ITEMS);
    if (n < 2 || max < 2 || head->k < 1 || head->v < 1 || n * head->k > key->k || n * head->v > key->v)
        return 1;
    while (n > max || head->n % n != 0)
        n--;
    return n;
}

/* Chooses the heads of a work item: neighbours on the last batch axis that is not the axis of packed sequences. */
static void choose_heads(decode *f, const attn__canonical *canonical)
{
    int axis = canonical->batch.n - 1;
    f->head_step = 1;
    if (axis > 0 && canonical->batch.axis[axis].packed)
        f->head_step = canonical->batch.axis[axis--].dim.n;
    f->heads = side_by_side(f, canonical, axis);
}

/* Reduces the number of heads until one block of each head fits in half of the L2 cache for prefetching. */
static void limit_heads(decode *f, const attn__canonical *canonical)
{
    int64_t head = BLOCK * (f->channels + f->values) * (int64_t)sizeof(float);
    int64_t max = attn__max(1, canonical->caches.l2 / 2 / head), all = f->heads;
    while (f->heads > max || all % f->heads != 0)
        f->heads--;
}

static void choose_parts(decode *f, const attn__canonical *canonical)
{
    int64_t keys = canonical->key.size, items = attn__max(1, canonical->batch.size / f->heads);
    f->parts = attn__min(attn__ceil_div(ITEMS, items), max_parts(canonical));
    f->part = attn__max(BLOCK, attn__round_up(attn__ceil_div(keys, f->parts), BLOCK));
    f->parts = attn__max(1, attn__ceil_div(keys, f->part));
}

static decode *make_plan(attn_context *context, const attn__canonical *canonical)
{
    const attn__group *contract = &canonical->contract, *value = &canonical->value;
    size_t channels = 2 * (size_t)(contract->size + value->size) * sizeof(int64_t);
    decode *f = attn__alloc_zero(context, attn__size_add(sizeof *f, channels));
    if (!f)
        return NULL;
    int64_t *room = (int64_t *)(void *)(f + 1);
    f->channel[ATTN__OP_Q] = attn__offsets_channels(contract, ATTN__STRIDE(dim.q), &room);
    f->channel[ATTN__OP_DQ] = attn__offsets_channels(contract, ATTN__STRIDE(dim.dq), &room);
    f->channel[ATTN__OP_O] = attn__offsets_channels(value, ATTN__STRIDE(dim.o), &room);
    f->channel[ATTN__OP_DOUT] = attn__offsets_channels(value, ATTN__STRIDE(dim.dout), &room);
    f->kernel = attn__decode_for(canonical->isa);
    f->tiles = attn__tile_plan_of(canonical, canonical->isa);
    f->channels = attn__round_up(canonical->contract.size, f->kernel->lanes);
    f->values = attn__round_up(canonical->value.size, f->kernel->lanes);
    choose_heads(f, canonical);
    choose_parts(f, canonical);
    limit_heads(f, canonical);
    return f;
}

/* Sets the plan's text and workspace. `thread`: bytes of a thread. `part`: bytes of the sums of one part and head. */
static void finish_plan(attn__recipe *recipe, decode *f, const attn__canonical *canonical, size_t thread, size_t part)
{
    size_t parts = attn__size_mul((size_t)(canonical->batch.size * f->parts), part);
    recipe->data = f;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, thread);
    if (f->parts > 1)
        recipe->workspace = attn__size_add(recipe->workspace, parts);
    snprintf(recipe->text, sizeof recipe->text, "%s %d queries of %d heads, keys in %d parts%s",
             attn__isa_text(f->kernel->isa), (int)canonical->query.size, (int)f->heads, (int)f->parts,
             f->stream ? ", gradients past the caches" : "");
}

/* Reports whether the planner must not choose this solver. If bits must not depend on the number of queries, all
 * numbers of queries need the same solver. A caller may still name this solver. */
static bool lengths_decide(const attn__canonical *canonical)
{
    if (canonical->extras & ATTN__BATCH_INVARIANT)
        return true;
    return attn__is_packed(canonical) && canonical->query.axis[canonical->problem.packed.query_dim].dim.n > 1;
}

/* Estimates the time. Heads of up to 16 channels take long, because most lanes of a vector are empty. */
static double cost(const attn__canonical *canonical, int64_t max_queries)
{
    double keys = (double)canonical->batch.size * (double)canonical->key.size, queries = (double)canonical->query.size;
    bool small = canonical->contract.size <= 16 && canonical->value.size <= 16;
    double each = small ? 20 : canonical->query.size <= max_queries ? 0.9 : 2;
    if (lengths_decide(canonical))
        return INFINITY;
    return keys * (double)(canonical->contract.size + canonical->value.size) * queries * each;
}

/* ----------------------------------------------------------------------------------- items and their memory */

typedef struct job {
    const attn__canonical *canonical;
    const decode *f;
    const attn__execution *arrays;
    char *workspace;
    size_t thread, part; /* bytes of a thread; bytes of the sums of one part of a head */
} job;

/* A work item: some heads and a part of their keys. */
typedef struct item {
    const decode *f;
    const attn__canonical *canonical; /* the item's problem; if sequences are packed, that of its sequence */
    const attn__execution *arrays;
    int64_t batch, part; /* batch index of the first head; number of the part */
    int64_t begin, end;  /* range of the part's keys */
    bool packed;
} item;

/* With packed sequences, `one` becomes the problem of the item's sequence. */
static item find_item(const job *j, int64_t number, attn__sequence *one)
{
    const decode *f = j->f;
    int64_t group = number / f->parts, inner = group % f->head_step;
    item t = {.f = f, .canonical = j->canonical, .arrays = j->arrays, .part = number % f->parts};
    t.batch = (group - inner) * f->heads + inner;
    if (attn__is_packed(j->canonical)) {
        attn__sequence_at(one, j->canonical, j->arrays, attn__packed_sequence(j->canonical, t.batch));
        t.canonical = &one->canonical;
        t.arrays = &one->arrays;
        t.packed = true;
    }
    t.begin = t.part * f->part;
    t.end = attn__min(t.begin + f->part, t.canonical->key.size);
    return t;
}

static int64_t batch_of(const item *t, int64_t head)
{
    return t->batch + head * t->f->head_step;
}

static int64_t count_items(const job *j)
{
    return j->canonical->batch.size / j->f->heads * j->f->parts;
}

/* Memory of one thread that both passes use. */
typedef struct scratch {
    float *q;                           /* [heads][queries][channels]: queries times scale and log2(e) */
    float *s;                           /* [queries][BLOCK]: scores, then weights */
    attn__visible_rows *see;            /* [heads] */
    attn__visible_span *span;           /* [heads] */
    attn__tile_rows rows;               /* of all heads */
    attn__tile_keys keys;               /* of the block */
    attn__tile tile;                    /* of a head and the block; `mask` is 1 if the query attends the key */
    int64_t from[QUERIES], to[QUERIES]; /* range of keys that each query attends; the mask may hide some of them */
    int64_t *k_at, *v_at;               /* [2 * BLOCK]: offsets of the keys of this block and the next block */
    int64_t *first_k_at, *first_v_at;   /* [2 * BLOCK]: offsets of the keys of an item's first two blocks */
    uint8_t *fades;                     /* [heads][queries]: see attn__finite_fades; zeros until it is known */
    uint8_t *alive;                     /* [queries][BLOCK]: 1 if the weight of the pair is used */
    int64_t *picked_at;                 /* [BLOCK]: offsets of keys with `alive` set */
    float *picked;                      /* [BLOCK]: weights of keys with `alive` set */
} scratch;

static void take_scratch(attn__arena *arena, const decode *f, const attn__canonical *canonical, scratch *s)
{
    int64_t n = canonical->query.size, heads = f->tiles.masks ? f->heads : 0;
    bool bias = canonical->has_bias, drops = canonical->has_dropout, masks = heads > 0;
    s->q = attn__arena_take(arena, f->heads * n * f->channels, sizeof(float));
    s->s = attn__arena_take(arena, n * BLOCK, sizeof(float));
    s->see = attn__arena_take(arena, heads, sizeof *s->see);
    s->span = attn__arena_take(arena, heads, sizeof *s->span);
    attn__tile_rows_take(&s->rows, &f->tiles, arena, f->heads, n);
    attn__tile_keys_take(&s->keys, &f->tiles, arena, BLOCK);
    s->tile = (attn__tile){.plan = &f->tiles, .rows = &s->rows, .keys = &s->keys, .nrows = n, .ld = BLOCK, .s = s->s};
    s->tile.mask = attn__arena_take(arena, masks ? n * BLOCK : 0, 1);
    s->k_at = attn__arena_take(arena, 2 * BLOCK, sizeof(int64_t));
    s->v_at = attn__arena_take(arena, 2 * BLOCK, sizeof(int64_t));
    s->first_k_at = attn__arena_take(arena, 2 * BLOCK, sizeof(int64_t));
    s->first_v_at = attn__arena_take(arena, 2 * BLOCK, sizeof(int64_t));
    s->alive = attn__arena_take(arena, bias || drops || masks ? n * BLOCK : 0, 1);
    s->fades = attn__arena_take(arena, f->tiles.visible.fills ? f->heads * n : 0, 1);
    s->picked_at = attn__arena_take(arena, BLOCK, sizeof(int64_t));
    s->picked = attn__arena_take(arena, BLOCK, sizeof(float));
    attn__visible_rows unused;
    for (int64_t h = 0; h < heads; h++)
        attn__visible_rows_take(arena->base ? &s->see[h] : &unused, &f->tiles.visible, arena, n, ATTN__VISIBLE_ANY);
}

/* --------------------------------------------------------------------------------------- queries and keys */

/* Returns a head's rows of queries in q, o or their gradients. */
static attn__rows query_rows(const item *t, attn__operand op, const void *data, int64_t batch, int64_t at[QUERIES])
{
    const attn__canonical *canonical = t->canonical;
    bool contracts = op == ATTN__OP_Q || op == ATTN__OP_DQ;
    int64_t queries = canonical->query.size, channels = (contracts ? &canonical->contract : &canonical->value)->size;
    attn__query_offsets(canonical, attn__stride_of(op), batch, 0, queries, at);
    return (attn__rows){data, canonical->problem.dtype, at, queries, t->f->channel[op], channels};
}

static attn__tile_place place_of(const item *t, int64_t head)
{
    return (attn__tile_place){t->canonical, t->arrays, head, batch_of(t, head), 0, t->canonical->query.size};
}

/* Loads the queries of a head and finds the limits of their keys. */
static void load_head(const item *t, int64_t head, const scratch *s)
{
    const decode *f = t->f;
    const attn__canonical *canonical = t->canonical;
    int64_t n = canonical->query.size, batch = batch_of(t, head), at[QUERIES];
    if (n == 0)
        return;
    attn__rows q = query_rows(t, ATTN__OP_Q, t->arrays->at.q, batch, at);
    float *rows = s->q + head * n * f->channels, factor = attn__score_factor(canonical);
    attn__rows_load(&q, f->tiles.lanes, rows, f->channels);
    for (int64_t c = 0; c < n * f->channels; c++)
        rows[c] *= factor;
    if (f->tiles.masks) {
        attn__visible_rows_start(&s->see[head], canonical, t->arrays, batch, 0, n, 1);
        s->span[head] = attn__visible_span_of(&s->see[head], 0, n);
    }
    attn__tile_place place = place_of(t, head);
    if (head == 0)
        attn__tile_rows_start(&s->rows, &f->tiles, &place);
    attn__tile_rows_head(&s->rows, &f->tiles, &place);
}

/* Writes the offsets of an operand's keys to at[2 * BLOCK]: the block that begins at key `first` and the next block. */
static void locate_keys(const item *t, size_t stride, int64_t first, int64_t *at)
{
    int64_t n = attn__min(t->canonical->key.size - first, 2 * BLOCK);
    attn__offsets_fill(&t->canonical->key, stride, first, n, at);
    for (int64_t i = n; i < 2 * BLOCK; i++)
        at[i] = at[n - 1];
}

/* Finds the offsets of the first two blocks of keys. The next item has the same offsets and is prefetched with them. */
static void start_item(const item *t, const scratch *s)
{
    if (t->canonical->key.size <= BLOCK)
        return;
    locate_keys(t, ATTN__STRIDE(dim.k), 0, s->first_k_at);
    locate_keys(t, ATTN__STRIDE(dim.v), 0, s->first_v_at);
}

/* Prepares a block of keys, which all heads share. */
static void start_block(const item *t, int64_t first, int64_t keys, scratch *s)
{
    const attn__canonical *canonical = t->canonical;
    locate_keys(t, ATTN__STRIDE(dim.k), first, s->k_at);
    locate_keys(t, ATTN__STRIDE(dim.v), first, s->v_at);
    attn__tile_keys_start(&s->keys, &t->f->tiles, canonical, first, keys);
    s->tile.canonical = canonical;
    s->tile.arrays = t->arrays;
    s->tile.nkeys = keys;
}

/* Finds the keys of the block that each query of a head attends. Sets s->tile, s->from and s->to. Returns false if no
 * query attends any key. */
static bool look(const item *t, int64_t head, int64_t first, int64_t keys, scratch *s)
{
    const attn__visible *visible = &t->f->tiles.visible;
    int64_t n = t->canonical->query.size;
    if (n == 0)
        return false;
    s->tile.head = head;
    s->tile.see = s->see + head;
    s->tile.bias_there = NULL;
    if (!attn__tile_sees(&s->tile, s->span + head))
        return false;
    bool cuts = !s->tile.full && !visible->fills;
    for (int64_t i = 0; i < n; i++) {
        s->from[i] = cuts ? attn__clamp(s->see[head].begin[i] - first, 0, keys) : 0;
        s->to[i] = cuts ? attn__clamp(s->see[head].end[i] - first, s->from[i], keys) : keys;
    }
    return true;
}

static attn__decode_rows rows_of(const item *t, size_t stride, const void *base, int64_t batch, const int64_t *at,
                                 int64_t keys, int64_t channels)
{
    attn_dtype dtype = attn__operand_dtype(&t->canonical->problem, ATTN__OP_K);
    int64_t start = attn__offsets_one(&t->canonical->batch, stride, batch) * (int64_t)attn_dtype_size(dtype);
    return (attn__decode_rows){(const char *)base + start, dtype, at, keys, channels, NULL, NULL};
}

/* Chooses the rows to prefetch while a block of a head is read: the next block of the head or, after its last block,
 * the first block of the next item.  If an item has a single block, or if a mask of blocks may skip the next block,
 * only this block's values and the next head's keys are prefetched. */
static void find_next(const item *t, int64_t head, int64_t first, const scratch *s, attn__decode_rows *k,
                      attn__decode_rows *v)
{
    const attn__canonical *canonical = t->canonical;
    int64_t batch = batch_of(t, head), next = batch + t->f->heads * t->f->head_step;
    bool single = canonical->key.size <= BLOCK, ends_part = first + BLOCK == t->end && t->part + 1 < t->f->parts;
    if (single || canonical->has_blocks) {
        next = batch + t->f->head_step;
        k->next = v->base, k->next_at = v->at;
        if (next < canonical->batch.size && (head + 1 < t->f->heads || (single && !t->packed)))
            v->next = rows_of(t, ATTN__STRIDE(dim.k), t->arrays->at.k, next, NULL, 0, 0).base, v->next_at = s->k_at;
    } else if (first + BLOCK < t->end || ends_part) {
        k->next = k->base, v->next = v->base;
        k->next_at = k->at + BLOCK, v->next_at = v->at + BLOCK;
    } else if (!t->packed && next < canonical->batch.size) {
        k->next = rows_of(t, ATTN__STRIDE(dim.k), t->arrays->at.k, next, NULL, 0, 0).base;
        v->next = rows_of(t, ATTN__STRIDE(dim.v), t->arrays->at.v, next, NULL, 0, 0).base;
        k->next_at = s->first_k_at, v->next_at = s->first_v_at;
    }
}

/* Describes the block's keys and values of one head, and the rows to prefetch. */
static void find_block(const item *t, int64_t head, int64_t first, int64_t keys, const scratch *s, attn__decode_rows *k,
                       attn__decode_rows *v)
{
    const attn__canonical *canonical = t->canonical;
    int64_t batch = batch_of(t, head);
    *k = rows_of(t, ATTN__STRIDE(dim.k), t->arrays->at.k, batch, s->k_at, keys, canonical->contract.size);
    *v = rows_of(t, ATTN__STRIDE(dim.v), t->arrays->at.v, batch, s->v_at, keys, canonical->value.size);
    find_next(t, head, first, s, k, v);
}

/* Adds p * x to o over the keys of [from, to) whose `alive` has `bit` (all keys if it is NULL). Other rows may be
 * NaN. */
static void add_alive(const item *t, const attn__decode_rows *x, int64_t from, int64_t to, const float *p,
                      const uint8_t *alive, uint8_t bit, float shrink, float *o, const scratch *s)
{
    attn__decode_rows picked = *x;
    int64_t n = 0;
    for (int64_t j = from; alive && j < to; j++) {
        s->picked_at[n] = x->at[j];
        s->picked[n] = p[j];
        n += (alive[j] & bit) != 0;
    }
    if (!alive || n == to - from) {
        t->f->kernel->add(x, from, to, p, shrink, o);
        return;
    }
    picked.at = s->picked_at;
    t->f->kernel->add(&picked, 0, n, s->picked, shrink, o);
}

static void cap_scores(const item *t, int64_t keys, const scratch *s)
{
    float cap = t->f->tiles.softcap;
    for (int64_t i = 0; cap != 0.0f && i < t->canonical->query.size; i++)
        t->f->tiles.lanes->softcap(s->s + i * BLOCK, attn__round_up(keys, t->f->kernel->lanes), cap);
}

/* --------------------------------------------------------------------------------------------- forward */

/* Sums of one head: o [queries][values], running maxima m [queries], sums of weights l [queries]. For a hardmax, also
 * the keys of the maxima, chosen [queries]. */
typedef struct sums {
    float *o, *m, *l;
    int32_t *chosen;
} sums;

static sums take_sums(attn__arena *arena, const decode *f, int64_t queries)
{
    sums all;
    all.o = attn__arena_take(arena, queries * f->values, sizeof(float));
    all.m = attn__arena_take(arena, queries, sizeof(float));
    all.l = attn__arena_take(arena, queries, sizeof(float));
    all.chosen = attn__arena_take(arena, f->tiles.kind == ATTN__WEIGHTS_LARGEST ? queries : 0, sizeof(int32_t));
    return all;
}

static size_t sums_size(const decode *f, const attn__canonical *canonical)
{
    attn__arena arena = {NULL, 0};
    take_sums(&arena, f, canonical->query.size);
    return arena.used;
}

static sums sums_of_part(const job *j, int64_t batch, int64_t part)
{
    size_t number = (size_t)(batch * j->f->parts + part);
    attn__arena arena = {j->workspace + (size_t)j->canonical->threads * j->thread + number * j->part, 0};
    return take_sums(&arena, j->f, j->canonical->query.size);
}

static size_t divide_forward(const decode *f, const attn__canonical *canonical, char *base, scratch *s,
                             sums head[HEADS])
{
    attn__arena arena = {base, 0};
    take_scratch(&arena, f, canonical, s);
    for (int64_t h = 0; h < f->heads && f->parts == 1; h++)
        head[h] = take_sums(&arena, f, canonical->query.size);
    return arena.used;
}

/* The first part also includes the sinks. */
static void clear_sums(const item *t, int64_t head, const sums *of)
{
    int64_t n = t->canonical->query.size;
    if (!of->o) /* the first call only counts bytes, and then o is NULL */
        return;
    memset(of->o, 0, (size_t)(n * t->f->values) * sizeof *of->o);
    attn__running_begin(t->canonical, t->arrays, batch_of(t, head), 0, t->part == 0 ? n : 0, n, of->m, of->l);
}

/* Adds the bias to query i's scores p and masks them. Sets `alive` where a score is not -infinity. */
static void mask_scores(const item *t, int64_t head, int64_t i, float *p, const scratch *s)
{
    int64_t from = s->from[i], to = s->to[i];
    const uint8_t *seen = s->tile.mask + i * BLOCK;
    uint8_t *alive = s->alive + i * BLOCK;
    if (t->canonical->has_bias) {
        const float *bias = (const float *)t->arrays->at.bias + s->rows.bias_at[head] + s->rows.bias[i];
        for (int64_t j = from; j < to; j++)
            p[j] += bias[s->keys.bias[j]] * (float)ATTN__LOG2E;
    }
    float fill = t->f->tiles.fill;
    for (int64_t j = from; s->tile.hidden && j < to; j++)
        p[j] = seen[j] ? p[j] : fill;
    for (int64_t j = from; j < to; j++)
        alive[j] = (uint8_t)(p[j] != -INFINITY);
}

/* Clears `alive` for dropped keys, and for masked keys of weight 0. */
static void drop_weights(const item *t, int64_t head, int64_t i, const float *p, const scratch *s)
{
    int64_t from = s->from[i], to = s->to[i];
    const uint8_t *seen = s->tile.mask + i * BLOCK;
    uint8_t *alive = s->alive + i * BLOCK;
    bool fades = t->f->tiles.visible.fills && s->fades[head * t->canonical->query.size + i];
    for (int64_t j = from; s->tile.hidden && t->f->tiles.visible.fills && j < to; j++)
        alive[j] &= seen[j] || (p[j] != 0.0f && !fades);
    if (!t->canonical->has_dropout)
        return;
    uint64_t key = s->rows.drop[head * s->rows.most + i];
    uint32_t below = t->f->tiles.drop_below;
    for (int64_t j = from; j < to; j++)
        alive[j] &= attn__dropout_bits(key, s->keys.column[j]) >= below;
}

/* Finds the first largest score of query i among the block's keys [from, to). */
static void choose(int64_t first, int64_t from, int64_t to, const float *p, int64_t i, const sums *of)
{
    for (int64_t j = from; j < to; j++)
        if (p[j] > of->m[i] || p[j] != p[j]) {
            of->m[i] = p[j];
            of->l[i] = 1.0f;
            of->chosen[i] = (int32_t)(first + j);
        }
}

/* Adds keys [first, first + keys) to the sums of one head. A query computes weights only of the keys that it attends,
 * so that no other key can affect the output. */
static void see_block(const item *t, int64_t head, int64_t first, int64_t keys, scratch *s, const sums *of)
{
    const decode *f = t->f;
    int64_t n = t->canonical->query.size;
    bool drops = t->canonical->has_dropout;
    if (!look(t, head, first, keys, s))
        return;
    attn__decode_rows k, v;
    find_block(t, head, first, keys, s, &k, &v);
    f->kernel->score(&k, s->q + head * n * f->channels, f->channels, n, s->s, BLOCK);
    cap_scores(t, keys, s);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = s->from[i], to = s->to[i];
        float *p = s->s + i * BLOCK;
        if (from >= to)
            continue;
        bool picks = s->tile.hidden || drops || t->canonical->has_bias;
        if (picks)
            mask_scores(t, head, i, p, s);
        float shrink = 1.0f;
        if (f->tiles.kind == ATTN__WEIGHTS_LARGEST) {
            choose(first, from, to, p, i, of);
            continue;
        }
        if (f->tiles.kind == ATTN__WEIGHTS_SOFTMAX)
            shrink = f->kernel->weigh(p + from, to - from, &of->m[i], &of->l[i]);
        else
            f->kernel->separate(p + from, to - from, f->tiles.kind == ATTN__WEIGHTS_SIGMOID, s->keys.sigmoid_bias,
                                &of->m[i], &of->l[i]);
        if (picks)
            drop_weights(t, head, i, p, s);
        add_alive(t, &v, from, to, p, picks ? s->alive + i * BLOCK : NULL, 1, shrink, of->o + i * f->values, s);
        v.next = NULL;
    }
}

static void merge(const job *j, const sums *into, const sums *part)
{
    int64_t values = j->f->values;
    for (int64_t i = 0; i < j->canonical->query.size; i++) {
        if (j->f->tiles.kind == ATTN__WEIGHTS_LARGEST) {
            const int32_t *chosen = part->chosen;
            choose(chosen[i], 0, part->l[i] != 0.0f, part->m + i, i, into); /* NOLINT: the arena is on the workspace */
            continue;
        }
        float m = into->m[i] > part->m[i] ? into->m[i] : part->m[i]; /* NOLINT: the arena is on the workspace */
        if (part->l[i] == 0.0f)
            continue;
        float mine = into->l[i] == 0.0f ? 0.0f : attn__normal(exp2f(into->m[i] - m));
        float its = attn__normal(exp2f(part->m[i] - m));
        into->m[i] = m;
        into->l[i] = into->l[i] * mine + part->l[i] * its;
        for (int64_t c = 0; c < values; c++)
            into->o[i * values + c] = into->o[i * values + c] * mine + part->o[i * values + c] * its;
    }
}

static void write_head(const item *t, int64_t batch, const sums *of)
{
    const attn__canonical *canonical = t->canonical;
    int64_t at[QUERIES], n = canonical->query.size;
    attn__rows o = query_rows(t, ATTN__OP_O, t->arrays->at.o, batch, at);
    o.rows = 1;
    bool chooses = t->f->tiles.kind == ATTN__WEIGHTS_LARGEST;
    if (chooses)
        attn__tile_store_chosen(&(attn__tile_chosen){.plan = &t->f->tiles,
                                                     .place = {canonical, t->arrays, 0, batch, 0, n},
                                                     .m = of->m,
                                                     .chosen = of->chosen,
                                                     .o_channel = t->f->channel[ATTN__OP_O],
                                                     .row = of->o});
    for (int64_t i = 0; !chooses && i < n; i++, o.at++) {
        float factor = attn__running_factor(canonical, of->l[i]); /* NOLINT: the arena is on the workspace */
        attn__rows_store(&o, t->f->tiles.backward, of->o + i * t->f->values, 0, factor, false);
    }
    if (canonical->problem.flags & ATTN_WANT_LSE)
        attn__running_store(canonical, t->arrays, batch, 0, n, of->m, of->l);
}

static void widen(const item *t, int64_t head, const scratch *s, int64_t *first, int64_t *last)
{
    int64_t from = t->begin, to = t->canonical->query.size ? t->end : t->begin;
    if (from < to && t->f->tiles.masks)
        from = s->span[head].first, to = s->span[head].last;
    from = attn__max(from, t->begin);
    to = attn__min(to, t->end);
    *first = from < to ? attn__min(*first, from) : *first;
    *last = from < to ? attn__max(*last, to) : *last;
}

static void run_part(item t, scratch *s, const sums *head)
{
    int64_t first = INT64_MAX, last = 0;
    for (int64_t h = 0; h < t.f->heads; h++) {
        clear_sums(&t, h, &head[h]);
        widen(&t, h, s, &first, &last);
    }
    first -= first % BLOCK; /* rounds down, so that blocks begin at the same keys for all ranges */
    t.end = last;
    start_item(&t, s);
    for (int64_t at = first; at < last; at += BLOCK) {
        int64_t keys = attn__min(BLOCK, last - at);
        start_block(&t, at, keys, s);
        for (int64_t h = 0; h < t.f->heads; h++)
            see_block(&t, h, at, keys, s, &head[h]);
    }
}

static bool has_nonfinite(const item *t, const sums *head)
{
    float check = 0.0f;
    for (int64_t h = 0; h < t->f->heads; h++)
        for (int64_t c = 0; c < t->canonical->query.size * t->f->values; c++)
            check += head[h].o[c] * 0.0f;
    return check != check;
}

/* Runs the part again if the weight of a mask_fill becomes 0 relative to later keys, of any part. */
static void run_faded(const item *t, scratch *s, const sums *head)
{
    int64_t n = t->canonical->query.size;
    bool any = false;
    item all = *t;
    if (!t->f->tiles.visible.fills || !has_nonfinite(t, head))
        return;
    all.part = 0;
    all.begin = 0;
    all.end = t->canonical->key.size;
    run_part(all, s, head);
    for (int64_t h = 0; h < t->f->heads; h++)
        any |= attn__finite_fades(head[h].m, n, t->f->tiles.fill, s->fades + h * n);
    if (any || t->f->parts > 1)
        run_part(*t, s, head);
}

static void run_forward_item(void *user, int64_t number, int thread)
{
    const job *j = user;
    const decode *f = j->f;
    attn__sequence one;
    item t = find_item(j, number, &one);
    scratch s;
    sums head[HEADS];
    divide_forward(f, j->canonical, j->workspace + (size_t)thread * j->thread, &s, head);
    s.rows.most = s.tile.nrows = t.canonical->query.size;
    if (f->tiles.visible.fills)
        memset(s.fades, 0, (size_t)(f->heads * j->canonical->query.size));
    for (int64_t h = 0; h < f->heads; h++) {
        if (f->parts > 1)
            head[h] = sums_of_part(j, batch_of(&t, h), t.part);
        load_head(&t, h, &s);
    }
    run_part(t, &s, head);
    run_faded(&t, &s, head);
    for (int64_t h = 0; h < f->heads && f->parts == 1; h++)
        write_head(&t, batch_of(&t, h), &head[h]);
}

static void merge_forward(void *user, int64_t batch, int thread)
{
    const job *j = user;
    item t = {.f = j->f, .canonical = j->canonical, .arrays = j->arrays};
    sums all = sums_of_part(j, batch, 0);
    (void)thread;
    for (int64_t i = 1; i < j->f->parts; i++) {
        sums part = sums_of_part(j, batch, i);
        merge(j, &all, &part);
    }
    write_head(&t, batch, &all);
}

static size_t forward_size(const decode *f, const attn__canonical *canonical)
{
    scratch unused;
    sums head[HEADS];
    return divide_forward(f, canonical, NULL, &unused, head);
}

static void apply_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                          void *workspace)
{
    job j = {.canonical = canonical, .f = recipe->data, .arrays = arrays, .workspace = workspace};
    j.thread = forward_size(j.f, canonical);
    j.part = sums_size(j.f, canonical);
    attn__parallel_items(canonical->threads, count_items(&j), run_forward_item, &j);
    if (j.f->parts > 1)
        attn__parallel_items(canonical->threads, canonical->batch.size, merge_forward, &j);
}

static const char *refuse_forward(const attn__canonical *canonical)
{
    return canonical->backward ? "supports forward only" : refuse_usual(canonical);
}

/* Estimates the time. Reading keys and values takes as long as multiplying them by `max_queries` queries. Further
 * queries are slow, because each needs a load per product. Long rows and many keys are read faster. */
static double cost_forward(const attn__canonical *canonical)
{
    bool long_rows = canonical->contract.size + canonical->value.size >= 192;
    return cost(canonical, (long_rows ? 8 : 4) - (canonical->key.size < 128 ? 2 : 0));
}

static attn_status plan_forward(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    decode *f = make_plan(context, canonical);
    if (!f)
        return ATTN_ERROR_MEMORY;
    finish_plan(recipe, f, canonical, forward_size(f, canonical), sums_size(f, canonical));
    return ATTN_OK;
}

const attn__solver attn__solver_decode = {.name = "decode",
                                          .refuse = refuse_forward,
                                          .cost = cost_forward,
                                          .plan = plan_forward,
                                          .apply = apply_forward,
                                          .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__BLOCKS |
                                                    ATTN__BF16_KEYS | ATTN__BATCH_INVARIANT | ATTN__TOP_K};

/* -------------------------------------------------------------------------------------------- backward */

typedef struct backward {
    scratch s;
    float *dout, *dq;       /* [heads][queries][values], and [heads][queries][channels] */
    float *o;               /* [queries][values] */
    float *ds;              /* [queries][BLOCK]: gradients of scores before the softcap */
    int64_t *dk_at, *dv_at; /* [2 * BLOCK]: offsets of keys in dk and dv */
} backward;

static size_t divide_backward(const decode *f, const attn__canonical *canonical, char *base, backward *b)
{
    attn__arena arena = {base, 0};
    int64_t n = canonical->query.size, all = f->heads * n;
    take_scratch(&arena, f, canonical, &b->s);
    b->dout = attn__arena_take(&arena, all * f->values, sizeof(float));
    b->dq = attn__arena_take(&arena, all * f->channels, sizeof(float));
    b->o = attn__arena_take(&arena, n * f->values, sizeof(float));
    b->ds = attn__arena_take(&arena, n * BLOCK, sizeof(float));
    b->s.tile.ds = canonical->problem.flags & (ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DBIAS) ? b->ds : NULL;
    if (f->tiles.wants_dbias && f->tiles.softcap != 0.0f)
        b->s.tile.dbias = attn__arena_floats(&arena, n * BLOCK);
    b->s.tile.bias = attn__arena_floats(&arena, canonical->has_bias ? n * BLOCK : 0);
    b->dk_at = attn__arena_take(&arena, 2 * BLOCK, sizeof(int64_t));
    b->dv_at = attn__arena_take(&arena, 2 * BLOCK, sizeof(int64_t));
    return arena.used;
}

static size_t dq_size(const decode *f, const attn__canonical *canonical)
{
    return ((size_t)(canonical->query.size * f->channels) * sizeof(float) + 63) / 64 * 64;
}

static float *dq_of_part(const job *j, int64_t batch, int64_t part)
{
    size_t number = (size_t)(batch * j->f->parts + part);
    return (float *)(void *)(j->workspace + (size_t)j->canonical->threads * j->thread + number * j->part);
}

/* Loads dout, lse and delta of each query of a head. delta is the sum over channels of dout * o, minus dlse. */
static void load_gradients(const item *t, int64_t head, const backward *b)
{
    const decode *f = t->f;
    const attn__canonical *canonical = t->canonical;
    int64_t n = canonical->query.size, batch = batch_of(t, head), at[QUERIES];
    float *dout = b->dout + head * n * f->values, *delta = b->s.rows.delta + head * n;
    attn__rows rows = query_rows(t, ATTN__OP_DOUT, t->arrays->at.dout, batch, at);
    attn__rows_load(&rows, f->tiles.lanes, dout, f->values);
    rows = query_rows(t, ATTN__OP_O, t->arrays->at.o, batch, at);
    attn__rows_load(&rows, f->tiles.lanes, b->o, f->values);
    for (int64_t i = 0; i < n; i++)
        delta[i] = f->tiles.backward->dot(dout + i * f->values, b->o + i * f->values, f->values);
    attn__tile_place place = place_of(t, head);
    attn__tile_rows_lse(&b->s.rows, &f->tiles, &place, b->s.see + head);
    memset(b->dq + head * n * f->channels, 0, (size_t)(n * f->channels) * sizeof(float));
}

static void store_dq(const item *t, int64_t batch, const float *dq)
{
    const attn_problem *p = &t->canonical->problem;
    int64_t at[QUERIES];
    attn__rows rows = query_rows(t, ATTN__OP_DQ, t->arrays->at.dq, batch, at);
    attn__rows_store(&rows, t->f->tiles.backward, dq, t->f->channels, (float)p->scale, p->accumulate);
}

/* Computes weights in s.s and gradients of scores in ds. Returns true if pairs without s.alive must be left out. */
static bool weigh(const item *t, int64_t head, const attn__decode_rows *k, const attn__decode_rows *v, backward *b)
{
    const decode *f = t->f;
    const attn__canonical *canonical = t->canonical;
    scratch *s = &b->s;
    int64_t n = canonical->query.size;
    bool picks = s->tile.hidden || canonical->has_bias || canonical->has_dropout;
    f->kernel->score(k, s->q + head * n * f->channels, f->channels, n, s->s, BLOCK);
    if (s->tile.ds)
        f->kernel->score(v, b->dout + head * n * f->values, f->values, n, b->ds, BLOCK);
    s->tile.alive = picks ? s->alive : NULL;
    attn__tile_weights(&s->tile);
    return picks;
}

enum { SCORE_ALIVE = 1, WEIGHT_ALIVE = 2 }; /* bits of attn__softmax_backward_args.alive */

/* Writes the gradients of the block's keys and values. If no query attends the keys, the gradients are zeros. */
static void spread(const item *t, int64_t head, int64_t keys, int64_t queries, bool picks, const backward *b)
{
    const decode *f = t->f;
    const attn__canonical *canonical = t->canonical;
    int64_t n = canonical->query.size, size = (int64_t)attn_dtype_size(canonical->problem.dtype);
    int64_t batch = batch_of(t, head);
    attn__decode_spread args = {.dtype = canonical->problem.dtype,
                                .rows = keys,
                                .queries = queries,
                                .ldw = BLOCK,
                                .from = b->s.from,
                                .to = b->s.to,
                                .alive = picks ? b->s.alive : NULL,
                                .add = canonical->problem.accumulate,
                                .stream = f->stream};
    if (canonical->problem.flags & ATTN_WANT_DK) {
        args.out = (char *)t->arrays->at.dk + attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.dk), batch) * size;
        args.at = b->dk_at;
        args.channels = canonical->contract.size;
        args.w = b->ds;
        args.x = b->s.q + head * n * f->channels;
        args.ldx = f->channels;
        args.factor = (float)(1.0 / ATTN__LOG2E); /* removes log2(e), because q includes the scale and log2(e) */
        args.bit = SCORE_ALIVE;
        f->kernel->spread(&args);
    }
    if (canonical->problem.flags & ATTN_WANT_DV) {
        args.out = (char *)t->arrays->at.dv + attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.dv), batch) * size;
        args.at = b->dv_at;
        args.channels = canonical->value.size;
        args.w = b->s.s;
        args.x = b->dout + head * n * f->values;
        args.ldx = f->values;
        args.factor = 1.0f;
        args.bit = WEIGHT_ALIVE;
        f->kernel->spread(&args);
    }
}

/* Stores the bias gradient of the block's keys. It is 0 if `seen` is false.  Several queries may share elements. */
static void store_dbias(const item *t, int64_t head, int64_t keys, bool seen, const backward *b)
{
    const int64_t *row = b->s.rows.dbias, *at = b->s.keys.dbias;
    float *dbias = (float *)t->arrays->at.dbias + b->s.rows.dbias_at[head];
    for (int64_t i = 0; i < t->canonical->query.size && !t->canonical->problem.accumulate; i++)
        for (int64_t j = 0; j < keys; j++)
            dbias[row[i] + at[j]] = 0.0f;
    if (seen)
        attn__tile_dbias(&b->s.tile, true);
}

static void see_block_backward(const item *t, int64_t head, int64_t first, int64_t keys, backward *b)
{
    const decode *f = t->f;
    const attn__canonical *canonical = t->canonical;
    scratch *s = &b->s;
    int64_t n = canonical->query.size;
    bool seen = look(t, head, first, keys, s), any = false, picks = false;
    for (int64_t i = 0; i < n && seen; i++)
        any = any || s->from[i] < s->to[i];
    if (any) {
        attn__decode_rows k, v;
        find_block(t, head, first, keys, s, &k, &v);
        picks = weigh(t, head, &k, &v, b);
        k.next = NULL;
        float *dq = b->dq + head * n * f->channels;
        for (int64_t i = 0; i < n && (canonical->problem.flags & ATTN_WANT_DQ); i++)
            if (s->from[i] < s->to[i])
                add_alive(t, &k, s->from[i], s->to[i], b->ds + i * BLOCK, picks ? s->alive + i * BLOCK : NULL,
                          SCORE_ALIVE, 1.0f, dq + i * f->channels, s);
    }
    if (any || !canonical->problem.accumulate)
        spread(t, head, keys, any ? n : 0, picks, b);
    if (canonical->problem.flags & ATTN_WANT_DBIAS)
        store_dbias(t, head, keys, any, b);
}

static void start_block_backward(const item *t, int64_t first, int64_t keys, backward *b)
{
    start_block(t, first, keys, &b->s);
    locate_keys(t, ATTN__STRIDE(dim.dk), first, b->dk_at);
    locate_keys(t, ATTN__STRIDE(dim.dv), first, b->dv_at);
}

static void run_backward_item(void *user, int64_t number, int thread)
{
    const job *j = user;
    const decode *f = j->f;
    attn__sequence one;
    item t = find_item(j, number, &one);
    int64_t n = t.canonical->query.size;
    backward b;
    divide_backward(f, j->canonical, j->workspace + (size_t)thread * j->thread, &b);
    b.s.rows.most = b.s.tile.nrows = n;
    for (int64_t h = 0; h < f->heads; h++) {
        load_head(&t, h, &b.s);
        load_gradients(&t, h, &b);
    }
    start_item(&t, &b.s);
    for (int64_t at = t.begin; at < t.end; at += BLOCK) {
        int64_t keys = attn__min(BLOCK, t.end - at);
        start_block_backward(&t, at, keys, &b);
        for (int64_t h = 0; h < f->heads; h++)
            see_block_backward(&t, h, at, keys, &b);
    }
    for (int64_t h = 0; h < f->heads && (t.canonical->problem.flags & ATTN_WANT_DQ); h++) {
        const float *dq = b.dq + h * n * f->channels;
        if (f->parts == 1)
            store_dq(&t, batch_of(&t, h), dq);
        else
            memcpy(dq_of_part(j, batch_of(&t, h), t.part), dq, (size_t)(n * f->channels) * sizeof(float));
    }
    if (f->stream)
        f->kernel->settle();
}

static void merge_backward(void *user, int64_t batch, int thread)
{
    const job *j = user;
    item t = {.f = j->f, .canonical = j->canonical, .arrays = j->arrays};
    float *sum = dq_of_part(j, batch, 0);
    (void)thread;
    for (int64_t p = 1; p < j->f->parts; p++) {
        const float *next = dq_of_part(j, batch, p);
        for (int64_t i = 0; i < j->canonical->query.size * j->f->channels; i++)
            sum[i] += next[i];
    }
    store_dq(&t, batch, sum);
}

static void apply_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                           void *workspace)
{
    job j = {.canonical = canonical, .f = recipe->data, .arrays = arrays, .workspace = workspace};
    backward unused;
    j.thread = divide_backward(j.f, canonical, NULL, &unused);
    j.part = dq_size(j.f, canonical);
    attn__parallel_items(canonical->threads, count_items(&j), run_backward_item, &j);
    if (j.f->parts > 1 && (canonical->problem.flags & ATTN_WANT_DQ))
        attn__parallel_items(canonical->threads, canonical->batch.size, merge_backward, &j);
}

/* Reports whether the operand has a stride along each axis of the group, so that no two indices share an element. */
static bool moves(const attn__group *group, attn__operand op)
{
    for (int a = 0; a < group->n; a++)
        if (group->axis[a].dim.n > 1 && attn__stride(&group->axis[a].dim, op) == 0 && !group->axis[a].packed)
            return false;
    return true;
}

static const char *refuse_backward(const attn__canonical *canonical)
{
    const char *why = canonical->backward ? refuse_usual(canonical) : "supports backward only";
    if (why)
        return why;
    if (attn__sums_broadcast(canonical) & ATTN__WANT_ROWS)
        return "does not support gradients summed over broadcast dims";
    if ((canonical->problem.flags & ATTN_WANT_DBIAS) && attn__is_packed(canonical))
        return "does not support a bias gradient of packed sequences";
    if ((canonical->problem.flags & ATTN_WANT_DBIAS) &&
        (!moves(&canonical->batch, ATTN__OP_DBIAS) || !moves(&canonical->key, ATTN__OP_DBIAS)))
        return "does not support the gradient of a bias that batch items or keys share";
    if (!attn__offsets_adjacent(&canonical->contract, ATTN__STRIDE(dim.dk)) ||
        !attn__offsets_adjacent(&canonical->value, ATTN__STRIDE(dim.dv)))
        return "needs adjacent channels in dk and dv";
    return NULL;
}

/* Estimates the time. A tile solver packs each key, which takes as long as multiplying it by `max_queries` queries.
 * With more queries, tiles are faster, because their products share loads.  (Measured with 2,048 keys of 64 channels,
 * this solver and a tile solver: 6.6 and 15 ms for 1 query, 13.3 and 17 ms for 8, 34 and 20 ms for 16.) */
static double cost_backward(const attn__canonical *canonical)
{
    return cost(canonical, canonical->key.size < 64 ? 2 : 8);
}

static attn_status plan_backward(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    /* Gradients larger than STREAM_L2 times the L2 cache are evicted before they are read, so they are written past the
     * caches. The size of the L3 cache is not used, because the system may report the whole socket's.  A vector of bf16
     * is half a cache line, and writing half a line past the caches would read the line. */
    enum { STREAM_L2 = 16, LINE = 64 };
    decode *f = make_plan(context, canonical);
    backward unused;
    if (!f)
        return ATTN_ERROR_MEMORY;
    int64_t size = (int64_t)attn_dtype_size(canonical->problem.dtype);
    int64_t key = canonical->contract.size * size, value = canonical->value.size * size;
    double bytes = (double)canonical->batch.size * (double)canonical->key.size * (double)(key + value);
    bool whole = canonical->problem.dtype == ATTN_F32 || (key % LINE == 0 && value % LINE == 0);
    f->stream = whole && !canonical->problem.accumulate && bytes > STREAM_L2 * (double)canonical->caches.l2;
    finish_plan(recipe, f, canonical, divide_backward(f, canonical, NULL, &unused), dq_size(f, canonical));
    return ATTN_OK;
}

const attn__solver attn__solver_decode_backward = {.name = "decode_backward",
                                                   .refuse = refuse_backward,
                                                   .cost = cost_backward,
                                                   .plan = plan_backward,
                                                   .apply = apply_backward,
                                                   .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__DLSE | ATTN__BLOCKS |
                                                             ATTN__BATCH_INVARIANT};
