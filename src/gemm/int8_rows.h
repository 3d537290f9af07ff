/* SPDX-License-Identifier: MIT
 *
 * int8_rows.h - the steps before and after a product of int8: rows of floats to integers with a scale each, and
 * sums in int32 to floats.  All instruction sets give the same bits. */
#ifndef ATTN_GEMM_INT8_ROWS_H
#define ATTN_GEMM_INT8_ROWS_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__int8_rows {
    /* q = x / scale, rounded to integers in [-127, 127]; the scale, which is returned, is the largest number by
     * 127.  A row whose largest number is below 128 times the least normal one counts as zero, with scale 0: 127 by
     * it would overflow. With a number that is not finite q is 0 and the scale NaN. */
    float (*quantize)(const float *x, int64_t n, int8_t *q);
    /* y = sum * row * columns, in double, rounded once: the scales' product may pass the largest float.  In place: y is
     * where the sums are. */
    void (*scale)(void *y, int64_t n, float row, const float *columns);
} attn__int8_rows;

const attn__int8_rows *attn__int8_rows_for(attn__isa isa);

#endif
