/* SPDX-License-Identifier: MIT
 *
 * axial_transformer.h - the autoregressive axial transformer: its parts, and the steps that training and sampling
 * share.
 */
#ifndef ATTN_MODELS_AXIAL_TRANSFORMER_H
#define ATTN_MODELS_AXIAL_TRANSFORMER_H

#include "attn/axial_transformer.h"
#include "attn/nn_axial.h"
#include "attn/nn_spatial.h"
#include "models/model_keys.h"

/* One learned vector for each row and each column: [Y,1,D] and [X,D]. */
typedef struct attn__grid_positions {
    attn_tensor *rows, *columns;
} attn__grid_positions;

typedef struct attn__axial_transformer {
    int64_t frames, channels, slices, height, width, levels, dim;
    int nexterior, nouter, ninner;
    attn_nn_conv conv; /* from all slices and the mark of the active one */
    attn__grid_positions exterior_positions, positions;
    attn_nn_embedding embedding;
    attn_nn_axial_block exterior[ATTN__MAX_BLOCKS], outer[ATTN__MAX_BLOCKS], inner[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm norm;
    attn_nn_linear head;
} attn__axial_transformer;

/* The model's struct, or NULL (noted) if it is of another kind. */
const attn__axial_transformer *attn__axial_transformer_of(const attn_model *model, attn_context *context);
/* False (noted) unless x is I32 of the model's sizes, with every number in [0, K) where `values` is set. */
bool attn__axial_transformer_takes(const attn__axial_transformer *m, attn_context *context, const attn_tensor *x,
                                   bool values);
/* The sum that both decoders add to their input, positions and the encoded earlier slices, for N = B (slices given) or
 * B*S active slices: [N,Y,X,D]. */
attn_tensor *attn__axial_transformer_base(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                          const attn_tensor *slices);
/* Logits of the inner decoder's result [...,D]. */
attn_tensor *attn__axial_transformer_head(const attn__axial_transformer *m, attn_tape *tape, attn_tensor *h);

#endif
