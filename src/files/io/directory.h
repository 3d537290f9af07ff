/* SPDX-License-Identifier: MIT
 *
 * directory.h - lists, creates and removes the contents of directories. */
#ifndef ATTN_IO_DIRECTORY_H
#define ATTN_IO_DIRECTORY_H

#include "base/path.h"

/* The names of the entries of a directory, sorted by their bytes. Names that begin with '.', and __MACOSX, which
 * archives of macOS leave, are left out. */
typedef struct attn_entries {
    int64_t n;
    char **names;
} attn_entries;
/* Lists the files or the sub-directories of a directory. A link is listed as the file or directory to which it points.
 * `entries` must be {0} before; free it with attn_entries_free. May return ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO and
 * ATTN_ERROR_MEMORY. */
attn_status attn_directory_list(attn_entries *entries, attn_context *context, const char *path, bool directories);
void attn_entries_free(attn_context *context, attn_entries *entries);
/* Reads the names of all entries of a directory. `hidden`: also those that are otherwise left out, but not "." and
 * "..". Every reader of directories reads them with this function. May return the errors of attn_directory_list. */
attn_status attn__directory_read(attn_entries *entries, attn_context *context, const char *path, bool hidden);

/* Removes the files `names` from a model's directory. The list `names` ends with NULL. ATTN_ERROR_BUSY: a training
 * runs in the directory. ATTN_ERROR_ARGUMENT: the path is too long. ATTN_ERROR_IO: a file cannot be removed. */
attn_status attn_directory_clear(attn_context *context, const char *path, const char *const *names);

bool attn_file_exists(const char *path);
/* Returns the first of n names that the directory has a file of. Returns NULL if it has none. */
const char *attn__file_in(const char *directory, const char *const *names, size_t n);
/* Makes a directory and its parents. If the directory exists, returns ATTN_OK. ATTN_ERROR_ARGUMENT: the path is
 * empty. May also return ATTN_ERROR_IO and ATTN_ERROR_MEMORY. */
attn_status attn_directory_create(attn_context *context, const char *path);

#endif
