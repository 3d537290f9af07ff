/* SPDX-License-Identifier: MIT
 *
 * vit_config.h - the configuration of a foreign Vision Transformer. It consists of config.json,
 * preprocessor_config.json, and data that a training saved with the weights.
 */
#ifndef ATTN_APPS_VIT_CONFIG_H
#define ATTN_APPS_VIT_CONFIG_H

#include "apps/classifier/classifier.h"
#include "apps/checkpoint/identify.h"
#include "apps/checkpoint/convert.h"
#include "apps/checkpoint/vit.h"

typedef struct attn__vit_config {
    attn_context *context;
    attn__identity is;        /* what the path is; attn__identify_tensors adds what was saved with the weights */
    char path[ATTN__PATH];    /* path of config.json; the file may not exist */
    attn_config *config;      /* settings of config.json; empty if the file does not exist */
    attn_config *preparation; /* settings of preprocessor_config.json; empty if the file does not exist */
    bool hugging_face;        /* true: the checkpoint has Hugging Face's form; false: timm's form; set by the caller */
} attn__vit_config;

/* Reads the files in the directory `path`, or in the directory of the file `path`. attn__vit_config_close must be
 * called even if this fails. */
attn_status attn__vit_config_open(attn__vit_config *v, attn_context *context, const char *path);
void attn__vit_config_close(attn__vit_config *v);

/* Determines the number of heads of a model with this width. ATTN_ERROR_ARGUMENT: no file gives the number. */
attn_status attn__vit_heads(const attn__vit_config *v, int64_t width, int64_t *heads);
/* Checks the settings against the config `model`, which was derived from shapes. ATTN_ERROR_SHAPE: a setting
 * contradicts a shape. ATTN_ERROR_UNSUPPORTED: a plain ViT does not have this setting. */
attn_status attn__vit_agrees(const attn__vit_config *v, const attn_config *model);
/* Determines the size of square pictures, given patches of `side` pixels and positions for grid x grid patches.
 * ATTN_ERROR_SHAPE: the settings contradict this size. */
attn_status attn__vit_picture(const attn__vit_config *v, int64_t grid, int64_t side, int64_t *size);
/* Finds the height and width of the pictures in the settings. Returns false if the settings do not give them. */
bool attn__vit_sides(const attn__vit_config *v, int64_t sides[2]);
/* If `scale` is NULL, pictures are normalized as the files specify, or with means and deviations of 0.5 if the files
 * specify nothing. Otherwise they are normalized by `scale`. They are resized to the model's height and width with the
 * filter that the files specify, or a bicubic one. ATTN_ERROR_UNSUPPORTED: this library's classifiers do not have this
 * preparation. */
attn_status attn__vit_pixels(const attn__vit_config *v, const int64_t sides[2], const attn_pixel_scale *scale,
                             attn__pixels *pixels);

/* Does the same as attn_vit_load, and also returns the configuration that it has read. attn__vit_config_close must
 * be called even if this fails. */
attn_status attn__vit_load(attn_model **model, attn_context *context, const char *path, const attn_vit_options *options,
                           attn__vit_config *beside);
/* Loads the model, and makes the settings that a classifier of it has in its config.json; `options` and `scale` are as
 * in attn_vit_convert. The caller destroys *model and *config, even on failure. */
attn_status attn__vit_classifier(attn_model **model, attn_config **config, attn_context *context, const char *path,
                                 const attn_vit_options *options, const attn_pixel_scale *scale);

#endif
