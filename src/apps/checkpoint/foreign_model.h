/* SPDX-License-Identifier: MIT
 * foreign_model.h - models in directories, and in checkpoints with foreign names that a names file maps (attn_name_map
 * of io.h). */
#ifndef ATTN_APPS_FOREIGN_MODEL_H
#define ATTN_APPS_FOREIGN_MODEL_H

#include "apps/checkpoint/model_directory.h"
#include "attn/io.h"
#include "attn/models.h"

/* A model to load: a directory with its config.json, or any checkpoint with a names file that maps its tensors to a
 * model's own names. */
typedef struct attn__foreign {
    attn_name_map *names; /* the names file; NULL: none */
    /* settings of config.json; with a names file, also settings from that file and from shapes */
    attn_config *config;
    char settings[ATTN__PATH]; /* path of the settings, for messages */
    char weights[ATTN__PATH];  /* path of the weights, a file or a directory */
    attn_bytes *report;        /* gets the report of attn_weights_load about the weights; may be NULL */
} attn__foreign;

/* How a model is loaded. With zero fields it is described by config.json, and can have any architecture. */
typedef struct attn__foreign_wish {
    const char *names;         /* a names file; NULL: none */
    const char *architecture;  /* the only accepted architecture; NULL: any */
    const attn_config *config; /* settings that replace config.json, which is then not read; NULL: config.json */
} attn__foreign_wish;

/* Reads config.json (optional with a names file), then the names file, then the settings that its rules derive from
 * the checkpoint's shapes. Settings in config.json override the others. Call attn__foreign_end afterwards, on
 * failure too. ATTN_ERROR_FORMAT: the names file and config.json give no architecture, or different architectures,
 * or another architecture than `architecture` (NULL: any). ATTN_ERROR_FORMAT also: both lack the number of heads,
 * which no shape shows. Otherwise the statuses of attn_name_map_read and attn_checkpoint_open. */
attn_status attn__foreign_begin(attn__foreign *foreign, attn_context *context, const char *path,
                                const attn__foreign_wish *wish);
void attn__foreign_end(attn__foreign *foreign);
/* Returns the model's architecture, or NULL if config.json names no known architecture. */
const attn_architecture *attn__foreign_architecture(const attn__foreign *foreign);
/* Makes the described model with its parameters, in the type and precision of `options` (NULL: the defaults).
 * ATTN_ERROR_FORMAT: `foreign` describes no model. */
attn_status attn__foreign_model(attn_model **model, attn_context *context, const attn__foreign *foreign,
                                const attn_model_options *options);

#endif
