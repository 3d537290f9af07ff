/* SPDX-License-Identifier: MIT
 * training.h - between the files that train a detector. */
#ifndef ATTN_APPS_DETECTOR_TRAINING_H
#define ATTN_APPS_DETECTOR_TRAINING_H

#include "apps/detector/data.h"

/* The model that `settings` describe, with fresh parameters. */
attn_status attn__detector_new(attn_model **model, attn_context *context, const attn_config *settings, int64_t classes);

/* The begin of a training. */
typedef struct attn__detector_start {
    attn__foreign foreign; /* which `classes` and what is open of the checkpoint live in */
    attn__classes classes; /* the checkpoint's, or `own` */
    attn__classes own;     /* those of the data: its categories in their order */
    attn__picture_view view;
    bool keeps; /* the checkpoint's classes have all of the data's: its head is taken, too */
} attn__detector_start;

/* Opens the checkpoint that the setting "from" names, if any, and finds classes and view.  Ended by
 * attn__detector_start_end, on failure too. */
attn_status attn__detector_start_begin(attn__detector_start *start, attn_context *context, const attn_config *settings,
                                       const attn__box_set *set);
void attn__detector_start_end(attn__detector_start *start, attn_context *context);
/* Its model, with parameters; `table` gets where each comes from, where there is a checkpoint. */
attn_status attn__detector_start_model(attn_model **model, attn_context *context, const attn__detector_start *start,
                                       const attn_config *settings, attn_bytes *table);

#endif
