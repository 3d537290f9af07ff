/* SPDX-License-Identifier: MIT
 * training.h - running a training from the command: progress, and stopping it by a signal. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "command.h"
#include "progress.h"

typedef struct cli_training {
    cli_call *cli;
    cli_progress progress;
    attn_translator_plan plan; /* its settings are not kept */
    attn_progress last;        /* the latest news; all 0 if there was no step */
    int64_t best_epoch;
    bool keeps_last; /* the model is that of the last epoch, not of the best one */
} cli_training;

/* Trains as `job` says (its callbacks are set here).  SIGINT, SIGTERM and SIGHUP finish the step and save; a second one
 * ends the program at once.  Errors have been said; returns an exit code. */
int cli_train(cli_call *cli, attn_translator_job *job, cli_training *training);

#endif
