/* SPDX-License-Identifier: MIT
 *
 * linear_int8.h - y = activation(x w^T + b) in 8-bit integers: each row of x and each row of w (an output channel) has one
 * scale, its largest number by 127; products are summed in int32 without rounding.
 *
 *     y[i,o] = activation(scale_x[i] scale_w[o] sum_k qx[i,k] qw[o,k] + b[o])        qx, qw in [-127, 127]
 */
#ifndef ATTN_TENSOR_LINEAR_INT8_H
#define ATTN_TENSOR_LINEAR_INT8_H

#include "tensor/matrix_product.h"

/* Whether a product is taken: of weights, in f32, on a tape of that precision. */
bool attn__linear_int8_takes(const attn_tape *tape, const attn__gemm_args *args);
/* False (noted) without memory. */
bool attn__linear_int8(attn_tape *tape, const attn__gemm_args *args);

/* Rows of x to integers and their scales.  A row with a number that is not finite gets the scale NaN. */
void attn__quantize_rows(int threads, int64_t rows, int64_t n, const float *x, int64_t ld, int8_t *q, float *scales);

#endif
