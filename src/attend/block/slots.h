/* SPDX-License-Identifier: MIT
 *
 * slots.h - a backward pass over BATCH indices in parallel, whose sums do not depend on the number of threads.
 *
 * An item is a set of BATCH indices that share gradients of q, k, v or the bias; one thread runs it.  A slot is a fixed
 * run of items with sums of its own, in double, of the gradients that all items share: those of tables and of learned
 * vectors.  The number of slots does not depend on the threads, and their sums are added in order.
 */
#ifndef ATTN_ATTEND_SLOTS_H
#define ATTN_ATTEND_SLOTS_H

#include "attend/block/gradient_sums.h"

typedef struct attn__slots {
    const attn__canonical *canonical;
    attn__canonical shared; /* a copy that wants only the gradients of tables and learned vectors */
    attn__batch_split split;
    int64_t n;
    size_t size; /* bytes of a slot's sums */
    char *memory;
    attn__extent item[4]; /* what dq, dk, dv and dbias have of the first item */
} attn__slots;

/* Bytes of the sums. */
size_t attn__slots_size(const attn__canonical *canonical);
void attn__slots_make(attn__slots *slots, const attn__canonical *canonical, void *memory);
/* The slot's sums, all zero, and its items [first, end). */
void attn__slots_start(const attn__slots *slots, int64_t slot, attn__sums *sums, int64_t *first, int64_t *end);
enum { ATTN__WANT_OWN = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS };
/* Zeroes the elements of these gradients, where they are wanted, that belong to an item. */
void attn__slots_clear(const attn__slots *slots, const attn_arrays *arrays, unsigned gradients, int64_t item);
/* Writes the shared gradients. */
void attn__slots_store(const attn__slots *slots, const attn_arrays *arrays);

#endif
