/* SPDX-License-Identifier: MIT
 *
 * attend_ref.h - a plain float64 evaluation of attn.h's formulas: the forward pass, every gradient, and for each number
 * a bound on the error that rounding may cause. It shares no code with the engine, except the generator of dropout's
 * bits, which the interface specifies.
 *
 * Bounds: two unit errors describe a solver's precision.
 *   weight  relative error of a weight or of a sum of products, counted on the sum of absolute values;
 *   score   relative error of a score, counted on the sum of absolute values of its terms.
 * Everything else is first-order error propagation through the formulas: a score wrong by d changes a softmax
 * weight p_j by p_j (d_j + sum_i p_i d_i), and so on; see attend_ref.c at each step.
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

/* Arrays of doubles with the same offsets as the problem's arrays. An array that is not requested is NULL. */
typedef struct attend_ref_arrays {
    double *o, *lse, *weights;
    double *dq, *dk, *dv, *dbias, *dw, *dw2, *dsinks, *dtable[ATTN_MAX_RELATIVE];
} attend_ref_arrays;

/* Evaluates the problem. Gradients are evaluated if value->dq or any other gradient is not NULL. `bound` has the same
 * arrays as `value`. Elements that the problem does not write do not change in `value` and `bound`. */
void attend_ref_run(const attn_problem *problem, const attn_arrays *arrays, const attend_ref_arrays *value,
                    const attend_ref_arrays *bound, attend_ref_units units);

/* Marks the elements of k and v that some query attends to. For each such element, it writes 1 to the byte at the
 * same offset of the arrays `k` and `v`. */
void attend_ref_mark_used(const attn_problem *problem, const attn_arrays *arrays, unsigned char *k, unsigned char *v);

#endif
