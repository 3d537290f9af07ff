/* SPDX-License-Identifier: MIT
 *
 * bf16x3_backward.h - the weights of attention's backward pass and the gradients of its scores
 * (kernels/softmax_backward), left as tiles for the products of bf16x3.h.  A tile has queries as rows and keys in the
 * lanes:
 *
 *     p       P as B:   steps of 32 queries, blocks of 16 keys     dV^T += dO^T P
 *     across  dS as B:  the same                                   dK^T += Q^T dS
 *     along   dS as A:  blocks of 16 queries, steps of 32 keys     dQ   += dS K
 *
 * Neighbours in a row of `along` are keys l and l + 16 of a step (see attn__bf16x3_key), so
 * that all three come from the same vectors without a shuffle.  Numbers of three parts are cut into 8 + 8 + 8 bits,
 * which loses as little as rounding does.
 */
#ifndef ATTN_KERNELS_BF16X3_BACKWARD_H
#define ATTN_KERNELS_BF16X3_BACKWARD_H

#include "kernels/bf16x3/bf16x3_pack.h"

typedef struct attn__bf16x3_weights {
    int64_t rows, keys; /* both are padded with zeros to multiples of 32 */
    int64_t ld;         /* row stride of s and dp, a multiple of 32; rows are allocated up to a multiple of 32 */
    float *s, *dp;      /* dp NULL: not requested */
    /* Given: s holds scores, base 2 but for `factor`, and becomes P in stages, and dp is dP; all rows attend all keys.
     * NULL: s and dp hold P and dS. */
    const float *lse, *delta;
    float factor;
    int parts; /* parts of each number: 1 (rounded) or 3 */
    attn__bf16x3_side p, across, along;
} attn__bf16x3_weights;

/* Three parts in two stages: first the weights, then the gradients of the scores, which take the weights from s. */
typedef struct attn__bf16x3_softmax_backward {
    attn__interleaved interleaved; /* the work for products that run at the same time */
    const attn__bf16x3_weights *t;
    int64_t r, j; /* the next rows and keys */
    float odd[ATTN__BF16X3_SIDE];
} attn__bf16x3_softmax_backward;

/* All need ATTN_ISA_AMX. */
void attn__bf16x3_begin_p(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t);
void attn__bf16x3_begin_ds(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t);
/* Computes the rest of a stage.  False if any number of it is infinite or NaN: its tiles are then of no use. */
bool attn__bf16x3_finish(attn__bf16x3_softmax_backward *w);
/* One part: both at once. */
bool attn__bf16x3_weigh(const attn__bf16x3_weights *t);

#endif
