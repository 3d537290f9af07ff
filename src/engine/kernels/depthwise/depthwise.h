/* SPDX-License-Identifier: MIT
 *
 * depthwise.h - sums over the taps of a window, and the gradients of the weights. Each tap has the same offset at every
 * position.
 *
 * Contract: up to ATTN__DEPTHWISE_BLOCK - 1 numbers past n are read and written, because blocks are whole. Nothing
 * needs alignment. Nothing is allocated.
 */
#ifndef ATTN_KERNELS_DEPTHWISE_H
#define ATTN_KERNELS_DEPTHWISE_H

#include "base/cpu.h"

#include <stdint.h>

enum { ATTN__DEPTHWISE_BLOCK = 64 };

typedef struct attn__depthwise_kernel {
    attn__isa isa;
    /* Computes y[i] = sum over t of w[t] x[i + offset[t]] for i < n. Each sum is one chain of multiply-adds from zero,
     * in the order of taps. */
    void (*correlate)(const float *x, const int64_t *offset, const float *w, int64_t taps, int64_t n, float *y);
    /* Adds the sum over i < n of y[i] x[i + offset[t]] to sums[t]. y must be 0 past n, and x must be finite. Partial
     * sums of a few thousand numbers are in f32. */
    void (*dots)(const float *x, const int64_t *offset, const float *y, int64_t taps, int64_t n, double *sums);
} attn__depthwise_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__depthwise_kernel *attn__depthwise_for(attn__isa isa);

#endif
