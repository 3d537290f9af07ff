/* SPDX-License-Identifier: MIT
 *
 * parts_pack.h - rows of numbers to tiles in both directions at once, straight from where the caller has them:
 *
 *     along   A over the columns: blocks of 16 rows, steps of 32 columns, in the order of attn__parts_key
 *     across  B over the rows:    steps of 32 rows, blocks of 16 columns
 *
 * Products over columns in that order need both operands packed here, one of them turned (parts.h).
 */
#ifndef ATTN_KERNELS_PARTS_PACK_H
#define ATTN_KERNELS_PARTS_PACK_H

#include "kernels/parts/parts.h"

typedef struct attn__parts_pack {
    const void *data;
    attn_dtype dtype;      /* ATTN_F32 or ATTN_BF16 */
    int parts;             /* 1 only of numbers that bf16 holds */
    const int64_t *row_at; /* where each row begins; columns are adjacent */
    int64_t rows, columns;
    bool keyed;                     /* rows in the order of attn__parts_key, too */
    attn__parts_side along, across; /* filled up with zeros; data NULL: not wanted */
} attn__parts_pack;

/* Which number of a step of 32 stands at place i along k. */
static inline int64_t attn__parts_key(int64_t i)
{
    return i / 2 + i % 2 * ATTN__PARTS_SIDE;
}

/* Rows from to end - 1, from a multiple of 32 and end too unless it is the last.  Needs ATTN_ISA_AMX.  False if any
 * number is infinite or NaN, or too large for bf16. */
bool attn__parts_pack_rows(const attn__parts_pack *args, int64_t from, int64_t end);

#endif
