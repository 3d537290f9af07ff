/* SPDX-License-Identifier: MIT
 * generator.h - what a generator of images is made of, its directory, and images as levels. */
#ifndef ATTN_APPS_GENERATOR_H
#define ATTN_APPS_GENERATOR_H

#include "models/axial_transformer.h"
#include "attn/generate.h"
#include "attn/trainer.h"
#include "apps/run/image_source.h"
#include "apps/run/run.h"
#include "apps/view/view.h"

struct attn_generator {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* config.json as it is */
    attn_image_shape shape;
    int64_t levels;
    bool slow; /* by the definition: the whole model for each pixel; the same images, to compare times */
};

/* Whether the directory's config.json is a generator's; false also where it cannot be read. */
bool attn_generator_is_at(attn_context *context, const char *directory);
/* Its model, which it owns. */
attn_model *attn_generator_model(const attn_generator *generator);
attn_image_shape attn_generator_shape(const attn_generator *generator);
int64_t attn_generator_levels(const attn_generator *generator);

typedef struct attn_generator_score {
    int64_t images, dims;     /* numbers of an image, all frames of a video */
    double bits;              /* mean of -log2 p: bits per dimension */
    double baseline;          /* the same of independent pixels: each number's histogram over the training part, one
                                 added to every count */
    double images_per_second; /* measured, of the model */
} attn_generator_score;
/* Measures the bits per dimension of the images of a part of the data, which is divided as in the training.
 * ATTN_ERROR_ARGUMENT: no such data, or images that do not fit; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_MEMORY. */
attn_status attn_generator_evaluate(attn_generator *generator, const char *data, attn_split part,
                                    attn_generator_score *score);

/* The number of a picture whose prediction is looked at; zero means the default. */
typedef struct attn_generator_view {
    attn_classifier_view view; /* query_row, query_col: the number's pixel, from 1; 0: the middle */
    int64_t channel, frame;    /* from 1; 0: the last, and the last that is given */
} attn_generator_view;
typedef struct attn_generator_prediction {
    int64_t row, col, channel, frame; /* from 1 */
    int32_t level, likeliest;         /* that of the picture, and the one with the largest probability */
    double probability, of_likeliest;
} attn_generator_prediction;
/* Draws what the model attends to where it predicts one number of a picture, or of a video of which n frames are given;
 * these are brought to its size first.  It is the plane of that number, a channel of a frame, and over it the weights of each
 * block from the position whose result enters the prediction.
 *   exterior   the pixel itself, over the plane before; no panels for the first plane, which has none
 *   outer      the pixel above, in whose row and column it ends; no panels for the first row
 *   inner      the pixel itself: a place has what is known to the left of it and above it
 * As ATTN_PLOT_HTML it is a page to explore, with all blocks and positions of the plane.  `found` (may be NULL) gets the
 * number's probability.  ATTN_ERROR_ARGUMENT: there is no such layer, head, pixel, channel or frame. */
attn_status attn_generator_render_attention(attn_generator *generator, const attn_image *images, int64_t n,
                                            const attn_generator_view *view, attn_plot_format format,
                                            attn_bytes *picture, attn_generator_prediction *found);

/* The drawing before it is rendered; to be freed on failure too. */
typedef struct attn__generator_look {
    attn_generator *g;
    attn_generator_view view; /* resolved: only layer and head may be 0 */
    int64_t slice;
    attn_image plane, before; /* of the number, and the one before it */
    attn__attention attention;
    attn_generator_prediction found;
} attn__generator_look;
attn_status attn__generator_look_at(attn__generator_look *look, attn_generator *generator, const attn_image *images,
                                    int64_t n, const attn_generator_view *view);
void attn__generator_look_free(attn__generator_look *look);

extern const attn__keys attn__generator_keys;
extern const attn_trainer attn__generator_trainer;

/* The model that `settings` describe for images of this shape, with fresh parameters. */
attn_status attn__generator_model(attn_model **model, attn_context *context, const attn_config *settings,
                                  attn_image_shape shape);
/* Writes config.json: the model's own settings, and those of `settings` that say how images were divided. */
attn_status attn__generator_write(const attn_model *model, const attn_config *settings, const char *directory);

/* An image in the size and the channels of the model. */
attn_status attn__generator_fit(const attn_generator *g, const attn_image *image, attn_image *fitted);
/* Rows [0, rows) of such an image into x [C,Y,X]. */
void attn__generator_put_rows(const attn_generator *g, const attn_image *image, int64_t rows, int32_t *x);

static inline int32_t attn__level_of(unsigned char sample, int64_t levels)
{
    return (int32_t)(sample * levels / 256);
}
static inline unsigned char attn__sample_of(int32_t level, int64_t levels)
{
    return (unsigned char)(levels > 1 ? (255 * level + (levels - 1) / 2) / (levels - 1) : 0);
}
/* A batch as the model takes it, I32 [B,S,Y,X]. */
attn_tensor *attn__generator_numbers(attn_tape *tape, const attn_image_batch *batch, attn_image_shape shape,
                                     int64_t levels);
/* Mean bits per dimension over `batches` from their start. */
attn_status attn__generator_bits(attn_model *model, attn_tape *tape, attn_image_batches *batches,
                                 attn_image_shape shape, int64_t levels, double *bits);

#endif
