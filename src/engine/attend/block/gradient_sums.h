/* SPDX-License-Identifier: MIT
 *
 * gradient_sums.h - a float64 accumulator for each element of each requested gradient, at the same offset as in the
 * gradient.  All terms of an element are summed in float64. The sum is rounded once, when it is stored.
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
    double *at[ATTN__SUMS]; /* address of the sum at offset 0; NULL if the gradient is not requested */
} attn__sums;

/* Returns the bytes of the sums of the gradients in `gradients` (ATTN_WANT_*) that the problem requests, or SIZE_MAX on
 * overflow. */
size_t attn__sums_size(const attn__canonical *canonical, unsigned gradients);
/* Places the sums of the gradients in `memory`. The contents of `memory` do not change. */
void attn__sums_start(attn__sums *sums, const attn__canonical *canonical, unsigned gradients, void *memory);
/* Rounds the sums and stores them as gradients. With problem.accumulate it adds them to the gradients instead. */
void attn__sums_store(const attn__sums *sums, const attn__canonical *canonical, const attn__execution *arrays);

enum {
    ATTN__WANT_ROWS = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV,
    ATTN__WANT_OWN = ATTN__WANT_ROWS | ATTN_WANT_DBIAS
};
/* Clears elements of the requested gradients. If `fixed` is NULL, clears all elements. Otherwise, clears the elements
 * at index `batch` of the BATCH axes that `fixed` marks. */
void attn__gradients_clear(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch,
                           unsigned gradients, const bool *fixed);

/* A division of the BATCH indices into `items` sets of `rest` indices. Two sets never write the same gradient
 * element. */
typedef struct attn__batch_split {
    bool apart[ATTN_MAX_DIMS];
    int64_t items, rest;
} attn__batch_split;
attn__batch_split attn__batch_split_make(const attn__canonical *canonical, unsigned gradients);
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
    unsigned gradients; /* ATTN_WANT_ bits of the gradients to which all items add */
    attn__batch_split split;
    int64_t n;
    size_t size, bytes; /* bytes of the sums of one slot (size) and of all slots (bytes) */
    char *memory;
} attn__slots;

/* Divides the items into slots. `memory` may be NULL if the caller only reads the sizes in the result. */
attn__slots attn__slots_make(const attn__canonical *canonical, void *memory);
/* Clears the sums of a slot and returns its items [first, end). */
void attn__slots_start(const attn__slots *slots, int64_t slot, attn__sums *sums, int64_t *first, int64_t *end);
/* Adds up the sums of all slots and stores the gradients that all items share. */
void attn__slots_store(const attn__slots *slots, const attn__execution *arrays);

/* Returns the ATTN_WANT_ bits of the requested gradients dq, dk, dv and dbias in which several batch indices, rows or
 * channels share an element (broadcasting). */
unsigned attn__sums_broadcast(const attn__canonical *canonical);

/* Reports whether several indices of a group share an element. Packed sequences have stride 0, but share no element. */
static inline bool attn__group_repeats(const attn__canonical *canonical, const attn__group *group, attn__operand op)
{
    for (int i = 0; i < group->n; i++) {
        bool moves = attn__stride(&group->axis[i].dim, op) != 0 || (group->axis[i].packed && op != ATTN__OP_DBIAS);
        if (!moves && attn__operand_length(&canonical->problem, &group->axis[i].dim, i, op) > 1)
            return true;
    }
    return false;
}

/* Returns the gradients (ATTN_WANT_...) in which several batch indices or pairs share an element. */
static inline unsigned attn__sums_shared(const attn__canonical *canonical)
{
    static const unsigned wants[] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV, ATTN_WANT_DBIAS};
    static const attn__operand ops[] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DBIAS};
    unsigned shared = canonical->extras & ATTN__BIAS_MEETS ? ATTN_WANT_DBIAS : 0u;
    for (int i = 0; i < 4; i++) {
        const attn__group *last = i < 3 ? attn__channels_of(canonical, ops[i]) : &canonical->key;
        if (attn__group_repeats(canonical, &canonical->batch, ops[i]) || attn__group_repeats(canonical, last, ops[i]) ||
            attn__group_repeats(canonical, attn__rows_of(canonical, ops[i]), ops[i]))
            shared |= wants[i];
    }
    return shared & canonical->problem.flags;
}

/* Reports whether `batch` is the first of the BATCH indices that add to the same elements of a gradient. */
static inline bool attn__batch_comes_first(const attn__canonical *canonical, attn__operand op, int64_t batch)
{
    const attn__group *group = &canonical->batch;
    for (int a = 0; a < group->n; a++) {
        bool repeats = !group->axis[a].packed && attn__stride(&group->axis[a].dim, op) == 0;
        if (repeats && attn__offsets_index(group, a, batch) != 0)
            return false;
    }
    return true;
}

#endif
