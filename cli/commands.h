/* SPDX-License-Identifier: MIT
 * commands.h - declarations of all commands, one per file. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "command.h"

extern const cli_command cli_align, cli_demo, cli_demo_detect, cli_detect, cli_diff, cli_train_translate, cli_translate,
    cli_eval, cli_show, cli_plot, cli_train_classify, cli_classify, cli_train_images, cli_generate, cli_complete,
    cli_contacts, cli_weights, cli_embed, cli_score, cli_train_msa, cli_train_detect, cli_train_contacts, cli_convert,
    cli_info, cli_list, cli_run, cli_bench, cli_version, cli_help;

/* Replaces this program by attn-bench. words[0] is "bench", and the others are its arguments. Returns an exit code if
 * there is no attn-bench. */
int cli_bench_start(char **words);

#endif
