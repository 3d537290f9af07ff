/* SPDX-License-Identifier: MIT
 *
 * bf16x3_split_rows.h - rows of f32 numbers to tiles of three parts each, as split_rows, split_pairs and transpose of
 * bf16x3.h make them, in half the time: halves of the bits are moved as they are, rounded by an addition, rows are
 * transposed before they are split into parts, and prefetched.
 *
 * Neighbours along the columns are numbers l and l + 16 of a step in tiles that are split along and across, so that
 * neither needs a shuffle; these two are multiplied with each other only.
 */
#ifndef ATTN_KERNELS_BF16X3_SPLIT_ROWS_H
#define ATTN_KERNELS_BF16X3_SPLIT_ROWS_H

#include "kernels/bf16x3/bf16x3.h"

typedef enum attn__bf16x3_direction {
    ATTN__BF16X3_ALONG,     /* A from A's rows */
    ATTN__BF16X3_ACROSS,    /* B from rows that are B's columns */
    ATTN__BF16X3_TRANSPOSED /* A from rows that are A's columns, in their own order */
} attn__bf16x3_direction;

/* Rows that are prefetched while others are split, so that only the first of them must already be in a cache. */
enum { ATTN__BF16X3_SPLIT_NEAR = ATTN__BF16X3_DEPTH };

/* Needs ATTN_ISA_AMX.  Both ways are filled up with zeros to whole tiles.  False if any number is infinite or NaN, or
 * rounds to infinity, or is so small (below 2^-102, but not 0) that AMX would take a part of it for 0. */
bool attn__bf16x3_split_rows(attn__bf16x3_direction way, const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);

#endif
