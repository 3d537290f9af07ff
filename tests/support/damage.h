/* SPDX-License-Identifier: MIT
 *
 * damage.h - tests that a reader reads or refuses truncated files and files with one changed bit, and reads no byte
 * outside.
 */
#ifndef ATTN_TESTS_DAMAGE_H
#define ATTN_TESTS_DAMAGE_H

#include "attn/io.h"

/* Reads a file and frees the result; after an error the reader must return no result. */
typedef attn_status damage_reader(attn_context *context, const uint8_t *data, size_t size);

/* Calls `reader` with each proper beginning of the bytes, which it must refuse, and with each bit flipped, in memory
 * that ends at a guard page.  Errors must be of the format and have words, and nothing may stay held.  Returns how many
 * of the files with a flipped bit were read. */
int damage_bytes(damage_reader *reader, const void *bytes, size_t size);

/* As above, for a reader of named tensors, both from bytes and from a file. */
typedef attn_status damage_list_reader(attn_named_list *list, const void *data, size_t size, const char *file,
                                       const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
int damage_list(damage_list_reader *reader, const void *bytes, size_t size);
int damage_list_file(damage_list_reader *reader, const char *path);

#endif
