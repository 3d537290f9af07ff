/* SPDX-License-Identifier: MIT
 *
 * foreign_model.h - models that are described by a directory, or by a checkpoint with foreign tensor names and a names
 * file (attn_name_map of io.h).
 */
#ifndef ATTN_APPS_FOREIGN_MODEL_H
#define ATTN_APPS_FOREIGN_MODEL_H

#include "apps/checkpoint/identify.h"
#include "attn/io.h"
#include "attn/models.h"

/* A model to load. It is a directory with a config.json, or any checkpoint together with a names file, which maps
 * the names of its tensors to a model's own names. */
typedef struct attn__foreign {
    attn__identity is;    /* what the path is */
    attn_name_map *names; /* the names file; NULL: there is none */
    /* settings of config.json, and settings that a names file contains or derives from tensor shapes */
    attn_config *config;
    char settings[ATTN__PATH]; /* path of the settings' file, for messages */
    char weights[ATTN__PATH];  /* path of the weights: a file or a directory */
    attn_bytes *report;        /* gets the report of attn_weights_load about the weights; may be NULL */
} attn__foreign;

/* Requests of the caller about the model to load. If all fields are zero, config.json describes the model, which can
 * have any architecture. */
typedef struct attn__foreign_wish {
    const char *names;        /* path of a names file; NULL: none is used */
    const char *architecture; /* the only architecture that is accepted; NULL: all are accepted */
    /* settings to use instead of config.json; NULL: config.json is read */
    const attn_config *config;
} attn__foreign_wish;

/* Identifies the path, which must outlive `foreign`. attn__foreign_end must be called afterwards, even on failure. */
attn_status attn__foreign_open(attn__foreign *foreign, attn_context *context, const char *path);
/* Takes config.json, then reads the names file, then the settings that the names file's rules derive from the
 * checkpoint's shapes. If there is a names file, config.json may be missing. Settings in config.json override the
 * others. ATTN_ERROR_FORMAT: the names file and config.json give no architecture, two different ones, or not the
 * requested one; or both lack the number of heads, which cannot be determined from shapes. Otherwise returns the
 * statuses of attn_name_map_read and attn_checkpoint_open. */
attn_status attn__foreign_describe(attn__foreign *foreign, const attn__foreign_wish *wish);
/* Opens and describes. attn__foreign_end must be called afterwards, even on failure. */
attn_status attn__foreign_begin(attn__foreign *foreign, attn_context *context, const char *path,
                                const attn__foreign_wish *wish);
void attn__foreign_end(attn__foreign *foreign);
/* Returns NULL if config.json names no known architecture. */
const attn_architecture *attn__foreign_architecture(const attn__foreign *foreign);
/* Type and precision are those in `options`, or the defaults if `options` is NULL. ATTN_ERROR_FORMAT: `foreign` does
 * not describe a model. */
attn_status attn__foreign_model(attn_model **model, attn_context *context, const attn__foreign *foreign,
                                const attn_model_options *options);

#endif
