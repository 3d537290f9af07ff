/* SPDX-License-Identifier: MIT
 *
 * flash_prefetch.c - what to prefetch while a block of keys is computed.
 */
#include "attend/solve/flash_item.h"
#include "attend/block/rows.h"
#include "base/integers.h"
#include "kernels/bf16x3/bf16x3_split_rows.h"

enum { STORES = 4096 }; /* bytes that the store buffers absorb */

/* Rows [from, to) of an operand along a group of one dim; several dims are left to the machine. */
static void stream(attn__flash_item *t, const void *base, const attn__group *group, size_t stride, int64_t offset,
                   int64_t from, int64_t to, int64_t channels)
{
    int64_t size = (int64_t)attn_dtype_size(t->canonical->problem.dtype);
    int64_t step = group->size > 1 ? attn__offsets_one(group, stride, 1) : 0;
    if (group->n == 1)
        attn__prefetch_add(&t->prefetch, (const char *)base + (offset + from * step) * size, step * size, NULL,
                           to - from, channels * size);
}

static void stream_keys(attn__flash_item *t, int64_t k_base, int64_t v_base, int64_t from, int64_t to)
{
    const attn__group *key = &t->canonical->key;
    if (!t->flash->k_channel)
        stream(t, t->arrays->k, key, ATTN__STRIDE(dim.k), k_base, from, to, t->flash->channels);
    if (!t->flash->v_channel)
        stream(t, t->arrays->v, key, ATTN__STRIDE(dim.v), v_base, from, to, t->flash->values);
}

/* How many of `rows` rows to prefetch: where they are split into bf16 terms, the first ones prefetch the others. */
static int64_t rows_near(const attn__flash_item *t, int64_t rows)
{
    return t->flash->nparts == ATTN__BF16X3_F32 ? attn__least(rows, ATTN__BF16X3_SPLIT_NEAR) : rows;
}

/* Prefetches part `part` of `parts` of the next item's first queries, ... */
static void stream_next_queries(attn__flash_item *t, int64_t part, int64_t parts)
{
    const attn__flash *f = t->flash;
    int64_t count = rows_near(t, attn__least(t->canonical->query.size - t->next_first, f->query_block));
    if (!f->q_channel)
        stream(t, t->arrays->q, &t->canonical->query, ATTN__STRIDE(dim.q),
               attn__offsets_one(&t->canonical->batch, ATTN__STRIDE(dim.q), t->next_batch),
               t->next_first + count * part / parts, t->next_first + count * (part + 1) / parts, f->channels);
}

/* ... and of where this one's output goes: more stores than that to lines that are not there hold up everything behind
 * them. */
static void stream_output(attn__flash_item *t, int64_t part, int64_t parts)
{
    int64_t size = (int64_t)attn_dtype_size(t->canonical->problem.dtype), row = t->flash->values * size;
    int64_t from = t->count * part / parts, to = t->count * (part + 1) / parts;
    if (!t->flash->o_channel && t->count * row > STORES)
        attn__prefetch_add(&t->prefetch, t->arrays->o, size, t->s.query_at.o + from, to - from, row);
}

static void stream_next_keys(attn__flash_item *t)
{
    const attn__group *batch = &t->canonical->batch;
    stream_keys(t, attn__offsets_one(batch, ATTN__STRIDE(dim.k), t->next_batch),
                attn__offsets_one(batch, ATTN__STRIDE(dim.v), t->next_batch), 0,
                rows_near(t, attn__least(t->canonical->key.size, t->flash->key_block)));
}

void attn__flash_plan_prefetch(attn__flash_item *t, int64_t at, int64_t keys, int64_t portions)
{
    attn__prefetch_clear(&t->prefetch);
    int64_t block = t->flash->key_block, next = at + keys;
    int64_t part = (at - t->key_begin) / block, parts = (t->key_end - t->key_begin + block - 1) / block;
    stream_output(t, part, parts);
    if (t->next_batch >= 0)
        stream_next_queries(t, part, parts);
    if (next < t->key_end)
        stream_keys(t, t->k_base, t->v_base, next, next + rows_near(t, attn__least(t->key_end - next, block)));
    else if (t->next_batch >= 0)
        stream_next_keys(t);
    attn__prefetch_divide(&t->prefetch, portions);
}
