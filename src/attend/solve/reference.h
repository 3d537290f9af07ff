/* SPDX-License-Identifier: MIT
 *
 * reference.h - the two directions of the reference solver.
 */
#ifndef ATTN_ATTEND_REFERENCE_H
#define ATTN_ATTEND_REFERENCE_H

#include "attend/block/pair.h"
#include "attend/plan/solver.h"

/* The logarithm of a row's normalizer as the unrounded sum of two numbers: subtracting them from a score in turn keeps
 * digits that their rounded sum would lose (a fill of -1e6 in f32).  `max` is -inf if the row has no keys. */
typedef struct attn__normalizer {
    double max, log_sum;
} attn__normalizer;

/* From the log-sum-exp array where one number is good enough, else from the scores again. */
attn__normalizer attn__row_normalizer(attn__pair *pair, const attn__row *row);
/* The normalized weight of a key that scores `score`. */
double attn__row_weight(const attn__row *row, const attn__normalizer *normalizer, double score);

void attn__reference_forward(const attn__canonical *canonical, const attn_arrays *arrays, void *workspace);

/* Backward sums in float64, one accumulator for each element of a gradient. */
size_t attn__reference_backward_size(const attn__canonical *canonical);
void attn__reference_backward(const attn__canonical *canonical, const attn_arrays *arrays, void *workspace);

#endif
