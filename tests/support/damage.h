/* SPDX-License-Identifier: MIT
 *
 * damage.h - tests that a file reader survives truncated files and files with one changed bit. The reader may refuse
 * the files, and it may not read a byte outside of them.
 */
#ifndef ATTN_TESTS_DAMAGE_H
#define ATTN_TESTS_DAMAGE_H

#include "attn/io.h"

/* Reads a file and frees the result; after an error the reader must return no result. */
typedef attn_status damage_reader(attn_context *context, const uint8_t *data, size_t size);

/* Calls `reader` with the file cut at each byte, which it must refuse, and with each bit flipped. The bytes end at a
 * guard page. Each error must be a format error with a message, and no memory may stay allocated. Returns how many
 * files with a flipped bit were accepted. */
int damage_bytes(damage_reader *reader, const void *bytes, size_t size);

/* A function that reads named tensors from bytes or from a file. damage_list tests it in the same way as
 * damage_bytes. */
typedef attn_status damage_list_reader(attn_named_list *list, const void *data, size_t size, const char *file,
                                       const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
int damage_list(damage_list_reader *reader, const void *bytes, size_t size);
int damage_list_file(damage_list_reader *reader, const char *path);

#endif
