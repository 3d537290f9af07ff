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
 * columns, K levels. As with every model, one thread at a time. */
#ifndef ATTN_MODELS_AXIAL_TRANSFORMER_H
#define ATTN_MODELS_AXIAL_TRANSFORMER_H

#include "attn/models.h"
#include "nn/axial.h"
#include "nn/spatial.h"
#include "models/model_keys.h"

/* Logits of every number given all earlier ones: x I32 [B,S,Y,X] or [B,F,C,Y,X]. With slices, I32 [B], only one slice
 * of each image: [B,Y,X,K]; NULL: all slices, x's shape and K. NULL on error: ATTN_ERROR_UNSUPPORTED (another kind of
 * model), ATTN_ERROR_SHAPE, ATTN_ERROR_ARGUMENT (a number outside [0, K), a slice outside [0, S)). */
attn_tensor *attn_axial_transformer_logits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                           const attn_tensor *slices);
/* Mean of -log2 p over the numbers whose logits are computed: bits per dimension, one element. A random slice for each
 * image gives an unbiased estimate at 1/S of the cost (the paper's training). All slices give the number to report. x
 * and slices as in attn_axial_transformer_logits; a result of shape [1]. */
attn_tensor *attn_axial_transformer_bits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                         const attn_tensor *slices);

/* Zero means the default. */
typedef struct attn_axial_transformer_options {
    uint64_t seed;            /* seed of the noise; an image does not depend on the number of other images */
    double temperature;       /* the logits are divided by this number; 0: 1 */
    const attn_tensor *noise; /* f32 or f64 [B,S,Y,X,K], standard Gumbel noise, replaces the seed's noise; NULL: none */
    const attn_tensor *known; /* U8 of x's shape, nonzero where x is given and must stay; NULL: nothing is given */
    /* evaluate the whole model for every pixel, for tests: the same image at many times the cost */
    bool slow;
    /* Rows drawn earlier, and rows in all, for the context's progress. All 0: the rows of x. */
    int64_t rows_before, rows_all;
} attn_axial_transformer_options;
/* Draws the unknown numbers of x (I32 [B,S,Y,X] or [B,F,C,Y,X]): argmax of logits / temperature + noise. The encoder of
 * earlier slices runs once a slice, the outer decoder once a row, the inner decoder once a pixel, with KV caches. If
 * the top rows are given, the image is completed: later slices attend to all earlier ones. The function uses its own
 * tape; `options` may be NULL. Each row is reported to the context's progress. Errors as above, and
 * ATTN_ERROR_UNSUPPORTED if the weights hold NaN or infinity; x is then partly drawn. */
attn_status attn_axial_transformer_sample(attn_model *model, attn_tensor *x,
                                          const attn_axial_transformer_options *options);

/* One learned vector for each row and each column: [Y,1,D] and [X,D]. */
typedef struct attn__grid_positions {
    attn_tensor *rows, *columns;
} attn__grid_positions;

typedef struct attn__axial_transformer {
    int64_t frames, channels, slices, height, width, levels, dim;
    int nexterior, nouter, ninner;
    attn_nn_conv conv; /* projects all slices and the mark of the active one */
    attn__grid_positions exterior_positions, positions;
    attn_nn_embedding embedding;
    attn_nn_axial_block exterior[ATTN__MAX_BLOCKS], outer[ATTN__MAX_BLOCKS], inner[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm norm;
    attn_nn_linear head;
} attn__axial_transformer;

/* The model's struct, or NULL (error set) for another kind of model. */
const attn__axial_transformer *attn__axial_transformer_of(const attn_model *model, attn_context *context);
/* False (error set) unless x is I32 with the model's sizes. With `values` every number must also be in [0, K). */
bool attn__axial_transformer_takes(const attn__axial_transformer *m, attn_context *context, const attn_tensor *x,
                                   bool values);
/* The sum that both decoders add to their input, positions plus the encoded earlier slices, [N,Y,X,D]. N = B (slices
 * given) or B*S active slices. maps (may be NULL) gets the weights of the encoder's blocks. */
attn_tensor *attn__axial_transformer_base(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                          const attn_tensor *slices, attn_named_list *maps);
/* Logits from the inner decoder's result [...,D]. */
attn_tensor *attn__axial_transformer_head(const attn__axial_transformer *m, attn_tape *tape, attn_tensor *h);

#endif
