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
 * not depend on other positions.
 */
#ifndef ATTN_KERNELS_CHANNEL_NORM_H
#define ATTN_KERNELS_CHANNEL_NORM_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__channel_norm_args {
    const float *x, *dy;      /* [channels][ld]; the first n columns are used */
    const float *gain, *bias; /* [channels] */
    float *y;                 /* `forward`: result; `backward`: gradient of x, or y plus that gradient if `add` */
    const float *first;       /* [n]: the first channel, for `slopes`; the other functions read it from x */
    float *mean, *scale,
        *bend; /* [n]: outputs of `forward`, inputs of `backward`; `mean` is the mean of x - first channel */
    int64_t channels, ld, n;
    float eps;
    bool deviation; /* scale is 1 / (deviation + eps) if set, otherwise 1 / sqrt(variance + eps) */
    bool add;
} attn__channel_norm_args;

typedef struct attn__channel_norm_kernel {
    attn__isa isa;
    /* Writes y = d * scale * gain + bias with d = x - first - mean. Also writes `bend` for `backward`: scale^3 or, if
     * `deviation` is set, scale^2 / deviation (0 if the deviation is 0). `bend` is part of the derivative of scale. */
    void (*forward)(const attn__channel_norm_args *args);
    /* Computes dx = scale * (h - avg h) - bend * d * avg(h d) with h = dy * gain. avg is the average over the
     * channels. */
    void (*backward)(const attn__channel_norm_args *args);
    /* Returns the sum of n adjacent numbers. Partial sums of a few hundred numbers are in f32, and are added in f64. */
    double (*sum)(const float *x, int64_t n);
    /* Adds the sum of dy * d * scale to *gain and the sum of dy to *bias. These are the gradients of one channel's gain
     * and bias. x and dy are rows of that channel. Partial sums of a few hundred positions are in f32, and are added in
     * f64. */
    void (*slopes)(const attn__channel_norm_args *args, double *gain, double *bias);
} attn__channel_norm_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__channel_norm_kernel *attn__channel_norm_for(attn__isa isa);

#endif
