/* SPDX-License-Identifier: MIT
 *
 * axial_transformer.h - models of images as distributions: how many bits an image costs, and drawing new ones.
 *
 *     attn_model_create(&model, context, "axial-transformer", config, NULL);
 *     loss = attn_axial_transformer_bits(model, tape, x, slices);  // training: one slice an image
 *     attn_axial_transformer_sample(model, x, &(attn_axial_transformer_options){.seed = 1});  // x I32 [B,S,Y,X] is filled
 *
 * An image is integers in [0, K), one number a pixel and channel.  A slice is one channel of one frame, S = frames *
 * channels of them in that order; the model draws slice after slice, in each row after row, in each pixel after
 * pixel (Ho et al. 2019, "Axial Attention in Multidimensional Transformers", arXiv:1912.12180).  Letters: B images,
 * S slices, Y rows, X columns, K levels.  As with every model, one thread at a time. */
#ifndef ATTN_AXIAL_TRANSFORMER_H
#define ATTN_AXIAL_TRANSFORMER_H

#include "attn/models.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Logits of every number given all before it: x I32 [B,S,Y,X] or [B,F,C,Y,X].  With slices, I32 [B], of one slice an
 * image: [B,Y,X,K]; NULL: of all, x's shape and K.  NULL on error: ATTN_ERROR_UNSUPPORTED (another kind of model),
 * ATTN_ERROR_SHAPE, ATTN_ERROR_ARGUMENT (a number outside of [0, K), a slice outside of [0, S)). */
ATTN_API attn_tensor *attn_axial_transformer_logits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                                    const attn_tensor *slices);
/* Mean of -log2 p over what the logits above are of: bits per dimension, one element.  A random slice for each image
 * gives an estimate without bias at 1/S of the cost (the paper's training); all of them the number to report.  x and
 * slices as of attn_axial_transformer_logits; a result of shape [1]. */
ATTN_API attn_tensor *attn_axial_transformer_bits(attn_model *model, attn_tape *tape, const attn_tensor *x,
                                                  const attn_tensor *slices);

/* Zero means the default. */
typedef struct attn_axial_transformer_options {
    uint64_t seed;            /* of the noise; the numbers of an image do not depend on how many others are drawn */
    double temperature;       /* the logits are divided by it; 0: 1 */
    const attn_tensor *noise; /* f32 or f64 [B,S,Y,X,K], standard Gumbel numbers, in place of the seed's; NULL: none */
    const attn_tensor *known; /* U8 of x's shape, nonzero where x is given and stays; NULL: nowhere */
    bool slow;                /* the whole model for every pixel: for tests, the same image at many times the cost */
    /* If not NULL, called after each row with the rows done and all there are; false stops with
     * ATTN_ERROR_INTERRUPTED. */
    bool (*progress)(void *user, int64_t done, int64_t total);
    void *user;
} attn_axial_transformer_options;
/* Draws x (I32 [B,S,Y,X] or [B,F,C,Y,X]) where it is not known: argmax of logits / temperature + noise.  The encoder of
 * earlier slices runs once a slice, the outer decoder once a row, the inner one once a pixel, keys and values kept.
 * Given rows at the top complete an image: later slices attend to all of the earlier ones.  Uses a tape of its own;
 * `options` may be NULL.  Errors as above, and ATTN_ERROR_UNSUPPORTED where the weights hold NaN or infinity, so that there
 * are no probabilities; x is then partly drawn. */
ATTN_API attn_status attn_axial_transformer_sample(attn_model *model, attn_tensor *x,
                                                   const attn_axial_transformer_options *options);

#ifdef __cplusplus
}
#endif
#endif
