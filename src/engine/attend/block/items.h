/* SPDX-License-Identifier: MIT
 *
 * items.h - divides a forward pass into items that threads share.  An item is one batch index and one block of queries.
 * For packed sequences an item has the problem of its sequence, and blocks past the sequence's end are empty. An item
 * also names the item that its thread will probably run next, so that the thread can prefetch its rows.
 */
#ifndef ATTN_ATTEND_ITEMS_H
#define ATTN_ATTEND_ITEMS_H

#include "attend/problem/canonical.h"

/* A packed sequence as a separate problem, which any solver can run. Its lengths and array addresses differ from the
 * whole problem's. A plan that was made for the longest sequence is valid for every sequence. */
typedef struct attn__sequence {
    attn__canonical canonical; /* the problem with this sequence's lengths and shifted bands */
    attn__execution arrays;    /* the arrays from the sequence's first token on */
} attn__sequence;

static inline bool attn__is_packed(const attn__canonical *canonical)
{
    return canonical->extras & ATTN__PACKED;
}

/* Returns the sequence of a linear index over the BATCH axes. */
int64_t attn__packed_sequence(const attn__canonical *canonical, int64_t batch);
void attn__sequence_at(attn__sequence *one, const attn__canonical *canonical, const attn__execution *arrays,
                       int64_t sequence);

/* If sequences are packed, sets *canonical and *arrays to the problem and arrays of the sequence of index `batch`. */
static inline void attn__sequence_enter(attn__sequence *one, const attn__canonical **canonical,
                                        const attn__execution **arrays, int64_t batch)
{
    if (!attn__is_packed(*canonical))
        return;
    attn__sequence_at(one, *canonical, *arrays, attn__packed_sequence(*canonical, batch));
    *canonical = &one->canonical;
    *arrays = &one->arrays;
}

/* ------------------------------------------------------------------------------------------------- items */

typedef struct attn__items {
    const attn__canonical *canonical;
    const attn__execution *arrays;
    int64_t block; /* maximum number of queries of an item */
    int64_t blocks;
    int64_t n;
} attn__items;

attn__items attn__items_make(const attn__canonical *canonical, const attn__execution *arrays, int64_t block);

typedef struct attn__item {
    const attn__canonical *canonical; /* the problem; if sequences are packed, that of the item's sequence */
    const attn__execution *arrays;
    int64_t batch, first, count;    /* queries [first, first + count) */
    int64_t next_batch, next_first; /* the next item; next_batch is negative if there is none */
    attn__sequence one;
} attn__item;

/* Sets up item `number` of items->n. Returns false if the item is empty. The last block of queries is item 0, because
 * it has the most keys under a causal mask and should start first. */
bool attn__item_start(attn__item *item, const attn__items *items, int64_t number);

#endif
