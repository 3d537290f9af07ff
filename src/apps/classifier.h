/* SPDX-License-Identifier: MIT
 * classifier.h - what an image classifier is made of, and its directory. */
#ifndef ATTN_APPS_CLASSIFIER_H
#define ATTN_APPS_CLASSIFIER_H

#include "attn/classify.h"
#include "apps/image_source.h"
#include "base/keys.h"

struct attn_classifier {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* config.json as it is */
    attn_image_shape shape;
    int64_t nclasses;
    const char *const *classes; /* in config */
    float mean[3], std[3];
};

extern const attn__keys attn__classifier_keys;

/* The model that `settings` describe for images of this shape, with fresh parameters.  ATTN_UNSUPPORTED: images of a
 * shape that the architecture does not take. */
attn_status attn__classifier_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   attn_image_shape shape, int64_t classes);
/* The model of the checkpoint that the setting "from" names, with its parameters, for pictures of this shape and so many
 * classes; `table` gets where each parameter comes from.  Statuses of attn_vit_load; ATTN_SHAPE: pictures that it is not for. */
attn_status attn__classifier_from(attn_model **model, attn_context *context, const attn_config *settings,
                                  attn_image_shape shape, int64_t classes, attn_bytes *table);
/* The share of a model's config that says how images are divided and prepared. */
attn_status attn__classifier_write(const attn_model *model, const attn_config *settings, attn_image_shape shape,
                                   const float *mean, const float *std, char *const *classes, int64_t nclasses,
                                   const char *directory);

/* Logits [B,classes] of a batch x [B,channels,height,width]; NULL on error. */
attn_tensor *attn__classifier_logits(attn_model *model, attn_tape *tape, attn_image_shape shape, const float *x,
                                     int64_t n);
/* Over `batches` from their start: mean loss, and how many are right.  `confusion` (may be NULL) is counted up. */
attn_status attn__classifier_measure(attn_model *model, attn_tape *tape, attn_image_shape shape, int64_t classes,
                                     attn_image_batches *batches, double *loss, int64_t *right, int64_t *confusion);

#endif
