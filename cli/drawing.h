/* SPDX-License-Identifier: MIT
 * drawing.h - what the commands that draw images share. */
#ifndef CLI_DRAWING_H
#define CLI_DRAWING_H

#include "command.h"

#include "attn/generate.h"

/* Options of both. */
#define CLI_DRAWING_OPTIONS                                                                                            \
    CLI_REAL("temperature", "1", 1e-6, 1e6,                                                                            \
             "the logits are divided by this: below 1 images are more likely ones, above 1 more varied"),              \
        CLI_INT("seed", 0, "1", 0, 9e15, "seed of the draw: the same seed gives the same image"),                      \
        CLI_FLAG("slow", 0, "run the whole model for each pixel: the same images, to compare times")

/* Times a drawing and shows how far it is, on a terminal. */
typedef struct cli_drawing {
    const cli_call *cli;
    bool terminal, drawn;
    double start, last; /* seconds */
} cli_drawing;

attn_generator_options cli_drawing_begin(cli_drawing *drawing, const cli_call *cli, attn_generator *generator);
double cli_drawing_end(cli_drawing *drawing); /* leaves the bar; seconds since the beginning */
/* --zoom, or what makes an image of that height about 96 pixels high. */
int64_t cli_drawing_zoom(const cli_call *cli, int64_t height);
/* Writes a sheet (attn_image_sheet) of them; an exit code. */
int cli_drawing_write(const cli_call *cli, const attn_image *images, int64_t n, int64_t columns, int64_t gap,
                      int64_t zoom, const char *path);

#endif
