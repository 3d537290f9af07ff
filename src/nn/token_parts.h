/* SPDX-License-Identifier: MIT
 *
 * token_parts.h - linear layers of normalized tokens, some tokens at a time: neither all normalized tokens nor all hidden
 * channels are ever held.  Not on tapes that record. */
#ifndef ATTN_NN_TOKEN_PARTS_H
#define ATTN_NN_TOKEN_PARTS_H

#include "nn/layers.h"
#include "tensor/linear_part.h"

/* Tokens x [...,D], normalized as they are read; products of numbers rounded to bf16 if requested. */
typedef struct attn__token_source {
    attn_tensor *x;
    const attn_nn_layer_norm *norm; /* NULL: x is taken as it is */
    bool bf16;
} attn__token_source;

/* Rows [row, row + n) of a layer's weights; y [tokens,n], new, F32 (F64 with x) or BF16. */
typedef struct attn__token_linear {
    const attn_nn_linear *linear;
    int64_t row;
    attn_tensor *y;
} attn__token_linear;

/* Tokens that are projected together: the last cache holds them, and packing pays. */
int64_t attn__tokens_at_once(const attn_context *context, bool bf16);
/* How many of `tokens` of `dim` channels have their `wide` hidden channels in memory at once: no more memory than all
 * tokens take, which is there anyway, beyond the least number. */
int64_t attn__tokens_hidden(const attn_context *context, bool bf16, int64_t tokens, int64_t dim, int64_t wide);
/* Numbers of f32 whose room a packed weight takes, at most. */
double attn__tokens_packed(const attn_context *context, bool bf16);
/* False (noted) without memory. */
bool attn__tokens_project(attn_tape *tape, const attn__token_source *source, int n, const attn__token_linear *linears);
/* norm(x), rounded if requested, as a new tensor: for what reads it several times while x changes.  NULL (noted) on
 * failure. */
attn_tensor *attn__tokens_normalized(attn_tape *tape, const attn__token_source *source);
/* x += fc2(gelu(fc1(norm(x)))), at most max_tokens at once (0: no bound). */
bool attn__tokens_feed_forward(attn_tape *tape, const attn__token_source *source, const attn_nn_linear *fc1,
                               const attn_nn_linear *fc2, int64_t max_tokens);

#endif
