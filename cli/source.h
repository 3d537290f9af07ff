/* SPDX-License-Identifier: MIT
 * source.h - the sentence pairs of a command: a file, or the phrasebook. */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include "failures.h"
#include "data/sentences.h"

/* The data that --data names; path and text NULL: none. */
attn_pairs_source cli_source_of(const char *data);

/* Lines of the data that are no pairs are skipped and counted in `failures`; with --strict the first such line ends the
 * command. */
void cli_source_goes_on(attn_pairs_source *source, cli_failures *failures);

/* Reads training.json of the directory in the first word, which records the path of the data; NULL: there is none. */
attn_config *cli_training_of(const cli_call *cli);

#endif
