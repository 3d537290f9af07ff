/* SPDX-License-Identifier: MIT
 *
 * gradient_sums.h - a float64 accumulator for each element of each requested gradient, addressed by the offsets of the
 * gradient.  All terms of an element are summed there, and storing rounds once.
 */
#ifndef ATTN_ATTEND_GRADIENT_SUMS_H
#define ATTN_ATTEND_GRADIENT_SUMS_H

#include "attend/block/rows.h"
#include "attend/problem/extent.h"

/* dq dk dv dbias dw dw2, then the tables. */
enum {
    ATTN__SUM_Q,
    ATTN__SUM_K,
    ATTN__SUM_V,
    ATTN__SUM_BIAS,
    ATTN__SUM_W,
    ATTN__SUM_W2,
    ATTN__SUM_TABLE,
    ATTN__SUMS = ATTN__SUM_TABLE + ATTN_MAX_RELATIVE
};

typedef struct attn__sums {
    double *at[ATTN__SUMS]; /* of offset 0; NULL: the gradient is not requested */
} attn__sums;

/* Bytes, SIZE_MAX if too many. */
size_t attn__sums_size(const attn__canonical *canonical);
/* Lays the sums out in `memory`, all zero. */
void attn__sums_start(attn__sums *sums, const attn__canonical *canonical, void *memory);
/* The same for memory that holds sums already. */
void attn__sums_address(attn__sums *sums, const attn__canonical *canonical, void *memory);
/* Rounds the sums to the gradients, or adds them where problem.accumulate. */
void attn__sums_store(const attn__sums *sums, const attn__canonical *canonical, const attn_arrays *arrays);

/* The same for the sums of any extent; sums[e] is those of the element of offset e. */
void attn__sums_store_extent(const double *sums, const attn__extent *e, attn_dtype dtype, void *to, bool add);

/* Splits the BATCH indices into `items` sets of `rest` each: two sets share no element of a wanted gradient. */
typedef struct attn__batch_split {
    bool apart[ATTN_MAX_DIMS];
    int64_t items, rest;
} attn__batch_split;
attn__batch_split attn__batch_split_make(const attn__canonical *canonical);
/* The linear BATCH index of one of them. */
int64_t attn__batch_split_index(const attn__batch_split *split, const attn__canonical *canonical, int64_t item,
                                int64_t rest);

/* ------------------------------------------------------------------------------------------------- slots
 *
 * A backward pass over BATCH indices in parallel, whose sums do not depend on the number of threads.  An item is a set
 * of BATCH indices that share gradients of q, k, v or the bias; one thread runs it.  A slot is a fixed run of items with
 * sums of its own, in double, of the gradients that all items share: those of tables and of learned vectors.  The number
 * of slots does not depend on the threads, and their sums are added in order. */

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

/* Whether an element of dq, dk or dv may have several batch indices, rows or channels to come from. */
bool attn__sums_meet(const attn__canonical *canonical);

#endif
