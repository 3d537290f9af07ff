/* SPDX-License-Identifier: MIT
 *
 * attend_exact.h - attention in long double, computed pair by pair from the formulas of attn.h. It shares no code with
 * the library or with attend_ref.c. It computes outputs for f32 and f64 with windows, bands, lengths, masks, blocks,
 * tables, packed sequences, sinks and fills. It does not support dropout or requested weights. It does not support the
 * cases that attn.h leaves open: a fill where a window's taps are outside, or a fill with another normalization than
 * the softmax.
 */
#ifndef ATTN_TESTS_ATTEND_EXACT_H
#define ATTN_TESTS_ATTEND_EXACT_H

#include "attn/attn.h"

/* The outputs have the same layout as the problem's arrays of the same names. With the softmax, `lse` has the
 * log-sum-exp; with another normalization it has 0 or -infinity, as attn.h documents. If `sees` is not NULL, it marks
 * the keys that each row attends to. Element `positions` * r + j becomes 1 if the row attends to position j of the last
 * KEY dim, where r is the offset of the row's log-sum-exp. */
typedef struct attend_exact_arrays {
    long double *o, *lse;
    uint8_t *sees;
    int64_t positions;
} attend_exact_arrays;

void attend_exact(const attn_problem *problem, const attn_arrays *arrays, const attend_exact_arrays *out);

#endif
