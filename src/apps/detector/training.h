/* SPDX-License-Identifier: MIT
 *
 * training.h - declarations for the files that implement the training of a detector.
 */
#ifndef ATTN_APPS_DETECTOR_TRAINING_H
#define ATTN_APPS_DETECTOR_TRAINING_H

#include "apps/detector/data.h"

/* Makes a new model with random parameters from the settings. */
attn_status attn__detector_new(attn_model **model, attn_context *context, const attn_config *settings, int64_t classes);

/* The start of a training: the checkpoint (if the setting "from" names one), the classes and the view. */
typedef struct attn__detector_start {
    attn__foreign foreign; /* the open checkpoint; it owns the strings in `classes` */
    attn__classes classes; /* classes of the model: those of the checkpoint, or `own` */
    attn__classes own;     /* classes of the data, which are its categories in their order */
    attn__picture_view view;
    /* true: the checkpoint's classes include all classes of the data, so the checkpoint's head is used too */
    bool keeps;
} attn__detector_start;

/* The average precision below which it is due to chance: an untrained model, whose boxes lie anywhere, reaches some
 * thousandths, and a model that finds the objects of one of COCO's 80 classes alone reaches 0.0125. */
#define ATTN__DETECTOR_NOISE 0.01
/* Returns the score of an epoch. The epoch with the highest score is kept. NAN: the loss decides. */
double attn__detector_judge(double precision, double loss);

/* If the setting "from" names a checkpoint, opens it. Determines the classes and the view. attn__detector_start_end
 * must be called afterwards, even on failure. */
attn_status attn__detector_start_begin(attn__detector_start *start, attn_context *context, const attn_config *settings,
                                       const attn__box_set *set);
void attn__detector_start_end(attn__detector_start *start, attn_context *context);
/* `table` gets the source of each parameter: the checkpoint or new. */
attn_status attn__detector_start_model(attn_model **model, attn_context *context, const attn__detector_start *start,
                                       const attn_config *settings, attn_bytes *table);

#endif
