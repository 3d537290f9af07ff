/* SPDX-License-Identifier: MIT
 *
 * rows_f64.h - operations on a row of scores between the two products of float64 attention.
 *
 * Contract: n may be 0. Nothing needs alignment. Only elements [0, n) are read or written. Nothing is allocated.
 */
#ifndef ATTN_KERNELS_ROWS_F64_H
#define ATTN_KERNELS_ROWS_F64_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Queries [queries, channels], keys [channels, n], and results [queries, n] such as distances. The row stride of array
 * x is ldx. */
typedef struct attn__rows_f64_distances {
    int64_t queries, channels, n;
    const double *q, *k;
    double *y;
    int64_t ldq, ld, ldy;
    double *dq, *dk; /* gradients of q and k, with the same layouts */
    int64_t lddq, lddk;
} attn__rows_f64_distances;

typedef struct attn__rows_f64_kernel {
    attn__isa isa;
    bool (*finite)(const double *x, int64_t n);
    double (*largest)(const double *x, int64_t n); /* returns -inf if n is 0, and NaN if a number is NaN */
    /* Replaces x by exp(x - max) and returns the sum. Results below e^-708 become 0. The relative error is at most
     * 2^-51. */
    double (*exponentials)(double *x, int64_t n, double max);
    void (*scale)(double *y, int64_t n, double by);          /* y *= by */
    void (*hide)(double *x, const uint8_t *seen, int64_t n); /* sets x[i] to -inf where seen[i] is 0 */
    /* Replaces scores x by weights p = exp(x - lse), and dp by p (dp - delta). p is limited to 1, because lse may have
     * been rounded. If p is below `least`, p becomes 0. If x is -infinity, p and dp become 0 for any dp. */
    void (*gradients)(double *x, double *dp, int64_t n, double lse, double delta, double least);
    void (*widen)(const float *x, int64_t n, double *y);
    /* converts to float; other |x| below 2^-126 than 0 become +0, because subnormal numbers are slow */
    void (*narrow)(const double *x, int64_t n, float *y);
    /* Computes y[i,j] = sum over c of (q[i,c] - k[c,j])^2. */
    void (*distances)(const attn__rows_f64_distances *args);
    /* Writes t[c] = tanh(q[c] + k[c]) and returns the sum of w[c] t[c] over c < n. */
    double (*additive)(const double *q, const double *k, const double *w, int64_t n, double *t);
    /* Adds g times the derivatives of the result of `additive` to dq, dk and dw. They are computed from t. */
    void (*additive_gradient)(double g, const double *w, const double *t, int64_t n, double *dq, double *dk,
                              double *dw);
    /* Adds y[i,j] (q[i,c] - k[c,j]) to dq[i,c] and subtracts it from dk[c,j]. Pairs with y = -0 add nothing. */
    void (*distance_gradient)(const attn__rows_f64_distances *args);
} attn__rows_f64_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__rows_f64_kernel *attn__rows_f64_for(attn__isa isa);

#endif
