/* SPDX-License-Identifier: MIT
 *
 * blocks.h - the mask of blocks: where the byte of a query and a key lies, and what a tile sees.
 */
#ifndef ATTN_ATTEND_BLOCKS_H
#define ATTN_ATTEND_BLOCKS_H

#include "attend/canonical/canonical.h"

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

#endif
