/* SPDX-License-Identifier: MIT
 * linear_weight.h - how linear layers read their weights. */
#ifndef ATTN_NN_LINEAR_WEIGHT_H
#define ATTN_NN_LINEAR_WEIGHT_H

#include "attn/nn.h"

/* The parameter "weight" [out,in] of a linear layer; without memory where the builder says so.  NULL as
 * attn_nn_parameter. */
attn_tensor *attn__nn_linear_weight(attn_nn_builder *builder, int64_t in, int64_t out, attn_nn_initializer fill);
/* Says that others than attn_linear read the layer's weights: parts of them, or all along another axis. */
void attn__nn_linear_in_parts(const attn_nn_linear *layer);

#endif
