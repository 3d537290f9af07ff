/* SPDX-License-Identifier: MIT
 *
 * softmax_backward.h - the softmax's backward step between the products of attention's backward pass.
 *
 *     P = 2^(S - lse)     dS = P o (dP - delta)     dP = dout . v     delta = sum over v of dout * o
 *
 * (Dao et al. 2022, arXiv:2205.14135, appendix B.2.) Weights that do not depend on other keys have their own steps:
 *
 *     P = S                          dS = dP
 *     P = 1 / (1 + 2^-(S + b))       dS = P o (1 - P) o dP
 *
 * The rows of a tile are queries, and the lanes are keys. Scores
 * are in base 2. Masks, bias and dropout are applied here. The weight of a pair without a term in dV is -0, and so is
 * the dS of a pair without a term in dS. Other pairs do not get -0.
 *
 * Contract: nothing is allocated. Arrays need no alignment unless a comment requires it.
 */
#ifndef ATTN_KERNELS_SOFTMAX_BACKWARD_H
#define ATTN_KERNELS_SOFTMAX_BACKWARD_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* LARGEST: the weight of a row's first largest score is 1. This kernel does not compute it. */
typedef enum attn__weights_kind {
    ATTN__WEIGHTS_SOFTMAX,
    ATTN__WEIGHTS_SCORES,
    ATTN__WEIGHTS_SIGMOID,
    ATTN__WEIGHTS_LARGEST
} attn__weights_kind;

typedef struct attn__softmax_backward_args {
    attn__weights_kind kind;
    float sigmoid_bias;       /* base 2; only for sigmoids */
    int64_t rows, keys;       /* columns from `keys` up to a multiple of the lanes become 0 */
    int64_t ld;               /* row stride of s, dp, bias and mask; a multiple of the lanes */
    float *s;                 /* input: scores in base 2, without bias; output: the weights that multiplied v */
    float *dp;                /* input: dP; output: dS; NULL if dS is not requested */
    const float *lse;         /* [rows], base 2; a row with +inf becomes zeros; only for a softmax */
    const float *delta;       /* [rows]; only for a softmax */
    const int32_t *from, *to; /* [rows]: row attends key j if from <= first + j < to and the mask allows it */
    int32_t first;
    bool full;           /* each row's range has all keys; then `from` and `to` are not read */
    const uint8_t *mask; /* NULL: no mask */
    float softcap;       /* softcap of scores in base 2, applied before the bias; 0: no softcap */
    const float *bias;   /* bias in base e; NULL: no bias */
    float *dbias;        /* output: gradient of the bias, which differs from dS with a softcap; NULL: not requested */
    /* [rows], base 2: logarithm of the weight of masked keys, whose score has no gradient; NULL: weight 0 */
    const float *fill;
    const uint64_t *drop_key;   /* [rows]; NULL: no dropout */
    const int32_t *drop_column; /* [keys]; memory up to a multiple of the lanes is read */
    uint32_t drop_below;
    float drop_scale; /* 1 / (1 - p) */
    uint8_t *alive;   /* output; bit 0: the pair has a term in dS, bit 1: in dV; NULL: not requested */
} attn__softmax_backward_args;

typedef struct attn__softmax_backward_kernel {
    attn__isa isa;
    int lanes;
    void (*weights)(const attn__softmax_backward_args *args);
    float (*dot)(const float *a, const float *b, int64_t n);
    /* Writes dst = scale * src. If `add` is set, adds scale * src to dst instead. */
    void (*store)(float *dst, const float *src, int64_t n, float scale, bool add);
    void (*store_bf16)(uint16_t *dst, const float *src, int64_t n, float scale, bool add);
} attn__softmax_backward_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__softmax_backward_kernel *attn__softmax_backward_for(attn__isa isa);

#endif
