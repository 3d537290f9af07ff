/* SPDX-License-Identifier: MIT
 *
 * generator.h - the struct of an image generator, its directory, and the conversion of images to levels.
 */
#ifndef ATTN_APPS_GENERATOR_H
#define ATTN_APPS_GENERATOR_H

#include "models/axial_transformer.h"
#include "attn/generate.h"
#include "attn/trainer.h"
#include "apps/images/source.h"
#include "apps/run/run.h"
#include "apps/view/view.h"

struct attn_generator {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* settings of config.json, unchanged */
    attn_image_shape shape;
    int64_t levels;
    /* true: use the sampler that evaluates the whole model for each pixel; it draws the same images, so times can be
     * compared */
    bool slow;
};

/* Returns the model, which the generator owns. */
attn_model *attn_generator_model(const attn_generator *generator);
attn_image_shape attn_generator_shape(const attn_generator *generator);
int64_t attn_generator_levels(const attn_generator *generator);

typedef struct attn_generator_score {
    int64_t images, dims; /* number of images; number of samples per image, including all frames of a video */
    double bits;          /* mean of -log2 p over all samples, in bits per dimension */
    /* bits per dimension of a baseline, which predicts each pixel independently from a histogram over the training
     * part with 1 added to every count */
    double baseline;
    double images_per_second;
} attn_generator_score;
/* Measures the bits per dimension of a part of the data, divided as in the training. ATTN_ERROR_ARGUMENT: the data does
 * not exist, or its images do not fit. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY: the
 * data cannot be read. */
attn_status attn_generator_evaluate(attn_generator *generator, const char *data, attn_split part,
                                    attn_generator_score *score);

/* The value whose prediction is drawn: one level of a picture, given by pixel, channel and frame. Fields that are
 * zero have their defaults. */
typedef struct attn_generator_view {
    /* query_row and query_col are the pixel of the value, counted from 1; 0: the pixel in the middle */
    attn_classifier_view view;
    /* channel and frame of the value, counted from 1; 0: the last channel, and the last given frame */
    int64_t channel, frame;
} attn_generator_view;
typedef struct attn_generator_prediction {
    int64_t row, col, channel, frame; /* counted from 1 */
    /* level: the picture's level at this pixel; likeliest: the level with the highest probability */
    int32_t level, likeliest;
    double probability, of_likeliest;
} attn_generator_prediction;
/* Draws the attention of the model while it predicts one value of an image. The image is a picture, or a video with n
 * given frames, which are resized to the model's size. The drawing shows the plane of the value, which is one channel
 * of one frame. Over the plane it shows the weights of each block. The query is the pixel whose result is used for the
 * prediction:
 *   exterior  the pixel itself, drawn over the previous plane; there are no panels for the first plane
 *   outer     the pixel above, along its row and column; there are no panels for the first row
 *   inner     the pixel itself, whose input depends on the pixels to the left and above
 * ATTN_PLOT_HTML gives an interactive page with all blocks and positions of the plane. `found` gets the probability of
 * the value, and may be NULL. ATTN_ERROR_ARGUMENT: there is no such layer, head, pixel, channel or frame. */
attn_status attn_generator_render_attention(attn_generator *generator, const attn_image *images, int64_t n,
                                            const attn_generator_view *view, attn_plot_format format,
                                            attn_bytes *picture, attn_generator_prediction *found);

/* A drawing before it is rendered. It must be freed with attn__generator_look_free, even on failure. */
typedef struct attn__generator_look {
    attn_generator *g;
    attn_generator_view view; /* the view with defaults filled in; its layer and head may still be 0, which means all */
    int64_t slice;
    attn_image plane, before; /* plane: the drawn plane, which contains the value; before: the plane before it */
    attn__attention attention;
    attn_generator_prediction found;
} attn__generator_look;
attn_status attn__generator_look_at(attn__generator_look *look, attn_generator *generator, const attn_image *images,
                                    int64_t n, const attn_generator_view *view);
void attn__generator_look_free(attn__generator_look *look);

extern const attn__keys attn__generator_keys;
extern const attn_trainer attn__generator_trainer;

attn_status attn__generator_model(attn_model **model, attn_context *context, const attn_config *settings,
                                  attn_image_shape shape);
/* Writes config.json. It contains the settings of the model, and the training's settings that determine how images
 * were split. */
attn_status attn__generator_write(const attn_model *model, const attn_config *settings, const char *directory);

/* Converts an image to the size and the number of channels of the model. The caller frees `fitted`. */
attn_status attn__generator_fit(const attn_generator *g, const attn_image *image, attn_image *fitted);
/* Converts the rows [0, rows) of a fitted image to levels, and writes these to x [C,Y,X]. */
void attn__generator_put_rows(const attn_generator *g, const attn_image *image, int64_t rows, int32_t *x);

static inline int32_t attn__level_of(unsigned char sample, int64_t levels)
{
    return (int32_t)(sample * levels / 256);
}
static inline unsigned char attn__sample_of(int32_t level, int64_t levels)
{
    return (unsigned char)(levels > 1 ? (255 * level + (levels - 1) / 2) / (levels - 1) : 0);
}
/* Returns the levels of a batch as input of the model, I32 [B,S,Y,X]. */
attn_tensor *attn__generator_numbers(attn_tape *tape, const attn_image_batch *batch, attn_image_shape shape,
                                     int64_t levels);
/* Computes the mean bits per dimension over all of `batches`. */
attn_status attn__generator_bits(attn_model *model, attn_tape *tape, attn_image_batches *batches,
                                 attn_image_shape shape, int64_t levels, double *bits);

#endif
