/* SPDX-License-Identifier: MIT
 *
 * batch_norm.h - batch normalization of [batch, channels, plane], forward and backward.
 *
 *     y = (x - mean[c]) / sqrt(variance[c] + eps) * gain[c] + bias[c],     mean, variance over batch and plane
 *
 * The numbers of a plane are adjacent and fill the lanes.  Every function works on a range of channels:
 * run(args, begin, end), where args is an attn__batch_norm_args with pointers to float or double, as the kernel is.
 *
 * Contract: batch and plane may be 0; nothing outside the planes is read or written; nothing is allocated.  The result
 * of a channel does not depend on the others.  Sums add a few hundred numbers at a time in f32, these sums in f64.
 */
#ifndef ATTN_KERNELS_BATCH_NORM_H
#define ATTN_KERNELS_BATCH_NORM_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__batch_norm_args {
    int64_t batch, channels, plane;
    const void *x, *dy;           /* [batch, channels, plane] */
    void *y;                      /* [batch, channels, plane]: the result, or the gradient of x; may be x or dy */
    const void *gain, *bias;      /* [channels], like the arrays below */
    void *mean, *inverse;         /* inverse = 1 / sqrt(variance + eps); `statistics` stores the variance there */
    void *dgain, *dbias;          /* either may be NULL */
    double *sums;                 /* [channels, 2]: the sum of dy, and the sum of dy times normalized x */
    double whole;                 /* how many numbers a channel's statistics are of, other ranks included */
    bool moving;                  /* the statistics were computed from x, so their gradient is part of that of x */
    bool add, add_gain, add_bias; /* true: add to y, dgain, dbias; false: overwrite them */
} attn__batch_norm_args;

typedef void attn__batch_norm_run(void *args, int64_t begin, int64_t end);

typedef struct attn__batch_norm_kernel {
    attn__isa isa;
    attn__batch_norm_run *statistics; /* mean and variance of x, in two passes */
    attn__batch_norm_run *normalize;  /* y = (x - mean) * inverse * gain + bias */
    attn__batch_norm_run *slopes;     /* computes `sums`, and from them dgain and dbias */
    /* y = inverse * gain * (dy - the statistics' share of the gradient, from `sums`) */
    attn__batch_norm_run *backward;
    attn__batch_norm_run *add_bias; /* y += bias */
} attn__batch_norm_kernel;

/* The kernel of f64, or the kernel of f32 for this instruction set or the best one below it. */
const attn__batch_norm_kernel *attn__batch_norm_for(bool is_double, attn__isa isa);

#endif
