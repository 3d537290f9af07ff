/* SPDX-License-Identifier: MIT
 * vit_config.h - files that accompany the weights of a Vision Transformer from elsewhere: config.json, the settings of
 * its preparation of pictures, and what a training saved with the weights. */
#ifndef ATTN_APPS_VIT_CONFIG_H
#define ATTN_APPS_VIT_CONFIG_H

#include "apps/classifier/classifier.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/checkpoint/convert.h"
#include "apps/checkpoint/vit.h"

typedef struct attn__vit_config {
    attn_context *context;
    const char *weights;      /* the path, for messages */
    char path[ATTN__PATH];    /* of config.json, which may not be there */
    attn_config *config;      /* empty where there is none */
    attn_config *preparation; /* preprocessor_config.json; empty where there is none */
    attn_config *saved;       /* with the weights: for a reader of weights to fill */
    bool hugging_face;        /* else timm; set by the caller */
} attn__vit_config;

/* Reads the files in the directory `path`, or in that of the file `path`.  To be closed in any case. */
attn_status attn__vit_config_open(attn__vit_config *v, attn_context *context, const char *path);
void attn__vit_config_close(attn__vit_config *v);

/* How many heads a model of this width has.  ATTN_ERROR_ARGUMENT: it is not given anywhere. */
attn_status attn__vit_heads(const attn__vit_config *v, int64_t width, int64_t *heads);
/* ATTN_ERROR_SHAPE: a setting contradicts the shapes, which are in `model`; ATTN_ERROR_UNSUPPORTED: a setting
 * that a plain ViT has not. */
attn_status attn__vit_agrees(const attn__vit_config *v, const attn_config *model);
/* The side of its pictures, of whose patches, `side` pixels wide, there are positions for grid x grid.
 * ATTN_ERROR_SHAPE: the settings contradict that. */
attn_status attn__vit_picture(const attn__vit_config *v, int64_t grid, int64_t side, int64_t *size);
/* Height and width of its pictures, if they are in its settings. */
bool attn__vit_sides(const attn__vit_config *v, int64_t sides[2]);
/* How pictures are prepared: by `scale` (NULL: as the files say, else 0.5 for means and deviations), and resized to the
 * model's height and width as the files say, else bicubic.  ATTN_ERROR_UNSUPPORTED: as no classifier of this library
 * does. */
attn_status attn__vit_pixels(const attn__vit_config *v, const int64_t sides[2], const attn_pixel_scale *scale,
                             attn__pixels *pixels);

/* attn_vit_load, which also returns what it read in addition to the weights, to be closed in any case. */
attn_status attn__vit_load(attn_model **model, attn_context *context, const char *path, const attn_vit_options *options,
                           attn__vit_config *beside);

#endif
