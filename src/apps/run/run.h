/* SPDX-License-Identifier: MIT
 *
 * run.h - runs one training of any kind in a directory. An application defines a kind of training: the data, the model
 * and the loss of a step. All other code is the same for all kinds and is declared here: the lock of the directory,
 * settings, checkpoint and history, stopping and resuming.
 *
 * In addition to the application's own files, the directory contains
 *     training.json           all settings, and the path and fingerprint of the data
 *     checkpoint.safetensors  the parameters ("p.NAME"), their average ("a.NAME", if there is one), the optimizer's
 *                             state and the counters. All data that must fit together is in this file, which is
 *                             replaced as a whole. A checksum of the file's data, the settings and the application's
 *                             files detects damage.
 *     history.tsv             one line per epoch
 *     model.safetensors       the parameters of the best epoch so far, or of the last epoch */
#ifndef ATTN_APPS_RUN_H
#define ATTN_APPS_RUN_H

#include "apps/checkpoint/identify.h"
#include "attn/io.h"
#include "attn/models.h"
#include "attn/train.h"
#include "attn/trainer.h"
#include "base/cpu.h"
#include "config/keys.h"
#include "tensor/tape_state.h"
#include "train/loop.h"

/* A part of the data, divided as in the training. ATTN_SPLIT_ALL means all data. */
typedef enum attn_split { ATTN_SPLIT_ALL = 0, ATTN_SPLIT_TRAIN, ATTN_SPLIT_VALID, ATTN_SPLIT_TEST } attn_split;

typedef struct attn__run attn__run;

typedef struct attn__run_kind {
    const attn_trainer *about;
    attn__application product; /* what the trained models are for */
    size_t size;               /* size of the application's struct in bytes; its first member is an attn__run */
    const attn__keys *keys;    /* table of the settings, including ATTN__RUN_KEYS */
    /* Names of data that has no path. training.json stores the name instead of a path. The list ends with NULL, and
     * its first name is the default. NULL: the data always has a path. */
    const char *const *in_memory;
    /* name of the column in history.tsv for run->measure, which validate() sets; NULL: there is no column */
    const char *measure;
    const char *measure_too; /* name of the column in history.tsv for run->measure_too */
    /* names of the files that `write` may write; the list ends with NULL; NULL: no files */
    const char *const *own_files;
    /* Reads the data at run->data, as run->settings require. It must set run->fingerprint and then call
     * attn__run_check_data, which checks that a resumed run has the same data. It may make run->model. */
    attn_status (*prepare)(attn__run *run);
    /* One of these makes run->model, unless `prepare` has made it: `create` a new model, and `from` a model with the
     * parameters of the checkpoint that the setting "from" names, whose sources it adds to run->taken. A resumed run
     * that began from a checkpoint reads its own directory. */
    attn_status (*create)(attn__run *run);
    attn_status (*from)(attn__run *run, const char *path);
    attn_status (*begin)(attn__run *run); /* called when run->model is there; may be NULL */
    /* Writes the files that training does not change: config.json and files that belong to it. */
    attn_status (*write)(const attn__run *run);
    /* Writes the parameters to model.safetensors. If this pointer is NULL, they are written with the names that they
     * have in the model. */
    attn_status (*save)(const attn__run *run, const attn_named_list *parameters, const char *path);
    /* Adds the sizes of the data to `sizes`, which becomes plan->sizes, and sets plan->passed_first. Called once,
     * before the first step. */
    attn_status (*measure_data)(const attn__run *run, attn_config *sizes, attn_trainer_plan *plan);
    int64_t (*steps)(void *self);
    attn_tensor *(*loss)(void *self, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted);
    /* Computes the mean loss on the validation part. It is not called if run->no_validation is true. */
    attn_status (*validate)(void *self, attn_tape *tape, double *loss);
    /* Returns the metric by which the best epoch is chosen, larger is better. If it returns NaN, the loss decides.
     * If the pointer is NULL, the loss always decides. */
    double (*judge)(const void *self);
    /* Called once by the first rank, after the last epoch, when the directory has the final model. NULL: nothing is
     * done. */
    attn_status (*finish)(const attn__run *run);
    void (*release)(void *self); /* frees all memory of the application's struct except the model */
} attn__run_kind;

