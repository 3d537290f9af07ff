/* SPDX-License-Identifier: MIT
 *
 * weights_files.h - chooses the files of weights. The user gives a file, an index that names several files (the parts),
 * or a directory that contains a file or an index. */
#ifndef ATTN_IO_WEIGHTS_FILES_H
#define ATTN_IO_WEIGHTS_FILES_H

#include "io/tensors/adapter.h"
#include "io/file.h"
#include "io/tensors/weights.h"

typedef struct attn__weights_part {
    char *path;
    attn__input input;
} attn__weights_part;

/* The mapped files to which the found arrays refer. */
typedef struct attn__weights_files {
    attn_context *context;
    char *path;
    attn__weights_part *parts;
    int64_t n;
    attn__adapter adapter;
    /* function that finds the arrays of one file of any format */
    attn_status (*find)(attn__findings *findings, const attn__input *input);
} attn__weights_files;

/* Returns the name of the directory's standard file of weights, such as "model.safetensors". Returns NULL if it has
 * none. */
const char *attn__weights_file_in(const char *directory);
/* Chooses the files and maps them. `files->find` must be set before. The files must be closed even if this fails. */
attn_status attn__weights_files_open(attn__weights_files *files, attn_context *context, const char *path);
/* Call this after tensors were read. ATTN_ERROR_IO: one of the files was changed after it was mapped. */
attn_status attn__weights_files_unchanged(const attn__weights_files *files);
void attn__weights_files_close(attn__weights_files *files);
/* Finds the arrays of all parts. Checks that each part has exactly the tensors that the index assigns to it. */
attn_status attn__weights_files_find(attn__weights_files *files, attn__findings *findings);

/* Releases the memory pages of an array whose elements were copied. It is used as attn__arrays.copied. */
void attn__weights_files_drop(const void *files, const uint8_t *data, size_t size);

/* Finds all arrays of a path, and renames them by the names file in the options. `findings` and `files` must be cleared
 * even if this fails. */
attn_status attn__weights_find(attn__findings *findings, attn__weights_files *files, attn_context *context,
                               const char *path, const attn_weights_options *options, attn_config *metadata);

#endif
