/* SPDX-License-Identifier: MIT
 *
 * order.h - sorts indices by a key, so that examples of similar size are in the same batch.
 */
#ifndef ATTN_DATA_ORDER_H
#define ATTN_DATA_ORDER_H

#include <stdint.h>

/* `place` is the position of the index before sorting. It decides the order of indices with equal keys, so that the
 * result is the same on every machine. */
typedef struct attn__keyed {
    int64_t key, place, index;
} attn__keyed;

/* Sorts n indices by their keys, smallest key first. Indices with equal keys keep their order. `key` returns the key
 * of an index. `scratch` has room for n elements. */
void attn__order_by_key(int64_t *indices, int64_t n, int64_t (*key)(const void *user, int64_t index), const void *user,
                        attn__keyed *scratch);

#endif
