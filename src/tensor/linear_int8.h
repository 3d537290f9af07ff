/* SPDX-License-Identifier: MIT
 *
 * linear_int8.h - y = activation(x w^T + b) in 8-bit integers: each row of x and each row of w (an output channel)
 * has one scale, its largest number by 127; products are summed in int32 without rounding.
 *
 *     y[i,o] = activation(scale_x[i] scale_w[o] sum_k qx[i,k] qw[o,k] + b[o])        qx, qw in [-127, 127] */
#ifndef ATTN_TENSOR_LINEAR_INT8_H
#define ATTN_TENSOR_LINEAR_INT8_H

#include "tensor/matrix_product.h"

/* Whether sums of k products fit into int32; linear layers with more inputs are computed in bf16. */
bool attn__linear_int8_sums(int64_t k);
/* Whether linear layers with k inputs of this type are computed so on the tape, ... */
bool attn__linear_int8_for(const attn_tape *tape, attn_dtype dtype, int64_t k);
/* ... and whether this product, which is one if it is of weights. */
bool attn__linear_int8_takes(const attn_tape *tape, const attn__gemm_args *args);
/* False (noted) without memory.  args->packed: NULL, or from the function below. */
bool attn__linear_int8(attn_tape *tape, const attn__gemm_args *args);
/* Weights [n,k] as integers in panels, with their scales.  ATTN_ERROR_MEMORY (noted): nothing is held then. */
attn_status attn__linear_int8_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                   attn__packed *packed);

/* One row of weights, as those above; returns its scale. */
float attn__linear_int8_row(const float *row, int64_t k, int8_t *q);

#endif
