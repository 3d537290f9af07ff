/* SPDX-License-Identifier: MIT */
#include "support/damage.h"

#include "support/fixture.h"
#include "support/guard.h"
#include "attn/io.h"

#include <string.h>

/* One of the two functions is NULL. */
typedef struct readers {
    damage_reader *one;
    damage_list_reader *list;
} readers;

static attn_status call(const readers *by, attn_context *context, const uint8_t *data, size_t size)
{
    if (by->one)
        return by->one(context, data, size);
    attn_named_list list = {.context = context, .owns = true};
    attn_status status = by->list(&list, data, size, "f", NULL, NULL, NULL);
    assert_true(status == ATTN_OK || list.n == 0);
    attn_named_clear(&list);
    return status;
}

static attn_status read_one(const readers *by, const uint8_t *data, size_t size)
{
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.threads = 1}), ATTN_OK);
    attn_status status = call(by, context, data, size);
    assert_true(status == ATTN_OK || status == ATTN_ERROR_FORMAT || status == ATTN_ERROR_UNSUPPORTED);
    assert_true(status == ATTN_OK || *attn_context_error(context));
    end_context(context);
    return status;
}

static int damage(const readers *by, const void *bytes, size_t size)
{
    int read = 0;
    for (size_t n = 0; n < size; n++) {
        uint8_t *part = guard_alloc(n ? n : 1);
        memcpy(part, bytes, n);
        assert_int_not_equal(read_one(by, part, n), ATTN_OK);
        guard_free(part, n ? n : 1);
    }
    uint8_t *all = guard_alloc(size);
    memcpy(all, bytes, size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        all[bit / 8] ^= (uint8_t)(1 << bit % 8);
        read += read_one(by, all, size) == ATTN_OK;
        all[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    guard_free(all, size);
    return read;
}

int damage_bytes(damage_reader *reader, const void *bytes, size_t size)
{
    return damage(&(readers){.one = reader}, bytes, size);
}

int damage_list(damage_list_reader *reader, const void *bytes, size_t size)
{
    return damage(&(readers){.list = reader}, bytes, size);
}

int damage_list_file(damage_list_reader *reader, const char *path)
{
    attn_context *context = NULL;
    attn_bytes file = {0};
    attn_context_create(&context, NULL);
    assert_ok(context, attn_file_read(&file, context, path, 0));
    int read = damage_list(reader, file.data, file.size);
    attn_bytes_free(context, &file);
    end_context(context);
    return read;
}
