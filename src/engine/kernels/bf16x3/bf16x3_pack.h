/* SPDX-License-Identifier: MIT
 *
 * bf16x3_pack.h - makes tiles in two directions at once from rows of numbers in the caller's arrays:
 *
 *     along   A over the columns: blocks of 16 rows, steps of 32 columns, in the order of attn__bf16x3_key
 *     across  B over the rows:    steps of 32 rows, blocks of 16 columns
 *
 * If a product sums over columns in the order of attn__bf16x3_key, this file must pack both of its operands. One of
 * them must be transposed (bf16x3.h).
 */
#ifndef ATTN_KERNELS_BF16X3_PACK_H
#define ATTN_KERNELS_BF16X3_PACK_H

#include "kernels/bf16x3/bf16x3.h"

typedef struct attn__bf16x3_pack {
    const void *data;
    attn_dtype dtype;      /* ATTN_F32 or ATTN_BF16 */
    int parts;             /* parts of each number; may be 1 only if bf16 holds all numbers exactly */
    const int64_t *row_at; /* offset of each row; the columns of a row are adjacent */
    int64_t rows, columns;
    bool keyed;                      /* rows are also stored in the order of attn__bf16x3_key */
    attn__bf16x3_side along, across; /* tiles, padded with zeros; `data` is NULL if not requested */
} attn__bf16x3_pack;

/* Returns which number of a step of 32 is at position i along k. */
static inline int64_t attn__bf16x3_key(int64_t i)
{
    return i / 2 + i % 2 * ATTN__BF16X3_SIDE;
}

/* `from` must be a multiple of 32. `end` must be a multiple of 32 or the number of rows. Needs ATTN_ISA_AMX. Returns
 * false if any number is infinite, NaN or too large for bf16. */
bool attn__bf16x3_pack_rows(const attn__bf16x3_pack *args, int64_t from, int64_t end);

#endif
