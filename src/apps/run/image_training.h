/* SPDX-License-Identifier: MIT
 *
 * image_training.h - reads the data of a training on images, splits it, and makes batches.
 */
#ifndef ATTN_APPS_IMAGE_TRAINING_H
#define ATTN_APPS_IMAGE_TRAINING_H

#include "apps/run/image_source.h"
#include "apps/run/run.h"

typedef struct attn__image_training {
    attn__image_source source;
    attn_image_set *train, *valid, *test;
    attn_image_shape shape;
    attn_image_batches *train_batches, *valid_batches; /* valid: NULL if there is no validation part */
} attn__image_training;

/* Checks the settings for images. ATTN_ERROR_ARGUMENT: two channels were requested. */
attn_status attn__image_training_check(const attn__run *run);
/* Reads and splits run->data by run->settings. Sets the run's fingerprint and checks it. */
attn_status attn__image_training_read(attn__image_training *t, attn__run *run, bool unlabelled,
                                      attn_image_filter filter);
/* Makes the batches. mean and std [3] are as in attn_image_batches_options; NULL: no normalization. */
attn_status attn__image_training_batches(attn__image_training *t, const attn__run *run, const float *mean,
                                         const float *std);
/* Gets this rank's share of the batch of a step. The tape gets the share's size and the number of images that count.
 * If there is no batch, it sets ATTN_ERROR_INTERNAL and returns false. */
bool attn__image_training_seek(const attn__image_training *t, attn__run *run, attn_tape *tape, int64_t epoch,
                               int64_t step, attn_image_batch *batch, int64_t *counted);
/* Adds the sizes that are reported by every training on images, and sets plan->passed_first. */
attn_status attn__image_training_sizes(const attn__image_training *t, attn_config *sizes, attn_trainer_plan *plan);
void attn__image_training_free(attn__image_training *t);

#endif
