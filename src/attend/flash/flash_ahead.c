/* SPDX-License-Identifier: MIT
 *
 * flash_ahead.c - what to bring into the cache before it is asked for.
 */
#include "attend/flash/flash_item.h"
#include "attend/task/offsets.h"

enum { LINE = 64 };

/* Rows [from, to) of an operand along a group of one dim; several dims are left to the machine. */
static void stream(attn__flash_item *t, int i, const void *base, const attn__group *group, size_t stride,
                   int64_t offset, int64_t from, int64_t to, int64_t channels)
{
    if (group->n != 1)
        return;
    int64_t size = (int64_t)attn_dtype_size(t->task->problem.dtype);
    int64_t step = group->size > 1 ? attn__offsets_one(group, stride, 1) : 0;
    t->ahead.stream[i].row = (const char *)base + (offset + from * step) * size;
    t->ahead.stream[i].step = step * size;
    t->ahead.stream[i].rows = to > from ? to - from : 0;
    t->ahead.stream[i].bytes = channels * size;
}

static void stream_keys(attn__flash_item *t, int64_t k_base, int64_t v_base, int64_t from, int64_t to)
{
    const attn__group *key = &t->task->key;
    if (!t->flash->k_channel)
        stream(t, 0, t->arrays->k, key, ATTN__STRIDE(dim.k), k_base, from, to, t->flash->channels);
    if (!t->flash->v_channel)
        stream(t, 1, t->arrays->v, key, ATTN__STRIDE(dim.v), v_base, from, to, t->flash->values);
}

static void stream_next_item(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    const attn__group *batch = &t->task->batch;
    int64_t b = t->next_batch, keys = t->task->key.size < f->key_block ? t->task->key.size : f->key_block;
    stream_keys(t, attn__offsets_one(batch, ATTN__STRIDE(dim.k), b), attn__offsets_one(batch, ATTN__STRIDE(dim.v), b),
                0, keys);
    int64_t end = t->next_first + f->query_block;
    if (!f->q_channel)
        stream(t, 2, t->arrays->q, &t->task->query, ATTN__STRIDE(dim.q),
               attn__offsets_one(batch, ATTN__STRIDE(dim.q), b), t->next_first,
               end < t->task->query.size ? end : t->task->query.size, f->channels);
}

void attn__flash_look_ahead(attn__flash_item *t, int64_t at, int64_t keys, int64_t portions)
{
    t->ahead = (attn__flash_ahead){0};
    int64_t next = at + keys, left = t->key_end - next, rows = 0;
    if (left > 0)
        stream_keys(t, t->k_base, t->v_base, next, next + (left < t->flash->key_block ? left : t->flash->key_block));
    else if (t->next_batch >= 0)
        stream_next_item(t);
    for (int i = 0; i < 3; i++)
        rows += t->ahead.stream[i].rows;
    t->ahead.each = (rows + portions - 1) / portions;
}

void attn__flash_fetch_ahead(attn__flash_ahead *ahead)
{
    int64_t budget = ahead->each;
    for (int i = 0; i < 3 && budget > 0; i++) {
        int64_t rows = ahead->stream[i].rows < budget ? ahead->stream[i].rows : budget;
        int64_t bytes = ahead->stream[i].bytes, step = ahead->stream[i].step;
        const char *row = ahead->stream[i].row;
        for (int64_t r = 0; r < rows; r++, row += step) {
            for (int64_t at = 0; at < bytes; at += LINE)
                __builtin_prefetch(row + at, 0, 2);
        }
        ahead->stream[i].row = row;
        ahead->stream[i].rows -= rows;
        budget -= rows;
    }
}
