/* SPDX-License-Identifier: MIT
 *
 * trainer.h - trains a complete application. Its kind is a translator, an image classifier, an image generator, an MSA
 * Transformer, or an object detector.
 *
 *     attn_trainer_job job = {.kind = "translate", .data = "fra.txt.gz", .directory = "en-fr"};
 *     if (attn_train(context, &job) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * Each kind has a table of settings (attn_trainer), with their names, types, defaults and meanings. `attn train KIND
 * --help` prints the table, and attn_trainer_find(kind)->keys holds it. These names differ from the settings of an
 * architecture. The command's options, training.json and the documents are made from the table.
 *
 * The directory gets the model (config.json, model.safetensors and their companion files). It also gets the files for
 * resuming: training.json (every setting), checkpoint.safetensors (parameters, optimizer and counters in one file) and
 * history.tsv (one line per epoch). Files are replaced as a whole. A run that was stopped or killed at any moment can
 * be resumed and ends with the same bits, for any number of threads.
 *
 * Only one thread at a time may use a context. Different contexts are independent. */
#ifndef ATTN_TRAINER_H
#define ATTN_TRAINER_H

#include "attn/config.h"
#include "attn/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Describes one kind of training. All fields are constants of the library. */
typedef struct attn_trainer {
    const char *kind; /* name of the kind: "translate", "classify", "images", "msa" or "detect" */
    const char *summary;
    const char *data; /* readable description of a job's `data` */
    int nkeys;
    const attn_setting *keys;
} attn_trainer;

ATTN_API const attn_trainer *attn_trainer_at(int i); /* Returns the i-th kind. Returns NULL past the end. */
/* Returns the kind with this name. Returns NULL if there is none. */
ATTN_API const attn_trainer *attn_trainer_find(const char *kind);

/* Sets *trainer to the kind of training that makes a model like the one at `path`, whoever made it: a directory, or a
 * published checkpoint. The kind tells which function loads the model: attn_translator_load, attn_classifier_load,
 * attn_generator_load, attn_msa_load or attn_detector_load. `names` is the names file for a checkpoint with foreign
 * names (io.h); NULL: none. Files of weights, and directories whose config.json does not tell, are recognized by the
 * names of their tensors. *trainer is NULL if the model is of none of the kinds, as an encoder is, or not recognized.
 * ATTN_ERROR_NOT_FOUND: there is no such path. ATTN_ERROR_IO, ATTN_ERROR_FORMAT: the names file cannot be read.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_trainer_of(const attn_trainer **trainer, attn_context *context, const char *path,
                                     const char *names);

/* The settings and sizes of a run, which are known before it starts. The struct and its pointers are valid only
 * until `begin` returns. */
typedef struct attn_trainer_plan {
    const attn_config *settings; /* settings of the run, with defaults filled in */
    /* Integers by name, in this order.
     *   translate  train_pairs, valid_pairs, test_pairs, source_words, target_words (sizes of the vocabularies),
     *              left_out_unlike, left_out_duplicates (in the training part), mixed_pairs (pairs of train_pairs from
     *              "mix"), judged_pairs (pairs of valid_pairs that are translated after each epoch)
     *   classify   train_images, valid_images, test_images, width, height, channels, passed_over, classes
     *   images     train_images, valid_images, test_images, width, height, channels, passed_over, levels
     *   msa        train_alignments, valid_alignments, sequences, passed_over
     *   detect     train_images, valid_images, objects (in both parts, or in training if validation has its own
     *              data), classes, queries, size (pixels of the short side; 0: not resized)
     * passed_over: files in class folders without the ending of a picture, and folders next to train/ that are not
     * read; files that are no alignments. */
    const attn_config *sizes;
    int64_t parameters;
    /* first_epoch: number of the epoch with which this run begins; epochs count from 1 */
    int64_t steps_per_epoch, epochs, first_epoch;
    /* true: the setting "warmup" was reduced to a share of the number of steps, because it was too long */
    bool warmup_fitted;
    /* If the training starts from a checkpoint, a text with one line per parameter, "name TAB shape TAB source".
     * Otherwise NULL. */
    const char *taken;
    const char *passed_first; /* path of the first ignored file or folder; NULL: none */
} attn_trainer_plan;

/* A training to run. Zero means the default in each field. */
typedef struct attn_trainer_job {
    const char *kind;
    const char *data; /* path of a file or a folder (attn_trainer.data); NULL, if a run is resumed: the original path */
    /* Sentence pairs in memory, in place of `data`. The text has `text_size` bytes. If the training is resumed, it
     * needs the same text again. Only for "translate". */
    const char *text;
    size_t text_size;
    /* Called for each line of `data` that is not a sentence pair. The line is then left out. If this function is
     * NULL, the first such line is an error. Line 0 is a note on the form of the whole file. Only for "translate". */
    void (*left_out)(void *user, int64_t line, const char *error);
    const char *directory; /* directory of the result, which is created if it does not exist */
    /* Settings of the run. NULL, or a key that is absent: the defaults. If a run is resumed, only "epochs", "patience"
     * and "save_every" have an effect. All other settings keep their values. */
    const attn_config *settings;
    bool resume; /* true: resumes the run from the directory's checkpoint */
    /* Called after each step, and after each epoch with epoch_ends. If it returns false, the run stops and can be
     * resumed. May be NULL. */
    bool (*progress)(void *user, const attn_progress *progress);
    /* Called once before the first step, with the settings and sizes of the run. May be NULL. */
    void (*begin)(void *user, const attn_trainer_plan *plan);
    void *user;
    int64_t reserved[4];
} attn_trainer_job;

/* Trains a model and writes all files of the directory. ATTN_ERROR_INTERRUPTED: progress() stopped the run.
 * ATTN_ERROR_NOT_FOUND: there is no such kind. ATTN_ERROR_ARGUMENT: settings are wrong, the directory already has a
 * model (unless the run is resumed), the data differs from the resumed run's data, or there is too little data.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_FORMAT, ATTN_ERROR_IO: a file has a fault, and the error names it. ATTN_ERROR_BUSY:
 * another process trains in the directory. ATTN_ERROR_UNSUPPORTED: the precision has no gradients, or the model does
 * not accept this kind of data. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_train(attn_context *context, const attn_trainer_job *job);
/* Copies `given`, which may be NULL, and adds the default of every other key of the kind. Defaults may depend on
 * "model" and "compat". The caller destroys *settings. ATTN_ERROR_NOT_FOUND: there is no such kind.
 * ATTN_ERROR_ARGUMENT: a key is unknown, or a type or value is wrong, and the message says what is allowed.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_trainer_settings(attn_config **settings, attn_context *context, const char *kind,
                                           const attn_config *given);

#ifdef __cplusplus
}
#endif
#endif
