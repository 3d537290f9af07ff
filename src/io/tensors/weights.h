/* SPDX-License-Identifier: MIT
 *
 * weights.h - the common output of all readers of weights: the found arrays, and plain data. */
#ifndef ATTN_IO_WEIGHTS_H
#define ATTN_IO_WEIGHTS_H

#include "io/tensors/array.h"
#include "io/tensors/zip.h"

/* The output of a reader. */
typedef struct attn__findings {
    attn__arrays arrays;
    attn_config *metadata; /* NULL: not requested */
    attn_bytes notes;
    /* decompressed data that arrays point to, as a linked list: each block begins with the address of the next */
    void *memory;
    size_t inflated; /* bytes in this list from deflated entries */
    size_t made;     /* bytes in this list that rules of a names file made */
} attn__findings;

/* Adds a note for people. The number of notes is limited. */
attn_status attn__findings_note(attn__findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Allocates memory that is valid as long as the findings. */
void *attn__findings_memory(attn__findings *findings, size_t size);

void attn__findings_clear(attn__findings *findings);
/* Moves the memory of other findings to these. */
void attn__findings_join_memory(attn__findings *findings, attn__findings *other);
/* Gets the bytes of a zip entry, with its checksum verified. A stored entry is used in place. A deflated entry is
 * decompressed to the findings' memory. The total size of deflated entries is limited by the file's size. */
attn_status attn__findings_entry(attn__findings *findings, const attn__zip *zip, const attn__zip_entry *entry,
                                 const uint8_t **bytes);

attn_status attn__safetensors_find(attn__findings *findings, const attn__input *input);
attn_status attn__pt_find(attn__findings *findings, const attn__input *input);
attn_status attn__pt_find_in(attn__findings *findings, const attn__zip *zip); /* finds arrays of PyTorch's zip format */
attn_status attn__npz_find(attn__findings *findings, const attn__input *input);
bool attn__npz_matches(const attn__zip *zip); /* whether the zip contains a .npy file */
attn_status attn__npz_find_in(attn__findings *findings, const attn__zip *zip);

/* Does the same as attn_safetensors_write, but writes tensors of bytes with int8[i] set as int8. `int8` may be NULL. */
attn_status attn__safetensors_write(const attn_named_list *list, const bool *int8, const char *path,
                                    const attn_config *metadata);

/* Does the same as attn_weights_assign, with another name than "tensors" in messages. */
attn_status attn__weights_assign(attn_named_list *parameters, const attn_named_list *source, const char *file,
                                 const attn_weights_options *options, attn_bytes *report);

/* Copies a list's tensors, converted by the options' names file. `file` is used in messages. */
attn_status attn__weights_named(attn_named_list *list, const attn_named_list *source, const char *file,
                                const attn_weights_options *options);

/* Computes the maximum memory of a model whose weights are in the file, for `limit` of attn_model_options. This is 16
 * times the file's size plus 64 MiB, since weights may be stored in smaller types and tables are computed.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO. */
attn_status attn_weights_bound(attn_context *context, const char *path, size_t *bytes);

/* Returns the path of the file or index that was chosen. attn_checkpoint_notes returns notes about skipped contents,
 * one per line. Both are valid as long as `weights`. */
const char *attn_checkpoint_path(const attn_checkpoint *weights);

const char *attn_checkpoint_notes(const attn_checkpoint *weights);

#endif
