/* SPDX-License-Identifier: MIT
 *
 * failures.h - collects the inputs of a batch that failed, while the other inputs are still processed.
 */
#ifndef CLI_FAILURES_H
#define CLI_FAILURES_H

#include "command.h"

#define CLI_STRICT_OPTION                                                                                              \
    CLI_FLAG("strict", 0, "stop at the first input that fails; default: process the others, and exit with status 2")

/* The failures of a batch. Initialize them with {.cli = cli, .things = "files"}. The command's table must have
 * CLI_STRICT_OPTION. */
typedef struct cli_failures {
    const cli_call *cli;
    const char *things; /* plural noun such as "files", used in the message */
    int64_t tried, failed, unnamed;
    /* names of the failed inputs, joined by commas; names that did not fit are counted in `unnamed` */
    char names[1024];
} cli_failures;

/* Counts one input. `code` is its exit code, for which cli_fail has printed a message. If the result is CLI_OK,
 * continue with the next input. Otherwise stop and return the result. This happens with --strict, or if the input
 * did not cause the failure (memory, an interrupt). */
int cli_failures_note(cli_failures *failures, int code, const char *name);
/* Prints the failed inputs, if there was more than one input. Returns the exit code of the batch. */
int cli_failures_end(const cli_failures *failures);

#endif
