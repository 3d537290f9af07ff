/* SPDX-License-Identifier: MIT
 * The table of commands. */
#include "commands.h"

#include <string.h>

const cli_command *const cli_commands[] = {
    &cli_demo,        &cli_train_translate,
    &cli_translate,   &cli_eval,
    &cli_show,        &cli_train_classify,
    &cli_classify,    &cli_train_images,
    &cli_generate,    &cli_complete,
    &cli_contacts,    &cli_weights,
    &cli_embed,       &cli_score,
    &cli_train_msa,   &cli_train_contacts,
    &cli_convert,     &cli_info,
    &cli_diff,        &cli_list,
    &cli_run,         &cli_bench_attend,
    &cli_bench_train, &cli_version,
    &cli_help,        NULL,
};

const cli_command *cli_command_find(const char *name)
{
    for (int i = 0; cli_commands[i]; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    }
    return NULL;
}
