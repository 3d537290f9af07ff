/* SPDX-License-Identifier: MIT
 *
 * weights_files.h - the files of weights. They are one file, or the parts that an index names, and may be given as a
 * directory. */
#ifndef ATTN_IO_WEIGHTS_FILES_H
#define ATTN_IO_WEIGHTS_FILES_H

#include "io/tensors/adapter.h"
#include "io/file.h"
#include "io/tensors/weights.h"

typedef struct attn__weights_part {
    char *path;
    attn__input input; /* the mapped files */
} attn__weights_part;

/* The mapped files to which the found arrays point. */
typedef struct attn__weights_files {
    attn_context *context;
    char *path; /* path of the file or of the index */
    attn__weights_part *parts;
    int64_t n;
    attn__adapter adapter; /* the adapter, if the directory has one */
    /* finds the arrays of one file of any format */
    attn_status (*find)(attn__findings *findings, const attn__input *input);
} attn__weights_files;

/* Chooses and maps the files. Set `files->find` before. Close the files in any case. */
attn_status attn__weights_files_open(attn__weights_files *files, attn_context *context, const char *path);
void attn__weights_files_close(attn__weights_files *files);
/* Finds the arrays of all parts. With an index, each part must have exactly the tensors assigned to it. */
attn_status attn__weights_files_find(attn__weights_files *files, attn__findings *findings);

/* Removes copied arrays of these files from the process's memory; used as attn__arrays.copied. */
void attn__weights_files_drop(const void *files, const uint8_t *data, size_t size);

/* Finds all arrays of a path, renamed by the options' names file. Clear both results in any case. */
attn_status attn__weights_find(attn__findings *findings, attn__weights_files *files, attn_context *context,
                               const char *path, const attn_weights_options *options, attn_config *metadata);

#endif
