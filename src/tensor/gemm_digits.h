/* SPDX-License-Identifier: MIT
 *
 * gemm_digits.h - products of f32 matrices in the integers of the matrix unit (kernels/digits).
 *
 * Every element is summed along k in one order, whatever the blocks, the other rows and the number of threads: rows
 * have the same bits in any product with the same B that is taken here.
 */
#ifndef ATTN_TENSOR_GEMM_DIGITS_H
#define ATTN_TENSOR_GEMM_DIGITS_H

#include "tensor/gemm.h"

/* `packed`: B in digits, or NULL or empty.  ATTN_UNSUPPORTED where there is no such unit or the product is too small to
 * gain: nothing is done then.  ATTN_MEMORY (noted): C is as it was, or has some columns done. */
attn_status attn__gemm_digits(attn_tape *tape, const attn__gemm_args *args, const attn__packed *packed);

/* Weights [n,k] as digits, for products of any number of rows.  As attn__gemm_pack. */
attn_status attn__gemm_digits_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                   attn__packed *packed);

/* From the exponents that B's numbers for each of n k have on average and at most (NaN: they have none): what A is
 * multiplied by, and B.  Whether that is anything but 1. */
bool attn__gemm_digits_spread_of(int64_t n, float *mean_to_a, float *most_to_b);

#endif
