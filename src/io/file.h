/* SPDX-License-Identifier: MIT
 *
 * file.h - maps files into memory, and replaces files as a whole.
 */
#ifndef ATTN_IO_FILE_H
#define ATTN_IO_FILE_H

#include "io/input.h"

bool attn__is_directory(const char *path);

/* Opens a regular file for reading. *size is its length. A pipe, a device or a directory is refused with a message and
 * without waiting. Every reader opens files with this function. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO. */
attn_status attn__file_open(attn_context *context, const char *path, int *descriptor, size_t *size);

/* Maps a file for reading. The name of the input is the given path, which must outlive the mapping. An empty file gives
 * an input of size 0. */
attn_status attn__file_map(attn__input *input, attn_context *context, const char *path);
void attn__file_unmap(attn__input *input);

/* A file that gets its name only when it is complete. A device, a pipe, or a link to standard output or standard error
 * is written to directly. */
typedef struct attn__output {
    attn_context *context;
    const char *path;
    char *temporary;
    int descriptor;
    bool in_place;      /* not a regular file: there is no temporary file */
    attn_status status; /* the first error, which later calls keep */
} attn__output;

attn_status attn__output_begin(attn__output *output, attn_context *context, const char *path);
void attn__output_write(attn__output *output, const void *data, size_t size);
/* Flushes the file to the disk and renames it, or removes the temporary file if anything failed. */
attn_status attn__output_end(attn__output *output);

#endif
