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
    int begun; /* ... more often than ended */
};

attn_status attn__packed_weights_begin(attn_tape *tape)
{
    if (!tape->packed_weights)
        tape->packed_weights = attn__alloc_zero(tape->context, sizeof *tape->packed_weights);
    if (!tape->packed_weights)
        return ATTN_MEMORY;
    tape->packed_weights->begun++;
    return ATTN_OK;
}

void attn__packed_weights_end(attn_tape *tape)
{
    attn__packed_weights *all = tape->packed_weights;
    if (!all || --all->begun > 0)
        return;
    for (int64_t i = 0; i < all->n; i++) {
        attn__gemm_unpack(all->list[i].packed);
        attn__free(tape->context, all->list[i].packed);
    }
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

/* A product of more rows takes so much longer than packing that keeping is not worth the memory. */
enum { MOST_ROWS = 1024 };

bool attn__packed_weights_find(attn_tape *tape, const attn_tensor *w, int64_t rows, const attn__packed **packed)
{
    attn__packed_weights *all = tape->packed_weights;
    *packed = NULL;
    /* What an operation made may lie where another one's result lay before. */
    bool is_made = !w->storage || w->storage->pool;
    if (!all || tape->options.record || rows > MOST_ROWS || is_made)
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
