/* SPDX-License-Identifier: MIT
 * A list of weights that were packed; a decoder has some dozens. */
#include "tensor/packed_weights.h"

#include "base/context.h"

typedef struct entry {
    const void *weights;
    attn_dtype dtype;
    attn_precision precision; /* that they were packed for */
    attn__packed *packed;     /* in memory of its own: others hold the address while the list grows */
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
        attn__gemm_unpack(all->list[i].packed);
        attn__free(tape->context, all->list[i].packed);
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
    if (!all || tape->options.record)
        return true;
    for (int64_t i = 0; i < all->n; i++) {
        const entry *e = &all->list[i];
        if (e->weights == w->data && e->dtype == w->dtype && e->precision == tape->precision && e->n == w->shape[0] &&
            e->k == w->shape[1]) {
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
                                  .precision = tape->precision,
                                  .packed = fresh,
                                  .n = w->shape[0],
                                  .k = w->shape[1]};
    *packed = fresh;
    return true;
}
