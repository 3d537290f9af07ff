/* SPDX-License-Identifier: MIT
 *
 * block.h - functions for the parts that encoder and decoder blocks have in common.
 */
#ifndef ATTN_NN_BLOCK_H
#define ATTN_NN_BLOCK_H

#include "nn/layers.h"

void attn__nn_attention_part(attn_nn_multi_head *layer, attn_nn_builder *builder, const char *name,
                             const attn_nn_block_options *options);
void attn__nn_norm_part(attn_nn_add_norm *layer, attn_nn_builder *builder, const char *name,
                        const attn_nn_block_options *options);
/* attn__nn_before returns the input of a layer, given the block's x. attn__nn_behind returns x plus the layer's
 * output. The norm is applied by attn__nn_before if pre_norm is set, otherwise by attn__nn_behind. */
attn_tensor *attn__nn_before(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x);
attn_tensor *attn__nn_behind(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y);
/* Returns x plus `positions`, as the input of the projections of queries and keys. If `positions` is NULL, returns
 * x. */
attn_tensor *attn__nn_placed(attn_tape *tape, attn_tensor *x, attn_tensor *positions);
/* Returns activation(dense1(x)), multiplied by gate(x) if there is a gate: the hidden layer of a feed-forward network. */
attn_tensor *attn__nn_ffn_hidden(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x);
void attn__nn_ffn_part(attn_nn_ffn *layer, attn_nn_builder *builder, const attn_nn_block_options *options);

#endif
