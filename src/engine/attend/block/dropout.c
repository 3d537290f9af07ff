/* SPDX-License-Identifier: MIT */
#include "attend/block/dropout.h"

#include "base/integers.h"

enum { CHUNK = 64 };

void attn__dropout_rows(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                        int64_t count, uint64_t *key)
{
    uint64_t base = (uint64_t)attn__offsets_one(&canonical->batch, ATTN__STRIDE(drop), batch);
    int64_t row[CHUNK];
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = attn__min(count - at, CHUNK);
        attn__offsets_fill(&canonical->query, ATTN__STRIDE(drop), first + at, n, row);
        for (int64_t i = 0; i < n; i++)
            key[at + i] = attn__dropout_row(canonical, arrays, base + (uint64_t)row[i]);
    }
}

void attn__dropout_lanes(const attn__canonical *canonical, const attn__execution *arrays, int64_t batch, int64_t first,
                         int64_t count, int64_t lanes, uint32_t *low, uint32_t *high)
{
    uint64_t key[CHUNK];
    for (int64_t at = 0; count > 0 && at < attn__round_up(count, lanes); at++) {
        if (at < count && at % CHUNK == 0)
            attn__dropout_rows(canonical, arrays, batch, first + at, attn__min(count - at, CHUNK), key);
        int64_t i = attn__min(at, count - 1) % CHUNK;
        low[at] = (uint32_t)key[i];
        high[at] = (uint32_t)(key[i] >> 32);
    }
}

void attn__dropout_columns(const attn__canonical *canonical, int64_t first, int64_t count, uint32_t *column)
{
    int64_t offset[CHUNK];
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = attn__min(count - at, CHUNK);
        attn__offsets_fill(&canonical->key, ATTN__STRIDE(drop), first + at, n, offset);
        for (int64_t i = 0; i < n; i++)
            column[at + i] = (uint32_t)offset[i];
    }
}
