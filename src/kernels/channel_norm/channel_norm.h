/* SPDX-License-Identifier: MIT
 *
 * channel_norm.h - layer normalization over the channels of an image, [channels][ld] with positions adjacent.
 *
 *     y[c,i] = (x[c,i] - mean[i]) / sqrt(variance[i] + eps) * gain[c] + bias[c]
 *
 * Each lane is a position, so that the sums over channels need no operation across a vector.  The backward pass and
 * the sums for gain and bias are here as well.
 *
 * Contract: n may be 0; only the n positions are read or written; nothing is allocated.  The result of a position
 * does not depend on its neighbours.
 */
#ifndef ATTN_KERNELS_CHANNEL_NORM_H
#define ATTN_KERNELS_CHANNEL_NORM_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__channel_norm_args {
    const float *x, *dy;      /* [channels][ld], of which the first n columns are used */
    const float *gain, *bias; /* [channels] */
    float *y;                 /* the result; or the gradient of x, to which `add` adds */
    const float *first;       /* [n]: for `slopes`, the first channel; the other functions read it from x */
    float *mean, *scale,
        *bend; /* [n]: forward writes them, backward reads them; `mean` is relative to the first channel */
    int64_t channels, ld, n;
    float eps;
    bool deviation; /* true: scale = 1 / (deviation + eps); false: 1 / sqrt(variance + eps) */
    bool add;
} attn__channel_norm_args;

typedef struct attn__channel_norm_kernel {
    attn__isa isa;
    /* y = d * scale * gain + bias with d = x - first - mean.  bend = scale^3, or scale^2 / deviation (0 if the
     * deviation is 0): the derivative of scale, for `backward`. */
    void (*forward)(const attn__channel_norm_args *args);
    /* With h = dy * gain and averages over the channels: dx = scale * (h - avg h) - bend * d * avg(h d). */
    void (*backward)(const attn__channel_norm_args *args);
    /* The sum of n adjacent numbers: partial sums of a few hundred in f32, their sum in f64. */
    double (*sum)(const float *x, int64_t n);
    /* The gradients of one channel's gain and bias: adds the sums of dy * d * scale and of dy.  x and dy are that
     * channel's.  Adds a few hundred positions at a time in f32, and adds these partial sums in f64. */
    void (*slopes)(const attn__channel_norm_args *args, double *gain, double *bias);
} attn__channel_norm_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__channel_norm_kernel *attn__channel_norm_for(attn__isa isa);

#endif
