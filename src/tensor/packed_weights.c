/* SPDX-License-Identifier: MIT
 * A list of weights that were packed; a decoder has some dozens. */
#include "tensor/packed_weights.h"

#include "base/context.h"
#include "base/system.h"

#include <pthread.h>

typedef struct entry {
    const void *weights;
    attn_dtype dtype;
    attn_precision precision; /* that they were packed for */
    attn__packed *packed;     /* in memory of its own: others hold the address while the list grows */
    int64_t n, k;
} entry;

struct attn__packed_weights {
    attn_context *context; /* of all memory here */
    pthread_mutex_t lock;  /* held while something is looked for or packed: so it is packed once */
    int tapes;             /* that have begun */
    bool takes;            /* what is packed gives its own memory back */
    entry *list;
    int64_t n, room;
};

static attn__packed_weights *make(attn_context *context)
{
    attn__packed_weights *all = attn__alloc_zero(context, sizeof *all);
    if (!all)
        return NULL;
    if (pthread_mutex_init(&all->lock, NULL) != 0) {
        attn__fail(context, ATTN_ERROR_MEMORY, "out of memory: no lock for the packed weights");
        attn__free(context, all);
        return NULL;
    }
    all->context = context;
    return all;
}

static void join(attn_tape *tape, attn__packed_weights *all)
{
    pthread_mutex_lock(&all->lock);
    all->tapes++;
    pthread_mutex_unlock(&all->lock);
    tape->packed_weights = all;
    tape->packed_begun = 1;
}

attn_status attn__packed_weights_begin(attn_tape *tape)
{
    if (tape->packed_weights) {
        tape->packed_begun++;
        return ATTN_OK;
    }
    attn__packed_weights *all = make(tape->context);
    if (!all)
        return ATTN_ERROR_MEMORY;
    join(tape, all);
    return ATTN_OK;
}

void attn__packed_weights_share(attn_tape *tape, attn_tape *owner)
{
    join(tape, owner->packed_weights);
}

void attn__packed_weights_take(attn_tape *tape, bool takes)
{
    tape->packed_weights->takes = takes;
}

static void destroy(attn__packed_weights *all)
{
    for (int64_t i = 0; i < all->n; i++) {
        attn__gemm_unpack(all->list[i].packed);
        attn__free(all->context, all->list[i].packed);
    }
    pthread_mutex_destroy(&all->lock);
    attn__free(all->context, all->list);
    attn__free(all->context, all);
}

void attn__packed_weights_end(attn_tape *tape)
{
    attn__packed_weights *all = tape->packed_weights;
    if (!all || --tape->packed_begun > 0)
        return;
    tape->packed_weights = NULL;
    pthread_mutex_lock(&all->lock);
    bool last = --all->tapes == 0;
    pthread_mutex_unlock(&all->lock);
    if (last)
        destroy(all);
}

static bool make_room(attn__packed_weights *all)
{
    if (all->n < all->room)
        return true;
    int64_t room = all->room ? 2 * all->room : 32;
    entry *list = attn__realloc(all->context, all->list, attn__size_mul((size_t)room, sizeof *list));
    if (!list)
        return false;
    all->list = list;
    all->room = room;
    return true;
}

static const attn__packed *look(const attn__packed_weights *all, const attn_tensor *w, attn_precision precision)
{
    for (int64_t i = 0; i < all->n; i++) {
        const entry *e = &all->list[i];
        if (e->weights == w->data && e->dtype == w->dtype && e->precision == precision && e->n == w->shape[0] &&
            e->k == w->shape[1])
            return e->packed;
    }
    return NULL;
}

/* Whether the tensor alone has its memory, and rows that others look up can be read from panels. */
static bool may_take(const attn_tape *tape, const attn_tensor *w)
{
    bool alone = w->storage && !w->tape && !w->grad && !w->low_rank && atomic_load(&w->storage->refs) == 1;
    return alone && (!w->table || (w->dtype == ATTN_F32 && !attn__rounds(tape)) || w->dtype == ATTN_F64);
}

static void take(attn_tensor *w, const attn__packed *packed)
{
    attn__system_drop_pages(w->data, attn__tensor_bytes(w)); /* the allocator may keep what is freed */
    attn__storage_unref(w->storage);
    w->storage = NULL;
    w->data = NULL;
    w->packed = packed;
}

/* NULL without memory.  A tape without a pool takes it from the context: what is packed may outlive the tape that asks,
 * and a pool serves one thread. */
static const attn__packed *pack(attn__packed_weights *all, attn_tensor *w, attn_precision precision)
{
    attn_tape tape = {.context = all->context, .precision = precision};
    attn__packed *fresh = make_room(all) ? attn__alloc_zero(all->context, sizeof *fresh) : NULL;
    if (!fresh)
        return NULL;
    int64_t n = w->shape[0], k = w->shape[1];
    attn_status status = all->takes && may_take(&tape, w)
                             ? attn__gemm_pack_over(&tape, w->dtype, w->data, k, n, k, fresh)
                             : ATTN_ERROR_UNSUPPORTED;
    if (status == ATTN_OK)
        take(w, fresh);
    if (status == ATTN_ERROR_UNSUPPORTED)
        status = attn__gemm_pack(&tape, w->dtype, w->data, k, n, k, fresh);
    if (status != ATTN_OK) {
        attn__free(all->context, fresh);
        return NULL;
    }
    all->list[all->n++] = (entry){.weights = w->data, /* NULL: taken, and found by the tensor */
                                  .dtype = w->dtype,
                                  .precision = precision,
                                  .packed = fresh,
                                  .n = n,
                                  .k = k};
    return fresh;
}

/* A product of more rows takes so much longer than packing that keeping is not worth the memory. */
enum { MOST_ROWS = 1024 };

static bool find_taken(attn_tape *tape, const attn_tensor *w, const attn__packed **packed)
{
    *packed = w->packed;
    if (!tape->options.record && attn__gemm_packed_fits(tape, w->dtype, w->packed))
        return true;
    attn__fail(tape->context, ATTN_ERROR_ARGUMENT,
               "linear: the weights [%lld,%lld] are packed for translating in one precision, and have no other form",
               (long long)w->shape[0], (long long)w->shape[1]);
    return false;
}

bool attn__packed_weights_find(attn_tape *tape, attn_tensor *w, int64_t rows, const attn__packed **packed)
{
    attn__packed_weights *all = tape->packed_weights;
    if (w->packed)
        return find_taken(tape, w, packed);
    *packed = NULL;
    /* What an operation made may lie where another one's result lay before. */
    bool is_made = !w->storage || w->storage->pool;
    if (!all || tape->options.record || rows > MOST_ROWS || is_made)
        return true;
    pthread_mutex_lock(&all->lock);
    *packed = look(all, w, tape->precision);
    if (!*packed)
        *packed = pack(all, w, tape->precision);
    pthread_mutex_unlock(&all->lock);
    if (!*packed)
        attn__fail(tape->context, ATTN_ERROR_MEMORY, "out of memory: %lld x %lld weights to be packed",
                   (long long)w->shape[0], (long long)w->shape[1]);
    return *packed != NULL;
}

void attn__packed_weights_forget(attn_tape *tape, const attn_tensor *w)
{
    attn__packed_weights *all = tape->packed_weights;
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    for (int64_t i = 0; i < all->n;) {
        if (all->list[i].weights != w->data) {
            i++;
            continue;
        }
        attn__gemm_unpack(all->list[i].packed);
        attn__free(all->context, all->list[i].packed);
        all->list[i] = all->list[--all->n];
    }
    pthread_mutex_unlock(&all->lock);
}
