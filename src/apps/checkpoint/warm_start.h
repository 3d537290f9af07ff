/* SPDX-License-Identifier: MIT
 *
 * warm_start.h - starts a new model with other classes from the parameters of a checkpoint (a warm start).
 */
#ifndef ATTN_APPS_WARM_START_H
#define ATTN_APPS_WARM_START_H

#include "attn/io.h"
#include "attn/models.h"

typedef struct attn__warm_start {
    attn_context *context;
    const char *path;           /* path of the weights */
    const attn_name_map *names; /* names file for reading the weights; NULL: the weights have the model's own names */
    /* number of outputs of the model's head; the head is new if the checkpoint has another number */
    int64_t outputs;
    const char *fresh; /* prefix of parameters that are always new; NULL: no prefix */
} attn__warm_start;

/* Copies the checkpoint's tensors to the parameters. The checkpoint must have all parameters except the new ones. */
attn_status attn__warm_start_fill(const attn__warm_start *start, const attn_named_list *parameters);
/* Writes one line per parameter: its name, its shape, and its source. */
attn_status attn__warm_start_tell(const attn__warm_start *start, const attn_model *model, attn_bytes *table);

#endif
