/* SPDX-License-Identifier: MIT
 * failures.h - inputs of a batch that failed, while the others went on. */
#ifndef CLI_FAILURES_H
#define CLI_FAILURES_H

#include "command.h"

#define CLI_STRICT_OPTION                                                                                              \
    CLI_FLAG("strict", 0, "stop at the first input that fails; default: the others are done, and the exit status is 2")

/* Begin with {.cli = cli, .things = "files"}; the command's table has CLI_STRICT_OPTION. */
typedef struct cli_failures {
    const cli_call *cli;
    const char *things; /* the kind of input, for the message */
    int64_t tried, failed, unnamed;
    char names[1024]; /* of those that failed, joined by commas; the `unnamed` others had no room */
} cli_failures;

/* Counts one input.  `code` is its exit code, whose message cli_fail has printed.  CLI_OK: go on with the next input;
 * else the exit code to stop with: under --strict, or for a failure that is not the input's (memory, an interrupt). */
int cli_failures_note(cli_failures *failures, int code, const char *name);
/* Prints which inputs failed, if more than one was tried.  Returns the exit code of the batch. */
int cli_failures_end(const cli_failures *failures);

#endif
