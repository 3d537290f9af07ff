/* SPDX-License-Identifier: MIT
 *
 * int8_rows.h - the steps before and after a product of int8: rows of floats to integers with a scale each, and
 * sums in int32 to floats.  All instruction sets give the same bits. */
#ifndef ATTN_GEMM_INT8_ROWS_H
#define ATTN_GEMM_INT8_ROWS_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__int8_rows {
    /* Quantizes a row: q = x / scale, rounded to integers in [-127, 127]. The scale is the largest |x| divided by
     * 127. A row with a largest |x| below 128 times the least normal number counts as zero, with scale 0: the factor
     * 127 / |x| would overflow. If a number is not finite, q is 0 and the scale NaN. */
    float (*quantize)(const float *x, int64_t n, int8_t *q);
    /* y = sum * row * columns, computed in double and rounded once, because the product of the scales may exceed the
     * largest float. In place: y is also the array of the sums. */
    void (*scale)(void *y, int64_t n, float row, const float *columns);
} attn__int8_rows;

const attn__int8_rows *attn__int8_rows_for(attn__isa isa);

#endif
