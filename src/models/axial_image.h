/* SPDX-License-Identifier: MIT
 *
 * axial_image.h - the stack of the axial image transformer, which the image classifier shares. */
#ifndef ATTN_MODELS_AXIAL_IMAGE_H
#define ATTN_MODELS_AXIAL_IMAGE_H

#include "models/model_keys.h"
#include "nn/axial.h"
#include "nn/spatial.h"

/* A norm, followed by attention along one axis of [B,C,Y,X]. */
typedef struct attn__axial_image_line {
    attn_nn_layer_norm norm;
    attn_nn_self_attention attention;
    int axis;
    double dropout;
} attn__axial_image_line;

/* A norm, followed by two 3x3 convolutions with a leaky ReLU between them. */
typedef struct attn__axial_image_conv {
    attn_nn_channel_norm norm;
    attn_nn_conv widen, narrow;
    double dropout;
} attn__axial_image_conv;

typedef struct attn__axial_image {
    bool reversible, has_positions;
    int depth;
    attn_nn_axial_positions positions;
    attn__axial_image_line line[ATTN__MAX_BLOCKS][2];
    attn__axial_image_conv conv[ATTN__MAX_BLOCKS][2];
} attn__axial_image;

/* Makes the stack from the keys dim, depth, heads, dim_heads, reversible, dropout and resize. shape: height and
 * width of the learned positions; NULL: there are no positions. */
void attn__axial_image_build(attn__axial_image *stack, attn_nn_builder *builder, const attn_config *config,
                             const int64_t *shape);
/* Runs the stack on x [B,D,Y,X] and returns the same shape. If `weights` is not NULL, it gets the attention weights
 * [depth,B,H,Y,X,Y+X]. This stores the activations of all layers. */
attn_tensor *attn__axial_image_forward(const attn__axial_image *stack, attn_tape *tape, attn_tensor *x,
                                       attn_tensor **weights);

#endif
