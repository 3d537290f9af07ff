/* SPDX-License-Identifier: MIT
 *
 * classified.h - reads the picture for a classifier, in the commands that classify pictures or draw attention over
 * them.
 */
#ifndef CLI_CLASSIFIED_H
#define CLI_CLASSIFIED_H

#include "command.h"

#include "attn/classify.h"

#define CLI_CLASSIFIED_OPTIONS                                                                                         \
    CLI_FLAG("invert", 0,                                                                                              \
             "invert each picture: for dark objects on a bright ground where the training had bright on dark"),        \
        CLI_INT("channels", 0, "0", 0, 3, "1: the pictures are read as grey, 3: in colour; 0: as they are")

/* Reads a picture with the options --channels and --invert. The caller frees it, also after an error. */
attn_status cli_classified_read(const cli_call *cli, const char *path, attn_image *image);

#endif
