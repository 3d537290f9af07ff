/* SPDX-License-Identifier: MIT
 *
 * axial_transformer.h - the autoregressive axial transformer, a distribution over images: bits of an image, drawing new
 * images, and the parts that both share.
 *
 *     attn_model_create(&model, context, "axial-transformer", config, NULL);
 *     loss = attn_axial_transformer_bits(model, tape, x, slices);  // training: one slice an image
 *     attn_axial_transformer_sample(model, x, &(attn_axial_transformer_options){.seed = 1});  // x I32 [B,S,Y,X] is filled
 *
 * An image has one integer in [0, K) for each pixel and channel. A slice is one channel of one frame, and there are S =
 * frames * channels slices in that order. The model draws slice by slice, row by row, pixel by pixel (Ho et al. 2019,
 * "Axial Attention in Multidimensional Transformers", arXiv:1912.12180). Letters: B images, S slices, Y rows, X
 * columns, K levels. As with every model, only one thread at a time may use it. */
#ifndef ATTN_MODELS_AXIAL_TRANSFORMER_H
#define ATTN_MODELS_AXIAL_TRANSFORMER_H

#include "attn/models.h"
#include "nn/axial.h"
#include "nn/spatial.h"
#include "models/model_keys.h"

/* Returns the logits of every number of x given all earlier numbers. x is I32 [B,S,Y,X] or [B,F,C,Y,X]. slices: I32
 * [B], one slice of each image, which gives [B,Y,X,K]. NULL means all slices, and the result has x's shape and K.
 * Returns NULL on error. ATTN_ERROR_UNSUPPORTED: the model is of another kind. ATTN_ERROR_SHAPE: a shape does not
 * fit. ATTN_ERROR_ARGUMENT: a number is outside [0, K), or a slice is outside [0, S). */
attn_tensor *attn_axial_transformer_logits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                           const attn_tensor *slices);
/* Returns the mean of -log2 p over the numbers whose logits are computed, in bits per dimension, as a tensor of
 * shape [1]. x and slices are as in attn_axial_transformer_logits. A random slice for each image gives an unbiased
 * estimate at 1/S of the cost, as in the paper's training. All slices give the number to report. */
attn_tensor *attn_axial_transformer_bits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                         const attn_tensor *slices);

/* Options of the sampler. Zero fields mean the defaults. */
typedef struct attn_axial_transformer_options {
    uint64_t seed;            /* seed of the noise; an image does not depend on the number of other images */
    double temperature;       /* the logits are divided by this number; 0: 1 */
    const attn_tensor *noise; /* standard Gumbel noise in place of the seed's, f32 or f64 [B,S,Y,X,K]; NULL: none */
    const attn_tensor *known; /* U8 of x's shape, nonzero where x is given and stays; NULL: nothing is given */
    /* evaluate the whole model for every pixel, for tests; this gives the same image at many times the cost */
    bool slow;
    /* The number of rows drawn earlier and of all rows, for the context's progress. If both are 0, progress counts
     * the rows of x. */
    int64_t rows_before, rows_all;
} attn_axial_transformer_options;
/* Draws the unknown numbers of x (I32 [B,S,Y,X] or [B,F,C,Y,X]). A drawn number is the argmax of logits /
 * temperature + noise. With KV caches, the encoder of earlier slices runs once per slice, the outer decoder once per
 * row, and the inner decoder once per pixel. If the top rows are known, the image is completed: later slices attend
 * to all earlier slices. The function uses its own tape; `options` may be NULL. Each row is reported to the
 * context's progress. Errors are those of attn_axial_transformer_logits, and ATTN_ERROR_UNSUPPORTED if the weights
 * contain NaN or infinity; x is then partly drawn. */
attn_status attn_axial_transformer_sample(attn_model *model, attn_tensor *x,
                                          const attn_axial_transformer_options *options);

/* Learned positions: one vector for each row [Y,1,D] and one for each column [X,D]. */
typedef struct attn__grid_positions {
    attn_tensor *rows, *columns;
} attn__grid_positions;

typedef struct attn__axial_transformer {
    int64_t frames, channels, slices, height, width, levels, dim;
    int nexterior, nouter, ninner;
    attn_nn_conv conv; /* projects all slices and the plane that marks the active slice */
    attn__grid_positions exterior_positions, positions;
    attn_nn_embedding embedding;
    attn_nn_axial_block exterior[ATTN__MAX_BLOCKS], outer[ATTN__MAX_BLOCKS], inner[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm norm;
    attn_nn_linear head;
} attn__axial_transformer;

/* Returns the model's struct. For another kind of model it sets the error and returns NULL. */
const attn__axial_transformer *attn__axial_transformer_of(const attn_model *model, attn_context *context);
/* Checks that x is I32 with the model's sizes. With `values`, every number must also be in [0, K). Otherwise it sets
 * the error and returns false. */
bool attn__axial_transformer_takes(const attn__axial_transformer *m, attn_context *context, const attn_tensor *x,
                                   bool values);
/* Returns the sum that both decoders add to their input: positions plus the encoded earlier slices, [N,Y,X,D]. N is
 * the number of active slices: B if `slices` is given, else B*S. `maps` (may be NULL) gets the weights of the
 * encoder's blocks. */
attn_tensor *attn__axial_transformer_base(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                          const attn_tensor *slices, attn_named_list *maps);
/* Returns the logits for the inner decoder's result [...,D]. */
attn_tensor *attn__axial_transformer_head(const attn__axial_transformer *m, attn_tape *tape, attn_tensor *h);

#endif
