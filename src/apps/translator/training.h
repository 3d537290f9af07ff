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
    attn_pairs_source data; /* the data, and options for reading it; its path is run.data */
    attn_compat compat;
    int64_t max_tokens;
    /* all pairs of the data, and all pairs of the file to mix in; the parts below borrow the texts of both */
    attn_pairs *all, *mixed_all;
    attn_pairs *train, *valid, *test;
    attn_pairs *judged; /* the pairs of `valid` that are translated and scored after each epoch; NULL: there are none */
    attn_pairs_filtered filtered;
    int64_t mixed; /* number of pairs in `train` that come from the file to mix in */
    attn_vocab *source, *target;
    attn_corpus *train_corpus, *valid_corpus;
    attn_batches *train_batches, *valid_batches; /* valid_batches: NULL if there is no validation part */
    int32_t pad;
    /* the initial checkpoint, without its vocabularies; for a resumed run, the run's own directory; NULL: there is
     * no checkpoint */
    attn_translator *from;
} attn__translator_training;

/* Reads the data, filters, mixes, splits and encodes it. Makes the vocabularies, or reads them if the run is
 * resumed. */
attn_status attn__training_data(attn__translator_training *t);
void attn__training_data_free(attn__translator_training *t);

/* Reads the word alignments from the file that the settings name, and adds them to the pairs. If the run is resumed,
 * the file must be unchanged. */
attn_status attn__training_guided(attn__translator_training *t);
/* Computes which attention to the source a batch should have, [B,T,S]. The result is NULL if guided alignment is not
 * used. */
attn_status attn__guided_wanted(const attn__translator_training *t, attn_tape *tape, const attn_batch *batch,
                                attn_tensor **wanted);
/* Adds the loss of guided alignment to `loss`, and returns the sum. Returns NULL on error, or if `loss` is NULL. */
attn_tensor *attn__guided_loss(const attn__translator_training *t, attn_tape *tape, attn_tensor *loss,
                               attn_tensor *weights, const attn_tensor *wanted, const attn_batch *batch);

/* If the settings name a translator to start from, loads it. Sets the settings that follow from it: vocabulary,
 * compat and maximum length. */
attn_status attn__training_from(attn__translator_training *t);
/* Makes run.model a copy of the checkpoint's model, with the dropout of the settings. run.taken gets a table of the
 * parameters and their sources. */
attn_status attn__training_from_model(attn__translator_training *t);
/* Writes the files of a directory in MarianMT's form that training does not change. */
attn_status attn__training_from_files(const attn__translator_training *training);

#endif
