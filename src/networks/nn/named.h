/* SPDX-License-Identifier: MIT
 *
 * named.h - initializes layers whose parameters are named below the builder's current prefix, such as "NAME.weight".
 */
#ifndef ATTN_NN_NAMED_H
#define ATTN_NN_NAMED_H

#include "nn/layers.h"
#include "nn/spatial.h"

void attn__nn_linear_named(attn_nn_linear *layer, attn_nn_builder *builder, const char *name, int64_t in, int64_t out,
                           bool bias);
void attn__nn_embedding_named(attn_nn_embedding *layer, attn_nn_builder *builder, const char *name, int64_t vocabulary,
                              int64_t dim, double scale);
void attn__nn_layer_norm_named(attn_nn_layer_norm *layer, attn_nn_builder *builder, const char *name, int64_t dim,
                               double eps);
/* A layer norm, or a norm by the root mean square. `plain`: the bias is a constant of zeros, and no parameter. */
typedef struct attn__nn_norm_options {
    double eps; /* 0: 1e-5 */
    bool rms, plain;
} attn__nn_norm_options;
void attn__nn_norm_named(attn_nn_layer_norm *layer, attn_nn_builder *builder, const char *name, int64_t dim,
                         const attn__nn_norm_options *options);
void attn__nn_batch_norm_named(attn_nn_batch_norm *layer, attn_nn_builder *builder, const char *name, int64_t channels,
                               bool zero);
void attn__nn_map_norm_named(attn_nn_map_norm *layer, attn_nn_builder *builder, const char *name,
                             attn_nn_map_norm_kind kind, int64_t channels, int64_t groups);
void attn__nn_conv_named(attn_nn_conv *layer, attn_nn_builder *builder, const char *name,
                         const attn_nn_conv_options *options);
/* Initializes a convolution of images with a 1 x 1 kernel. */
void attn__nn_pointwise_named(attn_nn_conv *layer, attn_nn_builder *builder, const char *name, int64_t in, int64_t out,
                              bool bias);

#endif