struct attn__run {
    attn_context *context;
    const attn__run_kind *kind;
    const attn_trainer_job *job;
    void *self; /* the application's struct; its first member is this struct */
    const char *directory;
    /* path of the data; may be NULL, and for a resumed run without a path it is read from training.json */
    const char *data;
    const attn_config *given; /* settings that the caller gave; may be NULL */
    bool resume;
    /* The fields from here to `taken` are set by prepare() and by the other callbacks. */
    uint64_t fingerprint; /* checksum of the data */
    attn_model *model;
    bool no_validation; /* true: there is no validation part */
    int64_t whole;      /* number of labels in the whole batch of the last step, set by attn__run_share */
    double measure;     /* metric of the last validation; its column in history.tsv is kind->measure */
    double measure_too; /* metric of the last validation; its column in history.tsv is kind->measure_too */
    /* name of data that has no path, used in training.json and in messages; NULL: the data has a path */
    const char *no_path;
    /* table with the source of each parameter, one per line; empty if there is no initial checkpoint */
    attn_bytes taken;
    /* The fields from here on are used only by the run itself. */
    attn_config *settings; /* settings with defaults filled in */
    attn_config *stored;   /* the settings in training.json, if the run is resumed */
    attn_training *training;
    int64_t epochs;
    bool warmup_fitted; /* true: the default warm-up was reduced, because the run is short */
    int lock;           /* lock of the directory; -1: not locked */
    /* instruction set of the context. With precision fma, training uses a lower instruction set, and restores this
     * one afterwards. */
    attn__isa isa;
    attn_bytes history; /* lines of history.tsv, one for each epoch that is finished */
    /* The averages of the parameters, with the names of the parameters. If "ema" > 0, they are moving averages. If
     * "average" > 1, they are means over the last epochs. Otherwise the list is empty. The averages are validated, and
     * saved as the model. In the checkpoint their names are "a.NAME". */
    attn_named_list average;
    struct attn__run_lora *lora; /* the adapters that are trained; NULL: there are none */
    /* Copies of the parameters at the ends of the last epochs, as many as the setting "average". They are named
     * "s0.NAME", "s1.NAME" and so on. The digit is the epoch modulo "average". */
    attn_named_list snapshots;
};

extern const attn__run_kind attn__translator_training_kind, attn__classifier_training_kind,
    attn__generator_training_kind, attn__msa_training_kind, attn__detector_training_kind;

/* The name and the value of one size. attn__run_set_sizes adds such sizes to a config, which becomes
 * attn_trainer_plan.sizes. */
typedef struct attn__run_size {
    const char *name;
    int64_t value;
} attn__run_size;
attn_status attn__run_set_sizes(attn_config *sizes, const attn__run_size *list, int n);

/* Trains up to the last epoch. Begins with the first step, or with the state of the checkpoint if the run is
 * resumed. Returns the statuses of attn_train. */
attn_status attn__run_train(attn_context *context, const attn__run_kind *kind, const attn_trainer_job *job);

/* Sets this process's share of the batch, and the number of labels of the whole batch. The callback `loss` calls it
 * before it puts the batch on the tape. */
void attn__run_share(attn__run *run, attn_tape *tape, attn_shard share, int64_t whole);

/* Checks that the data of a resumed run has the same fingerprint as at the start of the run. If not, returns
 * ATTN_ERROR_ARGUMENT. */
attn_status attn__run_check_data(const attn__run *run);
/* Makes run->model a copy of `from` with the dropout of this training and the settings of `over`, which may be NULL.
 * Adds the sources of its parameters to run->taken: those whose names begin with `fresh` are new; NULL: none is. */
attn_status attn__run_copy_model(attn__run *run, const attn_model *from, attn_config *over, const char *fresh);
/* Returns ATTN_ERROR_ARGUMENT if the caller gave a setting that the initial checkpoint decides. The setting is
 * accepted if it has the checkpoint's value `its`. If `its` is NULL, no value is accepted. `why` explains what the
 * checkpoint decides. */
attn_status attn__run_refuse(const attn__run *run, const char *setting, const attn_config_value *its, const char *why);
int64_t attn__run_epoch(const attn__run *run); /* Returns the number of finished epochs. */
/* Returns the number of elements of all trained parameters of the model. */
int64_t attn__run_parameters(const attn__run *run);

/* Writes the epoch after which the schedule `step` lowers the rate into the settings, if they have none. Otherwise a
 * resumed training of more epochs would lower the rate at another epoch. */
attn_status attn__run_fix_schedule(attn_config *settings);
/* Returns the options of a training (optimizer, schedule and length) from settings that have the keys of
 * ATTN__RUN_KEYS. */
attn_training_options attn__run_options(const attn_config *settings, int64_t steps_per_epoch);

/* ------------------------------------------------------------------------------------- tables of settings */

#define ATTN__TEXT(name, otherwise, choices, doc)                                                                      \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_TEXT, otherwise, 0, 0, choices, doc                                                     \
    }
#define ATTN__INT(name, otherwise, least, most, doc)                                                                   \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_INT, otherwise, least, most, NULL, doc                                                  \
    }
/* Defines an entry of a table of settings. The setting is an integer or a list of integers. */
#define ATTN__INTS(name, otherwise, least, most, doc)                                                                  \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_INTS, otherwise, least, most, NULL, doc                                                 \
    }
#define ATTN__REAL(name, otherwise, least, most, doc)                                                                  \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_REAL, otherwise, least, most, NULL, doc                                                 \
    }
#define ATTN__BOOL(name, otherwise, doc)                                                                               \
    {                                                                                                                  \
        name, ATTN_CONFIG_TYPE_BOOL, otherwise, 0, 0, NULL, doc                                                        \
    }

