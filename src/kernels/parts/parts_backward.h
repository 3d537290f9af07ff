/* SPDX-License-Identifier: MIT
 *
 * parts_backward.h - the weights of attention's backward pass and the gradients of its scores (kernels/backward), left
 * as tiles for the products of parts.h.  A tile has queries as rows and keys in the lanes:
 *
 *     p       P as B:   steps of 32 queries, blocks of 16 keys     dV^T += dO^T P
 *     across  dS as B:  the same                                   dK^T += Q^T dS
 *     along   dS as A:  blocks of 16 queries, steps of 32 keys     dQ   += dS K
 *
 * Neighbours in a row of `along` are keys l and l + 16 of a step (attn__parts_key says which number goes where), so
 * that all three come from the same vectors without a shuffle.  Numbers of three parts are cut into 8 + 8 + 8 bits,
 * which loses as little as rounding does.
 */
#ifndef ATTN_KERNELS_PARTS_BACKWARD_H
#define ATTN_KERNELS_PARTS_BACKWARD_H

#include "kernels/parts/parts.h"

typedef struct attn__parts_weights {
    int64_t rows, keys;  /* filled up with zeros to multiples of 32 */
    int64_t ld;          /* of s and dp: a multiple of 32 */
    const float *s, *dp; /* dp NULL: not wanted */
    /* Given: s holds scores, base 2 but for `factor`, and dp is dP; all rows attend all keys, which are a multiple of
     * 16.  NULL: s and dp hold P and dS. */
    const float *lse, *delta;
    float factor;
    int parts; /* 1, which rounds, or 3 */
    attn__parts_side p, across, along;
} attn__parts_weights;

/* Which key of a step of 32 stands at place i along k. */
static inline int64_t attn__parts_key(int64_t i)
{
    return i / 2 + i % 2 * ATTN__PARTS_SIDE;
}

/* Needs ATTN_ISA_AMX.  False if any number is infinite or NaN: the tiles are then of no use. */
bool attn__parts_weigh(const attn__parts_weights *args);

#endif
