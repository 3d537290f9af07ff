/* SPDX-License-Identifier: MIT
 *
 * directory.h - lists, creates and removes the contents of directories. */
#ifndef ATTN_IO_DIRECTORY_H
#define ATTN_IO_DIRECTORY_H

#include "attn/attn.h"

/* The names in a directory, sorted by their bytes. Names that begin with '.' are skipped. */
typedef struct attn_entries {
    int64_t n;
    char **names;
} attn_entries;
/* Lists files or sub-directories. Links count as their targets. `entries` starts as {0}; free it with
 * attn_entries_free. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_MEMORY. */
attn_status attn_directory_list(attn_entries *entries, attn_context *context, const char *path, bool directories);
void attn_entries_free(attn_context *context, attn_entries *entries); /* empties the list */

/* Removes files from a model's directory, unless a training runs in it. The list `names` ends with NULL.
 * ATTN_ERROR_BUSY, ATTN_ERROR_IO, ATTN_ERROR_ARGUMENT (the path is too long). */
attn_status attn_directory_clear(attn_context *context, const char *path, const char *const *names);

bool attn_file_exists(const char *path); /* true for a file or a directory */
/* Makes a directory and its parents. An existing directory is no error. ATTN_ERROR_ARGUMENT: no name. ATTN_ERROR_IO,
 * ATTN_ERROR_MEMORY. */
attn_status attn_directory_create(attn_context *context, const char *path);

#endif
