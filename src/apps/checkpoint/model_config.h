/* SPDX-License-Identifier: MIT
 * model_config.h - config.json of a model's directory, and the model that it describes. */
#ifndef ATTN_APPS_MODEL_CONFIG_H
#define ATTN_APPS_MODEL_CONFIG_H

#include "attn/io.h"
#include "attn/models.h"

/* A new config that describes a model: its architecture, the architecture's settings, and the training's `settings`
 * that `kept` names (NULL-terminated; NULL: none). The caller destroys the config, on failure too. */
attn_status attn__model_config_create(attn_config **config, const attn_model *model, const attn_config *settings,
                                      const char *const *kept);
/* Writes a config to DIRECTORY/config.json. */
attn_status attn__model_config_write(const attn_config *config, attn_context *context, const char *directory);
/* Makes a blank model of the architecture with the matching settings of `file`, for the weights in the file of that
 * path. Settings that need much more memory than the file has numbers are refused before any memory is allocated. Type
 * and precision are those of `options` (NULL: the defaults). */
attn_status attn__model_of_config(attn_model **model, attn_context *context, const attn_architecture *architecture,
                                  const attn_config *file, const char *weights, const attn_model_options *options);

/* Reads a directory's config.json; the caller destroys it. If the file cannot be read, returns NULL without an error.
 * Only ATTN_ERROR_MEMORY is kept in the context. */
attn_config *attn__model_config_try(attn_context *context, const char *directory);
/* Whether the config is for this architecture. */
bool attn__model_config_names(attn_context *context, const char *directory, const char *architecture);

/* The path of a directory's weights, in a buffer of ATTN__PATH bytes: its model.safetensors, or the directory itself if
 * it has a low-rank adapter. Readers of weights accept either. */
attn_status attn__model_weights_path(attn_context *context, char *path, const char *directory);
/* The blank model that a directory's config.json describes. ATTN_ERROR_FORMAT: no model is described. */
attn_status attn__model_of_directory(attn_model **model, attn_context *context, const char *directory);
/* A model with the parameters and settings of `from`, except for settings in `over`. */
attn_status attn__model_copy(attn_model **copy, const attn_model *from, const attn_config *over);
/* Writes "NAME, shape, taken" for each parameter, one per line. `fresh` (NULL: none) is the prefix of parameters that
 * are not taken. */
attn_status attn__model_tell_taken(const attn_model *model, const char *fresh, attn_bytes *table);

#endif
