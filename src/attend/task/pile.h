/* SPDX-License-Identifier: MIT
 * pile.h - an arena: takes arrays from one block of memory; without a block it only counts their bytes. */
#ifndef ATTN_ATTEND_PILE_H
#define ATTN_ATTEND_PILE_H

#include <stddef.h>
#include <stdint.h>

typedef struct attn__pile {
    char *base; /* NULL: only count */
    size_t used;
} attn__pile;

/* `count` elements at the next multiple of 64 bytes. */
static inline void *attn__pile_take(attn__pile *pile, int64_t count, size_t size)
{
    void *at = pile->base ? pile->base + pile->used : NULL;
    pile->used += ((size_t)count * size + 63) / 64 * 64;
    return at;
}

#endif
