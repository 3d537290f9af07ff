/* SPDX-License-Identifier: MIT
 *
 * softmax_backward.h - the softmax's backward step between the products of attention's backward pass.
 *
 *     P = 2^(S - lse)     dS = P o (dP - delta)     dP = dout . v     delta = sum over v of dout * o
 *
 * (Dao et al. 2022, arXiv:2205.14135, appendix B.2.)  Queries are the rows of a tile and keys the lanes.  Scores are in
 * base 2; masks, bias and dropout are applied here.
 *
 * Contract: nothing is allocated; arrays need no alignment unless a comment requires it.
 */
#ifndef ATTN_KERNELS_SOFTMAX_BACKWARD_H
#define ATTN_KERNELS_SOFTMAX_BACKWARD_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__softmax_backward_args {
    int64_t rows, keys;       /* columns from `keys` to the next multiple of the lanes become 0 */
    int64_t ld;               /* row stride of s, dp, bias and mask; a multiple of the lanes */
    float *s;                 /* in: scores, base 2, bias not yet added; out: the weights that multiplied v */
    float *dp;                /* in: dP; out: dS; NULL: dS is not requested */
    const float *lse;         /* [rows], base 2; +inf makes a row of zeros */
    const float *delta;       /* [rows] */
    bool plain;               /* all keys are visible to all rows, without bias and dropout, and keys fill the lanes */
    const int32_t *from, *to; /* [rows]: key j is attended if from <= first + j < to, and the mask agrees */
    int32_t first;
    const uint8_t *mask; /* NULL: no mask */
    float softcap;       /* the softcap of the scores before the bias, base 2; 0: none */
    const float *bias;   /* bias in natural logarithms; NULL: none */
    float *dbias;        /* out: the gradient of the bias, which differs from dS with a softcap; NULL: not requested */
    const float *fill;   /* [rows], base 2: the logarithm of the weight of masked keys, which have no gradient;
                          * NULL: masked keys have no weight */
    const uint64_t *drop_key;   /* [rows], NULL: no dropout */
    const int32_t *drop_column; /* [keys], readable up to the next multiple of the lanes */
    uint32_t drop_below;
    float drop_scale; /* 1 / (1 - p) */
    uint8_t *alive;   /* out. Bit 0: the pair counts in dS; bit 1: its weight counts in dV. NULL: not requested */
} attn__softmax_backward_args;

typedef struct attn__softmax_backward_kernel {
    attn__isa isa;
    int lanes;
    void (*weights)(const attn__softmax_backward_args *args);
    float (*dot)(const float *a, const float *b, int64_t n);
    /* dst = scale * src, or dst += scale * src. */
    void (*store)(float *dst, const float *src, int64_t n, float scale, bool add);
    void (*store_bf16)(uint16_t *dst, const float *src, int64_t n, float scale, bool add);
} attn__softmax_backward_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__softmax_backward_kernel *attn__softmax_backward_for(attn__isa isa);

#endif