extern const char *const attn__run_optimizers[], *const attn__run_schedules[], *const attn__run_keeps[],
                                                                                   *const attn__run_precisions[];

/* The first settings in every table: those for the initial checkpoint and for the seed. */
#define ATTN__RUN_BEGIN(checkpoints, random)                                                                           \
    ATTN__TEXT("from", "", NULL, "warm start from " checkpoints),                                                      \
        ATTN__TEXT("names", "", NULL,                                                                                  \
                   "a names file for a checkpoint of another program, or a built-in one; it gives the architecture"),  \
        ATTN__INT("seed", "1", 0, 9e15, "seed of everything random: first weights, order, " random ", split")

/* Settings for the data of a training on images. */
#define ATTN__RUN_IMAGES(most, flip, shift)                                                                            \
    ATTN__INTS("size", "0", 0, most, "height and width to which images are resized; 0: as they are"),                  \
        ATTN__INT("channels", "0", 0, 3, "1: grey, 3: colour; 0: as they are"),                                        \
        ATTN__REAL("valid", "0.05", 0, 0.9, "share of the training images kept for validation"),                       \
        ATTN__REAL("test", "0.1", 0, 0.9, "share of the images kept for testing, where the data has no test part"),    \
        ATTN__BOOL("flip", flip, "mirror every other image left to right"),                                            \
        ATTN__INT("shift", shift, 0, 64, "move images by up to this many pixels each way")

/* The settings that every table has. `things` names what a step counts, and `labels` names what the model predicts.
 * The other arguments are the defaults of the settings. */
#define ATTN__RUN_KEYS(things, labels, epochs, batch, optimizer, rate, schedule, warmup, decay, smoothing)             \
    ATTN__INT("epochs", epochs, 0, 1e6, "passes over the data"),                                                       \
        ATTN__INT("batch", batch, 1, 65536, things " in a step"),                                                      \
        ATTN__TEXT("precision", "default", attn__run_precisions,                                                       \
                   "number format of matrix products; parameters stay f32; default: ATTN_PRECISION, else f32"),        \
        ATTN__TEXT("optimizer", optimizer, attn__run_optimizers, "adam, adamw or sgd with momentum"),                  \
        ATTN__REAL("rate", rate, 1e-12, 100, "highest learning rate"),                                                 \
        ATTN__TEXT("schedule", schedule, attn__run_schedules, "how the rate falls after the warm-up"),                 \
        ATTN__INT("rate_drop", "0", 0, 1e6,                                                                            \
                  "epochs before the rate falls to a tenth, with the schedule step; 0: two thirds of all"),            \
        ATTN__INT("warmup", warmup, 0, 1e9,                                                                            \
                  "steps in which the rate rises from 0; the default is at most a tenth of the run"),                  \
        ATTN__REAL("weight_decay", decay, 0, 10, "pull of the weights towards 0"),                                     \
        ATTN__REAL("momentum", "0.9", 0, 0.9999, "momentum of sgd"),                                                   \
        ATTN__REAL("clip", "1", 0, 1e9, "largest global norm of the gradient; 0: no limit"),                           \
        ATTN__REAL("label_smoothing", smoothing, 0, 0.9, "share of each label spread over all " labels),               \
        ATTN__INT("patience", "0", 0, 1e6, "stop after this many epochs without a better validation loss; 0: never"),  \
        ATTN__TEXT("keep", "best", attn__run_keeps,                                                                    \
                   "which parameters the model gets: those best on the validation part, or the last"),                 \
        ATTN__INT("accumulate", "", 1, 65536,                                                                          \
                  "batches per step, whose gradients are accumulated in the memory of one batch; default 1"),          \
        ATTN__TEXT("freeze", "", NULL,                                                                                 \
                   "parameters that stay as they are: a pattern for their whole names, 'blks\\..*'"),                  \
        ATTN__INT(                                                                                                     \
            "lora", "", 1, 4096,                                                                                       \
            "rank of low-rank adapters, which are trained in place of chosen linear layers' weights; default: none"),  \
        ATTN__TEXT("lora_on", "", NULL,                                                                                \
                   "linear layers that get an adapter: a pattern for their whole names, '.*\\.attention\\.W_[qv]'"),   \
        ATTN__REAL("lora_alpha", "", 1e-6, 1e6,                                                                        \
                   "an adapter's product is multiplied by this over the rank; default: the rank"),                     \
        ATTN__TEXT("lora_whole", "", NULL,                                                                             \
                   "further parameters to train whole: a pattern; newly initialized ones are always trained"),         \
        ATTN__TEXT("rates", "", NULL,                                                                                  \
                   "PATTERN=X PATTERN=X: parameters of these names learn at X times the rate; a later one wins"),      \
        ATTN__INT("save_every", "0", 0, 1e9, "steps between checkpoints within an epoch; 0: only at its end")

#endif
