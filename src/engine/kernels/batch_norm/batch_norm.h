/* SPDX-License-Identifier: MIT
 *
 * batch_norm.h - batch normalization of [batch, channels, plane], forward and backward.
 *
 *     y = (x - mean[c]) / sqrt(variance[c] + eps) * gain[c] + bias[c],     mean, variance over batch and plane
 *
 * The numbers of a plane are adjacent in memory and in the lanes. Every function has the form run(args, begin, end) and
 * works on channels begin to end - 1. args is an attn__batch_norm_args whose pointers are to float or double, like the
 * kernel.
 *
 * Contract: batch and plane may be 0. Nothing outside the planes is read or written. Nothing is allocated.  The result
 * of a channel does not depend on other channels.  A few hundred numbers at a time are summed in f32, and these partial
 * sums are added in f64.
 */
#ifndef ATTN_KERNELS_BATCH_NORM_H
#define ATTN_KERNELS_BATCH_NORM_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__batch_norm_args {
    int64_t batch, channels, plane;
    const void *x, *dy;      /* [batch, channels, plane] */
    void *y;                 /* [batch, channels, plane]: the result, or the gradient of x; may be the array x or dy */
    const void *gain, *bias; /* [channels] */
    void *mean, *inverse;    /* [channels]; inverse: variance after `statistics`, otherwise 1 / sqrt(variance + eps) */
    void *dgain, *dbias;     /* [channels]; either may be NULL */
    double *sums;            /* [channels, 2]: sum of dy, and sum of dy * normalized x */
    double whole;            /* number of elements of a channel that the statistics cover, over all ranks */
    bool moving;             /* mean and inverse depend on x, so the gradient of x includes their gradients */
    bool add, add_gain, add_bias; /* add to y, dgain, dbias instead of overwriting them */
} attn__batch_norm_args;

typedef void attn__batch_norm_run(void *args, int64_t begin, int64_t end);

typedef struct attn__batch_norm_kernel {
    attn__isa isa;
    attn__batch_norm_run *statistics; /* computes mean and variance of x in two passes */
    attn__batch_norm_run *normalize;  /* y = (x - mean) * inverse * gain + bias */
    attn__batch_norm_run *slopes;     /* computes `sums`, and from them dgain and dbias */
    /* Computes y = inverse * gain * (dy - s). s is the gradient through mean and variance, which follows from
     * `sums`. */
    attn__batch_norm_run *backward;
    attn__batch_norm_run *add_bias; /* y += bias */
} attn__batch_norm_kernel;

/* Returns the f64 kernel, or the f32 kernel of the best instruction set that is not above `isa`. */
const attn__batch_norm_kernel *attn__batch_norm_for(bool is_double, attn__isa isa);

#endif
