/* SPDX-License-Identifier: MIT
 *
 * training.h - reads the data of a training on images, splits it, and makes batches.
 */
#ifndef ATTN_APPS_IMAGES_TRAINING_H
#define ATTN_APPS_IMAGES_TRAINING_H

#include "apps/images/source.h"
#include "apps/run/run.h"

/* The first member of the struct of a kind of training on images. */
typedef struct attn__image_training {
    attn__run run;
    attn__image_source source;
    attn_image_set *train, *valid, *test;
    attn_image_shape shape;
    /* batches of the training part and of the validation part; valid_batches is NULL if there is no validation part */
    attn_image_batches *train_batches, *valid_batches;
} attn__image_training;

/* Checks the settings that concern images. ATTN_ERROR_ARGUMENT: two channels are requested. */
attn_status attn__image_training_check(const attn__run *run);
/* Reads the data at run->data and splits it as run->settings require. Sets the run's fingerprint and checks it. */
attn_status attn__image_training_read(attn__image_training *t, bool unlabelled, attn_image_filter filter);
/* `mean` and `std` [3] are as in attn_image_batches_options. If they are NULL, pixels are not normalized. */
attn_status attn__image_training_batches(attn__image_training *t, const float *mean, const float *std);
/* Gets this rank's share of a step's batch, and stores the size of the share on the tape. *counted gets the number
 * of images that count in the run. If there is no such batch, sets ATTN_ERROR_INTERNAL and returns false. */
bool attn__image_training_seek(attn__image_training *t, attn_tape *tape, int64_t epoch, int64_t step,
                               attn_image_batch *batch, int64_t *counted);
/* Adds the numbers and the shape of the images, and the number of files that were not read, to `sizes`. Also sets
 * plan->passed_first. */
attn_status attn__image_training_sizes(const attn__image_training *t, attn_config *sizes, attn_trainer_plan *plan);
/* The callbacks `steps` and `release` of the kinds whose struct begins with an attn__image_training. */
int64_t attn__image_training_steps(void *self);
void attn__image_training_release(void *self);

#endif
