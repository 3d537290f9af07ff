/* SPDX-License-Identifier: MIT
 *
 * warm_start.h - a warm start: the parameters of a new model with other classes are copied from a checkpoint.
 */
#ifndef ATTN_APPS_WARM_START_H
#define ATTN_APPS_WARM_START_H

#include "attn/io.h"
#include "attn/models.h"

typedef struct attn__warm_start {
    attn_context *context;
    const char *path; /* path of the weights */
    /* names file for reading the weights; NULL: the weights already have the model's own names */
    const attn_name_map *names;
    /* number of outputs of the model's head; if the checkpoint's head has another number, the model's head is new */
    int64_t outputs;
    const char *fresh; /* parameters whose names begin with this prefix are always new; NULL: no such prefix */
} attn__warm_start;

/* Copies the checkpoint's tensors to the model's parameters. The checkpoint must have all parameters that are not
 * new. */
attn_status attn__warm_start_fill(const attn__warm_start *start, const attn_named_list *parameters);
/* Writes one line for each parameter: its name, its shape, and its source (the checkpoint or new). */
attn_status attn__warm_start_tell(const attn__warm_start *start, const attn_model *model, attn_bytes *table);

#endif
