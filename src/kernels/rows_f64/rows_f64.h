/* SPDX-License-Identifier: MIT
 *
 * rows_f64.h - what attention in float64 does with a row of scores between its products.
 *
 * Contract: n may be 0; nothing needs alignment; nothing outside [0, n) is read or written; nothing is allocated.
 */
#ifndef ATTN_KERNELS_ROWS_F64_H
#define ATTN_KERNELS_ROWS_F64_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__rows_f64_kernel {
    attn__isa isa;
    double (*largest)(const double *x, int64_t n); /* -inf of none; NaN if one is */
    /* x = exp(x - max), and their sum; below e^-708 it is 0.  Off by at most 2^-51 of itself. */
    double (*exponentials)(double *x, int64_t n, double max);
    void (*scale)(double *y, int64_t n, double by); /* y *= by */
    /* p = exp(x - lse), x in place, and dp = p (dp - delta). */
    void (*gradients)(double *x, double *dp, int64_t n, double lse, double delta);
    /* y[j] = sum over c < channels of (q[c] - k[c * ld + j])^2. */
    void (*distances)(const double *q, const double *k, int64_t ld, int64_t channels, double *y, int64_t n);
} attn__rows_f64_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__rows_f64_kernel *attn__rows_f64_for(attn__isa isa);

#endif
