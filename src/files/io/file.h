/* SPDX-License-Identifier: MIT
 *
 * file.h - maps files into memory, and writes files. A reader of a file that is being written gets either the whole old
 * file or the whole new one. */
#ifndef ATTN_IO_FILE_H
#define ATTN_IO_FILE_H

#include "base/path.h"
#include "io/input.h"

/* Opens a regular file for reading. Every reader opens files with this function. *size is the file's length. A pipe, a
 * device or a directory is refused with a message, without waiting for data. May return ATTN_ERROR_NOT_FOUND and
 * ATTN_ERROR_IO. */
attn_status attn__file_open(attn_context *context, const char *path, int *descriptor, size_t *size);

/* Maps a file for reading, or reads it into memory if it is small. The path becomes the name of the input, so it must
 * outlive the mapping. An empty file gives an input of size 0. */
attn_status attn__file_map(attn__input *input, attn_context *context, const char *path);
void attn__file_unmap(attn__input *input);
/* Call this after everything was read from a mapped file. ATTN_ERROR_IO: the file has another size or time than when it
 * was mapped, so other bytes may have been read. A file that was replaced as a whole is not changed. If a mapped file
 * is truncated, the system ends the process when it reads behind the new end (SIGBUS). */
attn_status attn__file_unchanged(const attn__input *input);

/* A file that is being written. It gets its name only when it is complete. If the path is a device, a pipe, or a link
 * to standard output or standard error, the data are written to it directly. */
typedef struct attn__output {
    attn_context *context;
    const char *path;
    char *target; /* the path, or where it leads if it is a symbolic link: the link stays, and its target is written */
    char *temporary; /* in the folder of the target */
    int descriptor;
    bool in_place;      /* true: the path is not a regular file, so there is no temporary file */
    attn_status status; /* the first error; after it, all functions do nothing and return this error */
} attn__output;

/* If the path is a link to standard output or standard error, such as /dev/stdout, returns the descriptor of that
 * stream. Otherwise returns a negative number. A stream needs this check even if it is a regular file, because this
 * process may already have written to the stream. */
int attn__standard_stream(const char *path);
/* Finds the path of the file that writing to `path` would write: where the symbolic link leads, through links to links,
 * even if there is no file. The caller frees *target with attn__free. ATTN_ERROR_IO: the links form a loop. May also
 * return ATTN_ERROR_MEMORY. */
attn_status attn__link_target(char **target, attn_context *context, const char *path);

attn_status attn__output_begin(attn__output *output, attn_context *context, const char *path);
void attn__output_write(attn__output *output, const void *data, size_t size);
/* Completes the file: flushes it to the disk and gives it its name. If anything failed, removes the temporary file
 * instead. */
attn_status attn__output_end(attn__output *output);

#endif
