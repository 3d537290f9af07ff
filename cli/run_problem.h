/* SPDX-License-Identifier: MIT
 *
 * run_problem.h - attn run --problem: runs one attention problem on arrays.
 */
#ifndef CLI_RUN_PROBLEM_H
#define CLI_RUN_PROBLEM_H

#include "command.h"

/* Runs the problem of --problem on the inputs, which have the names of attn_arrays. Stores the output tensors in the
 * list, which then owns them. */
int cli_run_problem(const cli_call *cli, const attn_named_list *inputs, attn_named_list *outputs);

#endif
