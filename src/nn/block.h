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
/* attn__nn_before returns a layer's input, and attn__nn_behind returns x plus the layer's output. One of the two
 * also applies the norm: attn__nn_before with pre_norm, else attn__nn_behind. */
attn_tensor *attn__nn_before(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x);
attn_tensor *attn__nn_behind(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y);
/* Returns x plus its positions (NULL: x alone), which is the input of queries and keys. */
attn_tensor *attn__nn_placed(attn_tape *tape, attn_tensor *x, attn_tensor *positions);
/* Returns activation(dense1(x)), the hidden numbers of a feed-forward network. */
attn_tensor *attn__nn_ffn_hidden(const attn_nn_ffn *layer, attn_tape *tape, attn_tensor *x);
void attn__nn_ffn_part(attn_nn_ffn *layer, attn_nn_builder *builder, const attn_nn_block_options *options);

#endif
