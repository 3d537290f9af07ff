/* SPDX-License-Identifier: MIT
 * training_run.h - one run of a translator's training, shared by its work and its files. */
#ifndef ATTN_APPS_TRAINING_RUN_H
#define ATTN_APPS_TRAINING_RUN_H

#include "apps/translator.h"

typedef struct attn__run {
    attn_context *context;
    const attn_translator_job *job;
    const char *data, *text; /* where the pairs come from; the job's, or what training.json says */
    size_t text_size;
    attn_config *settings; /* resolved */
    attn_config *stored;   /* training.json of a resumed run */
    attn_compat compat;
    int64_t max_tokens;
    uint64_t fingerprint; /* of the data */
    attn_pairs *all, *train, *valid, *test;
    attn_vocab *source, *target;
    attn_corpus *train_corpus, *valid_corpus;
    attn_batches *train_batches, *valid_batches; /* valid: NULL if there is nothing to validate on */
    attn_model *model;
    int32_t pad;
    attn_training *training;
    attn_bytes history; /* lines of history.tsv, one for each epoch done */
} attn__run;

/* A new run's directory must not hold a translator already. */
attn_status attn__run_check_directory(attn__run *run);
/* Makes the directory with all that does not change while training. */
attn_status attn__run_begin_directory(attn__run *run);
/* A resumed run: its settings and where its data is, from training.json. */
attn_status attn__run_read_settings(attn__run *run);
/* ATTN_ARGUMENT if the data is not what the run began with. */
attn_status attn__run_check_fingerprint(attn__run *run);
/* Parameters, optimiser, counters and history from the checkpoint. */
attn_status attn__run_restore(attn__run *run);
attn_status attn__run_save(attn__run *run, bool improved);
/* Adds a line to the history in memory; saved with the next checkpoint. */
void attn__run_note_epoch(attn__run *run, const attn_progress *progress);
int64_t attn__run_epoch(const attn__run *run); /* epochs done */

#endif
