/* SPDX-License-Identifier: MIT
 *
 * weights.h - what every format of weights offers: its arrays found, and its plain data.
 */
#ifndef ATTN_IO_WEIGHTS_H
#define ATTN_IO_WEIGHTS_H

#include "io/tensors/array.h"
#include "io/tensors/zip.h"

/* The output of a reader. */
typedef struct attn__findings {
    attn__arrays arrays;
    attn_config *metadata; /* NULL: not requested */
    attn_bytes notes;
    void *memory;    /* decompressed data that arrays point to: a chain, each block begins with the next one's
                   * address */
    size_t inflated; /* bytes of it that came out of deflated entries */
    size_t made;     /* bytes of it that rules of a names file made */
} attn__findings;

/* Notes are for people: their number is bounded. */
attn_status attn__findings_note(attn__findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Memory that lives as long as the findings. */
void *attn__findings_memory(attn__findings *findings, size_t size);

void attn__findings_clear(attn__findings *findings);
/* Moves the memory of another to this one. */
void attn__findings_join_memory(attn__findings *findings, attn__findings *other);
/* The bytes of a zip's entry, its checksum taken: a stored one's in place, a deflated one's in the findings' memory.
 * The total size of deflated entries is bounded by the file's size. */
attn_status attn__findings_entry(attn__findings *findings, const attn__zip *zip, const attn__zip_entry *entry,
                                 const uint8_t **bytes);

attn_status attn__safetensors_find(attn__findings *findings, const attn__input *input);
attn_status attn__pt_find(attn__findings *findings, const attn__input *input);
attn_status attn__pt_find_in(attn__findings *findings, const attn__zip *zip); /* of the zip form */
attn_status attn__npz_find(attn__findings *findings, const attn__input *input);
bool attn__npz_matches(const attn__zip *zip); /* whether there is a .npy file in it */
attn_status attn__npz_find_in(attn__findings *findings, const attn__zip *zip);

/* attn_safetensors_write, but for tensors of bytes that are int8: those of which int8[i] is true.  NULL: none. */
attn_status attn__safetensors_write(const attn_named_list *list, const bool *int8, const char *path,
                                    const attn_config *metadata);

/* attn_weights_assign with another name than "tensors" in messages. */
attn_status attn__weights_assign(attn_named_list *parameters, const attn_named_list *source, const char *file,
                                 const attn_weights_options *options, attn_bytes *report);

/* Copies of a list's tensors, under the names and in the forms that the options' names file makes of them; `file` is
 * used in messages. */
attn_status attn__weights_named(attn_named_list *list, const attn_named_list *source, const char *file,
                                const attn_weights_options *options);

/* How many bytes a model may take whose weights are in that file, as `limit` of attn_model_options: 16 times the
 * file's size and 64 MiB, since weights may be stored in smaller types and tables are computed.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO. */
attn_status attn_weights_bound(attn_context *context, const char *path, size_t *bytes);

/* The path of the file or index that was chosen, and what was passed over, one a line; both live as long as `weights`. */
const char *attn_checkpoint_path(const attn_checkpoint *weights);

const char *attn_checkpoint_notes(const attn_checkpoint *weights);

#endif
