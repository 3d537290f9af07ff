/* SPDX-License-Identifier: MIT
 * What a tile sees of masks. */
#include "attend/block/visible.h"

#include "attend/block/rows.h"

#include <string.h>

/* Along the axis of blocks an index counts by its block. */
static void find(const attn__group *group, int axis, int64_t size, int64_t first, int64_t count, int64_t *out)
{
    int64_t stride = group->axis[axis].dim.blocks;
    attn__offsets_fill(group, ATTN__STRIDE(dim.blocks), first, count, out);
    for (int64_t i = 0; i < count; i++) {
        int64_t index = attn__offsets_index(group, axis, first + i);
        out[i] += (index / size - index) * stride;
    }
}

void attn__block_rows(const attn__canonical *canonical, int64_t batch_offset, int64_t first, int64_t count,
                      int64_t *out)
{
    const attn_blocks *b = &canonical->problem.blocks;
    find(&canonical->query, b->query_dim, b->queries, first, count, out);
    for (int64_t i = 0; i < count; i++)
        out[i] += batch_offset;
}

void attn__block_columns(const attn__canonical *canonical, int64_t first, int64_t count, int64_t *out)
{
    const attn_blocks *b = &canonical->problem.blocks;
    find(&canonical->key, b->key_dim, b->keys, first, count, out);
}

/* Neighbours mostly share their byte. */
attn__block_view attn__blocks_seen(const uint8_t *blocks, const int64_t *rows, int64_t nrows, const int64_t *columns,
                                   int64_t ncolumns)
{
    bool any = false, all = true;
    for (int64_t r = 0; r < nrows; r++) {
        if (r > 0 && rows[r] == rows[r - 1])
            continue;
        for (int64_t c = 0; c < ncolumns; c++) {
            if (c > 0 && columns[c] == columns[c - 1])
                continue;
            bool sees = blocks[rows[r] + columns[c]] != 0;
            any = any || sees;
            all = all && sees;
        }
    }
    return all ? ATTN__BLOCKS_ALL : any ? ATTN__BLOCKS_SOME : ATTN__BLOCKS_NONE;
}

static attn__block_view row_seen(const uint8_t *row, int64_t keys)
{
    if (row[0])
        return memchr(row, 0, (size_t)keys) ? ATTN__BLOCKS_SOME : ATTN__BLOCKS_ALL;
    return memcmp(row, row + 1, (size_t)keys - 1) ? ATTN__BLOCKS_SOME : ATTN__BLOCKS_NONE;
}

attn__block_view attn__mask_seen(const uint8_t *mask, const int64_t *rows, int64_t nrows, int64_t keys)
{
    if (nrows < 1 || keys < 1)
        return ATTN__BLOCKS_SOME;
    attn__block_view first = row_seen(mask + rows[0], keys);
    for (int64_t r = 1; r < nrows && first != ATTN__BLOCKS_SOME; r++)
        if (rows[r] != rows[r - 1] && row_seen(mask + rows[r], keys) != first)
            return ATTN__BLOCKS_SOME;
    return first;
}
