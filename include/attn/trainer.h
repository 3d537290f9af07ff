/* SPDX-License-Identifier: MIT
 *
 * trainer.h - training a whole application by its kind: a translator, an image classifier, a generator of images, an
 * MSA Transformer, a detector of objects.
 *
 *     attn_trainer_job job = {.kind = "translate", .data = "fra.txt.gz", .directory = "en-fr"};
 *     if (attn_train(context, &job) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * Each kind has a table of settings (attn_trainer): names, types, defaults and what they mean; `attn train KIND --help`
 * prints them, and attn_trainer_find(kind)->keys has them.  Their names are not those of an architecture.  The command's options,
 * training.json and the documents are made from it.
 *
 * The directory gets the model (config.json, model.safetensors and what belongs to them), and what a training needs to
 * go on: training.json (every setting), checkpoint.safetensors (parameters, optimizer and counters in one file) and
 * history.tsv (a line an epoch).  Files are replaced as a whole.  A run that was stopped or killed at any moment can be
 * resumed and ends in the same bits, with any number of threads.
 *
 * One thread at a time uses a context; different contexts are independent.
 */
#ifndef ATTN_TRAINER_H
#define ATTN_TRAINER_H

#include "attn/config.h"
#include "attn/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kind of training.  All of it are constants of the library. */
typedef struct attn_trainer {
    const char *kind;    /* "translate", "classify", "images", "msa", "detect" */
    const char *summary; /* for people */
    const char *data;    /* what `data` of a job names, for people */
    int nkeys;
    const attn_setting *keys;
} attn_trainer;

ATTN_API const attn_trainer *attn_trainer_at(int i);              /* NULL past the end */
ATTN_API const attn_trainer *attn_trainer_find(const char *kind); /* NULL: there is no such kind */

/* Settings and sizes of a run, known before it starts.  It and what it points to are valid only until `begin`
 * returns. */
typedef struct attn_trainer_plan {
    const attn_config *settings; /* resolved */
    /* Integers by name, in this order.
     *   translate  train_pairs, valid_pairs, test_pairs, source_words, target_words (sizes of the vocabularies),
     *              left_out_unlike, left_out_duplicates (of the training part), mixed_pairs (of train_pairs, those of
     *              "mix"), judged_pairs (of valid_pairs, those that are translated after each epoch)
     *   classify   train_images, valid_images, test_images, width, height, channels, passed_over, classes
     *   images     train_images, valid_images, test_images, width, height, channels, passed_over, levels
     *   msa        train_alignments, valid_alignments, sequences
     *   detect     train_images, valid_images, objects (of both, unless the validation part is data of its own),
     *              classes, queries, size (pixels of the short side; 0: as it is)
     * passed_over: files in class folders whose ending is not a picture's, and folders next to train/ that are not
     * read. */
    const attn_config *sizes;
    int64_t parameters;
    int64_t steps_per_epoch, epochs, first_epoch; /* first_epoch counts from 1 */
    bool warmup_fitted; /* "warmup" of the settings was too long for so few steps, and is a share of them now */
    /* A line a parameter, "name TAB shape TAB where from", of a training that begins with a checkpoint; else NULL. */
    const char *taken;
    const char *passed_first; /* path of the first of those passed over; NULL: none */
} attn_trainer_plan;

/* Zero means the default. */
typedef struct attn_trainer_job {
    const char *kind;
    const char *data; /* a file or a folder (attn_trainer.data); when resuming NULL: that of the training */
    /* Sentence pairs in memory instead of `data`, `text_size` bytes, which a resumed training must be given again;
     * translate alone. */
    const char *text;
    size_t text_size;
    /* Called for each line of `data` that is no pair, which is then left out; NULL: the first one is an error.
     * Translate alone. */
    void (*left_out)(void *user, int64_t line, const char *error);
    const char *directory;       /* made if it is not there */
    const attn_config *settings; /* NULL: the defaults; when resuming only "epochs", "patience" and "save_every" count,
                                  * the others stay what they were */
    bool resume;                 /* go on from the directory's checkpoint */
    /* Called after each step and epoch; false stops the run, which can be resumed.  May be NULL. */
    bool (*progress)(void *user, const attn_progress *progress);
    /* Called once before the first step, with what was read.  May be NULL. */
    void (*begin)(void *user, const attn_trainer_plan *plan);
    void *user;
    int64_t reserved[4];
} attn_trainer_job;

/* Trains and leaves the directory complete.  ATTN_ERROR_INTERRUPTED: progress() stopped it; ATTN_ERROR_NOT_FOUND: no
 * such kind; ATTN_ERROR_ARGUMENT: settings, the directory has a model already (unless resuming), the data is not that of
 * the run to resume, or there is too little of it; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_FORMAT, ATTN_ERROR_IO: a file
 * (named); ATTN_ERROR_BUSY: another process trains there; ATTN_ERROR_UNSUPPORTED: a precision without gradients, data of a
 * kind that the model does not take; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_train(attn_context *context, const attn_trainer_job *job);
/* `given` (may be NULL) with every other key of the kind filled in; the caller destroys *settings.  Defaults may depend
 * on "model" and "compat".  ATTN_ERROR_NOT_FOUND: no such kind; ATTN_ERROR_ARGUMENT: an unknown key, a wrong type or
 * value (the message names what is allowed); ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_trainer_settings(attn_config **settings, attn_context *context, const char *kind,
                                           const attn_config *given);

#ifdef __cplusplus
}
#endif
#endif
