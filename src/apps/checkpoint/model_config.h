/* SPDX-License-Identifier: MIT
 * model_config.h - config.json of a model's directory, and the model that it describes. */
#ifndef ATTN_APPS_MODEL_CONFIG_H
#define ATTN_APPS_MODEL_CONFIG_H

#include "attn/io.h"
#include "attn/models.h"

/* A new config that describes a model: its architecture, the architecture's settings, and those of the training's
 * `settings` that `kept` names (NULL-terminated; NULL: none).  The caller destroys it, on failure too. */
attn_status attn__model_config_create(attn_config **config, const attn_model *model, const attn_config *settings,
                                      const char *const *kept);
/* Writes it to DIRECTORY/config.json. */
attn_status attn__model_config_write(const attn_config *config, attn_context *context, const char *directory);
/* The architecture with those settings of `file` that are its own, blank, for the weights in the file of that path:
 * settings that need much more memory than it has numbers are refused before any is taken.  Type and precision are
 * those of `options` (NULL: the defaults). */
attn_status attn__model_of_config(attn_model **model, attn_context *context, const attn_architecture *architecture,
                                  const attn_config *file, const char *weights, const attn_model_options *options);

/* A directory's config.json, which the caller destroys; NULL where there is none that can be read, and no error then, but
 * for ATTN_ERROR_MEMORY, which stays in the context. */
attn_config *attn__model_config_try(attn_context *context, const char *directory);
/* Whether it is of that architecture. */
bool attn__model_config_names(attn_context *context, const char *directory, const char *architecture);

/* The path of a directory's weights, in a buffer of ATTN__PATH bytes: its model.safetensors, or, with a low-rank
 * adapter in it, the directory itself, which readers of weights accept. */
attn_status attn__model_weights_path(attn_context *context, char *path, const char *directory);
/* The model that a directory's config.json describes, blank.  ATTN_ERROR_FORMAT: it describes none. */
attn_status attn__model_of_directory(attn_model **model, attn_context *context, const char *directory);
/* A model with the parameters of `from` and its settings, but for those that `over` has. */
attn_status attn__model_copy(attn_model **copy, const attn_model *from, const attn_config *over);
/* "NAME, shape, taken" for each parameter, a line each; `fresh` (NULL: none) begins the names of those that are not. */
attn_status attn__model_tell_taken(const attn_model *model, const char *fresh, attn_bytes *table);

#endif
