/* SPDX-License-Identifier: MIT
 *
 * dropout.h - a dropout site, which is one use of dropout in a step. Its values determine which elements are dropped in
 * the forward pass and in the backward pass. */
#ifndef ATTN_TENSOR_DROPOUT_H
#define ATTN_TENSOR_DROPOUT_H

#include "base/rng.h"
#include "tensor/op.h"

typedef struct attn__dropout {
    uint64_t seed, stream;
    uint32_t threshold; /* 0: no dropout */
    double scale;
    attn__drop_rows rows;
} attn__dropout;

/* Returns true if 0 <= p < 1. Otherwise records an error and returns false. */
bool attn__dropout_accepts(attn_tape *tape, const char *op, double p);
/* Returns the next dropout site of the step, for activations of x's shape. Each site has its own random stream. If
 * the tape is not in training mode, the site drops nothing. */
attn__dropout attn__dropout_site(attn_tape *tape, const attn_tensor *x, double p);
/* Maps the rows of this shard to rows of the whole batch, for dropout. `each` is the number of adjacent rows of an
 * example; see attn__drop_rows. */
attn__drop_rows attn__dropout_shard(const attn_tape *tape, int64_t each);
void attn__dropout_set(attn__elementwise_args *args, const attn__dropout *dropout);

#endif
