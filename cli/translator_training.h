/* SPDX-License-Identifier: MIT
 * translator_training.h - training a translator from the command. */
#ifndef CLI_TRANSLATOR_TRAINING_H
#define CLI_TRANSLATOR_TRAINING_H

#include "training.h"

typedef struct cli_translator_training {
    cli_training common;
    attn_translator_run_info plan; /* its settings are not kept */
} cli_translator_training;

/* Trains by the settings of `job` (its callbacks are set here).  Errors have been said; returns an exit code. */
int cli_train_translator(const cli_call *cli, attn_translator_job *job, cli_translator_training *training);

#endif
