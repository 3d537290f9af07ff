/* SPDX-License-Identifier: MIT
 *
 * visible.h - what a tile sees of the mask of blocks and of a boolean mask; where the byte of a block lies.
 */
#ifndef ATTN_ATTEND_VISIBLE_H
#define ATTN_ATTEND_VISIBLE_H

#include "attend/problem/canonical.h"

/* The parts of that offset that `count` queries, or keys, have: a pair's byte lies at their sum. */
void attn__block_rows(const attn__canonical *canonical, int64_t batch_offset, int64_t first, int64_t count,
                      int64_t *out);
void attn__block_columns(const attn__canonical *canonical, int64_t first, int64_t count, int64_t *out);

typedef enum attn__block_view {
    ATTN__BLOCKS_NONE, /* no row sees any key */
    ATTN__BLOCKS_SOME,
    ATTN__BLOCKS_ALL /* every row sees every key */
} attn__block_view;

attn__block_view attn__blocks_seen(const uint8_t *blocks, const int64_t *rows, int64_t nrows, const int64_t *columns,
                                   int64_t ncolumns);
/* The same of a boolean mask: query i sees key j where mask[rows[i] + j] is not 0. */
attn__block_view attn__mask_seen(const uint8_t *mask, const int64_t *rows, int64_t nrows, int64_t keys);

#endif
