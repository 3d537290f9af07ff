/* SPDX-License-Identifier: MIT
 *
 * run_problem.h - attn run --problem: runs one attention problem on arrays.
 */
#ifndef CLI_RUN_PROBLEM_H
#define CLI_RUN_PROBLEM_H

#include "command.h"

/* Runs the problem of --problem on the inputs, which have the names of the fields of attn_arrays. Adds the output
 * tensors to the list `outputs`, which then owns them. */
int cli_run_problem(const cli_call *cli, const attn_named_list *inputs, attn_named_list *outputs);

#endif
