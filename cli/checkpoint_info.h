/* SPDX-License-Identifier: MIT
 * checkpoint_info.h - what is in a checkpoint, whatever it belongs to. */
#ifndef CLI_CHECKPOINT_INFO_H
#define CLI_CHECKPOINT_INFO_H

#include "command.h"

#include "attn/models.h"

typedef struct cli_values {
    double min, max, norm; /* of what is a number */
    int64_t nans;
} cli_values;
cli_values cli_values_of(const attn_tensor *tensor);

/* Prints it, or writes it as JSON; an exit code. */
int cli_checkpoint_info(const cli_call *cli, const char *path);

#endif
