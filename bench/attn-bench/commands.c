/* SPDX-License-Identifier: MIT
 * The table of attn-bench's commands. */
#include "bench.h"

const cli_command *const cli_commands[] = {&bench_sets, &bench_attend, &bench_products, &bench_train, NULL};
