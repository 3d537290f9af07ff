/* SPDX-License-Identifier: MIT
 *
 * training.h - runs a training of any kind from the command: progress, stopping by a signal, and the settings of a
 * resumed training.
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
    const char *kind; /* name of the attn_trainer, a constant */
    /* counts lines of the data that are no pairs; if tell is NULL, the first such line is an error */
    attn_pairs_bad bad;
    cli_progress progress;
    attn_progress last; /* latest progress; all fields are 0 before the first step */
    int64_t parameters, epochs, first_epoch, best_epoch;
    int64_t warmup;  /* number of steps */
    bool keeps_last; /* true if the saved model is from the last epoch instead of the best epoch */
    struct {
        char name[24];
        int64_t value;
    } sizes[16]; /* copy of attn_trainer_plan.sizes */
    int nsizes;
} cli_training;

/* Begins a training. Until cli_training_end, SIGINT, SIGTERM and SIGHUP finish the step and save. A second signal
 * ends the program at once. `things` is the unit of speed. `measure` is the metric of a validation in addition to
 * the loss (NULL: none). */
void cli_training_begin(cli_training *training, const cli_call *cli, const char *kind, const char *things,
                        const char *measure);
/* Copies the sizes of a plan. cli_training_size returns the size with this name, or 0 if there is none. */
void cli_training_keep_sizes(cli_training *training, const attn_config *sizes);
int64_t cli_training_size(const cli_training *training, const char *name);
/* Call this from attn_trainer_job.begin, after printing what is specific to the kind. */
void cli_training_announce(cli_training *training, const attn_trainer_plan *plan);
/* A callback for attn_trainer_job.left_out. */
void cli_training_left_out(void *user, int64_t line, const char *error);
/* A callback for the library's `progress`; `user` is a cli_training. */
bool cli_training_progress(void *user, const attn_progress *at);
/* Ends a training. Errors have been printed. Returns an exit code. */
int cli_training_end(cli_training *training, attn_status status, const char *directory);

/* Calls train(cli, settings) with the given options that are settings. Returns its exit code. */
int cli_training_run(cli_call *cli, int (*train)(cli_call *cli, const attn_config *settings));
/* Runs a training with the settings of `job`. The callbacks are set here. Errors have been printed. Returns an exit
 * code. */
int cli_train(const cli_call *cli, attn_trainer_job *job, cli_training *training);
/* Prints a line about files in class folders that are not pictures, and about folders next to train/ that are not
 * read. `first` may be NULL. */
void cli_training_passed_over(const cli_call *cli, int64_t n, const char *first);
/* Checks the settings of a resumed training. The same command line may be repeated with --resume, and most settings
 * may not change. Errors have been printed. */
int cli_training_unchanged(const cli_call *cli, const attn_config *settings, const char *directory);

/* Prints " (validation loss 1.234, epoch 5)", or nothing, on standard output. */
void cli_training_print(const cli_training *training);
/* Writes the last members of the JSON of every training. */
void cli_training_json(attn_json *json, const cli_training *training);

#endif
