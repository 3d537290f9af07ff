/* SPDX-License-Identifier: MIT
 *
 * run.h - one training run in a directory, whatever is trained: its lock, its settings, its checkpoint, its history,
 * going on later, and stopping.  An application gives a kind (what to read, which model, the loss of a step); the
 * rest is the same for all, and is here.
 *
 * The directory holds, in addition to the application's own files,
 *     training.json           the settings, every one, and which data they were used on
 *     checkpoint.safetensors  parameters ("p.NAME"), their average ("a.NAME", where there is one), the optimizer's
 *                             state and the counters: all that must fit together is one file, which is replaced as a
 *                             whole; with a sum of it, the settings and the application's files, so that damage is seen
 *     history.tsv             a line an epoch
 *     model.safetensors       the parameters that are best so far, or the last
 */
#ifndef ATTN_APPS_RUN_H
#define ATTN_APPS_RUN_H

#include "attn/io.h"
#include "attn/models.h"
#include "attn/train.h"
#include "attn/trainer.h"
#include "base/cpu.h"
#include "base/keys.h"
#include "tensor/tape_state.h"
#include "train/loop.h"

/* Which part of the data: its training's held-out part, or all of it. */
typedef enum attn_split { ATTN_SPLIT_ALL = 0, ATTN_SPLIT_TRAIN, ATTN_SPLIT_VALID, ATTN_SPLIT_TEST } attn_split;

typedef struct attn__run attn__run;

typedef struct attn__run_kind {
    const attn_trainer *about;
    size_t size;            /* of the application's struct, which begins with its attn__run */
    const attn__keys *keys; /* the settings, ATTN__RUN_KEYS among them */
    /* Names of training.json for data that came without a path, NULL-terminated, the first by default; NULL: there is no
     * such data. */
    const char *const *in_memory;
    const char *measure;          /* what validate() puts into run->measure, as history.tsv calls it; NULL: nothing */
    const char *measure_too;      /* likewise of run->measure_too */
    const char *const *own_files; /* names of files that `write` may write; NULL-terminated; may be NULL */
    /* Reads the data that run->data names and builds run->model, by run->settings; sets run->fingerprint, and
     * then calls attn__run_check_data, which checks that a resumed run has the same data. */
    attn_status (*prepare)(attn__run *run);
    /* Writes what does not change in training: config.json and what belongs to it. */
    attn_status (*write)(const attn__run *run);
    /* Writes parameters as model.safetensors; NULL: under their own names. */
    attn_status (*save)(const attn__run *run, const attn_named_list *parameters, const char *path);
    /* Once before the first step: fills plan->sizes (`sizes`) and plan->passed_first. */
    attn_status (*measure_data)(const attn__run *run, attn_config *sizes, attn_trainer_plan *plan);
    int64_t (*steps)(void *self);
    attn_tensor *(*loss)(void *self, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted);
    /* The mean loss on data that is not trained on; not called where run->no_validation. */
    attn_status (*validate)(void *self, attn_tape *tape, double *loss);
    /* The measure by which the last validation is judged, more being better, or NaN: the loss is.  NULL: the loss. */
    double (*judge)(const void *self);
    void (*release)(void *self); /* all but the model */
} attn__run_kind;

struct attn__run {
    attn_context *context;
    const attn__run_kind *kind;
    const attn_trainer_job *job;
    void *self; /* the application's struct, which this is the first member of */
    const char *directory;
    const char *data;         /* path, or NULL; a resumed run without one gets that of training.json */
    const attn_config *given; /* settings; may be NULL */
    bool resume;
    /* Set by prepare(). */
    uint64_t fingerprint; /* of the data */
    attn_model *model;
    bool no_validation;  /* there is nothing to validate on */
    int64_t whole;       /* labels of the last step's whole batch; attn__run_share sets it */
    double measure;      /* of the last validation: what kind->measure names */
    double measure_too;  /* likewise */
    const char *no_path; /* what training.json and messages call data without a path; NULL: there is no such data */
    attn_bytes taken; /* where each parameter comes from, a line each, where a checkpoint was begun with; else empty */
    /* The run's own. */
    attn_config *settings; /* resolved */
    attn_config *stored;   /* training.json of a resumed run */
    attn_training *training;
    int64_t epochs;
    bool warmup_fitted; /* to a share of the run: no setting requested more */
    int lock;           /* the directory's, once it is taken; else -1 */
    attn__isa isa;      /* the context's, which a training in fma lowers for its time */
    attn_bytes history; /* lines of history.tsv, one for each epoch done */
    /* Average of the parameters, under their names: moving where the settings have "ema" > 0, of the last epochs where
     * they have "average" > 1: what is validated and kept as the model; else empty.  In the checkpoint "a.NAME". */
    attn_named_list average;
    struct attn__run_lora *lora; /* NULL: every parameter is trained itself */
    /* The parameters at the ends of "average" epochs, "s0.NAME" and so on, by the epoch modulo their number. */
    attn_named_list snapshots;
};

extern const attn__run_kind attn__translator_training_kind, attn__classifier_training_kind,
    attn__generator_training_kind, attn__msa_training_kind, attn__detector_training_kind;

