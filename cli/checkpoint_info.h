/* SPDX-License-Identifier: MIT
 *
 * checkpoint_info.h - prints the tensors of a checkpoint of any model.
 */
#ifndef CLI_CHECKPOINT_INFO_H
#define CLI_CHECKPOINT_INFO_H

#include "command.h"

#include "attn/models.h"

typedef struct cli_values {
    double min, max, norm; /* minimum, maximum and norm of the finite elements */
    int64_t nans;
} cli_values;
cli_values cli_values_of(const attn_tensor *tensor);

/* Reports whether the checkpoint belongs to a network that has DETR's names but another structure. If so, prints a
 * line about it. */
bool cli_print_other_network(const attn_checkpoint *weights);

/* Prints the tensors, or writes them as JSON. Returns an exit code. */
int cli_checkpoint_info(const cli_call *cli, const char *path);

#endif
