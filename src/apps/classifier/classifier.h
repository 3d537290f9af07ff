/* SPDX-License-Identifier: MIT
 * classifier.h - what an image classifier is made of, and its directory. */
#ifndef ATTN_APPS_CLASSIFIER_H
#define ATTN_APPS_CLASSIFIER_H

#include "attn/classify.h"
#include "attn/trainer.h"
#include "apps/run/image_source.h"
#include "apps/run/run.h"
#include "apps/view/view.h"

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

/* Whether the directory's config.json is a classifier's; false also where it cannot be read. */
bool attn_classifier_is_at(attn_context *context, const char *directory);
/* Its model, which it owns. */
attn_model *attn_classifier_model(const attn_classifier *classifier);
attn_image_shape attn_classifier_shape(const attn_classifier *classifier);

/* How a picture compares with those of the training: the first of "border" (mean of the outermost pixels), "brightness"
 * (mean of all) and "contrast" (standard deviation) that is outside the range of all of theirs. */
typedef struct attn_likeness {
    const char *unlike;     /* NULL: within all three, or the classifier has no record of its training pictures (made
                             * elsewhere) */
    double found, min, max; /* of that statistic, 0 black to 1 white: the picture's, and the training's range */
    bool inverted;          /* the picture's negative would be within */
} attn_likeness;
/* ATTN_ERROR_MEMORY. */
attn_status attn_classifier_compare(const attn_classifier *classifier, const attn_image *image,
                                    attn_likeness *likeness);

typedef struct attn_classifier_score {
    int64_t images, correct;
    double loss; /* nats an image */
    double images_per_second;
    int64_t classes;
    int64_t *confusion;  /* [classes][classes]: of images of class (row), how many were taken for (column) */
    int64_t passed_over; /* files in class folders that are no pictures by their ending */
} attn_classifier_score;
/* Classifies a part of the data as the training divided it.  The caller frees with attn_classifier_score_free.
 * ATTN_ERROR_ARGUMENT: no such data, or other classes; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_MEMORY, ATTN_ERROR_UNSUPPORTED as above. */
attn_status attn_classifier_evaluate(attn_classifier *classifier, const char *data, attn_split part,
                                     attn_classifier_score *score);
void attn_classifier_score_free(attn_context *context, attn_classifier_score *score);

extern const attn__keys attn__classifier_keys;
extern const attn_trainer attn__classifier_trainer;

/* The model that `settings` describe for images of this shape, with fresh parameters.  ATTN_ERROR_UNSUPPORTED:
 * images of a shape that the architecture does not take. */
attn_status attn__classifier_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   attn_image_shape shape, int64_t classes);
/* Whether the setting "compat" has the book's choices: a training's first weights, pixels as they are, from 0 to 1. */
bool attn__classifier_is_d2l(const attn_config *settings);
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
/* Runs it on a picture of its size, for its attention and its guess; to be freed on failure too.
 * ATTN_ERROR_UNSUPPORTED: the architecture gives no weights. */
attn_status attn__classifier_attention(attn__attention *attention, attn_classifier *c, const attn_image *fitted,
                                       attn_prediction *guess);

/* Logits [B,classes] of a batch x [B,channels,height,width]; NULL on error. */
attn_tensor *attn__classifier_logits(attn_model *model, attn_tape *tape, attn_image_shape shape, const float *x,
                                     int64_t n);
/* ATTN_ERROR_UNSUPPORTED, noted, unless `value`, computed from the logits of all classes, is finite. */
attn_status attn__classifier_check(attn_context *context, double value);
/* Over `batches` from their start: mean loss, and how many are right.  `confusion` (may be NULL) is counted up. */
attn_status attn__classifier_measure(attn_model *model, attn_tape *tape, attn_image_shape shape, int64_t classes,
                                     attn_image_batches *batches, double *loss, int64_t *right, int64_t *confusion);

/* How many classes there are. */
int64_t attn_classifier_class_count(const attn_classifier *classifier);

#endif
