/* SPDX-License-Identifier: MIT
 * classifier.h - the struct of an image classifier, and its directory. */
#ifndef ATTN_APPS_CLASSIFIER_H
#define ATTN_APPS_CLASSIFIER_H

#include "attn/classify.h"
#include "attn/trainer.h"
#include "apps/run/image_source.h"
#include "apps/run/run.h"
#include "apps/view/view.h"

/* The minimum and maximum of each statistic over the training pictures. */
enum { ATTN__SEEN = 3 };
typedef struct attn__seen {
    bool known;
    double min[ATTN__SEEN], max[ATTN__SEEN];
} attn__seen;

/* How pictures are prepared: resized to the model's size, then (value / 255 - mean) / std for each channel. */
typedef struct attn__pixels {
    float mean[3], std[3];
    attn__image_fitting fitting;
} attn__pixels;

struct attn_classifier {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* config.json, unchanged */
    attn_image_shape shape;
    int64_t nclasses;
    const char *const *classes; /* strings owned by `config` */
    attn__pixels pixels;
    attn__seen seen;
};

/* Whether the directory's config.json is a classifier's; false also if it cannot be read. */
bool attn_classifier_is_at(attn_context *context, const char *directory);
/* The model, which the classifier owns. */
attn_model *attn_classifier_model(const attn_classifier *classifier);
attn_image_shape attn_classifier_shape(const attn_classifier *classifier);

/* Compares a picture with the training pictures. Finds the first of "border" (mean of the outermost pixels),
 * "brightness" (mean of all) and "contrast" (standard deviation) that is outside the range of all training pictures. */
typedef struct attn_likeness {
    /* NULL: within all three ranges, or the classifier has no record of its training pictures (made elsewhere) */
    const char *unlike;
    /* values of that statistic, 0 black to 1 white: the picture's, and the range of the training */
    double found, min, max;
    bool inverted; /* the negative of the picture would be within the range */
} attn_likeness;
/* ATTN_ERROR_MEMORY. */
attn_status attn_classifier_compare(const attn_classifier *classifier, const attn_image *image,
                                    attn_likeness *likeness);

typedef struct attn_classifier_score {
    int64_t images, correct;
    double loss; /* loss in nats per image */
    double images_per_second;
    int64_t classes;
    int64_t *confusion;  /* confusion matrix [classes][classes]: rows are true classes, columns predicted ones */
    int64_t passed_over; /* number of files in class folders without the ending of a picture */
} attn_classifier_score;
/* Classifies a part of the data, divided as in the training. The caller frees the score with
 * attn_classifier_score_free. ATTN_ERROR_ARGUMENT: no such data, or other classes; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO,
 * ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY; ATTN_ERROR_UNSUPPORTED: NaN or infinity in the model's outputs. */
attn_status attn_classifier_evaluate(attn_classifier *classifier, const char *data, attn_split part,
                                     attn_classifier_score *score);
void attn_classifier_score_free(attn_context *context, attn_classifier_score *score);

extern const attn__keys attn__classifier_keys;
extern const attn_trainer attn__classifier_trainer;

/* A new model by `settings` for images of this shape. ATTN_ERROR_UNSUPPORTED: the architecture does not accept the
 * shape. */
attn_status attn__classifier_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   attn_image_shape shape, int64_t classes);
/* Whether the setting "compat" selects Dive into Deep Learning: its initial weights, and pixels from 0 to 1 without
 * normalization. */
bool attn__classifier_is_d2l(const attn_config *settings);
/* The model of the checkpoint named by the setting "from", with its parameters, for pictures of this shape and this
 * number of classes. `table` gets the source of each parameter. Statuses of attn_vit_load; ATTN_ERROR_SHAPE: pictures
 * that the model does not accept. */
attn_status attn__classifier_from(attn_model **model, attn_context *context, const attn_config *settings,
                                  attn_image_shape shape, int64_t classes, attn_bytes *table);
/* The settings in a model's config that determine how images are split and prepared. */
attn_status attn__classifier_write(const attn_model *model, const attn_config *settings, attn_image_shape shape,
                                   const attn__pixels *pixels, const attn__seen *seen, char *const *classes,
                                   int64_t nclasses, const char *directory);
void attn__classifier_see(attn__seen *seen, const attn_image_set *set);
attn_status attn__seen_write(attn_config *config, const attn__seen *seen);
void attn__seen_read(attn__seen *seen, const attn_config *config);
/* Converts a picture to the size and channels of the model. The caller frees it, on failure too. */
attn_status attn__classifier_fit(const attn_classifier *c, const attn_image *image, attn_image *fitted);
/* Runs the model on a picture of its size and collects attention and prediction. Free the result on failure too.
 * ATTN_ERROR_UNSUPPORTED: the architecture returns no weights. */
attn_status attn__classifier_attention(attn__attention *attention, attn_classifier *c, const attn_image *fitted,
                                       attn_prediction *guess);

/* Logits [B,classes] of a batch x [B,channels,height,width]; NULL on error. */
attn_tensor *attn__classifier_logits(attn_model *model, attn_tape *tape, attn_image_shape shape, const float *x,
                                     int64_t n);
/* ATTN_ERROR_UNSUPPORTED, with an error set, unless `value` is finite. `value` is computed from the logits of all
 * classes. */
attn_status attn__classifier_check(attn_context *context, double value);
/* Over `batches` from their start: mean loss, and number of correct predictions. `confusion` (may be NULL) is
 * incremented. */
attn_status attn__classifier_measure(attn_model *model, attn_tape *tape, attn_image_shape shape, int64_t classes,
                                     attn_image_batches *batches, double *loss, int64_t *right, int64_t *confusion);

/* The number of classes. */
int64_t attn_classifier_class_count(const attn_classifier *classifier);

#endif
