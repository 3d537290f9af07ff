/* SPDX-License-Identifier: MIT
 *
 * slots.h - a backward pass over BATCH indices in parallel, whose sums do not depend on the number of threads.
 *
 * The gradients of q, k, v and the bias belong to few BATCH indices: those that share some are one item, and one thread
 * runs it.  The gradients of tables and of learned vectors belong to all.  Each slot of items sums them apart, in double,
 * and the slots' sums are added in order.
 */
#ifndef ATTN_ATTEND_SLOTS_H
#define ATTN_ATTEND_SLOTS_H

#include "attend/canonical/gradient_sums.h"

typedef struct attn__slots {
    const attn__canonical *canonical;
    attn__canonical shared; /* the same with only the gradients wanted that all indices share */
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
/* Sets what an item has of those of these gradients that are wanted to 0. */
void attn__slots_clear(const attn__slots *slots, const attn_arrays *arrays, unsigned gradients, int64_t item);
/* Writes the shared gradients. */
void attn__slots_store(const attn__slots *slots, const attn_arrays *arrays);

#endif
