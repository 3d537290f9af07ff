/* SPDX-License-Identifier: MIT
 *
 * attend_exact.h - attention in long double, one pair of query and key after another, written from the formulas of attn.h
 * alone: nothing of the library or of attend_ref.c is in it.  For outputs, f32 or f64, with windows, bands, lengths, masks,
 * blocks, tables, packed sequences, sinks and fills; not for dropout.  For weights neither, and not for what attn.h leaves
 * open: a fill where a window's taps are outside, or with another normalization than the softmax.
 */
#ifndef ATTN_TESTS_ATTEND_EXACT_H
#define ATTN_TESTS_ATTEND_EXACT_H

#include "attn/attn.h"

/* Outputs have the layout of the arrays of the same names.  `lse` is that of the softmax; with another normalization 0,
 * or -infinity as documented in attn.h.  `sees`, if not NULL: sees[lse's place * positions + j] becomes 1 where that
 * row's weights have one for position j of the last KEY dim. */
typedef struct attend_exact_arrays {
    long double *o, *lse;
    uint8_t *sees;
    int64_t positions;
} attend_exact_arrays;

void attend_exact(const attn_problem *problem, const attn_arrays *arrays, const attend_exact_arrays *out);

#endif
