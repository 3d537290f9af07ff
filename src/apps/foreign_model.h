/* SPDX-License-Identifier: MIT
 * foreign_model.h - models in checkpoints of foreign names, by a names file (attn_names of io.h). */
#ifndef ATTN_APPS_FOREIGN_MODEL_H
#define ATTN_APPS_FOREIGN_MODEL_H

#include "attn/io.h"
#include "attn/models.h"

/* A checkpoint with the names file that brings it under a model's own names. */
typedef struct attn__foreign {
    attn_names *names;
    attn_config *config; /* "architecture" and its settings, as a config.json would have them */
} attn__foreign;

/* Reads the names file and, by it, what the checkpoint's shapes say.  Ended by attn__foreign_end, on failure too.
 * ATTN_FORMAT: the file names no architecture, or another than `architecture` (NULL: any), or leaves out the number of
 * heads, which no tensor shows; statuses of attn_names_read and attn_weights_open. */
attn_status attn__foreign_begin(attn__foreign *foreign, attn_context *context, const char *path, const char *names,
                                const char *architecture);
void attn__foreign_end(attn__foreign *foreign);
/* The model with its parameters. */
attn_status attn__foreign_model(attn_model **model, attn_context *context, const char *path, const char *names,
                                const char *architecture);

#endif
