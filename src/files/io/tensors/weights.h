/* SPDX-License-Identifier: MIT
 *
 * weights.h - the output of the readers of weights of all formats: arrays and plain data. */
#ifndef ATTN_IO_WEIGHTS_H
#define ATTN_IO_WEIGHTS_H

#include "io/tensors/array.h"
#include "io/tensors/zip.h"

typedef struct attn__findings {
    attn__arrays arrays;
    attn_config *metadata; /* the plain data are stored here; NULL: they are not requested */
    attn_bytes notes;
    /* linked list of memory blocks to which arrays refer; each block begins with the address of the next block */
    void *memory;
    size_t inflated; /* total bytes of the memory blocks that hold decompressed zip entries */
    size_t made;     /* total bytes of the memory blocks that hold arrays made by rules of a names file */
} attn__findings;

/* Adds a note for the user. The number of notes is limited. */
attn_status attn__findings_note(attn__findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Allocates memory that is freed with the findings. */
void *attn__findings_memory(attn__findings *findings, size_t size);

void attn__findings_clear(attn__findings *findings);
void attn__findings_join_memory(attn__findings *findings, attn__findings *other);
/* Gets the bytes of a zip entry and verifies their checksum. A stored entry is used in place. A deflated entry is
 * decompressed into memory of the findings. The total size of decompressed entries is limited to a multiple of the
 * file's size. */
attn_status attn__findings_entry(attn__findings *findings, const attn__zip *zip, const attn__zip_entry *entry,
                                 const uint8_t **bytes);

attn_status attn__safetensors_find(attn__findings *findings, const attn__input *input);
attn_status attn__pt_find(attn__findings *findings, const attn__input *input);
attn_status attn__pt_find_in(attn__findings *findings, const attn__zip *zip);
attn_status attn__npz_find(attn__findings *findings, const attn__input *input);
bool attn__npz_matches(const attn__zip *zip);
attn_status attn__npz_find_in(attn__findings *findings, const attn__zip *zip);

/* Writes safetensors like attn_safetensors_write, with one difference: if int8[i] is true, the bytes of tensor i are
 * written as elements of type int8. `int8` may be NULL. */
attn_status attn__safetensors_write(const attn_named_list *list, const bool *int8, const char *path,
                                    const attn_config *metadata);

/* Does the same as attn_weights_assign, but messages name `file` instead of "tensors". */
attn_status attn__weights_assign(attn_named_list *parameters, const attn_named_list *source, const char *file,
                                 const attn_weights_options *options, attn_bytes *report);

/* Copies the tensors of a list, converted by the names file in the options. `file` is used in messages. */
attn_status attn__weights_named(attn_named_list *list, const attn_named_list *source, const char *file,
                                const attn_weights_options *options);

/* Computes the maximum memory of a model whose weights are in the file, for `limit` of attn_model_options. It is 16
 * times the file's size plus 64 MiB, because files may store weights in smaller types, and models also have tables that
 * are not in the file. May return ATTN_ERROR_NOT_FOUND and ATTN_ERROR_IO. */
attn_status attn_weights_bound(attn_context *context, const char *path, size_t *bytes);

/* Returns the path of the file or index that was opened. attn_checkpoint_notes returns notes about skipped contents,
 * one per line. Both texts are valid as long as `weights`. */
const char *attn_checkpoint_path(const attn_checkpoint *weights);

const char *attn_checkpoint_notes(const attn_checkpoint *weights);

#endif
