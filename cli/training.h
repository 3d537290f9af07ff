/* SPDX-License-Identifier: MIT
 *
 * training.h - runs a training of any kind from the command. It shows progress, stops at a signal, and checks the
 * settings of a resumed training.
 */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "command.h"
#include "progress.h"

#include "attn/trainer.h"
#include "data/sentences.h"

/* The `user` argument of a training's callbacks. */
typedef struct cli_training {
    const cli_call *cli;
    const char *kind; /* name of the attn_trainer, which is a constant */
    /* counts the lines of the data that are no pairs; if its `tell` is NULL, the first such line is an error */
    attn_pairs_bad bad;
    cli_progress progress;
    attn_progress last; /* latest progress; before the first step, all fields are 0 */
    int64_t parameters, epochs, first_epoch, best_epoch;
    int64_t warmup;  /* number of steps of the warm-up */
    bool keeps_last; /* true: the saved model is from the last epoch; false: it is from the best epoch */
    struct {
        char name[24];
        int64_t value;
    } sizes[16]; /* copy of attn_trainer_plan.sizes */
    int nsizes;
} cli_training;

/* Begins a training. Until cli_training_end is called, SIGINT, SIGTERM and SIGHUP finish the current step and save.
 * A second signal ends the program at once. `things` is the unit of speed. `measure` names the metric of a
 * validation in addition to the loss. NULL means that there is no such metric. */
void cli_training_begin(cli_training *training, const cli_call *cli, const char *kind, const char *things,
                        const char *measure);
/* Copies the sizes of a plan. cli_training_size then returns the size of a name, or 0 if no size has this name. */
void cli_training_keep_sizes(cli_training *training, const attn_config *sizes);
int64_t cli_training_size(const cli_training *training, const char *name);
/* Prints what all kinds of training have in common. Call this from attn_trainer_job.begin, after printing what is
 * specific to the kind. */
void cli_training_announce(cli_training *training, const attn_trainer_plan *plan);
/* A callback for attn_trainer_job.left_out. */
void cli_training_left_out(void *user, int64_t line, const char *error);
/* A callback for the library's `progress`; `user` is a cli_training. */
bool cli_training_progress(void *user, const attn_progress *at);
/* Ends a training. Errors have been printed. Returns an exit code. */
int cli_training_end(cli_training *training, attn_status status, const char *directory);

/* Calls train(cli, settings), where `settings` are the given options that are settings. Returns the exit code of
 * `train`. */
int cli_training_run(cli_call *cli, int (*train)(cli_call *cli, const attn_config *settings));
/* Runs the training that `job` describes. This function sets the callbacks of `job`. Errors have been printed.
 * Returns an exit code. */
int cli_train(const cli_call *cli, attn_trainer_job *job, cli_training *training);
/* Prints a line about files that are not read. These are files in class folders that are not pictures, and folders
 * next to train/. `first` may be NULL. */
void cli_training_passed_over(const cli_call *cli, int64_t n, const char *first);
/* Checks the settings of a resumed training. The same command line may be repeated with --resume, but most settings
 * must not change. Errors have been printed. */
int cli_training_unchanged(const cli_call *cli, const attn_config *settings, const char *directory);

/* If there was a validation, prints " (validation loss 1.234, epoch 5)" on standard output. Otherwise prints
 * nothing. */
void cli_training_print(const cli_training *training);
/* Writes the last members of the JSON of every training. */
void cli_training_json(attn_json *json, const cli_training *training);

#endif
