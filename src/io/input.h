/* SPDX-License-Identifier: MIT
 *
 * input.h - what a reader reads: bytes with a name, and growing text.
 */
#ifndef ATTN_IO_INPUT_H
#define ATTN_IO_INPUT_H

#include "attn/io.h"
#include "base/context.h"

typedef struct attn__input {
    attn_context *context;
    const char *name;
    const uint8_t *data;
    size_t size;
} attn__input;

/* Notes "name: byte offset: message". */
attn_status attn__input_fail(const attn__input *input, attn_status status, size_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Little-endian numbers at any address. */
uint16_t attn__read_u16(const uint8_t *p);
uint32_t attn__read_u32(const uint8_t *p);
uint64_t attn__read_u64(const uint8_t *p);

/* Adds to text that only these functions grow: its memory is the power of two above its size. */
attn_status attn__bytes_append(attn_context *context, attn_bytes *bytes, const char *data, size_t size);
attn_status attn__bytes_appendf(attn_context *context, attn_bytes *bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* zlib's memory, from a context. */
void *attn__zlib_alloc(void *context, unsigned items, unsigned size);
void attn__zlib_free(void *context, void *memory);

#endif
