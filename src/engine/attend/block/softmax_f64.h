/* SPDX-License-Identifier: MIT
 *
 * softmax_f64.h - the steps between the two products of attention for a row of pairs in double: softcap, masks, the
 * online softmax, dropout, and the backward steps. `seen` has the ATTN__VISIBLE_... kind of each pair. Weights and
 * gradients of scores have marks (-0) where a pair has no term.
 */
#ifndef ATTN_ATTEND_SOFTMAX_F64_H
#define ATTN_ATTEND_SOFTMAX_F64_H

#include "attend/block/dropout.h"
#include "attend/block/visible.h"
#include "kernels/rows_f64/rows_f64.h"

#include <math.h>
#include <string.h>

static inline void attn__f64_cap(double cap, double *s, double *slope, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double x = tanh(s[j] / cap);
        s[j] = cap * x;
        slope[j] = 1 - x * x;
    }
}

/* Sets the scores of pairs that are OUT or FILL, and returns the number of the others. A bias of -infinity also masks,
 * and makes a pair OUT. */
static inline double attn__f64_hide(double out, double fill, uint8_t *seen, double *s, int64_t n)
{
    double count = 0, by_kind[] = {[ATTN__VISIBLE_OUT] = out, [ATTN__VISIBLE_FILL] = fill, [ATTN__VISIBLE_KEY] = 0};
    for (int64_t j = 0; j < n; j++) {
        bool masks = (s[j] == -(double)INFINITY) & (seen[j] == ATTN__VISIBLE_KEY);
        seen[j] = (uint8_t)(seen[j] - masks); /* changes KEY to OUT without a branch, because kinds alternate */
        by_kind[ATTN__VISIBLE_KEY] = s[j];
        s[j] = by_kind[seen[j]];
        count += seen[j] != ATTN__VISIBLE_OUT;
    }
    return count;
}

static inline void attn__f64_limit(int64_t from, int64_t to, double *s, int64_t n)
{
    for (int64_t j = 0; j < from; j++)
        s[j] = -(double)INFINITY;
    for (int64_t j = to; j < n; j++)
        s[j] = -(double)INFINITY;
}

/* Raises *max to the largest score, and multiplies *sum and later the caller's sums by *factor. Returns false if no pair
 * has a score. */
static inline bool attn__f64_raise(const attn__rows_f64_kernel *kernel, const double *s, int64_t n, double *max,
                                   double *sum, double *factor)
{
    double most = kernel->largest(s, n);
    *factor = 1;
    if (most <= *max)
        most = *max;
    if (most == -(double)INFINITY)
        return false;
    if (most != *max) {
        *factor = *max == -(double)INFINITY ? 0 : exp(*max - most);
        *sum *= *factor;
        *max = most;
    }
    return true;
}

/* Updates the running maximum and sum, and converts scores to weights.  Returns the factor for earlier sums. */
static inline double attn__f64_softmax(const attn__rows_f64_kernel *kernel, double *s, int64_t n, double *max,
                                       double *sum)
{
    double factor;
    if (attn__f64_raise(kernel, s, n, max, sum, &factor))
        *sum += kernel->exponentials(s, n, *max);
    else
        memset(s, 0, (size_t)n * sizeof *s);
    return factor;
}

/* Applies dropout to weights or to their gradients. `row` is the row number of the query (see attn__axis.drop). */
static inline void attn__f64_drop(const attn__canonical *canonical, const attn__execution *arrays, uint64_t row,
                                  const uint32_t *column, double *x, int64_t n)
{
    uint64_t key = attn__dropout_row(canonical, arrays, row);
    uint32_t threshold = attn__dropout_threshold(canonical->problem.dropout);
    double factor = attn__dropout_factor(canonical);
    for (int64_t j = 0; j < n; j++)
        x[j] = attn__dropout_bits(key, column[j]) < threshold ? -0.0 : x[j] * factor;
}

/* Marks pairs without a term in the sums of values: pairs without a score, and masked keys whose mask_fill has the
 * weight 0, which `fades` says for all of them. Other zeros become +0. */
static inline void attn__f64_mark_weights(const uint8_t *seen, bool fades, double *p, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        bool counts = seen[j] == ATTN__VISIBLE_KEY || (seen[j] == ATTN__VISIBLE_FILL && p[j] != 0 && !fades);
        p[j] = counts ? p[j] + 0.0 : -0.0;
    }
}

/* Marks pairs whose score has no gradient. Other zeros become +0. */
static inline void attn__f64_mark_gradients(const uint8_t *seen, double *ds, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        ds[j] = seen[j] == ATTN__VISIBLE_KEY ? ds[j] + 0.0 : -0.0;
}

#endif
