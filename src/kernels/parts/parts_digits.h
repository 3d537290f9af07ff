/* SPDX-License-Identifier: MIT
 *
 * parts_digits.h - rows of f32 numbers as three digits of 8 bits each, for scores (parts.h): numbers of a row are
 * fixed-point numbers of 24 bits, of one unit, a power of two.
 *
 * Tiles are those of kernels/digits, three for each 64 columns, but number 16 j + l of these stands at place 4 l + j, so
 * that digits need no shuffle.
 */
#ifndef ATTN_KERNELS_PARTS_DIGITS_H
#define ATTN_KERNELS_PARTS_DIGITS_H

#include "kernels/digits/digits.h"
#include "kernels/parts/parts_cut.h"

enum { ATTN__PARTS_DIGITS_MOST = 256 }; /* columns of which sums stay within 32 bits */

/* Needs ATTN_ISA_AMX.  `along` or `across` (parts_cut.h) to whole tiles, filled up with zeros; units of the rows, NaN
 * of those that fill up, and each times the rows' factor.  Rows that come are asked for as in attn__parts_cut.  False
 * if digits will not do for a row: one number is far above the mean of the others, or it is not zero and none of it is
 * within 2^-60 to 2^60, or some number is infinite or NaN. */
bool attn__parts_digits(attn__parts_way way, const attn__parts_rows *rows, int8_t *tiles, float *unit);

/* Bytes of so many rows. */
static inline int64_t attn__parts_digits_bytes(int64_t rows, int64_t columns)
{
    int64_t blocks = (rows + ATTN__DIGITS_SIDE - 1) / ATTN__DIGITS_SIDE;
    return blocks * ((columns + ATTN__DIGITS_DEPTH - 1) / ATTN__DIGITS_DEPTH) * ATTN__DIGITS_STEP;
}

#endif
