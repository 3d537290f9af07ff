/* SPDX-License-Identifier: MIT */
#include "attend/block/scores.h"

#include "base/integers.h"

#include <string.h>

attn__bias attn__bias_of(const attn__canonical *canonical, const attn__execution *arrays, bool dbias,
                         const int64_t *row_at, int64_t rows, const int64_t *key_at, int64_t keys)
{
    size_t stride = dbias ? ATTN__STRIDE(dim.dbias) : ATTN__STRIDE(dim.bias);
    const void *base = dbias ? arrays->at.dbias : arrays->at.bias;
    return (attn__bias){.base = (float *)(uintptr_t)base,
                        .row_at = row_at,
                        .key_at = key_at,
                        .rows = rows,
                        .keys = keys,
                        .adjacent = keys > 0 && attn__offsets_adjacent(&canonical->key, stride)};
}

void attn__bias_lanes(const attn__bias *bias, const attn__online_softmax_kernel *lanes, float factor, float *tile,
                      int64_t width)
{
    attn__lane_view view = {bias->base + (bias->adjacent ? bias->key_at[0] : 0),
                            ATTN_F32,
                            bias->row_at,
                            bias->adjacent ? NULL : bias->key_at,
                            bias->keys,
                            bias->rows};
    lanes->gather(&view, tile, width, factor);
}

void attn__bias_rows(const attn__bias *bias, int64_t columns, float *tile, int64_t ld)
{
    for (int64_t i = 0; i < bias->rows; i++, tile += ld) {
        const float *row = bias->base + bias->row_at[i];
        if (bias->adjacent)
            memcpy(tile, row + bias->key_at[0], (size_t)bias->keys * sizeof *tile);
        for (int64_t j = 0; !bias->adjacent && j < bias->keys; j++)
            tile[j] = row[bias->key_at[j]];
        for (int64_t j = bias->keys; j < columns; j++)
            tile[j] = 0.0f;
    }
}

void attn__bias_store(const attn__bias *dbias, const attn__softmax_backward_kernel *kernel, const float *tile,
                      int64_t ld, bool add)
{
    for (int64_t i = 0; i < dbias->rows; i++, tile += ld) {
        float *row = dbias->base + dbias->row_at[i];
        if (dbias->adjacent)
            kernel->store(row + dbias->key_at[0], tile, dbias->keys, 1.0f, add);
        for (int64_t j = 0; !dbias->adjacent && j < dbias->keys; j++)
            row[dbias->key_at[j]] = add ? row[dbias->key_at[j]] + tile[j] : tile[j];
    }
}

enum { CHUNK = 64 };

/* An iterator over the offsets of queries, which computes CHUNK offsets at a time. */
typedef struct rows {
    const attn__canonical *canonical;
    size_t stride;
    int64_t base, first, count;
    int64_t offset[CHUNK];
} rows;

/* The offsets are not cleared, because that takes a percent of a small head. */
static void start(rows *r, const attn__canonical *canonical, size_t stride, int64_t batch, int64_t first, int64_t count)
{
    r->canonical = canonical;
    r->stride = stride;
    r->base = attn__offsets_one(&canonical->batch, stride, batch);
    r->first = first;
    r->count = count;
}

/* Returns the offset of query first + i. It must be called for i = 0, 1, 2, ... in this order. */
static inline int64_t offset_of(rows *r, int64_t i)
{
    if (i % CHUNK == 0)
        attn__offsets_fill(&r->canonical->query, r->stride, r->first + i, attn__min(r->count - i, CHUNK), r->offset);
    return r->base + r->offset[i % CHUNK];
}

void attn__running_begin(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                         int64_t count, int64_t padded, float *max, float *sum)
{
    for (int64_t i = 0; i < padded; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    if (!(canonical->extras & ATTN__SINKS))
        return;
    rows r;
    start(&r, canonical, ATTN__STRIDE(dim.sinks), batch, first, count);
    for (int64_t i = 0; i < count; i++) {
        max[i] = (float)((double)((const float *)arrays->at.sinks)[offset_of(&r, i)] * ATTN__LOG2E);
        sum[i] = max[i] == -INFINITY ? 0.0f : 1.0f;
    }
}

void attn__running_store(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                         int64_t count, const float *max, const float *sum)
{
    rows r;
    start(&r, canonical, ATTN__STRIDE(dim.lse), batch, first, count);
    for (int64_t i = 0; i < count; i++)
        ((float *)arrays->at.lse)[offset_of(&r, i)] = attn__running_lse(canonical, max[i], sum[i]);
}

void attn__lse_load(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                    int64_t count, float *lse, float *delta)
{
    rows r;
    start(&r, canonical, ATTN__STRIDE(dim.lse), batch, first, count);
    bool takes = canonical->extras & ATTN__DLSE;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = offset_of(&r, i);
        lse[i] = attn__lse_in(((const float *)arrays->at.lse)[at]);
        if (takes)
            delta[i] -= lse[i] == INFINITY ? 0.0f : ((const float *)arrays->at.dlse)[at];
    }
}
