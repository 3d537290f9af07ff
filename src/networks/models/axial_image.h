/* SPDX-License-Identifier: MIT
 *
 * axial_image.h - the blocks of the axial image transformer, which the image classifier uses too.
 */
#ifndef ATTN_MODELS_AXIAL_IMAGE_H
#define ATTN_MODELS_AXIAL_IMAGE_H

#include "models/model_keys.h"
#include "nn/axial.h"
#include "nn/spatial.h"

/* A norm, followed by attention along one axis of x [B,C,Y,X]. */
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

/* Makes the stack of blocks from the config keys dim, depth, heads, dim_heads, reversible, dropout and resize.
 * `shape` is the height and width of the learned positions. If `shape` is NULL, there are no positions. */
void attn__axial_image_build(attn__axial_image *stack, attn_nn_builder *builder, const attn_config *config,
                             const int64_t *shape);
/* Runs the stack on x [B,D,Y,X] and returns the same shape. If `weights` is not NULL, *weights gets the attention
 * weights [depth,B,H,Y,X,Y+X]. In this case the activations of all layers are stored. */
attn_tensor *attn__axial_image_forward(const attn__axial_image *stack, attn_tape *tape, attn_tensor *x,
                                       attn_tensor **weights);

#endif
