/* SPDX-License-Identifier: MIT
 *
 * weights_files.h - the location of weights: one file, the parts that an index names, or those of either in a
 * directory.
 */
#ifndef ATTN_IO_WEIGHTS_FILES_H
#define ATTN_IO_WEIGHTS_FILES_H

#include "io/tensors/adapter.h"
#include "io/file.h"
#include "io/tensors/weights.h"

typedef struct attn__weights_part {
    char *path;
    attn__input input; /* mapped */
} attn__weights_part;

/* The mapped files that found arrays point to. */
typedef struct attn__weights_files {
    attn_context *context;
    char *path; /* of the file or of the index */
    attn__weights_part *parts;
    int64_t n;
    attn__adapter adapter;                                                   /* of a directory that has one */
    attn_status (*find)(attn__findings *findings, const attn__input *input); /* in one file of any format */
} attn__weights_files;

/* Chooses and maps; `files->find` is set before.  To be closed in any case. */
attn_status attn__weights_files_open(attn__weights_files *files, attn_context *context, const char *path);
void attn__weights_files_close(attn__weights_files *files);
/* The arrays of all parts; those of an index must be the ones that it places in each. */
attn_status attn__weights_files_find(attn__weights_files *files, attn__findings *findings);

/* Arrays of these files that are copied leave the process's memory.  As attn__arrays.copied. */
void attn__weights_files_drop(const void *files, const uint8_t *data, size_t size);

/* All of it: the arrays of a path, under the names of the options' names file.  Both are to be cleared in any case. */
attn_status attn__weights_find(attn__findings *findings, attn__weights_files *files, attn_context *context,
                               const char *path, const attn_weights_options *options, attn_config *metadata);

#endif
