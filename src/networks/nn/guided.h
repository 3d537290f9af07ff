/* SPDX-License-Identifier: MIT
 *
 * guided.h - computes attention weights with gradients, for losses on attention weights. No solver of the attention
 * engine stores weights for the backward pass. Therefore the weights are computed as the result of a second attention.
 * This attention has no dropout. Its values are unit vectors, so its result is the weights. */
#ifndef ATTN_NN_GUIDED_H
#define ATTN_NN_GUIDED_H

#include "nn/layers.h"

/* Returns the weights of the attention as a tensor with gradients. The attention's problem must have one key dimension
 * and one value dimension. `weights_shape` must be set. Returns NULL on error. */
attn_tensor *attn__nn_weigh(attn_tape *tape, const attn_attention *attention);

/* Each of these functions computes the same as the public function without `guided` in its name. In addition,
 * gradients flow through the returned weights. */
attn_tensor *attn__nn_multi_head_guided(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                        attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                        attn_tensor **weights);
attn_tensor *attn__nn_additive_guided(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                      attn_tensor *projected, attn_tensor *values, bool time_major,
                                      const attn_nn_mask *mask, attn_tensor **weights);
/* Returns only the weights of the attention to the encoder in *cross_weights, not those of the self-attention. */
attn_tensor *attn__nn_decoder_block_guided(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *encoded, const attn_nn_mask *self_mask,
                                           const attn_nn_mask *cross_mask, attn_tensor **cross_weights);

#endif
