/* SPDX-License-Identifier: MIT
 *
 * attend_ref.h - a plain float64 evaluation of attn.h's formulas: the forward pass, every gradient, and for each number
 * a bound on the error that rounding may cause. It shares no code with the engine, except the generator of dropout's
 * bits, which the interface specifies.
 *
 * The bounds follow from two unit errors, which describe a solver's precision.
 *   weight  relative error of a weight or of a sum of products, counted on the sum of absolute values;
 *   score   relative error of a score, counted on the sum of absolute values of its terms.
 * All other bounds follow by first-order error propagation. For example, errors d_i of the scores change the softmax
 * weight p_j by up to p_j (d_j + sum_i p_i d_i).
 */
#ifndef ATTN_TESTS_ATTEND_REF_H
#define ATTN_TESTS_ATTEND_REF_H

#include "attn/attn.h"

typedef struct attend_ref_units {
    double weight, score;
} attend_ref_units;

/* Returns the error units of a storage type. For f32, they are 2e-6 for weights and 8 roundings for scores. For
 * bf16, weights and outputs have 8 bits, and scores have the unit of f32. For f64, both units are smaller by 2^-29. */
attend_ref_units attend_ref_units_of(attn_dtype dtype);

/* Arrays of doubles with the same offsets as the problem's arrays; NULL for arrays that are not requested. */
typedef struct attend_ref_arrays {
    double *o, *lse, *weights;
    double *dq, *dk, *dv, *dbias, *dw, *dw2, *dsinks, *dtable[ATTN_MAX_RELATIVE];
} attend_ref_arrays;

/* Evaluates the problem, with gradients if a gradient such as value->dq is not NULL. `bound` has the same arrays as
 * `value`. Elements that the problem does not write do not change. */
void attend_ref_run(const attn_problem *problem, const attn_arrays *arrays, const attend_ref_arrays *value,
                    const attend_ref_arrays *bound, attend_ref_units units);

/* Marks the elements of k and v that some query attends to. For such an element, the byte at the same offset of the
 * array `k` or `v` becomes 1. */
void attend_ref_mark_used(const attn_problem *problem, const attn_arrays *arrays, unsigned char *k, unsigned char *v);

#endif
