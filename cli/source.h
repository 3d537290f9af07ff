/* SPDX-License-Identifier: MIT
 *
 * source.h - finds the sentence pairs of a command: a file, or the phrasebook.
 */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include "failures.h"
#include "data/sentences.h"

/* Returns the data that --data names. If there is none, path and text are NULL. */
attn_pairs_source cli_source_of(const char *data);

/* Lets reading continue after lines that are not pairs. Such lines are skipped and counted in `failures`. With
 * --strict, the first such line ends the command. */
void cli_source_goes_on(attn_pairs_source *source, cli_failures *failures);

/* Reads training.json of the directory in the first word, which has the path of the data. Returns NULL if there is
 * none. */
attn_config *cli_training_of(const cli_call *cli);

#endif
