/* SPDX-License-Identifier: MIT
 * warm_start.h - a new model that begins with the parameters of a checkpoint, for other classes. */
#ifndef ATTN_APPS_WARM_START_H
#define ATTN_APPS_WARM_START_H

#include "attn/io.h"
#include "attn/models.h"

typedef struct attn__warm_start {
    attn_context *context;
    const char *path;           /* of the weights */
    const attn_name_map *names; /* by which they are read; NULL: under their own names */
    int64_t outputs;   /* of the model's head, whose parameters begin anew where the checkpoint has another number */
    const char *fresh; /* begins the names of parameters that begin anew in any case; NULL: none */
} attn__warm_start;

/* Fills the parameters; all but those that begin anew must be there. */
attn_status attn__warm_start_fill(const attn__warm_start *start, const attn_named_list *parameters);
/* A line a parameter: its name, its shape, and where it comes from. */
attn_status attn__warm_start_tell(const attn__warm_start *start, const attn_model *model, attn_bytes *table);

#endif
