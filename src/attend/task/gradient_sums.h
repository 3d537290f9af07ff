/* SPDX-License-Identifier: MIT
 *
 * gradient_sums.h - a float64 accumulator for each element of each gradient wanted, addressed by the same
 * offsets as the gradient itself.  What is broadcast or read several times adds up there; storing rounds once.
 */
#ifndef ATTN_ATTEND_GRADIENT_SUMS_H
#define ATTN_ATTEND_GRADIENT_SUMS_H

#include "attend/task/element.h"

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
    double *at[ATTN__SUMS]; /* of offset 0; NULL where the gradient is not wanted */
} attn__sums;

/* Bytes, SIZE_MAX if too many. */
size_t attn__sums_size(const attn__task *task);
/* Lays the sums out in `memory`, all zero. */
void attn__sums_start(attn__sums *sums, const attn__task *task, void *memory);
/* The same for memory that holds sums already. */
void attn__sums_address(attn__sums *sums, const attn__task *task, void *memory);
/* Rounds the sums to the gradients, or adds them where problem.accumulate. */
void attn__sums_store(const attn__sums *sums, const attn__task *task, const attn_arrays *arrays);

/* True if different indices of the batch axis reach different elements of every gradient wanted. */
bool attn__sums_apart(const attn__task *task, int batch_axis);

#endif
