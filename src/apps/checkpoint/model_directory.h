/* SPDX-License-Identifier: MIT
 * model_directory.h - a model's directory: paths in it, and one training at a time. */
#ifndef ATTN_APPS_MODEL_DIRECTORY_H
#define ATTN_APPS_MODEL_DIRECTORY_H

#include "attn/attn.h"

enum { ATTN__PATH = 4096 };
/* directory/name, in a buffer of ATTN__PATH bytes. ATTN_ERROR_ARGUMENT: the path is too long. */
attn_status attn__path(attn_context *context, char *path, const char *directory, const char *name);

/* Copies the file `name` from one directory to another; does nothing if the file does not exist. */
attn_status attn__file_copy(attn_context *context, const char *directory, const char *name, const char *to);

/* Copies config.json and vocabularies of a model to another directory, which is created. ATTN_ERROR_IO;
 * ATTN_ERROR_MEMORY. */
attn_status attn__model_files_copy(attn_context *context, const char *directory, const char *to);

/* Locks the directory for this process, until *lock is given to attn__directory_unlock or the process ends in any way.
 * Then removes temporary files that a killed process may have left of the training's files and of `own_files`
 * (NULL-terminated; NULL: none). ATTN_ERROR_BUSY: another process holds the lock; ATTN_ERROR_IO. */
attn_status attn__directory_lock(attn_context *context, const char *directory, const char *const *own_files, int *lock);
void attn__directory_unlock(int lock); /* -1 is allowed */

#endif
