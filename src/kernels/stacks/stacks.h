/* SPDX-License-Identifier: MIT
 *
 * stacks.h - batch normalisation's loops: a channel is a stack of planes, one of each item of the batch, whose numbers
 * lie side by side.
 *
 * All run over a range of channels: run(args, begin, end), args an attn__stacks_args whose pointers are to float or
 * double, as the kernel is.  Never allocates; batch and plane are any, 0 included; nothing outside of the planes is
 * read or written.  What a channel becomes does not depend on those beside it.  Sums add a few hundred numbers at a
 * time in the lanes, and these in f64.
 */
#ifndef ATTN_KERNELS_STACKS_H
#define ATTN_KERNELS_STACKS_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__stacks_args {
    int64_t batch, channels, plane;
    const void *x, *dy;      /* [batch, channels, plane] */
    void *y;                 /* the same: the result, or the gradient of x; may be x or dy */
    const void *gain, *bias; /* [channels], as all that follow */
    void *mean, *inverse;    /* inverse = 1 / sqrt(variance + eps), in `statistics` the variance itself */
    void *dgain, *dbias;     /* either may be NULL */
    double *sums;            /* [channels, 2]: of dy, and of dy times x normalised */
    double whole;            /* numbers that a channel's statistics are of: more than here if others have a share */
    bool moving;             /* statistics are the batch's own, and move with it */
    bool add, add_gain, add_bias; /* to y, dgain, dbias, else they are set */
} attn__stacks_args;

typedef void attn__stacks_run(void *args, int64_t begin, int64_t end);

typedef struct attn__stacks_kernel {
    attn__isa isa;
    attn__stacks_run *statistics; /* mean and variance of x: distances from the mean, then their squares */
    attn__stacks_run *normalise;  /* y = (x - mean) * inverse * gain + bias */
    attn__stacks_run *slopes;     /* sums, and with them dgain and dbias */
    attn__stacks_run *backward;   /* y = inverse * gain * (dy - what moves with the statistics), by sums */
    attn__stacks_run *add_bias;   /* y += bias */
} attn__stacks_kernel;

/* The kernel of f64, or of f32 for this instruction set or the best below it. */
const attn__stacks_kernel *attn__stacks_for(bool is_double, attn__isa isa);

#endif
