/* SPDX-License-Identifier: MIT
 *
 * axial_transformer.h - the autoregressive axial transformer, a distribution over images: how many bits an image costs,
 * drawing new ones, and the parts that both share.
 *
 *     attn_model_create(&model, context, "axial-transformer", config, NULL);
 *     loss = attn_axial_transformer_bits(model, tape, x, slices);  // training: one slice an image
 *     attn_axial_transformer_sample(model, x, &(attn_axial_transformer_options){.seed = 1});  // x I32 [B,S,Y,X] is filled
 *
 * An image is integers in [0, K), one number a pixel and channel.  A slice is one channel of one frame, S = frames *
 * channels of them in that order; the model draws slice after slice, in each row after row, in each pixel after
 * pixel (Ho et al. 2019, "Axial Attention in Multidimensional Transformers", arXiv:1912.12180).  Letters: B images,
 * S slices, Y rows, X columns, K levels.  As with every model, one thread at a time.
 */
#ifndef ATTN_MODELS_AXIAL_TRANSFORMER_H
#define ATTN_MODELS_AXIAL_TRANSFORMER_H

#include "attn/models.h"
#include "nn/axial.h"
#include "nn/spatial.h"
#include "models/model_keys.h"

/* Logits of every number given all before it: x I32 [B,S,Y,X] or [B,F,C,Y,X].  With slices, I32 [B], of one slice an
 * image: [B,Y,X,K]; NULL: of all, x's shape and K.  NULL on error: ATTN_ERROR_UNSUPPORTED (another kind of model),
 * ATTN_ERROR_SHAPE, ATTN_ERROR_ARGUMENT (a number outside of [0, K), a slice outside of [0, S)). */
attn_tensor *attn_axial_transformer_logits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                           const attn_tensor *slices);
/* Mean of -log2 p over what the logits above are of: bits per dimension, one element.  A random slice for each image
 * gives an estimate without bias at 1/S of the cost (the paper's training); all of them the number to report.  x and
 * slices as of attn_axial_transformer_logits; a result of shape [1]. */
attn_tensor *attn_axial_transformer_bits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                         const attn_tensor *slices);

/* Zero means the default. */
typedef struct attn_axial_transformer_options {
    uint64_t seed;            /* of the noise; the numbers of an image do not depend on how many others are drawn */
    double temperature;       /* the logits are divided by it; 0: 1 */
    const attn_tensor *noise; /* f32 or f64 [B,S,Y,X,K], standard Gumbel numbers, in place of the seed's; NULL: none */
    const attn_tensor *known; /* U8 of x's shape, nonzero where x is given and stays; NULL: nowhere */
    bool slow;                /* the whole model for every pixel: for tests, the same image at many times the cost */
    /* Rows drawn before, and in all, for the context's progress; all 0: those of x. */
    int64_t rows_before, rows_all;
} attn_axial_transformer_options;
/* Draws x (I32 [B,S,Y,X] or [B,F,C,Y,X]) where it is not known: argmax of logits / temperature + noise.  The encoder of
 * earlier slices runs once a slice, the outer decoder once a row, the inner one once a pixel, keys and values kept.
 * Given rows at the top complete an image: later slices attend to all of the earlier ones.  Uses a tape of its own;
 * `options` may be NULL.  The context's progress is told of each row.  Errors as above, and ATTN_ERROR_UNSUPPORTED where the weights hold NaN or infinity, so that there
 * are no probabilities; x is then partly drawn. */
attn_status attn_axial_transformer_sample(attn_model *model, attn_tensor *x,
                                          const attn_axial_transformer_options *options);

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
 * B*S active slices: [N,Y,X,D].  maps (may be NULL) gets the weights of the encoder's blocks. */
attn_tensor *attn__axial_transformer_base(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                          const attn_tensor *slices, attn_named_list *maps);
/* Logits of the inner decoder's result [...,D]. */
attn_tensor *attn__axial_transformer_head(const attn__axial_transformer *m, attn_tape *tape, attn_tensor *h);

#endif
