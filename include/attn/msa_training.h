/* SPDX-License-Identifier: MIT
 *
 * msa_training.h - training an MSA Transformer on a folder of alignments, by masked language modelling (Rao et al.
 * 2021, doi:10.1101/2021.02.12.430858).
 *
 * A step takes alignments at random; of each it takes the query and other rows at random, as many as fit, and a
 * stretch of columns if there are too many; it masks some of the residues and predicts them.  Everything drawn is a
 * function of (seed, epoch, step), so that a resumed run ends in the same bits.
 *
 * The directory is that of translate.h: config.json, model.safetensors, and what a training needs to go on.
 *
 * One thread at a time uses a context; different contexts are independent.
 */
#ifndef ATTN_MSA_TRAINING_H
#define ATTN_MSA_TRAINING_H

#include "attn/models.h"
#include "attn/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The settings of a training: one table for the command's options, its help, training.json and the documents.  Its
 * *n keys stay for ever. */
ATTN_API const attn_setting *attn_msa_training_keys(int *n);

/* Settings and sizes of a run, known before it starts.  It and what it points to are valid only until `begin`
 * returns. */
typedef struct attn_msa_training_run_info {
    const attn_config *settings; /* resolved */
    int64_t train_alignments, valid_alignments, sequences;
    int64_t parameters;
    int64_t steps_per_epoch, epochs, first_epoch; /* first_epoch counts from 1 */
    bool warmup_fitted; /* "warmup" of the settings was too long for so few steps, and is a share of them now */
} attn_msa_training_run_info;

typedef struct attn_msa_training_job {
    const char *data;            /* a folder of alignments, of any format of alignment.h */
    const char *directory;       /* made if it is not there */
    const attn_config *settings; /* may be NULL; when resuming only "epochs", "patience" and "save_every" count */
    bool resume;
    bool (*progress)(void *user, const attn_progress *progress);       /* may be NULL; false stops the run */
    void (*begin)(void *user, const attn_msa_training_run_info *info); /* may be NULL */
    void *user;
} attn_msa_training_job;

/* Trains and leaves the directory complete.  Files that are no alignment end the run with their name.
 * ATTN_ERROR_INTERRUPTED: progress() stopped it; ATTN_ERROR_ARGUMENT: settings, a directory that has a model
 * already, other data than the run to resume began with; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_FORMAT, ATTN_ERROR_IO: a
 * file (named). */
ATTN_API attn_status attn_msa_train(attn_context *context, const attn_msa_training_job *job);

#ifdef __cplusplus
}
#endif
#endif
