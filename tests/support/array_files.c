/* SPDX-License-Identifier: MIT */
#include "support/array_files.h"

#include "support/cmocka.h"

#include <string.h>

static void append(array_file *f, const void *bytes, size_t size)
{
    assert_true(size <= sizeof f->bytes - f->size);
    if (size > 0)
        memcpy(f->bytes + f->size, bytes, size);
    f->size += size;
}

array_file array_file_npy(int version, const char *dict, const void *data, size_t size)
{
    array_file f = {.size = 0};
    size_t length = strlen(dict);
    const uint8_t rest[] = {(uint8_t)version, 0, (uint8_t)length, (uint8_t)(length >> 8), 0, 0};
    append(&f, BYTES("\x93NUMPY"));
    append(&f, rest, version > 1 ? 6 : 4);
    append(&f, dict, length);
    append(&f, data, size);
    return f;
}

array_file array_file_safetensors(const char *header, const void *data, size_t size)
{
    array_file f = {.size = 0};
    size_t length = strlen(header);
    const uint8_t begin[8] = {(uint8_t)length, (uint8_t)(length >> 8)};
    append(&f, begin, sizeof begin);
    append(&f, header, length);
    append(&f, data, size);
    return f;
}

array_file array_file_pt(const char *object, size_t object_size, const void *storages, size_t size)
{
    array_file f = {.size = 0};
    append(&f, BYTES("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}."));
    append(&f, object, object_size);
    if (storages)
        append(&f, storages, size);
    else
        append(&f, BYTES("\x80\x02]."));
    return f;
}
