/* SPDX-License-Identifier: MIT
 * source.h - the sentence pairs that a command works on: a file, or the phrasebook. */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include "command.h"

/* What --data names; path and text NULL: nothing. */
attn_pairs_source cli_source_of(const char *data);

/* training.json of the directory that the call names first, which says where the data is; NULL: there is none. */
attn_config *cli_training_of(const cli_call *cli);

#endif
