/* SPDX-License-Identifier: MIT
 *
 * files.h - reads and writes the files of a training run, for run.c.
 */
#ifndef ATTN_APPS_RUN_FILES_H
#define ATTN_APPS_RUN_FILES_H

#include "apps/run/run.h"

/* Fails if the directory already contains a model, because a new run would overwrite it. */
attn_status attn__run_check_directory(const attn__run *run);
/* Creates the directory with the files that training does not change, and with the first checkpoint. */
attn_status attn__run_begin_directory(attn__run *run);
/* Reads the settings and the path of the data of a resumed run from training.json. */
attn_status attn__run_read_settings(attn__run *run);
/* Reads parameters, optimizer, counters and history from the checkpoint. */
attn_status attn__run_restore(attn__run *run);
attn_status attn__run_save(attn__run *run, bool improved);
/* Appends a line about the epoch to the history in memory. The line is saved with the next checkpoint. */
void attn__run_note_epoch(attn__run *run, const attn_progress *progress);

#endif
