/* SPDX-License-Identifier: MIT
 *
 * model_directory.h - copies of its files, and a lock that allows one training at a time.
 */
#ifndef ATTN_APPS_MODEL_DIRECTORY_H
#define ATTN_APPS_MODEL_DIRECTORY_H

#include "base/path.h"

/* Does nothing if the file does not exist. */
attn_status attn__file_copy(attn_context *context, const char *directory, const char *name, const char *to);

/* Copies config.json and the vocabularies of a model to the directory `to`, which is created. May return
 * ATTN_ERROR_IO and ATTN_ERROR_MEMORY. */
attn_status attn__model_files_copy(attn_context *context, const char *directory, const char *to);

/* Locks the directory for this process, until *lock is passed to attn__directory_unlock or the process ends in any way.
 * Then removes temporary files that a killed process may have left. These are temporary files for the training's files
 * and for `own_files`. `own_files` ends with NULL, and may itself be NULL. ATTN_ERROR_BUSY: another process holds the
 * lock. ATTN_ERROR_IO: the lock file cannot be opened. */
attn_status attn__directory_lock(attn_context *context, const char *directory, const char *const *own_files, int *lock);
void attn__directory_unlock(int lock); /* -1 is allowed */

#endif
