/* SPDX-License-Identifier: MIT
 *
 * linear_weight.h - registers the weights of linear layers.
 */
#ifndef ATTN_NN_LINEAR_WEIGHT_H
#define ATTN_NN_LINEAR_WEIGHT_H

#include "nn/layers.h"

/* Registers the parameter "weight" [out,in] of a linear layer. It has no memory yet if the builder is blank and
 * `waits`. Returns NULL on the same errors as attn_nn_parameter. */
attn_tensor *attn__nn_linear_weight(attn_nn_builder *builder, int64_t in, int64_t out, attn_nn_initializer fill);
/* Marks the layer's weight as read by code other than attn_linear, in parts or along another axis. */
void attn__nn_linear_in_parts(const attn_nn_linear *layer);

#endif
