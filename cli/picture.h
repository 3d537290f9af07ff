/* SPDX-License-Identifier: MIT
 *
 * picture.h - code that is common to the commands that draw heatmaps and curves: colours, format, output file.
 */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

#include "command.h"

#include "attn/plot.h"

extern const char *const cli_colour_names[]; /* Names of attn_colours, in this order; NULL-terminated. */
attn_colours cli_colours(const cli_call *cli);
/* Reads the ends of the colour scale from --range. Both become 0 if it is not given. Returns an exit code. Errors have
 * been printed. */
int cli_range(const cli_call *cli, double *low, double *high);

/* Returns true if this build draws PNG and SVG pictures. A build without cairo draws pages (.html) only. */
bool cli_draws_pictures(const cli_call *cli);

/* Draws the heatmaps, or the curves if `heatmaps` is NULL, in the colours of --colours. Heatmaps have
 * the scale of --range. Writes the file of --out and
 * prints its name. Returns an exit code. */
int cli_picture_write(const cli_call *cli, attn_heatmaps *heatmaps, const attn_curves *curves);

#endif
