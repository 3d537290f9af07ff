/* SPDX-License-Identifier: MIT
 *
 * directory.h - what is in a directory, and taking it away.
 */
#ifndef ATTN_IO_DIRECTORY_H
#define ATTN_IO_DIRECTORY_H

#include "attn/attn.h"

/* The names in a directory, sorted by their bytes; those that begin with '.' are passed over. */
typedef struct attn_entries {
    int64_t n;
    char **names;
} attn_entries;
/* Its files, or its sub-directories (links count as what they point to).  `entries` starts as {0}; freed by
 * attn_entries_free.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_MEMORY. */
attn_status attn_directory_list(attn_entries *entries, attn_context *context, const char *path, bool directories);
void attn_entries_free(attn_context *context, attn_entries *entries); /* empties it */

/* Removes files of a model's directory, if no training is at work there; `names` ends with NULL.  ATTN_ERROR_BUSY,
 * ATTN_ERROR_IO, ATTN_ERROR_ARGUMENT (the path is too long). */
attn_status attn_directory_clear(attn_context *context, const char *path, const char *const *names);

bool attn_file_exists(const char *path); /* a file or a directory */
/* Makes a directory and those above it; one that is there already is fine.  ATTN_ERROR_ARGUMENT: no name; ATTN_ERROR_IO;
 * ATTN_ERROR_MEMORY. */
attn_status attn_directory_create(attn_context *context, const char *path);

#endif
