/* SPDX-License-Identifier: MIT
 * run_problem.h - attn run --problem: one attention on arrays. */
#ifndef CLI_RUN_PROBLEM_H
#define CLI_RUN_PROBLEM_H

#include "command.h"

/* Runs the problem that --problem describes on the inputs, by the names of attn_arrays.  Gives the outputs their tensors,
 * which the list owns from then on. */
int cli_run_problem(const cli_call *cli, const attn_named_list *inputs, attn_named_list *outputs);

#endif
