/* SPDX-License-Identifier: MIT
 *
 * gradient_sums.h - a float64 accumulator for each element of each requested gradient, addressed by the offsets of the
 * gradient.  All terms of an element are summed there, and storing rounds once.
 */
#ifndef ATTN_ATTEND_GRADIENT_SUMS_H
#define ATTN_ATTEND_GRADIENT_SUMS_H

#include "attend/block/rows.h"
#include "attend/problem/arrays.h"

/* Indices of the sums: the gradients dq, dk, dv, dbias, dw, dw2, and then the gradients of the tables. */
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
    double *at[ATTN__SUMS]; /* address of the sum at offset 0; NULL: the gradient is not requested */
} attn__sums;

/* Returns the bytes of the sums of the requested gradients among `wanted`, or SIZE_MAX if the number overflows. */
size_t attn__sums_size(const attn__canonical *canonical, unsigned wanted);
/* Places the sums of the requested gradients among `wanted` in `memory`. The contents of `memory` do not change. */
void attn__sums_start(attn__sums *sums, const attn__canonical *canonical, unsigned wanted, void *memory);
/* Rounds the sums and stores them as gradients. With problem.accumulate it adds them to the gradients instead. */
void attn__sums_store(const attn__sums *sums, const attn__canonical *canonical, const attn_arrays *arrays);

enum {
    ATTN__WANT_ROWS = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV,
    ATTN__WANT_OWN = ATTN__WANT_ROWS | ATTN_WANT_DBIAS
};
/* Sets to zero the elements of the requested gradients that a batch index writes. `fixed` marks BATCH axes along which
 * only that index is cleared. Along other axes all indices are cleared. NULL: all elements are cleared. */
void attn__gradients_clear(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch,
                           unsigned gradients, const bool *fixed);

/* Splits the BATCH indices into `items` sets of `rest` each. Two sets share no element of a gradient in `wanted`. */
typedef struct attn__batch_split {
    bool apart[ATTN_MAX_DIMS];
    int64_t items, rest;
} attn__batch_split;
attn__batch_split attn__batch_split_make(const attn__canonical *canonical, unsigned wanted);
/* Returns the linear BATCH index of element `rest` of set `item`. */
int64_t attn__batch_split_index(const attn__batch_split *split, const attn__canonical *canonical, int64_t item,
                                int64_t rest);

/* ------------------------------------------------------------------------------------------------- slots
 *
 * A backward pass runs items in parallel. Its sums do not depend on the number of threads.  An item is a set of BATCH
 * indices that share gradients of q, k, v or the bias, and one thread runs it.  A slot is a fixed run of items. It sums
 * the gradients that all items share (of tables and of learned vectors) in double, separately from other slots.  The
 * number of slots does not depend on the threads, and the sums of the slots are added in order. */

typedef struct attn__slots {
    const attn__canonical *canonical;
    unsigned wanted; /* flags of the gradients that all items share */
    attn__batch_split split;
    int64_t n;
    size_t size, bytes; /* bytes of the sums of one slot; bytes of the sums of all slots */
    char *memory;
} attn__slots;

/* Divides the items into slots. `memory` may be NULL if the caller only needs `bytes`. */
attn__slots attn__slots_make(const attn__canonical *canonical, void *memory);
/* Clears the sums of a slot and returns its items [first, end). */
void attn__slots_start(const attn__slots *slots, int64_t slot, attn__sums *sums, int64_t *first, int64_t *end);
/* Adds the slots' sums and stores the shared gradients. */
void attn__slots_store(const attn__slots *slots, const attn_arrays *arrays);

/* Returns which of the requested gradients dq, dk, dv and dbias are broadcast, as ATTN_WANT_ bits. In a broadcast
 * gradient several batch indices, rows or channels share an element. */
unsigned attn__sums_broadcast(const attn__canonical *canonical);

#endif
