/* SPDX-License-Identifier: MIT
 *
 * drawing.h - code that is common to the commands that draw images.
 */
#ifndef CLI_DRAWING_H
#define CLI_DRAWING_H

#include "command.h"

#include "attn/generate.h"
#include "apps/images/source.h"

#define CLI_DRAWING_OPTIONS                                                                                            \
    CLI_REAL("temperature", "1", 1e-6, 1e6,                                                                            \
             "the logits are divided by this: below 1 images are more likely ones, above 1 more varied"),              \
        CLI_INT("seed", 0, "1", 0, 9e15, "seed of the draw: the same seed gives the same image"),                      \
        CLI_INT("fps", 0, "8", 1, 100, "of an animation (.webp): frames a second"),                                    \
        CLI_FLAG("slow", 0, "run the whole model for each pixel: the same images, to compare times")

#define CLI_CLIP_OPTION CLI_INT("clip", 0, "1", 1, 1000000000, "which of the videos in a .npy, from 1")

/* Reads a picture, which becomes a clip of one frame. If the generator makes videos, reads the video that --clip
 * chooses. The caller frees the clip, even after a failure. Returns an exit code. */
int cli_drawing_read(const cli_call *cli, const attn_generator *generator, const char *path, attn__clip *clip);

#define CLI_DETECTED_SIZE                                                                                              \
    CLI_INT("size", 's', "0", 0, 65536,                                                                                \
            "pixels to which a picture's short side is resized for a detector; 0: those of the model's config")

typedef struct cli_drawing {
    const cli_call *cli;
    bool terminal, drawn;
    double start, last;
} cli_drawing;

attn_generator_options cli_drawing_begin(cli_drawing *drawing, const cli_call *cli, attn_generator *generator);
double cli_drawing_end(cli_drawing *drawing); /* Ends the progress bar. Returns the seconds since the run began. */
/* Returns the value of --zoom. The default makes images of this height about 96 pixels high. */
int64_t cli_drawing_zoom(const cli_call *cli, int64_t height);
/* Writes n videos of `frames` frames to one file: a sheet (attn_image_sheet), or an animation of sheets (.webp).
 * Pictures have frames = 1. If `columns` is 0, each row of the sheet has the frames of one video. Returns an exit
 * code. */
int cli_drawing_write(const cli_call *cli, const attn_image *images, int64_t n, int64_t frames, int64_t columns,
                      int64_t gap, int64_t zoom);

#endif
