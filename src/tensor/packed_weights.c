/* SPDX-License-Identifier: MIT
 * A list of weights that were packed; a decoder has some dozens. */
#include "tensor/packed_weights.h"

#include "base/context.h"
#include "tensor/linear_int8.h"

typedef struct entry {
    const void *weights;
    attn_dtype dtype;
    bool rounded;         /* to bf16 while packing */
    attn__packed *packed; /* in memory of its own: others hold the address while the list grows */
    float *scales; /* of int8 in place of packed: one for each of n rows, and the rows of k integers behind them */
    int64_t n, k;
} entry;

struct attn__packed_weights {
    entry *list;
    int64_t n, room;
};

attn_status attn__packed_weights_begin(attn_tape *tape)
{
    attn__packed_weights_end(tape);
    tape->packed_weights = attn__alloc_zero(tape->context, sizeof *tape->packed_weights);
    return tape->packed_weights ? ATTN_OK : ATTN_MEMORY;
}

void attn__packed_weights_end(attn_tape *tape)
{
    attn__packed_weights *all = tape->packed_weights;
    for (int64_t i = 0; all && i < all->n; i++) {
        if (all->list[i].packed)
            attn__gemm_unpack(all->list[i].packed);
        attn__free(tape->context, all->list[i].packed);
        attn__free(tape->context, all->list[i].scales);
    }
    if (all)
        attn__free(tape->context, all->list);
    attn__free(tape->context, all);
    tape->packed_weights = NULL;
}

static bool make_room(attn_tape *tape, attn__packed_weights *all)
{
    if (all->n < all->room)
        return true;
    int64_t room = all->room ? 2 * all->room : 32;
    entry *list = attn__realloc(tape->context, all->list, attn__size_mul((size_t)room, sizeof *list));
    if (!list)
        return false;
    all->list = list;
    all->room = room;
    return true;
}

bool attn__packed_weights_find(attn_tape *tape, const attn_tensor *w, const attn__packed **packed)
{
    attn__packed_weights *all = tape->packed_weights;
    *packed = NULL;
    if (!all || tape->options.record || tape->precision == ATTN_PRECISION_INT8)
        return true;
    for (int64_t i = 0; i < all->n; i++) {
        const entry *e = &all->list[i];
        if (e->packed && e->weights == w->data && e->dtype == w->dtype && e->rounded == attn__rounds(tape) &&
            e->n == w->shape[0] && e->k == w->shape[1]) {
            *packed = e->packed;
            return true;
        }
    }
    attn__packed *fresh = make_room(tape, all) ? attn__alloc_zero(tape->context, sizeof *fresh) : NULL;
    if (!fresh)
        return false;
    if (attn__gemm_pack(tape, w->dtype, w->data, w->shape[1], w->shape[0], w->shape[1], fresh) != ATTN_OK) {
        attn__free(tape->context, fresh);
        return false;
    }
    all->list[all->n++] = (entry){.weights = w->data,
                                  .dtype = w->dtype,
                                  .rounded = attn__rounds(tape),
                                  .packed = fresh,
                                  .n = w->shape[0],
                                  .k = w->shape[1]};
    *packed = fresh;
    return true;
}

bool attn__quantized_weights_find(attn_tape *tape, const attn__gemm_args *g, const int8_t **q, const float **scales)
{
    attn__packed_weights *all = tape->packed_weights;
    *q = NULL;
    if (!all || tape->options.record || g->ldb != g->k)
        return true;
    const entry *e = all->list, *end = all->list + all->n;
    while (e < end && !(e->scales && e->weights == g->b && e->n == g->n && e->k == g->k))
        e++;
    if (e == end) {
        size_t bytes = attn__size_add((size_t)g->n * sizeof(float), attn__size_mul((size_t)g->n, (size_t)g->k));
        float *fresh = make_room(tape, all) ? attn__alloc(tape->context, bytes) : NULL;
        if (!fresh)
            return false;
        attn__quantize_rows(tape->context->threads, g->n, g->k, g->b, g->ldb, (int8_t *)(fresh + g->n), fresh);
        all->list[all->n] = (entry){.weights = g->b, .dtype = ATTN_F32, .scales = fresh, .n = g->n, .k = g->k};
        e = &all->list[all->n++];
    }
    *scales = e->scales;
    *q = (const int8_t *)(e->scales + g->n);
    return true;
}
