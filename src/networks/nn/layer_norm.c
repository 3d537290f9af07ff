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

void attn__nn_norm_named(attn_nn_layer_norm *layer, attn_nn_builder *builder, const char *name, int64_t dim,
                         const attn__nn_norm_options *options)
{
    *layer = (attn_nn_layer_norm){.eps = options->eps > 0 ? options->eps : 1e-5, .rms = options->rms};
    attn_nn_push(builder, name);
    layer->weight = attn_nn_parameter(builder, "weight", 1, &dim, (attn_nn_initializer){.start = ATTN_INIT_ONES});
    layer->bias = options->plain
                      ? attn_nn_constant(builder, "bias", 1, &dim)
                      : attn_nn_parameter(builder, "bias", 1, &dim, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
    attn_nn_pop(builder);
}

attn_tensor *attn_nn_layer_norm_forward(const attn_nn_layer_norm *layer, attn_tape *tape, attn_tensor *x)
{
    if (layer->rms)
        return attn_rms_norm(tape, x, layer->weight, layer->bias, layer->eps);
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
    if (layer->ln.rms)
        return attn_nn_layer_norm_forward(&layer->ln, tape, attn_add(tape, x, attn_dropout(tape, y, layer->dropout)));
    return attn_add_layer_norm(tape, x, y, layer->dropout, layer->ln.weight, layer->ln.bias, layer->ln.eps);
}