/* Names and values of attn_trainer_plan.sizes, added to `sizes`. */
typedef struct attn__run_size {
    const char *name;
    int64_t value;
} attn__run_size;
attn_status attn__run_set_sizes(attn_config *sizes, const attn__run_size *list, int n);

/* Trains from the first step or from the checkpoint to the last epoch; statuses of attn_train. */
attn_status attn__run_train(attn_context *context, const attn__run_kind *kind, const attn_trainer_job *job);

/* Inside `loss`, before the batch goes on the tape: which share of a batch it is, and how many labels the whole has. */
void attn__run_share(attn__run *run, attn_tape *tape, attn_shard share, int64_t whole);

/* ATTN_ERROR_ARGUMENT if run->fingerprint is not what a resumed run began with. */
attn_status attn__run_check_data(const attn__run *run);
/* ATTN_ERROR_ARGUMENT if a setting was given that the checkpoint to begin with decides: another value than its, or any
 * where that is NULL.  `why` is what the checkpoint does instead. */
attn_status attn__run_refuse(const attn__run *run, const char *setting, const attn_config_value *its, const char *why);
int64_t attn__run_epoch(const attn__run *run);      /* epochs done */
int64_t attn__run_parameters(const attn__run *run); /* trained numbers of the model */

/* Optimizer, schedule and length of a training, from settings that have the keys of ATTN__RUN_KEYS. */
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
/* A number, or a list of numbers. */
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

/* The first settings of every table: the checkpoints that a training takes, and the uses of its random numbers. */
#define ATTN__RUN_BEGIN(checkpoints, random)                                                                           \
    ATTN__TEXT("from", "", NULL, "warm start from " checkpoints),                                                      \
        ATTN__TEXT("names", "", NULL,                                                                                  \
                   "a names file for a checkpoint of foreign names, or a built-in one; it says what the model is"),    \
        ATTN__INT("seed", "1", 0, 9e15, "of everything random: first weights, order, " random ", split")

/* The data of a training on images. */
#define ATTN__RUN_IMAGES(most, flip, shift)                                                                            \
    ATTN__INTS("size", "0", 0, most, "height and width that images are brought to; 0: as they are"),                   \
        ATTN__INT("channels", "0", 0, 3, "1: grey, 3: colour; 0: as they are"),                                        \
        ATTN__REAL("valid", "0.05", 0, 0.9, "share of the training images kept for validation"),                       \
        ATTN__REAL("test", "0.1", 0, 0.9, "share of the images kept for testing, where the data has no test part"),    \
        ATTN__BOOL("flip", flip, "mirror every other image left to right"),                                            \
        ATTN__INT("shift", shift, 0, 64, "move images by up to this many pixels each way")

/* The lines that every table of settings has: `things` are counted in a step, `labels` are what is predicted; the
 * others are the defaults. */
#define ATTN__RUN_KEYS(things, labels, epochs, batch, optimizer, rate, schedule, warmup, decay, smoothing)             \
    ATTN__INT("epochs", epochs, 0, 1e6, "passes over the data"),                                                       \
        ATTN__INT("batch", batch, 1, 65536, things " in a step"),                                                      \
        ATTN__TEXT("precision", "default", attn__run_precisions,                                                       \
                   "of products of matrices; parameters stay f32; default: ATTN_PRECISION, else f32"),                 \
        ATTN__TEXT("optimizer", optimizer, attn__run_optimizers, "adam, adamw or sgd with momentum"),                  \
        ATTN__REAL("rate", rate, 1e-12, 100, "highest learning rate"),                                                 \
        ATTN__TEXT("schedule", schedule, attn__run_schedules, "how the rate falls after the warm-up"),                 \
        ATTN__INT("warmup", warmup, 0, 1e9,                                                                            \
                  "steps in which the rate rises from 0; the default is at most a tenth of the run"),                  \
        ATTN__REAL("weight_decay", decay, 0, 10, "pull of the weights towards 0"),                                     \
        ATTN__REAL("momentum", "0.9", 0, 0.9999, "of sgd"),                                                            \
        ATTN__REAL("clip", "1", 0, 1e9, "largest global norm of the gradient; 0: no limit"),                           \
        ATTN__REAL("label_smoothing", smoothing, 0, 0.9, "share of each label spread over all " labels),               \
        ATTN__INT("patience", "0", 0, 1e6, "stop after this many epochs without a better validation loss; 0: never"),  \
        ATTN__TEXT("keep", "best", attn__run_keeps,                                                                    \
                   "which parameters are the model's: those best on the validation part, or the last"),                \
        ATTN__INT("accumulate", "", 1, 65536,                                                                          \
                  "gradient accumulation: batches per step, in the memory of one; default 1"),                         \
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
                   "further parameters to train whole: a pattern; those that begin anew always are"),                  \
        ATTN__TEXT("rates", "", NULL,                                                                                  \
                   "PATTERN=X PATTERN=X: parameters of these names learn at X times the rate; a later one wins"),      \
        ATTN__INT("save_every", "0", 0, 1e9, "steps between checkpoints inside an epoch; 0: at its end only")

#endif
