/* SPDX-License-Identifier: MIT
 * generator.h - what a generator of images is made of, its directory, and images as levels. */
#ifndef ATTN_APPS_GENERATOR_H
#define ATTN_APPS_GENERATOR_H

#include "models/axial_transformer.h"
#include "attn/generate.h"
#include "attn/trainer.h"
#include "apps/run/image_source.h"
#include "apps/run/run.h"

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
    int64_t images, dims;     /* numbers of an image: width * height * channels */
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

extern const attn__keys attn__generator_keys;
extern const attn_trainer attn__generator_trainer;

/* The model that `settings` describe for images of this shape, with fresh parameters. */
attn_status attn__generator_model(attn_model **model, attn_context *context, const attn_config *settings,
                                  attn_image_shape shape);
/* Writes config.json: the model's own settings, and those of `settings` that say how images were divided. */
attn_status attn__generator_write(const attn_model *model, const attn_config *settings, const char *directory);

static inline int32_t attn__level_of(unsigned char sample, int64_t levels)
{
    return (int32_t)(sample * levels / 256);
}
static inline unsigned char attn__sample_of(int32_t level, int64_t levels)
{
    return (unsigned char)(levels > 1 ? (255 * level + (levels - 1) / 2) / (levels - 1) : 0);
}
/* A batch as the model takes it, I32 [B,C,Y,X]. */
attn_tensor *attn__generator_numbers(attn_tape *tape, const attn_image_batch *batch, attn_image_shape shape,
                                     int64_t levels);
/* Mean bits per dimension over `batches` from their start. */
attn_status attn__generator_bits(attn_model *model, attn_tape *tape, attn_image_batches *batches,
                                 attn_image_shape shape, int64_t levels, double *bits);

#endif
