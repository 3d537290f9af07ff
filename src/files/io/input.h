/* SPDX-License-Identifier: MIT
 *
 * input.h - the input of readers, which is an array of bytes with a name. Also has functions for texts that grow. */
#ifndef ATTN_IO_INPUT_H
#define ATTN_IO_INPUT_H

#include "attn/io.h"
#include "base/context.h"

typedef struct attn__input {
    attn_context *context;
    const char *name;
    const uint8_t *data;
    size_t size;
    /* If attn__file_map has mapped a file, the values that stat returned for the file. */
    bool mapped;
    uint64_t device, inode;
    int64_t seconds, nanoseconds;
} attn__input;

/* Sets the error "name: byte offset: message". */
attn_status attn__input_fail(const attn__input *input, attn_status status, size_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Read little-endian integers at addresses that need not be aligned. */
uint16_t attn__read_u16(const uint8_t *p);
uint32_t attn__read_u32(const uint8_t *p);
uint64_t attn__read_u64(const uint8_t *p);

/* Append to a text. No other function may extend a text, because its allocated size is not stored. Its allocated size
 * is always the next power of two of its length. */
attn_status attn__bytes_append(attn_context *context, attn_bytes *bytes, const char *data, size_t size);
attn_status attn__bytes_appendf(attn_context *context, attn_bytes *bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Allocation functions for zlib. They allocate from the context to which their argument points. */
void *attn__zlib_alloc(void *context, unsigned items, unsigned size);
void attn__zlib_free(void *context, void *memory);

#endif
