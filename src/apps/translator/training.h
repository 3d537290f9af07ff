/* SPDX-License-Identifier: MIT
 * training.h - the parts of training a translator: data (data.c), the initial checkpoint (from.c), the run
 * (train.c). */
#ifndef ATTN_APPS_TRANSLATOR_TRAINING_H
#define ATTN_APPS_TRANSLATOR_TRAINING_H

#include "apps/run/run.h"
#include "apps/translator/translator.h"

typedef struct attn__translator_training {
    attn__run run;
    attn_pairs_source data; /* data and its options; the path is run.data */
    attn_compat compat;
    int64_t max_tokens;
    attn_pairs *all, *mixed_all; /* the pairs of `data` and of `mix`; the parts below borrow their texts */
    attn_pairs *train, *valid, *test;
    attn_pairs *judged; /* pairs of `valid` that are translated after each epoch; NULL: none */
    attn_pairs_filtered filtered;
    int64_t mixed; /* number of pairs of `train` that come from `mix` */
    attn_vocab *source, *target;
    attn_corpus *train_corpus, *valid_corpus;
    attn_batches *train_batches, *valid_batches; /* valid: NULL if there is nothing to validate on */
    int32_t pad;
    /* the initial checkpoint, without its vocabularies; for a resumed run its own directory; NULL: none */
    attn_translator *from;
} attn__translator_training;

/* Reads, filters, mixes, splits and encodes the data, and makes or reads the vocabularies. */
attn_status attn__training_data(attn__translator_training *t);
void attn__training_data_free(attn__translator_training *t);

/* Adds the word alignments that the settings name to the pairs. A resumed run must find the file unchanged. */
attn_status attn__training_guided(attn__translator_training *t);
/* The target distribution of the attention to the source in a batch, [B,T,S]; NULL (in `wanted`) if there is none. */
attn_status attn__guided_wanted(const attn__translator_training *t, attn_tape *tape, const attn_batch *batch,
                                attn_tensor **wanted);
/* Adds the attention's loss to the loss; NULL on error, or if the loss is NULL. */
attn_tensor *attn__guided_loss(const attn__translator_training *t, attn_tape *tape, attn_tensor *loss,
                               attn_tensor *weights, const attn_tensor *wanted, const attn_batch *batch);

/* Loads the translator that the settings name as warm start, if any, and takes over the settings that depend on it:
 * vocabulary, compat, maximum length. */
attn_status attn__training_from(attn__translator_training *t);
/* Sets run.model to the checkpoint's model with the dropout of the settings, and run.taken to the table of taken
 * parameters. */
attn_status attn__training_from_model(attn__translator_training *t);
/* Writes the files of a directory in MarianMT's form, unchanged. */
attn_status attn__training_from_files(const attn__translator_training *training);

#endif
