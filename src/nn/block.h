/* SPDX-License-Identifier: MIT
 *
 * block.h - the named parts of encoder and decoder blocks. */
#ifndef ATTN_NN_BLOCK_H
#define ATTN_NN_BLOCK_H

#include "nn/layers.h"

void attn__nn_attention_part(attn_nn_multi_head *layer, attn_nn_builder *builder, const char *name,
                             const attn_nn_block_options *options);
void attn__nn_norm_part(attn_nn_add_norm *layer, attn_nn_builder *builder, const char *name,
                        const attn_nn_block_options *options);
/* A layer's input, and x plus the layer's output; the norm is applied in one of the two. */
attn_tensor *attn__nn_before(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x);
attn_tensor *attn__nn_behind(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y);
/* x plus its positions (NULL: none), the input of queries and keys. */
attn_tensor *attn__nn_placed(attn_tape *tape, attn_tensor *x, attn_tensor *positions);
/* activation(dense1(x)) */
attn_tensor *attn__nn_ffn_hidden(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x);
void attn__nn_ffn_part(attn_nn_ffn *layer, attn_nn_builder *builder, const attn_nn_block_options *options);

#endif
