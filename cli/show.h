/* SPDX-License-Identifier: MIT
 *
 * show.h - attn show. Each kind of model has its own file and function. The function draws the attention of the model
 * cli->words[0] on cli->words[1]. Errors have been printed. Each function returns an exit code.
 */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include "command.h"

int cli_show_sentence(cli_call *cli);
int cli_show_image(cli_call *cli);
int cli_show_generator(cli_call *cli);
int cli_show_detector(cli_call *cli);
int cli_show_family(cli_call *cli);
/* Draws weights from the file cli->words[0], without a model. */
int cli_show_weights(cli_call *cli);
bool cli_is_array(const char *path); /* Returns true if the name ends in .npy. */

#endif
