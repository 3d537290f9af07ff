/* SPDX-License-Identifier: MIT
 *
 * show.h - the functions of attn show, one for each kind of model and in a file of its own. Each draws the attention of
 * the model cli->words[0] on cli->words[1] and returns an exit code. Errors have been printed.
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
bool cli_is_array(const char *path);

#endif
