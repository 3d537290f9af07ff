/* SPDX-License-Identifier: MIT
 * training.h - running a training from the command, whatever is trained: progress, stopping it by a signal, and the
 * settings of one that goes on. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "command.h"
#include "progress.h"

#include "attn/trainer.h"
#include "data/sentences.h"

/* The `user` of a training's callbacks. */
typedef struct cli_training {
    const cli_call *cli;
    const char *kind;   /* as attn_trainer has it, a constant */
    attn_pairs_bad bad; /* gets lines of the data that are no pairs; tell NULL: the first one is an error */
    cli_progress progress;
    attn_progress last; /* the latest news; all 0 if there was no step */
    int64_t parameters, epochs, first_epoch, best_epoch;
    int64_t warmup;  /* steps */
    bool keeps_last; /* the model is that of the last epoch, not of the best one */
    struct {
        char name[24];
        int64_t value;
    } sizes[16]; /* attn_trainer_plan.sizes */
    int nsizes;
} cli_training;

/* Signals are watched from here to cli_training_end: SIGINT, SIGTERM and SIGHUP finish the step and save; a second one
 * ends the program at once.  `things` are what speed is counted in, `measure` is the metric of a validation in addition
 * to the loss (NULL: none). */
void cli_training_begin(cli_training *training, const cli_call *cli, const char *kind, const char *things,
                        const char *measure);
/* Copies the sizes of a plan; and the one of that name, 0 if there is none. */
void cli_training_keep_sizes(cli_training *training, const attn_config *sizes);
int64_t cli_training_size(const cli_training *training, const char *name);
/* To be called from attn_trainer_job.begin, after what is particular to the kind has been printed. */
void cli_training_announce(cli_training *training, const attn_trainer_plan *plan);
/* attn_trainer_job.left_out. */
void cli_training_left_out(void *user, int64_t line, const char *error);
/* The library's `progress`; `user` is a cli_training. */
bool cli_training_progress(void *user, const attn_progress *at);
/* Errors have been said; returns an exit code. */
int cli_training_end(cli_training *training, attn_status status, const char *directory);

/* Calls train(cli, settings) with the settings among the options given; returns its exit code. */
int cli_training_run(cli_call *cli, int (*train)(cli_call *cli, const attn_config *settings));
/* Trains by the settings of `job` (its callbacks are set here).  Errors have been said; returns an exit code. */
int cli_train(const cli_call *cli, attn_trainer_job *job, cli_training *training);
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
