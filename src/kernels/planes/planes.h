/* SPDX-License-Identifier: MIT
 *
 * planes.h - normalisation over channels that lie `ld` apart, for positions side by side: positions are in the lanes;
 * and sums of a channel's.
 *
 * Never allocates; n is any, 0 included; nothing outside of the positions is read or written.  What a position becomes
 * does not depend on those beside it.
 */
#ifndef ATTN_KERNELS_PLANES_H
#define ATTN_KERNELS_PLANES_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__planes_args {
    const float *x, *dy;        /* [channels][ld], of which n are meant */
    const float *gain, *bias;   /* [channels] */
    float *y;                   /* the result, or the gradient of x, which may be added to */
    float *mean, *scale, *bend; /* [n]: forward out, backward in */
    int64_t channels, ld, n;
    float eps;
    bool deviation; /* scale is 1 / (deviation + eps), else 1 / sqrt(variance + eps) */
    bool add;
} attn__planes_args;

typedef struct attn__planes_kernel {
    attn__isa isa;
    /* y = (x - mean) * scale * gain + bias.  bend is what the slope takes off: scale^3, or scale^2 / deviation (0 where
     * that is 0). */
    void (*forward)(const attn__planes_args *args);
    /* With h = dy * gain, d = x - mean and averages over the channels: dx = scale * (h - avg h) - bend * d *
     * avg(h d). */
    void (*backward)(const attn__planes_args *args);
    /* Of n numbers side by side: a few hundred at a time in f32, these in f64. */
    double (*sum)(const float *x, int64_t n);
    /* Of one channel, whose x and dy these are, adds the sums of dy * (x - mean) * scale and of dy: the slopes of its
     * gain and bias.  A few hundred positions at a time in f32, these in f64. */
    void (*slopes)(const attn__planes_args *args, double *gain, double *bias);
} attn__planes_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__planes_kernel *attn__planes_for(attn__isa isa);

#endif
