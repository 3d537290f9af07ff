/* SPDX-License-Identifier: MIT */
#include "nn/named.h"

void attn__nn_linear_named(attn_nn_linear *layer, attn_nn_builder *builder, const char *name, int64_t in, int64_t out,
                           bool bias)
{
    attn_nn_push(builder, name);
    attn_nn_linear_init(layer, builder, in, out, bias);
    attn_nn_pop(builder);
}

void attn__nn_embedding_named(attn_nn_embedding *layer, attn_nn_builder *builder, const char *name, int64_t vocabulary,
                              int64_t dim, double scale)
{
    attn_nn_push(builder, name);
    attn_nn_embedding_init(layer, builder, vocabulary, dim, scale);
    attn_nn_pop(builder);
}

void attn__nn_layer_norm_named(attn_nn_layer_norm *layer, attn_nn_builder *builder, const char *name, int64_t dim,
                               double eps)
{
    attn_nn_push(builder, name);
    attn_nn_layer_norm_init(layer, builder, dim, eps);
    attn_nn_pop(builder);
}

void attn__nn_batch_norm_named(attn_nn_batch_norm *layer, attn_nn_builder *builder, const char *name, int64_t channels,
                               bool zero)
{
    attn_nn_push(builder, name);
    attn_nn_batch_norm_init(layer, builder, channels, zero);
    attn_nn_pop(builder);
}

void attn__nn_map_norm_named(attn_nn_map_norm *layer, attn_nn_builder *builder, const char *name,
                             attn_nn_map_norm_kind kind, int64_t channels, int64_t groups)
{
    attn_nn_push(builder, name);
    attn_nn_map_norm_init(layer, builder, kind, channels, groups);
    attn_nn_pop(builder);
}

void attn__nn_conv_named(attn_nn_conv *layer, attn_nn_builder *builder, const char *name,
                         const attn_nn_conv_options *options)
{
    attn_nn_push(builder, name);
    attn_nn_conv_init(layer, builder, options);
    attn_nn_pop(builder);
}

void attn__nn_pointwise_named(attn_nn_conv *layer, attn_nn_builder *builder, const char *name, int64_t in, int64_t out,
                              bool bias)
{
    attn__nn_conv_named(layer, builder, name,
                        &(attn_nn_conv_options){.spatial = 2, .in_channels = in, .out_channels = out, .bias = bias});
}
