/* SPDX-License-Identifier: MIT
 * model_directory.h - a model's directory: paths in it, and one training at a time. */
#ifndef ATTN_APPS_MODEL_DIRECTORY_H
#define ATTN_APPS_MODEL_DIRECTORY_H

#include "attn/attn.h"

enum { ATTN__PATH = 4096 };
/* directory/name, in a buffer of ATTN__PATH bytes.  ATTN_ERROR_ARGUMENT: too long. */
attn_status attn__path(attn_context *context, char *path, const char *directory, const char *name);

/* The file `name` from one directory to another; nothing where it is not there. */
attn_status attn__file_copy(attn_context *context, const char *directory, const char *name, const char *to);

/* Copies the files of a model except its weights to another directory, which is made: config.json and vocabularies.
 * ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
attn_status attn__model_files_copy(attn_context *context, const char *directory, const char *to);

/* Takes the directory for this process, until *lock is given to attn__directory_unlock or the process ends, however
 * it ends; then removes what a killed process may have left half written of the files that a training writes and of
 * `own_files` (NULL-terminated; NULL: none).  ATTN_ERROR_BUSY: another process has it; ATTN_ERROR_IO. */
attn_status attn__directory_lock(attn_context *context, const char *directory, const char *const *own_files, int *lock);
void attn__directory_unlock(int lock); /* -1 is allowed */

#endif
