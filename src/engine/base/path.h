/* SPDX-License-Identifier: MIT
 *
 * path.h - paths of files: their parts, and how they are put together. A path is a text; only attn__is_directory and
 * attn_file_exists ask the system. */
#ifndef ATTN_BASE_PATH_H
#define ATTN_BASE_PATH_H

#include "attn/attn.h"

/* The size of a buffer for a path, in bytes: the system opens no longer path. */
enum { ATTN__PATH = 4096 };

/* Returns the part of the path behind its last '/', which is in the path itself. */
const char *attn__path_last(const char *path);
/* Returns the length of the path up to its last '/', which is included: 0 if there is none. */
size_t attn__path_folder(const char *path);
/* Returns the folder of a path: "." if the path has no '/'. The caller frees it with attn__free. Returns NULL if there
 * is no memory. */
char *attn__path_parent(attn_context *context, const char *path);
/* Returns the extension of the last part, with its dot, such as ".png". Returns "" if it has none. */
const char *attn__path_extension(const char *path);
/* Returns the length of the path without its extension. */
size_t attn__path_stem(const char *path);

/* Writes "folder/name" to a buffer of ATTN__PATH bytes. ATTN_ERROR_ARGUMENT: the path is too long. */
attn_status attn__path(attn_context *context, char *path, const char *folder, const char *name);
/* Writes the path of the file `name` in the folder of the file `path`. */
attn_status attn__path_beside(attn_context *context, char *beside, const char *path, const char *name);
/* Copies a path to a buffer of ATTN__PATH bytes. ATTN_ERROR_ARGUMENT: the path is too long. */
attn_status attn__path_copy(attn_context *context, char *copy, const char *path);
/* Returns "folder/name", which the caller frees with attn__free. Returns NULL if there is no memory. */
char *attn__join(attn_context *context, const char *folder, const char *name);
/* Returns the path of the file `name` in the folder of the file `path`, as attn__join does. */
char *attn__join_beside(attn_context *context, const char *path, const char *name);

bool attn__is_directory(const char *path);

#endif
