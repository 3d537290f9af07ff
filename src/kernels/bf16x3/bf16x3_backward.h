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
    int64_t rows, keys; /* both are padded with zeros to multiples of 32 */
    int64_t ld;         /* row stride of s and dp, a multiple of 32; rows are allocated up to a multiple of 32 */
    float *s, *dp;      /* dp may be NULL: then dS is not requested */
    /* With lse, s holds scores and dp holds dP; `factor` converts the scores to base 2, and all rows attend all keys.
     * The staged functions replace s by P. Without lse (NULL), s holds P and dp holds dS. */
    const float *lse, *delta;
    float factor;
    int parts; /* parts of each number: 1 (rounded) or 3 */
    attn__bf16x3_side p, across, along;
} attn__bf16x3_weights;

/* State of a computation with three parts in two stages. The first stage computes the weights. The second stage
 * computes the gradients of the scores and takes the weights from s. */
typedef struct attn__bf16x3_softmax_backward {
    attn__interleaved interleaved; /* interleaved with products that run at the same time */
    const attn__bf16x3_weights *t;
    int64_t r, j; /* the first row and the first key of the next patch */
    float odd[ATTN__BF16X3_SIDE];
} attn__bf16x3_softmax_backward;

/* Begins the first stage, which computes the weights. Every function of this header needs ATTN_ISA_AMX. */
void attn__bf16x3_begin_p(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t);
void attn__bf16x3_begin_ds(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t);
/* Computes the rest of a stage. Returns false if any number of the stage is infinite or NaN: its tiles are then
 * unusable. */
bool attn__bf16x3_finish(attn__bf16x3_softmax_backward *w);
/* Computes weights and gradients of one part each in a single stage. Returns false if a number is infinite or NaN. */
bool attn__bf16x3_weigh(const attn__bf16x3_weights *t);

#endif
