/* SPDX-License-Identifier: MIT
 *
 * attend_exact.h - attention in long double, computed pair by pair from the formulas of attn.h. It shares no code with
 * the library or with attend_ref.c. It computes outputs for f32 and f64 with windows, bands, lengths, masks, blocks,
 * tables, packed sequences, sinks and fills. It does not support dropout or requested weights. It also does not support
 * two cases that attn.h does not specify: a fill if taps of a window are outside of the axis, and a fill with another
 * normalization than softmax.
 */
#ifndef ATTN_TESTS_ATTEND_EXACT_H
#define ATTN_TESTS_ATTEND_EXACT_H

#include "attn/attn.h"

/* The outputs have the layouts of the problem's arrays of the same names. `lse` has the log-sum-exp with softmax,
 * and 0 or -infinity otherwise, as attn.h specifies. `sees` may be NULL. Otherwise its element `positions` * r + j
 * becomes 1 if a row attends to position j of the last KEY dim, where r is the offset of the row's log-sum-exp. */
typedef struct attend_exact_arrays {
    long double *o, *lse;
    uint8_t *sees;
    int64_t positions;
} attend_exact_arrays;

void attend_exact(const attn_problem *problem, const attn_arrays *arrays, const attend_exact_arrays *out);

#endif
