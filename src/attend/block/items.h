/* SPDX-License-Identifier: MIT
 *
 * items.h - the work of a forward pass, cut into items that threads share: a batch index and a block of queries each.
 * An item of packed sequences has its sequence's problem, and blocks past its end are empty.  The item that follows is
 * named, since its thread mostly runs it next and may fetch its rows.
 */
#ifndef ATTN_ATTEND_ITEMS_H
#define ATTN_ATTEND_ITEMS_H

#include "attend/problem/canonical.h"

/* One packed sequence as a problem of its own, which any solver can run. Only lengths and array addresses change. A
 * plan made for the longest lengths stays valid. */
typedef struct attn__sequence {
    attn__canonical canonical; /* with the lengths of this sequence, and bands that its ends align */
    attn_arrays arrays;        /* the arrays, from the first token of the sequence on */
} attn__sequence;

static inline bool attn__is_packed(const attn__canonical *canonical)
{
    return canonical->extras & ATTN__PACKED;
}

/* The sequence that a linear index over the BATCH axes belongs to. */
int64_t attn__packed_sequence(const attn__canonical *canonical, int64_t batch);
void attn__sequence_at(attn__sequence *one, const attn__canonical *canonical, const attn_arrays *arrays,
                       int64_t sequence);

/* If sequences are packed, replaces the problem and the arrays by those of one batch index's sequence. */
static inline void attn__sequence_enter(attn__sequence *one, const attn__canonical **canonical,
                                        const attn_arrays **arrays, int64_t batch)
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
    const attn_arrays *arrays;
    int64_t block;  /* the most queries of an item */
    int64_t blocks; /* number of blocks of a batch index */
    int64_t n;
} attn__items;

attn__items attn__items_make(const attn__canonical *canonical, const attn_arrays *arrays, int64_t block);

typedef struct attn__item {
    const attn__canonical *canonical; /* the problem; of packed sequences, that of the item's sequence */
    const attn_arrays *arrays;
    int64_t batch, first, count;    /* queries [first, first + count) */
    int64_t next_batch, next_first; /* of the next item; next_batch < 0: none, or another sequence */
    attn__sequence one;
} attn__item;

/* Item `number` of items->n. The last block of queries is first, because it has the most keys under a causal mask.
 * False: the item is empty. */
bool attn__item_start(attn__item *item, const attn__items *items, int64_t number);

#endif
