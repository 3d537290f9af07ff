/* SPDX-License-Identifier: MIT
 *
 * encoder_settings.h - settings of a foreign encoder (BERT and its kin, ESM-2) that the shapes of its tensors do not
 * show.
 */
#ifndef ATTN_APPS_ENCODER_SETTINGS_H
#define ATTN_APPS_ENCODER_SETTINGS_H

#include "attn/config.h"

/* Returns the built-in names file for the encoder that a config.json of Hugging Face describes. Returns NULL if its
 * model_type is not that of an encoder that attn loads, or if the config is attn's own. */
const char *attn__encoder_names(const attn_config *config);

/* Replaces *config, which was read from Hugging Face's file `settings`, by attn's settings for the architecture
 * transformer-encoder. ATTN_ERROR_UNSUPPORTED: attn's encoder does not have a setting; the message names it and its
 * value. ATTN_ERROR_MEMORY. */
attn_status attn__encoder_settings(attn_config **config, attn_context *context, const char *settings);

/* Sets the settings of ESM-2 that the arguments of a published checkpoint (.pt) give. ATTN_ERROR_UNSUPPORTED: they are
 * the arguments of another model. */
attn_status attn__esm2_settings(attn_config *config, attn_context *context, const attn_config *arguments,
                                const char *path);

#endif
