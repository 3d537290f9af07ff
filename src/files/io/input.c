/* SPDX-License-Identifier: MIT */
#include "io/input.h"

#include <stdio.h>
#include <string.h>

attn_status attn__input_fail(const attn__input *input, attn_status status, size_t offset, const char *format, ...)
{
    char message[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return attn__fail(input->context, status, "%s: byte %zu: %s", input->name, offset, message);
}

uint16_t attn__read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

uint32_t attn__read_u32(const uint8_t *p)
{
    return attn__read_u16(p) | (uint32_t)attn__read_u16(p + 2) << 16;
}

uint64_t attn__read_u64(const uint8_t *p)
{
    return attn__read_u32(p) | (uint64_t)attn__read_u32(p + 4) << 32;
}

/* Returns how many bytes to allocate for `size` bytes and a terminating zero. If this number overflows, returns
 * SIZE_MAX, so that the allocation fails. */
static size_t capacity_for(size_t size)
{
    size_t capacity = 64;
    while (capacity <= size && capacity < SIZE_MAX / 2)
        capacity *= 2;
    return capacity > size ? capacity : SIZE_MAX;
}

attn_status attn__bytes_append(attn_context *context, attn_bytes *bytes, const char *data, size_t size)
{
    size_t whole = attn__size_add(bytes->size, size);
    if (!bytes->data || capacity_for(whole) != capacity_for(bytes->size)) {
        char *fresh = attn__realloc(context, bytes->data, capacity_for(whole));
        if (!fresh)
            return ATTN_ERROR_MEMORY;
        bytes->data = fresh;
    }
    if (size > 0)
        memcpy(bytes->data + bytes->size, data, size);
    bytes->data[whole] = '\0';
    bytes->size = whole;
    return ATTN_OK;
}

attn_status attn__bytes_appendf(attn_context *context, attn_bytes *bytes, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n < 0)
        return attn__fail(context, ATTN_ERROR_INTERNAL, "text cannot be formatted");
    size_t size = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    return attn__bytes_append(context, bytes, text, size);
}

void *attn__zlib_alloc(void *context, unsigned items, unsigned size)
{
    return attn__alloc(context, attn__size_mul(items, size));
}

void attn__zlib_free(void *context, void *memory)
{
    attn__free(context, memory);
}
