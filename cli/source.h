/* SPDX-License-Identifier: MIT
 *
 * source.h - finds the sentence pairs of a command, which are in a file or are the phrasebook.
 */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include "failures.h"
#include "data/sentences.h"

/* Returns the data that --data names: a path, or the text of the phrasebook. If `data` is "", path and text are
 * NULL. */
attn_pairs_source cli_source_of(const char *data);

/* Makes reading continue after a line that is not a pair. The line is skipped and counted in `failures`. With
 * --strict, the first such line ends the command. */
void cli_source_goes_on(attn_pairs_source *source, cli_failures *failures);

/* Reads a JSON file in a directory. Returns NULL if it cannot be read. */
attn_config *cli_config_in(const cli_call *cli, const char *directory, const char *name);
/* Reads training.json, which has the path of the data, from the directory that the first word names. Returns NULL if
 * there is no such file. */
attn_config *cli_training_of(const cli_call *cli);

#endif
