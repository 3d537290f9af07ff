/* SPDX-License-Identifier: MIT
 *
 * parts_cut.h - rows of f32 numbers to tiles of three parts each, as split_rows, split_pairs and turn of parts.h make
 * them, in half the time: halves of the bits are moved as they are, rounded by an addition, what is transposed is so
 * before it becomes parts, and rows are asked for before they are needed.
 *
 * Neighbours along the columns are numbers l and l + 16 of a step in what is cut along and across, so that neither
 * needs a shuffle; these two go together in a product, and with nothing else.
 */
#ifndef ATTN_KERNELS_PARTS_CUT_H
#define ATTN_KERNELS_PARTS_CUT_H

#include "kernels/parts/parts.h"

typedef enum attn__parts_way {
    ATTN__PARTS_ALONG,  /* A from A's rows */
    ATTN__PARTS_ACROSS, /* B from rows that are B's columns */
    ATTN__PARTS_TURNED  /* A from rows that are A's columns, in their own order */
} attn__parts_way;

/* Rows that are brought in while others are cut, so that only the first of them need to be near. */
enum { ATTN__PARTS_CUT_NEAR = ATTN__PARTS_DEPTH };

/* Needs ATTN_ISA_AMX.  Both ways are filled up with zeros to whole tiles.  False if any number is infinite or NaN, or
 * rounds to infinity, or is so small (below 2^-102, but not 0) that AMX would take a part of it for 0. */
bool attn__parts_cut(attn__parts_way way, const attn__parts_rows *rows, const attn__parts_side *to);

#endif
