/* SPDX-License-Identifier: MIT
 *
 * depthwise.h - sums over the taps of a window, and their gradients by the weights, for arrays in which a tap is at the
 * same distance from every position.
 *
 * Contract: whole blocks are read and written: up to ATTN__DEPTHWISE_BLOCK - 1 numbers behind the n-th.  Nothing needs
 * alignment; nothing is allocated.
 */
#ifndef ATTN_KERNELS_DEPTHWISE_H
#define ATTN_KERNELS_DEPTHWISE_H

#include "base/cpu.h"

#include <stdint.h>

enum { ATTN__DEPTHWISE_BLOCK = 64 };

typedef struct attn__depthwise_kernel {
    attn__isa isa;
    /* y[i] = sum over t of w[t] x[i + offset[t]], i < n: one chain of multiply-adds from zero, in the order of taps. */
    void (*correlate)(const float *x, const int64_t *offset, const float *w, int64_t taps, int64_t n, float *y);
    /* sums[t] += sum over i < n of y[i] x[i + offset[t]]; y is 0 behind the n-th, and x finite.  Some thousand numbers
     * at a time in f32. */
    void (*dots)(const float *x, const int64_t *offset, const float *y, int64_t taps, int64_t n, double *sums);
} attn__depthwise_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__depthwise_kernel *attn__depthwise_for(attn__isa isa);

#endif
