/* SPDX-License-Identifier: MIT
 * generator.h - what a generator of images is made of, its directory, and images as levels. */
#ifndef ATTN_APPS_GENERATOR_H
#define ATTN_APPS_GENERATOR_H

#include "attn/axial_transformer.h"
#include "attn/generate.h"
#include "apps/image_source.h"
#include "base/keys.h"

struct attn_generator {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* config.json as it is */
    attn_image_shape shape;
    int64_t levels;
};

extern const attn__keys attn__generator_keys;

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
