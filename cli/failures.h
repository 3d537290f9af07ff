/* SPDX-License-Identifier: MIT
 *
 * failures.h - collects the inputs of a batch that failed. The other inputs are still processed.
 */
#ifndef CLI_FAILURES_H
#define CLI_FAILURES_H

#include "command.h"

#define CLI_STRICT_OPTION                                                                                              \
    CLI_FLAG("strict", 0, "stop at the first input that fails; default: the others are done, and the exit status is 2")

/* The failures of a batch. Initialize them with {.cli = cli, .things = "files"}. The command's table must have
 * CLI_STRICT_OPTION. */
typedef struct cli_failures {
    const cli_call *cli;
    const char *things; /* kind of input, for the message */
    int64_t tried, failed, unnamed;
    char names[1024]; /* names of the failed inputs, joined by commas; `unnamed` counts the names that did not fit */
} cli_failures;

/* Counts one input. `code` is its exit code, whose message has been printed by cli_fail. If the result is CLI_OK,
 * continue with the next input. Otherwise stop with the result as exit code. This happens if --strict is set, or if
 * the input is not the cause of the failure (memory, an interrupt). */
int cli_failures_note(cli_failures *failures, int code, const char *name);
/* If more than one input was tried, prints the failed inputs. Returns the exit code of the batch. */
int cli_failures_end(const cli_failures *failures);

#endif
