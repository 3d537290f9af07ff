/* SPDX-License-Identifier: MIT
 *
 * short.h - products of one head whose queries and keys are so few that all its rows and scores stay in the first
 * cache.  Rows are read and written where the caller has them; only what stands in the lanes of a score is turned.
 *
 * There are as many multiply-adds to a number here as rows on the other side, so that fetching rows takes as long as
 * multiplying them.  Whatever goes through rows therefore asks for those of the head that comes next, a few lines at a
 * time.
 *
 * Never allocates.  Rows need no alignment; scratch memory is aligned to 64 bytes.
 */
#ifndef ATTN_KERNELS_SHORT_H
#define ATTN_KERNELS_SHORT_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Row r at at + r * step. */
typedef struct attn__short_rows {
    float *at;
    int64_t step;
    const float *next; /* the first row of the next head, or `at` again */
    int64_t rows, channels;
} attn__short_rows;

/* out[j][c] = or += factor * row_factor[j] * sum over i of w[i * along + j * across] * x[i][c], where `along` or `across`
 * is 1. */
typedef struct attn__short_sums {
    attn__short_rows out, x;
    const float *w;
    int64_t along, across;
    float factor;
    const float *row_factor; /* NULL: all 1 */
    bool add;
} attn__short_sums;

typedef struct attn__short_kernel {
    attn__isa isa;
    int lanes;
    /* panel[c * width + j] = factor * x[j][c], width the next multiple of the lanes; columns beyond the rows repeat the
     * last one. */
    void (*turn)(const attn__short_rows *x, float factor, float *panel, int64_t width);
    /* s[i * width + j] = sum over c of x[i][c] * panel[c * width + j].  False if some sum is infinite or NaN, as all of a
     * row or column are that has such a number. */
    bool (*score)(const attn__short_rows *x, const float *panel, float *s, int64_t width);
    /* sum[i] = sum over c of x[i][c] * y[i][c], for as many channels as x has. */
    void (*dots)(const attn__short_rows *x, const attn__short_rows *y, float *sum);
    /* False if some result is infinite or NaN. */
    bool (*sum)(const attn__short_sums *t);
} attn__short_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__short_kernel *attn__short_for(attn__isa isa);

#endif
