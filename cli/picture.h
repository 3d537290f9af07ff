/* SPDX-License-Identifier: MIT
 *
 * picture.h - code that is common to the commands that draw heatmaps and curves: colours, format, output file.
 */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

#include "command.h"

#include "attn/plot.h"

extern const char *const cli_colour_names[]; /* The NULL-terminated names of colours, in the order of attn_colours. */
/* Returns the colours that --colours chooses. */
attn_colours cli_colours(const cli_call *cli);

/* Draws the heatmaps in the colours of --colours. If `heatmaps` is NULL, draws the curves. Writes the file of --out
 * and prints its name. Returns an exit code. */
int cli_picture_write(const cli_call *cli, attn_heatmaps *heatmaps, const attn_curves *curves);

#endif
