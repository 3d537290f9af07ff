/* SPDX-License-Identifier: MIT
 * training.h - running a training of any kind from the command: progress, stopping by a signal, and the settings of a
 * resumed training. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "command.h"
#include "progress.h"

#include "attn/trainer.h"
#include "data/sentences.h"

/* The `user` of a training's callbacks. */
typedef struct cli_training {
    const cli_call *cli;
    const char *kind;   /* the name of its attn_trainer, a constant */
    attn_pairs_bad bad; /* counts lines of the data that are no pairs; tell NULL: the first such line is an error */
    cli_progress progress;
    attn_progress last; /* the latest progress; all 0 before the first step */
    int64_t parameters, epochs, first_epoch, best_epoch;
    int64_t warmup;  /* number of steps */
    bool keeps_last; /* the saved model is from the last epoch, not from the best one */
    struct {
        char name[24];
        int64_t value;
    } sizes[16]; /* copy of attn_trainer_plan.sizes */
    int nsizes;
} cli_training;

/* Signals are handled from here to cli_training_end: SIGINT, SIGTERM and SIGHUP finish the step and save. A second
 * signal ends the program at once. `things` is the unit of speed; `measure` is the metric of a validation in addition
 * to the loss (NULL: none). */
void cli_training_begin(cli_training *training, const cli_call *cli, const char *kind, const char *things,
                        const char *measure);
/* Copies the sizes of a plan. Returns the size of this name, 0 if there is none. */
void cli_training_keep_sizes(cli_training *training, const attn_config *sizes);
int64_t cli_training_size(const cli_training *training, const char *name);
/* Call this from attn_trainer_job.begin, after printing what is specific to the kind. */
void cli_training_announce(cli_training *training, const attn_trainer_plan *plan);
/* attn_trainer_job.left_out. */
void cli_training_left_out(void *user, int64_t line, const char *error);
/* The library's `progress`; `user` is a cli_training. */
bool cli_training_progress(void *user, const attn_progress *at);
/* Errors have been printed; returns an exit code. */
int cli_training_end(cli_training *training, attn_status status, const char *directory);

/* Calls train(cli, settings) with the settings among the options given; returns its exit code. */
int cli_training_run(cli_call *cli, int (*train)(cli_call *cli, const attn_config *settings));
/* Runs a training with the settings of `job` (the callbacks are set here). Errors have been printed; returns an exit
 * code. */
int cli_train(const cli_call *cli, attn_trainer_job *job, cli_training *training);
/* Prints a line about files in class folders without the ending of a picture, and folders next to train/ that are not
 * read; `first` may be NULL. */
void cli_training_passed_over(const cli_call *cli, int64_t n, const char *first);
/* Checks the settings of a resumed training: repeating the same command line with --resume is allowed, changing most
 * settings is not. Errors have been printed. */
int cli_training_unchanged(const cli_call *cli, const attn_config *settings, const char *directory);

/* Prints " (validation loss 1.234, epoch 5)", or nothing, on standard output. */
void cli_training_print(const cli_training *training);
/* Writes the members that the JSON of every training ends with. */
void cli_training_json(attn_json *json, const cli_training *training);

#endif
