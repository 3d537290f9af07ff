/* SPDX-License-Identifier: MIT
 * foreign_model.h - models as directories hold them, and as checkpoints of foreign names do by a names file
 * (attn_name_map of io.h). */
#ifndef ATTN_APPS_FOREIGN_MODEL_H
#define ATTN_APPS_FOREIGN_MODEL_H

#include "apps/checkpoint/model_directory.h"
#include "attn/io.h"
#include "attn/models.h"

/* A model that is to be loaded: a directory with its config.json, or, with a names file that brings its tensors under a
 * model's own names, any checkpoint. */
typedef struct attn__foreign {
    attn_name_map *names;      /* NULL: none */
    attn_config *config;       /* config.json's settings; with a names file also those of that file and of the shapes */
    char settings[ATTN__PATH]; /* where they are, for messages */
    char weights[ATTN__PATH];  /* for readers of weights */
    attn_bytes *report;        /* gets the report of attn_weights_load; may be NULL */
} attn__foreign;

/* How it is loaded.  Zero: config.json, of any architecture. */
typedef struct attn__foreign_wish {
    const char *names;         /* a names file; NULL: none */
    const char *architecture;  /* the only one that is taken; NULL: any */
    const attn_config *config; /* in place of config.json, which is not read; NULL: config.json */
} attn__foreign_wish;

/* Reads config.json, which a names file makes optional, then the names file and, by it, the checkpoint's shapes:
 * config.json overrides both.  Ended by attn__foreign_end, on failure too. ATTN_ERROR_FORMAT: file and config.json name
 * no architecture, or different ones, or another than `architecture` (NULL: any), or leave out the number of heads,
 * which no tensor shows; statuses of attn_name_map_read and attn_checkpoint_open. */
attn_status attn__foreign_begin(attn__foreign *foreign, attn_context *context, const char *path,
                                const attn__foreign_wish *wish);
void attn__foreign_end(attn__foreign *foreign);
/* The architecture; NULL: config.json names none that there is. */
const attn_architecture *attn__foreign_architecture(const attn__foreign *foreign);
/* The model that it describes, with its parameters, in the type and precision of `options` (NULL: the defaults).
 * ATTN_ERROR_FORMAT: it describes none. */
attn_status attn__foreign_model(attn_model **model, attn_context *context, const attn__foreign *foreign,
                                const attn_model_options *options);

#endif
