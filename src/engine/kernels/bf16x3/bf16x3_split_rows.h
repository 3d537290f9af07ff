/* SPDX-License-Identifier: MIT
 *
 * bf16x3_split_rows.h - makes tiles of three parts from rows of f32 numbers, like split_rows, split_pairs and transpose
 * of bf16x3.h, but in half the time. The upper halves of the numbers are rounded by an addition and moved directly.
 * Rows are prefetched, and they are transposed before they are split into parts.
 *
 * In tiles of ALONG and ACROSS, numbers l and l + 16 of a step are adjacent along the columns, because this order needs
 * no shuffle. Tiles of ALONG may only be multiplied by tiles of ACROSS.
 */
#ifndef ATTN_KERNELS_BF16X3_SPLIT_ROWS_H
#define ATTN_KERNELS_BF16X3_SPLIT_ROWS_H

#include "kernels/bf16x3/bf16x3.h"

typedef enum attn__bf16x3_direction {
    ATTN__BF16X3_ALONG,     /* tiles of A from rows of A */
    ATTN__BF16X3_ACROSS,    /* tiles of B from rows that are the columns of B */
    ATTN__BF16X3_TRANSPOSED /* tiles of A from rows that are the columns of A, in normal order */
} attn__bf16x3_direction;

/* Prefetch distance in rows. Only this number of rows, the first ones, must be in a cache already. */
enum { ATTN__BF16X3_SPLIT_NEAR = ATTN__BF16X3_DEPTH };

/* Makes tiles in one direction. Rows and columns are padded with zeros to whole tiles. Needs ATTN_ISA_AMX. Returns
 * false if any number is infinite, NaN or rounds to infinity. Also returns false if a number is below 2^-102 but not 0,
 * because AMX would treat a part of it as 0. */
bool attn__bf16x3_split_rows(attn__bf16x3_direction way, const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);

#endif
