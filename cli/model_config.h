/* SPDX-License-Identifier: MIT
 *
 * model_config.h - the settings of a model. They come from --config, or they are sample values for listing parameters.
 */
#ifndef CLI_MODEL_CONFIG_H
#define CLI_MODEL_CONFIG_H

#include "command.h"

#include "attn/models.h"

/* Reads the option --config, which is a JSON object or the path of a file with a JSON object. On failure, *config is
 * NULL. */
attn_status cli_model_config_read(const cli_call *cli, attn_config **config);

/* Sets sample values for settings without a default. These are 64 for sizes, 4 heads, a kernel of 7, 2 layers, and
 * lists of 8 and 8. */
attn_status cli_model_config_sample(const cli_call *cli, const attn_architecture *architecture, attn_config **config);

#endif
