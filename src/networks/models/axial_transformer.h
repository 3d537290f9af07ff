/* SPDX-License-Identifier: MIT
 *
 * axial_transformer.h - the autoregressive axial transformer, a distribution over images. It can compute the bits that
 * an image costs, and draw new images.
 *
 *     attn_model_create(&model, context, "axial-transformer", config, NULL);
 *     loss = attn_axial_transformer_bits(model, tape, x, slices);  // training: one slice an image
 *     attn_axial_transformer_sample(model, x, &(attn_axial_transformer_options){.seed = 1});  // x I32 [B,S,Y,X] is
 * filled
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

/* Returns for every value of x the logits of its K levels, given all earlier values. x is I32 [B,S,Y,X] or [B,F,C,Y,X].
 * `slices` is I32 [B] and chooses one slice of each image; the result is then [B,Y,X,K]. If `slices` is NULL, logits
 * are computed for all slices, and the result has x's shape followed by K. Returns NULL on error.
 * ATTN_ERROR_UNSUPPORTED: the model is of another kind. ATTN_ERROR_SHAPE: a shape does not fit. ATTN_ERROR_ARGUMENT: a
 * number is outside [0, K), or a slice is outside [0, S). */
attn_tensor *attn_axial_transformer_logits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                           const attn_tensor *slices);
/* Returns the mean of -log2 p over all values whose logits are computed, as a tensor of shape [1]. p is the probability
 * of the value, and the unit is bits per dimension. x and slices are as in attn_axial_transformer_logits. For training,
 * choose a random slice for each image, as in the paper: this is an unbiased estimate at 1/S of the cost. For a result
 * to report, use all slices. */
attn_tensor *attn_axial_transformer_bits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                         const attn_tensor *slices);

/* Options of the sampler. A field that is zero has its default. */
typedef struct attn_axial_transformer_options {
    /* seed of the noise; an image's noise does not depend on the number of images in the batch */
    uint64_t seed;
    double temperature; /* the logits are divided by this number; 0: 1 */
    /* standard Gumbel noise to use instead of random noise, f32 or f64 [B,S,Y,X,K]; NULL: random noise from `seed` */
    const attn_tensor *noise;
    /* U8 of x's shape: nonzero for values of x that are given and stay unchanged; NULL: no values are given */
    const attn_tensor *known;
    /* true: evaluate the whole model for every pixel; for tests, because it gives the same image at many times the
     * cost */
    bool slow;
    /* Counts for the progress reports, if an image is drawn by several calls: number of rows drawn by earlier calls,
     * and number of rows of all calls. If both are 0, progress counts the rows of x. */
    int64_t rows_before, rows_all;
} attn_axial_transformer_options;
/* Draws the unknown values of x (I32 [B,S,Y,X] or [B,F,C,Y,X]). A drawn value is the argmax of logits / temperature +
 * noise. With KV caches, the encoder of earlier slices runs once per slice, the outer decoder once per row, and the
 * inner decoder once per pixel. If the top rows are known, the rest of the image is drawn to match them. The function
 * uses its own tape. `options` may be NULL. Each row is reported to the context's progress callback. Returns the errors
 * of attn_axial_transformer_logits. Returns ATTN_ERROR_UNSUPPORTED also if the weights contain NaN or infinity; x is
 * then partly drawn. */
attn_status attn_axial_transformer_sample(attn_model *model, attn_tensor *x,
                                          const attn_axial_transformer_options *options);

/* Learned positions: one vector for each row [Y,1,D] and one for each column [X,D]. */
typedef struct attn__grid_positions {
    attn_tensor *rows, *columns;
} attn__grid_positions;

typedef struct attn__axial_transformer {
    int64_t frames, channels, slices, height, width, levels, dim;
    int nexterior, nouter, ninner;
    /* the input convolution of the encoder, over the planes of all slices and the planes that mark the active slice */
    attn_nn_conv conv;
    attn__grid_positions exterior_positions, positions;
    attn_nn_embedding embedding;
    attn_nn_axial_block exterior[ATTN__MAX_BLOCKS], outer[ATTN__MAX_BLOCKS], inner[ATTN__MAX_BLOCKS];
    attn_nn_layer_norm norm;
    attn_nn_linear head;
} attn__axial_transformer;

/* Returns the model's struct. For another kind of model it sets the error and returns NULL. */
const attn__axial_transformer *attn__axial_transformer_of(const attn_model *model, attn_context *context);
/* Checks that x is I32 and has the model's sizes. If `values` is true, every value must also be in [0, K). If the
 * check fails, sets the error and returns false. */
bool attn__axial_transformer_takes(const attn__axial_transformer *m, attn_context *context, const attn_tensor *x,
                                   bool values);
/* Returns the sum that both decoders add to their input, [N,Y,X,D]: positions plus the encoded earlier slices. N is
 * the number of active slices: B if `slices` is given, else B*S. `maps` gets the attention weights of the encoder's
 * blocks, and may be NULL. */
attn_tensor *attn__axial_transformer_base(const attn__axial_transformer *m, attn_tape *tape, const attn_tensor *x,
                                          const attn_tensor *slices, attn_named_list *maps);
/* Returns the logits for the inner decoder's result [...,D]. */
attn_tensor *attn__axial_transformer_head(const attn__axial_transformer *m, attn_tape *tape, attn_tensor *h);

#endif
