/* SPDX-License-Identifier: MIT
 *
 * training.h - the parts of a translator's training: data (data.c), the initial checkpoint (from.c) and the run
 * (train.c).
 */
#ifndef ATTN_APPS_TRANSLATOR_TRAINING_H
#define ATTN_APPS_TRANSLATOR_TRAINING_H

#include "apps/run/run.h"
#include "apps/translator/translator.h"

typedef struct attn__translator_training {
    attn__run run;
    attn_pairs_source data; /* the data and how it is read; the path is run.data */
    attn_compat compat;
    int64_t max_tokens;
    attn_pairs *all, *mixed_all; /* pairs of `data` and of the file to mix in; the parts below borrow their texts */
    attn_pairs *train, *valid, *test;
    attn_pairs *judged; /* pairs of `valid` that are translated and scored after each epoch; NULL: none */
    attn_pairs_filtered filtered;
    int64_t mixed; /* number of pairs of `train` that come from the file to mix in */
    attn_vocab *source, *target;
    attn_corpus *train_corpus, *valid_corpus;
    attn_batches *train_batches, *valid_batches; /* valid: NULL if there is no validation part */
    int32_t pad;
    /* the initial checkpoint without its vocabularies; a resumed run loads its own directory; NULL: none */
    attn_translator *from;
} attn__translator_training;

/* Reads, filters, mixes, splits and encodes the data, and makes or reads the vocabularies. */
attn_status attn__training_data(attn__translator_training *t);
void attn__training_data_free(attn__translator_training *t);

/* Adds the word alignments of the file that the settings name to the pairs. A resumed run must find the file unchanged.
 */
attn_status attn__training_guided(attn__translator_training *t);
/* Computes the attention to the source that a batch should have, [B,T,S]. It is NULL if the training is not guided. */
attn_status attn__guided_wanted(const attn__translator_training *t, attn_tape *tape, const attn_batch *batch,
                                attn_tensor **wanted);
/* Adds the loss of the attention to `loss`. Returns NULL on error, or if `loss` is NULL. */
attn_tensor *attn__guided_loss(const attn__translator_training *t, attn_tape *tape, attn_tensor *loss,
                               attn_tensor *weights, const attn_tensor *wanted, const attn_batch *batch);

/* Loads the translator that the settings name as warm start, if any. It takes the settings that depend on this
 * translator: vocabulary, compat and maximum length. */
attn_status attn__training_from(attn__translator_training *t);
/* Sets run.model to the checkpoint's model, with the dropout of the settings. Sets run.taken to the table of taken
 * parameters. */
attn_status attn__training_from_model(attn__translator_training *t);
/* Writes the files of a directory in MarianMT's form. They are unchanged by the training. */
attn_status attn__training_from_files(const attn__translator_training *training);

#endif
