/* SPDX-License-Identifier: MIT
 * training.h - what training a translator is made of: data (data.c), the checkpoint that it began with
 * (from.c), the run (train.c). */
#ifndef ATTN_APPS_TRANSLATOR_TRAINING_H
#define ATTN_APPS_TRANSLATOR_TRAINING_H

#include "apps/run/run.h"
#include "apps/translator/translator.h"

typedef struct attn__translator_training {
    attn__run run;
    attn_pairs_source data; /* its path is run.data */
    attn_compat compat;
    int64_t max_tokens;
    attn_pairs *all, *mixed_all; /* what `data` and `mix` name; the others borrow their texts */
    attn_pairs *train, *valid, *test;
    attn_pairs *judged; /* those of `valid` that are translated after each epoch; NULL: none */
    attn_pairs_filtered filtered;
    int64_t mixed; /* pairs of `train` that come from `mix` */
    attn_vocab *source, *target;
    attn_corpus *train_corpus, *valid_corpus;
    attn_batches *train_batches, *valid_batches; /* valid: NULL if there is nothing to validate on */
    int32_t pad;
    attn_translator *from; /* the checkpoint, its vocabularies taken; of a resumed run its own directory; NULL: none */
} attn__translator_training;

/* Reads, filters, mixes, divides and encodes the data, and makes or reads the vocabularies. */
attn_status attn__training_data(attn__translator_training *t);
void attn__training_data_free(attn__translator_training *t);

/* Gives the pairs the word alignments that the settings name, if any, which a resumed run must find unchanged too. */
attn_status attn__training_guided(attn__translator_training *t);
/* The target attention to the source in a batch, [B,T,S]; NULL (in `wanted`) if there is none. */
attn_status attn__guided_wanted(const attn__translator_training *t, attn_tape *tape, const attn_batch *batch,
                                attn_tensor **wanted);
/* The loss with that of the attention; NULL on error, and without a loss. */
attn_tensor *attn__guided_loss(const attn__translator_training *t, attn_tape *tape, attn_tensor *loss,
                               attn_tensor *weights, const attn_tensor *wanted, const attn_batch *batch);

/* Loads the translator that the settings name as warm start, if any, and takes over what depends on it: vocabulary,
 * compat, the longest sentence. */
attn_status attn__training_from(attn__translator_training *t);
/* run.model: the checkpoint's, with the dropout of the settings; run.taken: what was taken. */
attn_status attn__training_from_model(attn__translator_training *t);
/* The files of a directory in MarianMT's form, as they were. */
attn_status attn__training_from_files(const attn__translator_training *training);

#endif
