/* SPDX-License-Identifier: MIT
 * Dropout's keys and columns of blocks. */
#include "attend/block/dropout.h"

#include "base/integers.h"

enum { CHUNK = 64 };

/* Offsets of queries first + at, ...: fills `row`, returns how many. */
static int64_t next_rows(const attn__canonical *canonical, int64_t base, int64_t first, int64_t count, int64_t at,
                         int64_t row[CHUNK])
{
    int64_t n = attn__min(count - at, CHUNK);
    attn__offsets_fill(&canonical->query, ATTN__STRIDE(drop), first + at, n, row);
    for (int64_t i = 0; i < n; i++)
        row[i] = (int64_t)((uint64_t)base + (uint64_t)row[i]);
    return n;
}

void attn__dropout_rows(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch, int64_t first,
                        int64_t count, uint64_t *key)
{
    int64_t base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(drop), batch), row[CHUNK];
    for (int64_t at = 0, n; at < count; at += n) {
        n = next_rows(canonical, base, first, count, at, row);
        for (int64_t i = 0; i < n; i++)
            key[at + i] = attn__dropout_row(canonical, arrays, (uint64_t)row[i]);
    }
}

void attn__dropout_lanes(const attn__canonical *canonical, const attn_arrays *arrays, int64_t batch, int64_t first,
                         int64_t count, int64_t lanes, uint32_t *low, uint32_t *high)
{
    int64_t base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(drop), batch), row[CHUNK];
    for (int64_t at = 0, n; at < count; at += n) {
        n = next_rows(canonical, base, first, count, at, row);
        for (int64_t i = 0; i < n; i++) {
            uint64_t key = attn__dropout_row(canonical, arrays, (uint64_t)row[i]);
            low[at + i] = (uint32_t)key;
            high[at + i] = (uint32_t)(key >> 32);
        }
    }
    for (int64_t i = count; count > 0 && i < attn__round_up(count, lanes); i++) {
        low[i] = low[count - 1];
        high[i] = high[count - 1];
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
