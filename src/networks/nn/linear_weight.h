/* SPDX-License-Identifier: MIT
 *
 * linear_weight.h - registers the weights of linear layers.
 */
#ifndef ATTN_NN_LINEAR_WEIGHT_H
#define ATTN_NN_LINEAR_WEIGHT_H

#include "nn/layers.h"

/* Registers the parameter "weight" [out,in] of a linear layer. If the builder's `blank` and `waits` are set, the
 * weight has no memory yet. Returns NULL on the same errors as attn_nn_parameter. */
attn_tensor *attn__nn_linear_weight(attn_nn_builder *builder, int64_t in, int64_t out, attn_nn_initializer fill);
/* Marks the layer's weight as one that is not only read by attn_linear. Other code reads parts of the weight, or
 * multiplies it along another axis. */
void attn__nn_linear_in_parts(const attn_nn_linear *layer);

#endif
