/* SPDX-License-Identifier: MIT
 * classifier.h - the struct of an image classifier, and its directory. */
#ifndef ATTN_APPS_CLASSIFIER_H
#define ATTN_APPS_CLASSIFIER_H

#include "attn/classify.h"
#include "attn/trainer.h"
#include "apps/images/source.h"
#include "apps/run/run.h"
#include "apps/view/view.h"

/* Number of statistics of the training pictures. For each of them, the minimum and the maximum over all training
 * pictures are stored. */
enum { ATTN__SEEN = 3 };
typedef struct attn__seen {
    bool known;
    double min[ATTN__SEEN], max[ATTN__SEEN];
} attn__seen;

/* How pictures are prepared. They are resized to the model's size. Then each channel becomes (value / 255 - mean) /
 * std. */
typedef struct attn__pixels {
    float mean[3], std[3];
    attn__image_fitting fitting;
} attn__pixels;

struct attn_classifier {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* settings of config.json, unchanged */
    attn_image_shape shape;
    int64_t nclasses;
    const char *const *classes; /* names of the classes, which `config` owns */
    attn__pixels pixels;
    attn__seen seen;
};

/* Returns the model, which the classifier owns. */
attn_model *attn_classifier_model(const attn_classifier *classifier);
attn_image_shape attn_classifier_shape(const attn_classifier *classifier);

/* Compares a picture with the training pictures by three statistics: "border" (mean of the outermost pixels),
 * "brightness" (mean of all pixels) and "contrast" (standard deviation). The result names the first statistic whose
 * value is outside the range of the training pictures. */
typedef struct attn_likeness {
    /* name of the first statistic outside the range; NULL: all are inside, or the classifier has no record of its
     * training pictures */
    const char *unlike;
    /* found: value of the statistic `unlike` for the picture. min, max: its range in the training pictures. 0 is
     * black, 1 is white. */
    double found, min, max;
    bool inverted; /* true: the negative of the picture would be inside the range */
} attn_likeness;
/* ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_classifier_compare(const attn_classifier *classifier, const attn_image *image,
                                    attn_likeness *likeness);

typedef struct attn_classifier_score {
    int64_t images, correct;
    double loss; /* loss in nats per image */
    double images_per_second;
    int64_t classes;
    int64_t *confusion; /* confusion matrix [classes][classes]: rows are true classes, columns are predicted classes */
    /* number of files in class folders that were skipped, because their names do not end like a picture's */
    int64_t passed_over;
} attn_classifier_score;
/* Classifies a part of the data, divided as in the training. The caller frees the score with
 * attn_classifier_score_free. ATTN_ERROR_ARGUMENT: the data does not exist or has other classes. ATTN_ERROR_NOT_FOUND,
 * ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY: the data cannot be read. ATTN_ERROR_UNSUPPORTED: the model's
 * outputs contain NaN or infinity. */
attn_status attn_classifier_evaluate(attn_classifier *classifier, const char *data, attn_split part,
                                     attn_classifier_score *score);
void attn_classifier_score_free(attn_context *context, attn_classifier_score *score);

extern const attn__keys attn__classifier_keys;
extern const attn_trainer attn__classifier_trainer;

/* `settings` are those of the training. ATTN_ERROR_UNSUPPORTED: the architecture does not accept the shape. */
attn_status attn__classifier_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   attn_image_shape shape, int64_t classes);
/* Reports whether the setting "compat" requests compatibility with Dive into Deep Learning: its initial weights, and
 * pixels from 0 to 1 without normalization. */
bool attn__classifier_is_d2l(const attn_config *settings);
/* Loads the model of the checkpoint that the setting "from" names, with its parameters, for pictures of this shape and
 * for this number of classes. `table` gets the source of each parameter. ATTN_ERROR_SHAPE: the model does not accept
 * the pictures. Otherwise returns the statuses of attn_vit_load. */
attn_status attn__classifier_from(attn_model **model, attn_context *context, const char *path,
                                  const attn_config *settings, attn_image_shape shape, int64_t classes,
                                  attn_bytes *table);
/* Makes the settings of a classifier, as its config.json has them. The caller destroys *config, even on failure. */
attn_status attn__classifier_describe(attn_config **config, const attn_model *model, const attn_config *settings,
                                      attn_image_shape shape, const attn__pixels *pixels, char *const *classes,
                                      int64_t nclasses);
/* Writes config.json of a directory: the model's own settings, and those that determine how images are split and
 * prepared. */
attn_status attn__classifier_write(const attn_model *model, const attn_config *settings, attn_image_shape shape,
                                   const attn__pixels *pixels, const attn__seen *seen, char *const *classes,
                                   int64_t nclasses, const char *directory);
void attn__classifier_see(attn__seen *seen, const attn_image_set *set);
attn_status attn__seen_write(attn_config *config, const attn__seen *seen);
void attn__seen_read(attn__seen *seen, const attn_config *config);
/* Converts a picture to the size and the number of channels of the model. The caller frees `fitted`, even on
 * failure. */
attn_status attn__classifier_fit(const attn_classifier *c, const attn_image *image, attn_image *fitted);
/* Runs the model on a picture that has the model's size. Collects the attention and the prediction. *attention must
 * be freed even on failure. ATTN_ERROR_UNSUPPORTED: the architecture returns no attention weights. */
attn_status attn__classifier_attention(attn__attention *attention, attn_classifier *c, const attn_image *fitted,
                                       attn_prediction *guess);

/* Returns the logits [B,classes] for a batch x [B,channels,height,width]. Returns NULL on error. */
attn_tensor *attn__classifier_logits(attn_model *model, attn_tape *tape, attn_image_shape shape, const float *x,
                                     int64_t n);
/* Checks that `value`, which is computed from the logits of all classes, is finite. If it is not, sets an error and
 * returns ATTN_ERROR_UNSUPPORTED. */
attn_status attn__classifier_check(attn_context *context, double value);
/* Computes the mean loss and the number of correct predictions over all of `batches`. If `confusion` is not NULL, it
 * is a matrix [classes,classes] to which each prediction is added. */
attn_status attn__classifier_measure(attn_model *model, attn_tape *tape, attn_image_shape shape, int64_t classes,
                                     attn_image_batches *batches, double *loss, int64_t *right, int64_t *confusion);

int64_t attn_classifier_class_count(const attn_classifier *classifier);

#endif
