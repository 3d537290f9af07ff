/* SPDX-License-Identifier: MIT
 * files.h - the files of a training run, for run.c. */
#ifndef ATTN_APPS_RUN_FILES_H
#define ATTN_APPS_RUN_FILES_H

#include "apps/run/run.h"

/* A new run's directory must not hold a model already. */
attn_status attn__run_check_directory(const attn__run *run);
/* Makes the directory with all that does not change while training, and the first checkpoint. */
attn_status attn__run_begin_directory(attn__run *run);
/* A resumed run: its settings and where its data is, from training.json. */
attn_status attn__run_read_settings(attn__run *run);
/* Parameters, optimizer, counters and history from the checkpoint. */
attn_status attn__run_restore(attn__run *run);
attn_status attn__run_save(attn__run *run, bool improved);
/* Adds a line to the history in memory; saved with the next checkpoint. */
void attn__run_note_epoch(attn__run *run, const attn_progress *progress);

#endif
