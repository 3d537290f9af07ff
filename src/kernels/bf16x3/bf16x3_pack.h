/* SPDX-License-Identifier: MIT
 *
 * bf16x3_pack.h - rows of numbers to tiles in both directions at once, straight from where the caller has them:
 *
 *     along   A over the columns: blocks of 16 rows, steps of 32 columns, in the order of attn__bf16x3_key
 *     across  B over the rows:    steps of 32 rows, blocks of 16 columns
 *
 * Products over columns in that order need both operands packed here, one of them turned (bf16x3.h).
 */
#ifndef ATTN_KERNELS_BF16X3_PACK_H
#define ATTN_KERNELS_BF16X3_PACK_H

#include "kernels/bf16x3/bf16x3.h"

typedef struct attn__bf16x3_pack {
    const void *data;
    attn_dtype dtype;      /* ATTN_F32 or ATTN_BF16 */
    int parts;             /* parts of each number; 1 only if all numbers are exact in bf16 */
    const int64_t *row_at; /* offset of each row; columns are adjacent */
    int64_t rows, columns;
    bool keyed;                      /* also store the rows in the order of attn__bf16x3_key */
    attn__bf16x3_side along, across; /* padded with zeros; data NULL: not requested */
} attn__bf16x3_pack;

/* The number of a step of 32 that is at place i along k. */
static inline int64_t attn__bf16x3_key(int64_t i)
{
    return i / 2 + i % 2 * ATTN__BF16X3_SIDE;
}

/* Rows from to end - 1, from a multiple of 32 and end too unless it is the last.  Needs ATTN_ISA_AMX.  False if any
 * number is infinite or NaN, or too large for bf16. */
bool attn__bf16x3_pack_rows(const attn__bf16x3_pack *args, int64_t from, int64_t end);

#endif
