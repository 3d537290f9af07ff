/* SPDX-License-Identifier: MIT
 *
 * model_config.h - reads and writes config.json of a model's directory, and makes the model that it describes.
 */
#ifndef ATTN_APPS_MODEL_CONFIG_H
#define ATTN_APPS_MODEL_CONFIG_H

#include "attn/io.h"
#include "attn/models.h"

/* Makes a config that describes a model: its architecture, the architecture's settings, and those of the training's
 * `settings` that `kept` names (NULL-terminated; NULL: none). The caller destroys the config, on failure too. */
attn_status attn__model_config_create(attn_config **config, const attn_model *model, const attn_config *settings,
                                      const char *const *kept);
/* Writes a config to DIRECTORY/config.json. */
attn_status attn__model_config_write(const attn_config *config, attn_context *context, const char *directory);
/* Makes a blank model of the architecture for the weights in the file `weights`, with the settings of `file` that
 * the architecture has. If the settings need much more memory than the weights have numbers, they are refused before
 * memory is allocated. Type and precision are those of `options` (NULL: the defaults). */
attn_status attn__model_of_config(attn_model **model, attn_context *context, const attn_architecture *architecture,
                                  const attn_config *file, const char *weights, const attn_model_options *options);

/* Reads a directory's config.json, which the caller destroys. If the file cannot be read, it returns NULL without an
 * error. Only ATTN_ERROR_MEMORY is kept in the context. */
attn_config *attn__model_config_try(attn_context *context, const char *directory);
/* Reports whether a directory's config.json names this architecture. */
bool attn__model_config_names(attn_context *context, const char *directory, const char *architecture);

/* Writes the path of a directory's weights to a buffer of ATTN__PATH bytes. This is its model.safetensors, or the
 * directory itself if it has a low-rank adapter. Readers of weights accept either. */
attn_status attn__model_weights_path(attn_context *context, char *path, const char *directory);
/* Makes the blank model that a directory's config.json describes. ATTN_ERROR_FORMAT: the file describes no model. */
attn_status attn__model_of_directory(attn_model **model, attn_context *context, const char *directory);
/* Makes a model with the parameters and settings of `from`. Settings in `over` replace those of `from`. */
attn_status attn__model_copy(attn_model **copy, const attn_model *from, const attn_config *over);
/* Writes one line "NAME, shape, taken" for each parameter. `fresh` (NULL: none) is the prefix of parameters that are
 * not taken from a checkpoint. */
attn_status attn__model_tell_taken(const attn_model *model, const char *fresh, attn_bytes *table);

#endif
