/* SPDX-License-Identifier: MIT
 * training.h - running a training from the command, whatever is trained: progress, stopping it by a signal, and the
 * settings of one that goes on. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "command.h"
#include "progress.h"

/* The first member of what a command gives the library as `user`. */
typedef struct cli_training {
    const cli_call *cli;
    const char *command; /* as typed: "train translate" */
    cli_progress progress;
    attn_progress last; /* the latest news; all 0 if there was no step */
    int64_t parameters, epochs, first_epoch, best_epoch;
    int64_t warmup;  /* steps */
    bool keeps_last; /* the model is that of the last epoch, not of the best one */
} cli_training;

/* Signals are watched from here to cli_training_end: SIGINT, SIGTERM and SIGHUP finish the step and save; a second one
 * ends the program at once.  `things` are what speed is counted in, `measure` is the metric of a validation in addition
 * to the loss (NULL: none). */
void cli_training_begin(cli_training *training, const cli_call *cli, const char *command, const char *things,
                        const char *measure);
/* The plan's properties that every kind of training prints. */
typedef struct cli_training_plan {
    const attn_config *settings;
    int64_t parameters, steps_per_epoch, epochs, first_epoch;
    bool warmup_fitted;
} cli_training_plan;
/* From what the library's `begin` gives, whose fields have these names for every kind. */
#define CLI_TRAINING_PLAN(plan)                                                                                        \
    &(cli_training_plan)                                                                                               \
    {                                                                                                                  \
        (plan)->settings, (plan)->parameters, (plan)->steps_per_epoch, (plan)->epochs, (plan)->first_epoch,            \
            (plan)->warmup_fitted                                                                                      \
    }

/* To be called from the library's `begin`, after what is particular to the training has been printed. */
void cli_training_announce(cli_training *training, const cli_training_plan *plan);
/* The library's `progress`; `user` is a cli_training. */
bool cli_training_progress(void *user, const attn_progress *at);
/* Errors have been said; returns an exit code. */
int cli_training_end(cli_training *training, attn_status status, const char *directory);

/* Calls train(cli, settings) with the settings among the options given; returns its exit code. */
int cli_training_run(cli_call *cli, int (*train)(cli_call *cli, const attn_config *settings));
/* Prints what a fine-tuning did not take of its checkpoint, a line each of `table`, and counts what it took. */
void cli_training_taken(const cli_call *cli, const char *table);
/* Prints a line about files in class folders whose ending is not a picture's, and folders next to train/ that are not
 * read; `first` may be NULL. */
void cli_training_passed_over(const cli_call *cli, int64_t n, const char *first);
/* The same command line with --resume is fine; another value of most settings is not.  Errors have been said. */
int cli_training_unchanged(const cli_call *cli, const attn_config *settings, const char *directory);

/* " (validation loss 1.234, epoch 5)", or nothing, on standard output. */
void cli_training_print(const cli_training *training);
/* Members that every training's JSON ends with. */
void cli_training_json(attn_json *json, const cli_training *training);

#endif
