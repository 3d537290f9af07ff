/* SPDX-License-Identifier: MIT
 * The table of attn's commands. */
#include "commands.h"

const cli_command *const cli_commands[] = {
    &cli_demo,         &cli_demo_detect,  &cli_train_translate,
    &cli_translate,    &cli_align,        &cli_train_classify,
    &cli_classify,     &cli_train_detect, &cli_detect,
    &cli_train_images, &cli_generate,     &cli_complete,
    &cli_contacts,     &cli_weights,      &cli_embed,
    &cli_score,        &cli_train_msa,    &cli_train_contacts,
    &cli_eval,         &cli_show,         &cli_plot,
    &cli_convert,      &cli_info,         &cli_diff,
    &cli_list,         &cli_run,          &cli_bench,
    &cli_version,      &cli_help,         NULL,
};
