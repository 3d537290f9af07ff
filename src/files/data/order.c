/* SPDX-License-Identifier: MIT */
#include "data/order.h"

#include <stdlib.h>

static int by_key(const void *a, const void *b)
{
    const attn__keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

void attn__order_by_key(int64_t *indices, int64_t n, int64_t (*key)(const void *user, int64_t index), const void *user,
                        attn__keyed *scratch)
{
    for (int64_t i = 0; i < n; i++)
        scratch[i] = (attn__keyed){key(user, indices[i]), i, indices[i]};
    qsort(scratch, (size_t)n, sizeof *scratch, by_key);
    for (int64_t i = 0; i < n; i++)
        indices[i] = scratch[i].index;
}
