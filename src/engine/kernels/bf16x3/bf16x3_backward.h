/* SPDX-License-Identifier: MIT
 *
 * bf16x3_backward.h - writes the weights P of attention's backward pass and the gradients dS of its scores (see
 * kernels/softmax_backward) as tiles for the products of bf16x3.h. The rows of s and dp are queries, and the lanes are
 * keys:
 *
 *     p       P as B:   steps of 32 queries, blocks of 16 keys     dV^T += dO^T P
 *     across  dS as B:  steps of 32 queries, blocks of 16 keys     dK^T += Q^T dS
 *     along   dS as A:  blocks of 16 queries, steps of 32 keys     dQ   += dS K
 *
 * Adjacent numbers in a row of `along` are keys l and l + 16 of a step (see attn__bf16x3_key), so that all three kinds
 * of tiles come from the same vectors without a shuffle. Numbers of three parts are truncated into 8 + 8 + 8 bits,
 * which loses as little as rounding does.
 */
#ifndef ATTN_KERNELS_BF16X3_BACKWARD_H
#define ATTN_KERNELS_BF16X3_BACKWARD_H

#include "kernels/bf16x3/bf16x3_pack.h"

typedef struct attn__bf16x3_weights {
    int64_t rows, keys; /* rows of s and keys; tiles are padded with zeros to multiples of 32 */
    int64_t ld;         /* row stride of s and dp, a multiple of 32; memory has rows up to a multiple of 32 */
    float *s, *dp;      /* dp is NULL if dS is not requested */
    /* If lse is not NULL, s has scores and dp has dP. `factor` converts scores to base 2, and all rows attend all keys.
     * The staged functions replace s by P.  If lse is NULL, s has P and dp has dS. */
    const float *lse, *delta;
    float factor;
    int parts; /* parts of each number: 1 (rounded) or 3 (truncated) */
    attn__bf16x3_side p, across, along;
} attn__bf16x3_weights;

/* State of a computation with three parts, which has two stages. The first stage computes weights. The second stage
 * computes gradients of scores, and reads the weights from s. */
typedef struct attn__bf16x3_softmax_backward {
    attn__interleaved interleaved; /* the work, which is interleaved with products */
    const attn__bf16x3_weights *t;
    int64_t r, j; /* first row and first key of the next patch */
    float odd[ATTN__BF16X3_SIDE];
} attn__bf16x3_softmax_backward;

/* Begins the first stage, which computes the weights. Every function of this header needs ATTN_ISA_AMX. */
void attn__bf16x3_begin_p(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t);
void attn__bf16x3_begin_ds(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t);
/* Computes the rest of a stage. Returns false if any number of the stage is infinite or NaN. The tiles can then not be
 * used. */
bool attn__bf16x3_finish(attn__bf16x3_softmax_backward *w);
/* Computes weights and gradients in a single stage, with one part per number. Returns false if any number is infinite
 * or NaN. */
bool attn__bf16x3_weigh(const attn__bf16x3_weights *t);

#endif
