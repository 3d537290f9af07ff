/* SPDX-License-Identifier: MIT
 *
 * token_parts.h - linear layers of normalized tokens, some tokens at a time: the normalized tokens and hidden channels
 * are never stored for all tokens. Not on tapes that record. */
#ifndef ATTN_NN_TOKEN_PARTS_H
#define ATTN_NN_TOKEN_PARTS_H

#include "nn/layers.h"
#include "tensor/linear_part.h"

/* Tokens x [...,D], normalized when they are read. Products use numbers rounded to bf16 if requested. */
typedef struct attn__token_source {
    attn_tensor *x;
    const attn_nn_layer_norm *norm; /* NULL: x is used unchanged */
    bool bf16;
} attn__token_source;

/* Multiplies by rows [row, row + n) of a layer's weights; the new y [tokens,n] is F32 (F64 with x) or BF16. */
typedef struct attn__token_linear {
    const attn_nn_linear *linear;
    int64_t row;
    attn_tensor *y;
} attn__token_linear;

/* Number of tokens projected together: they fit the last-level cache, and packing pays. */
int64_t attn__tokens_at_once(const attn_context *context, bool bf16);
/* The number of tokens, of `tokens` with `dim` channels, whose `wide` hidden channels are in memory at once. They take
 * at most as much memory as all tokens, unless a minimum number of tokens needs more. */
int64_t attn__tokens_hidden(const attn_context *context, bool bf16, int64_t tokens, int64_t dim, int64_t wide);
/* Maximum number of f32 that fit into the memory of a packed weight. */
double attn__tokens_packed(const attn_context *context, bool bf16);
/* False (error set) without memory. */
bool attn__tokens_project(attn_tape *tape, const attn__token_source *source, int n, const attn__token_linear *linears);
/* norm(x), rounded if requested, as a new tensor, for code that reads it several times while x changes. NULL (error
 * set) on failure. */
attn_tensor *attn__tokens_normalized(attn_tape *tape, const attn__token_source *source);
/* x += fc2(gelu(fc1(norm(x)))), for at most max_tokens at once (0: no bound). */
bool attn__tokens_feed_forward(attn_tape *tape, const attn__token_source *source, const attn_nn_linear *fc1,
                               const attn_nn_linear *fc2, int64_t max_tokens);

#endif
