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

/* Whether it takes a product of these sizes where B is not packed yet. */
bool attn__gemm_digits_takes(const attn_context *context, int64_t m, int64_t n, int64_t k);

/* B of `args` (n, k, b, ldb and transpose_b; f32, n > 0, k >= 1) as digits to memory of the caller's, on whole cache lines; how
 * much that takes.  `copies`: memory for while they are made, where transpose_b is not set.  False: some number is not finite, and
 * they are not to be used. */
size_t attn__gemm_digits_packed_bytes(attn_context *context, const attn__gemm_args *args);
size_t attn__gemm_digits_copies_bytes(const attn_context *context);
bool attn__gemm_digits_pack_to(attn_context *context, const attn__gemm_args *args, float *copies, char *data,
                               bool *spread);

/* Weights [n,k] as digits, for products of any number of rows.  As attn__gemm_pack. */
attn_status attn__gemm_digits_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                   attn__packed *packed);

/* From the exponents that B's numbers for each of n k have on average and at most (NaN: they have none): what A is
 * multiplied by, and B.  Whether that is anything but 1. */
bool attn__gemm_digits_spread_of(int64_t n, float *mean_to_a, float *most_to_b);

#endif
