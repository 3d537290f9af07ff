/* SPDX-License-Identifier: MIT
 *
 * token_parts.h - linear layers of normalized tokens, which process some tokens at a time. The normalized tokens and
 * hidden channels are never stored for all tokens. The tape must not record.
 */
#ifndef ATTN_NN_TOKEN_PARTS_H
#define ATTN_NN_TOKEN_PARTS_H

#include "nn/layers.h"
#include "tensor/linear_part.h"

/* Tokens x [...,D] that are normalized when they are read. With bf16, the normalized tokens are rounded to bf16
 * before products. */
typedef struct attn__token_source {
    attn_tensor *x;
    const attn_nn_layer_norm *norm; /* norm that is applied to x; NULL: x is used unchanged */
    bool bf16;
} attn__token_source;

/* A product of the tokens with rows [row, row + n) of a layer's weight. The result y [tokens,n] is F32 (F64 if x is
 * F64) or BF16. */
typedef struct attn__token_linear {
    const attn_nn_linear *linear;
    int64_t row;
    attn_tensor *y;
} attn__token_linear;

/* Returns the number of tokens that are projected together. It is small enough that these tokens fit the last-level
 * cache, and large enough that packing the weights is worthwhile. */
int64_t attn__tokens_at_once(const attn_context *context, bool bf16);
/* Returns the number of tokens whose `wide` hidden channels are in memory at once. `tokens` is the number of all
 * tokens, which have `dim` channels each. The hidden channels need at most as much memory as all tokens. The only
 * exception is a fixed minimum number of tokens, which may need more. */
int64_t attn__tokens_hidden(const attn_context *context, bool bf16, int64_t tokens, int64_t dim, int64_t wide);
/* Returns the number of floats that packing needs for one element of a weight. This is 1, or 1.5 on AMX, where a
 * packed f32 element consists of three bf16 parts. */
double attn__tokens_packed(const attn_context *context, bool bf16);
/* Projects the tokens by `n` layers. On failure it sets the error and returns false. */
bool attn__tokens_project(attn_tape *tape, const attn__token_source *source, int n, const attn__token_linear *linears);
/* Returns norm(x) as a new tensor, rounded to bf16 if requested. This is for callers that change x but still need
 * norm(x). On failure it sets the error and returns NULL. */
attn_tensor *attn__tokens_normalized(attn_tape *tape, const attn__token_source *source);
/* Adds fc2(gelu(fc1(norm(x)))) to x in place, for at most max_tokens tokens at once (0: no limit). Returns false on
 * failure. */
bool attn__tokens_feed_forward(attn_tape *tape, const attn__token_source *source, const attn_nn_linear *fc1,
                               const attn_nn_linear *fc2, int64_t max_tokens);

#endif
