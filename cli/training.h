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

typedef struct cli_training {
    const cli_call *cli;
    const char *kind;
    /* lines of the data that are no pairs; if its `tell` is NULL, the first such line is an error */
    attn_pairs_bad bad;
    cli_progress progress;
    attn_progress last; /* latest progress; before the first step, all fields are 0 */
    int64_t parameters, epochs, first_epoch, best_epoch;
    int64_t warmup;
    bool keeps_last; /* true: the saved model is from the last epoch; false: it is from the best epoch */
    struct {
        char name[24];
        int64_t value;
    } sizes[16];
    int nsizes;
} cli_training;

/* Until cli_training_end is called, SIGINT, SIGTERM or SIGHUP lets the current step finish and saves, and a second
 * signal ends the program at once. `things` is the unit of speed. `measure` names a validation's metric in addition to
 * the loss, or is NULL. */
void cli_training_begin(cli_training *training, const cli_call *cli, const char *kind, const char *things,
                        const char *measure);
/* Copies the sizes of a plan, so that cli_training_size can return them by name. */
void cli_training_keep_sizes(cli_training *training, const attn_config *sizes);
int64_t cli_training_size(const cli_training *training, const char *name);
/* Prints what all kinds of training have in common. Call this from attn_trainer_job.begin, after printing what is
 * specific to the kind. */
void cli_training_announce(cli_training *training, const attn_trainer_plan *plan);
void cli_training_left_out(void *user, int64_t line, const char *error);
/* A callback for the library's `progress`; `user` is a cli_training. */
bool cli_training_progress(void *user, const attn_progress *at);
int cli_training_end(cli_training *training, attn_status status, const char *directory);

/* Calls train(cli, settings) with the options that are settings and were given. Returns its exit code. */
int cli_training_run(cli_call *cli, int (*train)(cli_call *cli, const attn_config *settings));
/* Runs the training that `job` describes. This function sets the callbacks of `job`. Errors have been printed.
 * Returns an exit code. */
int cli_train(const cli_call *cli, attn_trainer_job *job, cli_training *training);
/* Prints a line about n files that are not read: files that are no alignments, or files in class folders that are not
 * pictures, and folders next to train/. `first` is the path of the first one, or NULL. */
void cli_training_passed_over(const cli_call *cli, int64_t n, bool alignments, const char *first);
/* Checks that a training resumed by --resume has the same settings as before, except settings that may change.
 * Errors have been printed. */
int cli_training_unchanged(const cli_call *cli, const attn_config *settings, const char *directory);

/* Prints " (validation loss 1.234, epoch 5)" on standard output, if there was a validation. */
void cli_training_print(const cli_training *training);
void cli_training_json(attn_json *json, const cli_training *training);

#endif
