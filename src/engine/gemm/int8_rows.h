/* SPDX-License-Identifier: MIT
 *
 * int8_rows.h - the steps before and after a product of int8: it converts rows of floats to integers with one scale per
 * row, and int32 sums to floats.  All instruction sets give the same bits.
 */
#ifndef ATTN_GEMM_INT8_ROWS_H
#define ATTN_GEMM_INT8_ROWS_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct attn__int8_rows {
    /* Quantizes a row: q = x / scale, rounded to integers in [-127, 127]. The scale is the largest |x| divided by 127.
     * If the largest |x| is below 128 times the smallest normal number, all q and the scale are 0, because 127 / |x|
     * would overflow. If an element is not finite, all q are 0 and the scale is NaN. */
    float (*quantize)(const float *x, int64_t n, int8_t *q);
    /* Computes y = sum * row * columns in place: y holds int32 sums on entry. It computes in double and rounds once,
     * because the product of both scales may exceed the largest float. */
    void (*scale)(void *y, int64_t n, float row, const float *columns);
} attn__int8_rows;

const attn__int8_rows *attn__int8_rows_for(attn__isa isa);

#endif
