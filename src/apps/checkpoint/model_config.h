/* SPDX-License-Identifier: MIT
 *
 * model_config.h - reads and writes config.json of a model's directory, and makes the model that it describes.
 */
#ifndef ATTN_APPS_MODEL_CONFIG_H
#define ATTN_APPS_MODEL_CONFIG_H

#include "attn/io.h"
#include "attn/models.h"

/* Makes a config that describes a model. It contains the architecture, the architecture's settings, and those settings
 * of the training that `kept` names. `kept` ends with NULL, and may itself be NULL. The caller destroys the config,
 * even on failure. */
attn_status attn__model_config_create(attn_config **config, const attn_model *model, const attn_config *settings,
                                      const char *const *kept);
attn_status attn__model_config_write(const attn_config *config, attn_context *context, const char *directory);
/* Makes a blank model of the architecture for the weights in the file `weights`, with the settings of `file` that the
 * architecture has. If the settings describe a model that is much larger than the weights, they are refused before
 * memory is allocated. Type and precision are those of `options`, or the defaults if `options` is NULL. */
attn_status attn__model_of_config(attn_model **model, attn_context *context, const attn_architecture *architecture,
                                  const attn_config *file, const char *weights, const attn_model_options *options);

/* Makes the blank model that the config.json of a directory describes. ATTN_ERROR_FORMAT: the file does not describe
 * a model. */
attn_status attn__model_of_directory(attn_model **model, attn_context *context, const char *directory);
/* Makes a copy of the model `from` with its parameters and settings. Settings in `over` override those of `from`. */
attn_status attn__model_copy(attn_model **copy, const attn_model *from, const attn_config *over);
/* Writes one line for each parameter: its name, its shape, and whether it was taken from a checkpoint. Parameters
 * whose names begin with `fresh` were not taken. `fresh` may be NULL. */
attn_status attn__model_tell_taken(const attn_model *model, const char *fresh, attn_bytes *table);

#endif
