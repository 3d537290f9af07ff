/* SPDX-License-Identifier: MIT
 *
 * Implements layer normalization (Ba et al. 2016, arXiv:1607.06450), alone and after a residual connection.
 */
#include "nn/layers.h"

#include "nn/named.h"
#include "tensor/parts.h"

void attn_nn_layer_norm_init(attn_nn_layer_norm *layer, attn_nn_builder *builder, int64_t dim, double eps)
{
    *layer = (attn_nn_layer_norm){.eps = eps > 0 ? eps : 1e-5};
    layer->weight = attn_nn_parameter(builder, "weight", 1, &dim, (attn_nn_initializer){.start = ATTN_INIT_ONES});
    layer->bias = attn_nn_parameter(builder, "bias", 1, &dim, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
}

attn_tensor *attn_nn_layer_norm_forward(const attn_nn_layer_norm *layer, attn_tape *tape, attn_tensor *x)
{
    return attn_layer_norm(tape, x, layer->weight, layer->bias, layer->eps);
}

void attn_nn_add_norm_init(attn_nn_add_norm *layer, attn_nn_builder *builder, int64_t dim, double dropout)
{
    layer->dropout = dropout;
    layer->pre_norm = false;
    attn__nn_layer_norm_named(&layer->ln, builder, "ln", dim, 0);
}

attn_tensor *attn_nn_add_norm_forward(const attn_nn_add_norm *layer, attn_tape *tape, attn_tensor *x, attn_tensor *y)
{
    return attn_add_layer_norm(tape, x, y, layer->dropout, layer->ln.weight, layer->ln.bias, layer->ln.eps);
}
