/* SPDX-License-Identifier: MIT
 *
 * rows_f64.h - what attention in float64 does with a row of scores between its products.
 *
 * Contract: n may be 0; nothing needs alignment; nothing outside [0, n) is read or written; nothing is allocated.
 */
#ifndef ATTN_KERNELS_ROWS_F64_H
#define ATTN_KERNELS_ROWS_F64_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Queries [queries,channels] and keys [channels,n] with their distances [queries,n]; rows are ld... apart. */
typedef struct attn__rows_f64_distances {
    int64_t queries, channels, n;
    const double *q, *k;
    double *y;
    int64_t ldq, ld, ldy;
    double *dq, *dk; /* gradients, with the layouts of q and k */
    int64_t lddq, lddk;
} attn__rows_f64_distances;

typedef struct attn__rows_f64_kernel {
    attn__isa isa;
    bool (*finite)(const double *x, int64_t n);    /* whether all n numbers are finite */
    double (*largest)(const double *x, int64_t n); /* -inf if n is 0; NaN if a number is NaN */
    /* x = exp(x - max), and the sum of these; results below e^-708 are 0. The relative error is at most 2^-51. */
    double (*exponentials)(double *x, int64_t n, double max);
    void (*scale)(double *y, int64_t n, double by);          /* y *= by */
    void (*hide)(double *x, const uint8_t *seen, int64_t n); /* x = -inf where seen is 0 */
    /* p = exp(x - lse), x in place, at most 1 even if the lse was rounded, and 0 below `least`; dp = p (dp - delta), 0
     * where p is. */
    void (*gradients)(double *x, double *dp, int64_t n, double lse, double delta, double least);
    void (*widen)(const float *x, int64_t n, double *y);
    void (*narrow)(const double *x, int64_t n, float *y); /* 0 below 2^-126: subnormal numbers slow products down */
    /* y[i,j] = sum over c of (q[i,c] - k[c,j])^2. */
    void (*distances)(const attn__rows_f64_distances *args);
    /* t[c] = tanh(q[c] + k[c]); returns the sum of w[c] t[c] over c < n. */
    double (*additive)(const double *q, const double *k, const double *w, int64_t n, double *t);
    /* Adds g times the derivatives of that sum, computed from t, to dq, dk and dw. */
    void (*additive_gradient)(double g, const double *w, const double *t, int64_t n, double *dq, double *dk,
                              double *dw);
    /* Adds y[i,j] (q[i,c] - k[c,j]) to dq[i,c] and subtracts it from dk[c,j]; a y of 0 adds nothing. */
    void (*distance_gradient)(const attn__rows_f64_distances *args);
} attn__rows_f64_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__rows_f64_kernel *attn__rows_f64_for(attn__isa isa);

#endif
