/* SPDX-License-Identifier: MIT
 * classifier.h - what an image classifier is made of, and its directory. */
#ifndef ATTN_APPS_CLASSIFIER_H
#define ATTN_APPS_CLASSIFIER_H

#include "attn/classify.h"
#include "apps/image_source.h"
#include "base/keys.h"

/* The least and the most of each statistic among the training's pictures. */
enum { ATTN__SEEN = 3 };
typedef struct attn__seen {
    bool known;
    double min[ATTN__SEEN], max[ATTN__SEEN];
} attn__seen;

/* How pictures are prepared: fitted to the model's size, then (value / 255 - mean) / std for each channel. */
typedef struct attn__pixels {
    float mean[3], std[3];
    attn__image_fitting fitting;
} attn__pixels;

struct attn_classifier {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* config.json as it is */
    attn_image_shape shape;
    int64_t nclasses;
    const char *const *classes; /* in config */
    attn__pixels pixels;
    attn__seen seen;
};

extern const attn__keys attn__classifier_keys;

/* The model that `settings` describe for images of this shape, with fresh parameters.  ATTN_ERROR_UNSUPPORTED:
 * images of a shape that the architecture does not take. */
attn_status attn__classifier_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   attn_image_shape shape, int64_t classes);
/* The model of the checkpoint that the setting "from" names, with its parameters, for pictures of this shape and so
 * many classes; `table` gets where each parameter comes from.  Statuses of attn_vit_load; ATTN_ERROR_SHAPE: pictures
 * that it is not for. */
attn_status attn__classifier_from(attn_model **model, attn_context *context, const attn_config *settings,
                                  attn_image_shape shape, int64_t classes, attn_bytes *table);
/* The part of a model's config that determines how images are divided and prepared. */
attn_status attn__classifier_write(const attn_model *model, const attn_config *settings, attn_image_shape shape,
                                   const attn__pixels *pixels, const attn__seen *seen, char *const *classes,
                                   int64_t nclasses, const char *directory);
void attn__classifier_see(attn__seen *seen, const attn_image_set *set);
attn_status attn__seen_write(attn_config *config, const attn__seen *seen);
void attn__seen_read(attn__seen *seen, const attn_config *config);
/* A picture in the size and the channels of the model; the caller frees it, on failure too. */
attn_status attn__classifier_fit(const attn_classifier *c, const attn_image *image, attn_image *fitted);

/* Logits [B,classes] of a batch x [B,channels,height,width]; NULL on error. */
attn_tensor *attn__classifier_logits(attn_model *model, attn_tape *tape, attn_image_shape shape, const float *x,
                                     int64_t n);
/* ATTN_ERROR_UNSUPPORTED, noted, unless `value`, computed from the logits of all classes, is finite. */
attn_status attn__classifier_check(attn_context *context, double value);
/* Over `batches` from their start: mean loss, and how many are right.  `confusion` (may be NULL) is counted up. */
attn_status attn__classifier_measure(attn_model *model, attn_tape *tape, attn_image_shape shape, int64_t classes,
                                     attn_image_batches *batches, double *loss, int64_t *right, int64_t *confusion);

#endif
