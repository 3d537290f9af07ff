/* SPDX-License-Identifier: MIT
 * source.h - the sentence pairs that a command works on: a file, or the phrasebook. */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include "command.h"

/* Both NULL: not told. */
typedef struct cli_source {
    const char *path;
    const char *text;
    size_t size;
} cli_source;
/* What --data names. */
cli_source cli_source_of(const char *data);

/* training.json of the directory that the call names first, which says where the data is; NULL: there is none. */
attn_config *cli_training_of(const cli_call *cli);

#endif
