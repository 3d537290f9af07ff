/* SPDX-License-Identifier: MIT
 *
 * additive.h - the additive score of one (query, key) pair, its gradients, and sums of rows of channels.
 *
 *     s = sum_c w[c] tanh(q[c] + k[c])     o[c] += p v[c]
 *
 * Channels are the lanes of the vectors.
 *
 * Contract: n may be 0. Arrays need no alignment. Only elements [0, n) are read or written. Nothing is allocated. The
 * order in which a sum is added depends only on n and the instruction set.
 */
#ifndef ATTN_KERNELS_ADDITIVE_H
#define ATTN_KERNELS_ADDITIVE_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__additive_kernel {
    attn__isa isa;
    float (*dot)(const float *a, const float *b, int64_t n);      /* returns the sum of a[i] b[i] */
    double (*dot_f64)(const float *a, const float *b, int64_t n); /* returns the sum of a[i] b[i], added in double */
    void (*axpy)(float a, const float *x, float *y, int64_t n);   /* y += a x */
    void (*scale)(float a, float *y, int64_t n);                  /* y *= a */
    /* Writes t[c] = tanh(q[c] + k[c]) and returns the sum over c of w[c] t[c]. */
    float (*additive)(const float *q, const float *k, const float *w, float *t, int64_t n);
    /* Adds the gradients of `additive`, where g is the gradient of the result: g t to dw, and g w (1 - t^2) to dq and
     * to dk. */
    void (*additive_gradient)(float g, const float *w, const float *t, float *dq, float *dk, float *dw, int64_t n);
} attn__additive_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__additive_kernel *attn__additive_for(attn__isa isa);

#endif
