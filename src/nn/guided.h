/* SPDX-License-Identifier: MIT
 *
 * guided.h - attention weights as results with gradients, for losses on attention. No solver stores weights for the
 * backward pass. These weights are the output of attention, without dropout, to values that are unit vectors. */
#ifndef ATTN_NN_GUIDED_H
#define ATTN_NN_GUIDED_H

#include "nn/layers.h"

/* The weights of an attention with one key dim, one value dim and `weights_shape` set. NULL on error. */
attn_tensor *attn__nn_weigh(attn_tape *tape, const attn_attention *attention);

/* These functions equal the public ones without `guided` in their names, except that a gradient flows through the
 * weights. */
attn_tensor *attn__nn_multi_head_guided(const attn_nn_multi_head *layer, attn_tape *tape, attn_tensor *queries,
                                        attn_tensor *keys, attn_tensor *values, const attn_nn_mask *mask,
                                        attn_tensor **weights);
attn_tensor *attn__nn_additive_guided(const attn_nn_additive *layer, attn_tape *tape, attn_tensor *queries,
                                      attn_tensor *projected, attn_tensor *values, bool time_major,
                                      const attn_nn_mask *mask, attn_tensor **weights);
/* Only the weights of the attention to the encoder are returned. */
attn_tensor *attn__nn_decoder_block_guided(const attn_nn_decoder_block *block, attn_tape *tape, attn_tensor *x,
                                           attn_tensor *encoded, const attn_nn_mask *self_mask,
                                           const attn_nn_mask *cross_mask, attn_tensor **cross_weights);

#endif
