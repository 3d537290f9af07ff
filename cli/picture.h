/* SPDX-License-Identifier: MIT
 * picture.h - what the commands that draw heatmaps and curves share: colours, the format, the file. */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

#include "command.h"

#include "attn/plot.h"

extern const char *const cli_colour_names[]; /* NULL-terminated, in attn_colours' order */
/* The choice of --colours. */
attn_colours cli_colours(const cli_call *cli);

/* Draws heatmaps, in --colours, or, if they are NULL, curves into the file of --out and prints its name.  An exit code. */
int cli_picture_write(const cli_call *cli, attn_heatmaps *heatmaps, const attn_curves *curves);

#endif
