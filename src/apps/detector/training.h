/* SPDX-License-Identifier: MIT
 *
 * training.h - functions that the files for training a detector share.
 */
#ifndef ATTN_APPS_DETECTOR_TRAINING_H
#define ATTN_APPS_DETECTOR_TRAINING_H

#include "apps/detector/data.h"

/* Makes a new model by `settings`. */
attn_status attn__detector_new(attn_model **model, attn_context *context, const attn_config *settings, int64_t classes);

/* The start of a training: a checkpoint (if the setting "from" names one), classes and view. */
typedef struct attn__detector_start {
    attn__foreign foreign; /* owns the strings in `classes` and the open checkpoint */
    attn__classes classes; /* the checkpoint's classes, or `own` */
    attn__classes own;     /* the data's classes: its categories in order */
    attn__picture_view view;
    bool keeps; /* the checkpoint's classes include all classes of the data, so the checkpoint's head is used too */
} attn__detector_start;

/* Opens the checkpoint that the setting "from" names, if any, and determines classes and view. Call
 * attn__detector_start_end afterwards, on failure too. */
attn_status attn__detector_start_begin(attn__detector_start *start, attn_context *context, const attn_config *settings,
                                       const attn__box_set *set);
void attn__detector_start_end(attn__detector_start *start, attn_context *context);
/* Makes the initial model with its parameters. If there is a checkpoint, `table` gets the source of each parameter. */
attn_status attn__detector_start_model(attn_model **model, attn_context *context, const attn__detector_start *start,
                                       const attn_config *settings, attn_bytes *table);

#endif
