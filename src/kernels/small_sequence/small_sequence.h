/* SPDX-License-Identifier: MIT
 *
 * small_sequence.h - the products of one head with up to 96 queries and keys, whose rows and scores fit in the first cache.
 *
 *     s[i,j] = sum_c x[i,c] y[j,c]          out[j,c] (+)= factor sum_i w[i,j] x[i,c]
 *
 * Rows are read and written where they are; only the operand in the lanes of the scores is transposed into a panel.  Reading
 * a row takes as long as multiplying by it, so that every loop over rows prefetches the rows of the next head.  Some
 * rows are prefetched twice, since processors drop prefetches.
 *
 * Contract: rows need no alignment; scratch memory is aligned to 64 bytes; nothing is allocated.
 */
#ifndef ATTN_KERNELS_SMALL_SEQUENCE_H
#define ATTN_KERNELS_SMALL_SEQUENCE_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Row r at at + row_at[r], and for an operand called x of score and sum at at + r * step. */
typedef struct attn__small_sequence_rows {
    float *at;
    int64_t step;
    const int64_t *row_at; /* [rows rounded up to the lanes]; entries past `rows` repeat the last offset */
    const float *next;     /* the next head, whose row r is at next + row_at[r] */
    int64_t rows, channels;
} attn__small_sequence_rows;

/* out[j][c] (+)= factor * row_factor[j] * sum over i of w[i * along + j * across] * x[i][c].
 * `along` or `across` is 1. */
typedef struct attn__small_sequence_sums {
    attn__small_sequence_rows out, x;
    const float *w;
    int64_t along, across;
    float factor;
    const float *row_factor; /* NULL: all factors are 1 */
    bool add;
} attn__small_sequence_sums;

typedef struct attn__small_sequence_kernel {
    attn__isa isa;
    int lanes;
    /* Transposes: panel[c * width + j] = factor * x[j][c].  width is the number of rows rounded up to the lanes; the
     * columns beyond the rows repeat the last one. */
    void (*transpose)(const attn__small_sequence_rows *x, float factor, float *panel, int64_t width);
    /* s[i * width + j] = sum over c of x[i][c] * panel[c * width + j].  False if a sum is infinite or NaN. */
    bool (*score)(const attn__small_sequence_rows *x, const float *panel, float *s, int64_t width);
    /* sum[i] = sum over c of x[i][c] * y[i][c], over the channels of x. */
    void (*dots)(const attn__small_sequence_rows *x, const attn__small_sequence_rows *y, float *sum);
    /* Computes attn__small_sequence_sums.  False if a result is infinite or NaN. */
    bool (*sum)(const attn__small_sequence_sums *t);
} attn__small_sequence_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__small_sequence_kernel *attn__small_sequence_for(attn__isa isa);

#endif
