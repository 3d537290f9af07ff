/* SPDX-License-Identifier: MIT
 *
 * Reads whole files. Files may be compressed with gzip.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "io/file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* A buffer that grows. It serves for data whose size is not known in advance, such as compressed data. */
typedef struct sink {
    attn_context *context;
    const char *name;
    size_t limit, hint; /* limit: maximum size; hint: expected size for the first allocation, 0: unknown */
    size_t capacity;
    attn_bytes *bytes;
} sink;

static attn_status fail_limit(const sink *s)
{
    return attn__fail(s->context, ATTN_ERROR_FORMAT, "%s: holds more than the limit of %zu bytes", s->name, s->limit);
}

static attn_status sink_grow(sink *s)
{
    if (s->capacity > s->bytes->size + 1)
        return ATTN_OK;
    if (s->bytes->size > s->limit)
        return fail_limit(s);
    size_t capacity = s->capacity ? attn__size_mul(s->capacity, 2) : attn__size_add(s->hint, 65536);
    if (capacity > attn__size_add(s->limit, 2))
        /* room for one byte more than the limit, so that a file that is too large is detected */
        capacity = attn__size_add(s->limit, 2);
    char *fresh = attn__realloc(s->context, s->bytes->data, capacity);
    if (!fresh)
        return ATTN_ERROR_MEMORY;
    s->bytes->data = fresh;
    s->capacity = capacity;
    return ATTN_OK;
}

static attn_status read_descriptor(sink *s, int descriptor)
{
    for (;;) {
        attn_status status = sink_grow(s);
        if (status != ATTN_OK)
            return status;
        ssize_t n = read(descriptor, s->bytes->data + s->bytes->size, s->capacity - s->bytes->size - 1);
        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return attn__fail(s->context, ATTN_ERROR_IO, "%s: cannot be read: %s", s->name, strerror(errno));
        s->bytes->size += (size_t)n;
    }
    return s->bytes->size > s->limit ? fail_limit(s) : ATTN_OK;
}

static attn_status read_raw(sink *s)
{
    int descriptor;
    size_t size;
    attn_status status = attn__file_open(s->context, s->name, &descriptor, &size);
    if (status != ATTN_OK)
        return status;
    s->hint = size; /* the size is only a hint, because files under /proc have size 0 */
    status = size > s->limit ? fail_limit(s) : read_descriptor(s, descriptor);
    close(descriptor);
    return status;
}

/* Reports whether only zero bytes are left. Archives and tapes pad files with them, and gzip ignores them. */
static bool is_padding(const Bytef *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* Several gzip members may follow one another, because gzip files may be concatenated. */
static attn_status inflate_all(z_stream *z, sink *s, const attn_bytes *packed)
{
    z->next_in = (Bytef *)packed->data;
    size_t left = packed->size;
    int code = Z_OK;
    while (left > 0 || z->avail_in > 0 || code != Z_STREAM_END) {
        if (z->avail_in == 0) {
            z->avail_in = left > 1u << 30 ? 1u << 30 : (uInt)left;
            left -= z->avail_in;
        }
        if (code == Z_STREAM_END && is_padding(z->next_in, z->avail_in + left))
            break;
        if (code == Z_STREAM_END)
            inflateReset(z);
        attn_status status = sink_grow(s);
        if (status != ATTN_OK)
            return status;
        size_t room = s->capacity - s->bytes->size - 1;
        z->next_out = (Bytef *)s->bytes->data + s->bytes->size;
        z->avail_out = room > 1u << 30 ? 1u << 30 : (uInt)room;
        uInt before = z->avail_out;
        code = inflate(z, Z_NO_FLUSH);
        s->bytes->size += before - z->avail_out;
        if (code != Z_OK && code != Z_STREAM_END) {
            size_t offset = packed->size - left - z->avail_in;
            return attn__fail(s->context, code == Z_MEM_ERROR ? ATTN_ERROR_MEMORY : ATTN_ERROR_FORMAT,
                              "%s: byte %zu: gzip data are damaged or cut off: %s", s->name, offset,
                              z->msg ? z->msg : "unexpected end");
        }
    }
    return s->bytes->size > s->limit ? fail_limit(s) : ATTN_OK;
}

static attn_status decompress(sink *s)
{
    enum { GZIP_ONLY = 16 + MAX_WBITS };
    attn_bytes packed = *s->bytes;
    *s->bytes = (attn_bytes){0};
    s->capacity = s->hint = 0;
    z_stream z = {.zalloc = attn__zlib_alloc, .zfree = attn__zlib_free, .opaque = s->context};
    attn_status status = ATTN_ERROR_MEMORY;
    if (inflateInit2(&z, GZIP_ONLY) == Z_OK) {
        status = inflate_all(&z, s, &packed);
        inflateEnd(&z);
    }
    attn_bytes_free(s->context, &packed);
    return status;
}

attn_status attn_file_read(attn_bytes *bytes, attn_context *context, const char *path, size_t limit)
{
    ATTN__CALL(context);
    *bytes = (attn_bytes){0};
    sink s = {.context = context, .name = path, .limit = limit ? limit : (size_t)1 << 30, .bytes = bytes};
    attn_status status = read_raw(&s);
    if (status == ATTN_OK && bytes->size > 1 && memcmp(bytes->data, "\x1f\x8b", 2) == 0)
        status = decompress(&s);
    if (status == ATTN_OK)
        bytes->data[bytes->size] = '\0';
    else
        attn_bytes_free(context, bytes);
    return status;
}
