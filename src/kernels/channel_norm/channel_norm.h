/* SPDX-License-Identifier: MIT
 *
 * channel_norm.h - layer normalization over the channels of an image. Arrays have the shape [channels][ld], with
 * adjacent positions.
 *
 *     y[c,i] = (x[c,i] - mean[i]) / sqrt(variance[i] + eps) * gain[c] + bias[c]
 *
 * Each lane is a position, so that the sums over channels need no operation across a vector.  The backward pass and the
 * sums for gain and bias are here as well.
 *
 * Contract: n may be 0. Only the n positions are read or written. Nothing is allocated.  The result of a position does
 * not depend on its neighbours.
 */
#ifndef ATTN_KERNELS_CHANNEL_NORM_H
#define ATTN_KERNELS_CHANNEL_NORM_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__channel_norm_args {
    const float *x, *dy;      /* [channels][ld], of which the first n columns are used */
    const float *gain, *bias; /* [channels] */
    float *y;                 /* result of `forward`, or in `backward` the gradient of x, added to y if `add` is set */
    const float *first;       /* [n]: `slopes` reads the first channel from here; the other functions read it from x */
    float *mean, *scale,
        *bend; /* [n]: written by `forward`, read by `backward`; `mean` is relative to the first channel */
    int64_t channels, ld, n;
    float eps;
    bool deviation; /* true: scale = 1 / (deviation + eps); false: 1 / sqrt(variance + eps) */
    bool add;
} attn__channel_norm_args;

typedef struct attn__channel_norm_kernel {
    attn__isa isa;
    /* Writes y = d * scale * gain + bias with d = x - first - mean. Also writes bend, the derivative of scale, for
     * `backward`: scale^3, or scale^2 / deviation if `deviation` is set (0 if the deviation is 0). */
    void (*forward)(const attn__channel_norm_args *args);
    /* Computes dx = scale * (h - avg h) - bend * d * avg(h d) with h = dy * gain. avg is the average over the
     * channels. */
    void (*backward)(const attn__channel_norm_args *args);
    /* Returns the sum of n adjacent numbers. A few hundred numbers at a time are summed in f32, and the partial sums in
     * f64. */
    double (*sum)(const float *x, int64_t n);
    /* Adds the sums of dy * d * scale and of dy to *gain and *bias, the gradients of one channel's gain and bias. x and
     * dy are rows of that channel. A few hundred positions at a time are summed in f32, and the partial sums in f64. */
    void (*slopes)(const attn__channel_norm_args *args, double *gain, double *bias);
} attn__channel_norm_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__channel_norm_kernel *attn__channel_norm_for(attn__isa isa);

#endif
