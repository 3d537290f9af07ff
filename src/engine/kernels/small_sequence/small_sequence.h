/* SPDX-License-Identifier: MIT
 *
 * small_sequence.h - the products of one head with up to 96 queries and keys, whose rows and scores fit in the L1
 * cache.
 *
 *     s[i,j] = sum_c x[i,c] y[j,c]          out[j,c] (+)= factor sum_i w[i,j] x[i,c]
 *
 * Rows are read and written in place. Only the operand in the lanes of the scores is transposed into a panel. Every
 * loop over rows prefetches the rows of the next head, because reading a row takes as long as multiplying by it.  Some
 * rows are prefetched twice, because processors may drop a prefetch.
 *
 * Contract: rows need no alignment. Scratch memory is aligned to 64 bytes. Nothing is allocated.
 */
#ifndef ATTN_KERNELS_SMALL_SEQUENCE_H
#define ATTN_KERNELS_SMALL_SEQUENCE_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows of a matrix. Row r begins at `at` + row_at[r]. The operand x of `score` and `sum` is an exception: its row r
 * begins at `at` + r * step. */
typedef struct attn__small_sequence_rows {
    float *at;
    int64_t step;
    const int64_t *row_at; /* [rows, padded to the lanes]; the padding repeats the last offset */
    const float *next;     /* the next head, whose row r begins at next + row_at[r] */
    int64_t rows, channels;
} attn__small_sequence_rows;

/* Arguments of `sum`: out[j][c] (+)= factor * row_factor[j] * sum over i of w[i * along + j * across] * x[i][c].
 * `along` or `across` is 1. */
typedef struct attn__small_sequence_sums {
    attn__small_sequence_rows out, x;
    const float *w;
    int64_t along, across;
    float factor;
    const float *row_factor; /* [rows of out], or NULL if all factors are 1 */
    bool add;
} attn__small_sequence_sums;

typedef struct attn__small_sequence_kernel {
    attn__isa isa;
    int lanes;
    /* Transposes x: panel[c * width + j] = factor * x[j][c]. `width` is the number of rows rounded up to the lanes.
     * Columns past the last row are copies of the last row. */
    void (*transpose)(const attn__small_sequence_rows *x, float factor, float *panel, int64_t width);
    /* Computes s[i * width + j] = sum over c of x[i][c] * panel[c * width + j]. Returns false if a sum is infinite or
     * NaN. */
    bool (*score)(const attn__small_sequence_rows *x, const float *panel, float *s, int64_t width);
    /* Computes sum[i] = sum over the channels c of x of x[i][c] * y[i][c]. */
    void (*dots)(const attn__small_sequence_rows *x, const attn__small_sequence_rows *y, float *sum);
    /* Computes the sums of t (see attn__small_sequence_sums). Returns false if a result is infinite or NaN. */
    bool (*sum)(const attn__small_sequence_sums *t);
} attn__small_sequence_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__small_sequence_kernel *attn__small_sequence_for(attn__isa isa);

#endif
