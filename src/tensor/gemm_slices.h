/* SPDX-License-Identifier: MIT
 *
 * gemm_slices.h - products of f32 matrices by int8 slices (gemm/slices.h).
 *
 * Every element is summed along k in one order, whatever the blocks, the other rows and the number of threads: rows
 * have the same bits in any product with the same B that is taken here.
 */
#ifndef ATTN_TENSOR_GEMM_SLICES_H
#define ATTN_TENSOR_GEMM_SLICES_H

#include "gemm/slices.h"
#include "tensor/matrix_product.h"

/* `packed`: B in slices, or NULL or empty.  ATTN_ERROR_UNSUPPORTED where there is no such unit or the product is too
 * small to gain: nothing is done then.  ATTN_ERROR_MEMORY (noted): C is as it was, or has some columns done. */
attn_status attn__gemm_slices(attn_tape *tape, const attn__gemm_args *args, const attn__packed *packed);

/* Whether it takes a product of these sizes where B is not packed yet. */
bool attn__gemm_slices_takes(const attn_context *context, int64_t m, int64_t n, int64_t k);

/* B of `args` (n, k, b, ldb and transpose_b; f32, n > 0, k >= 1) as slices to memory of the caller's, on whole cache
 * lines; how much that takes.  `copies`: memory for while they are made, where transpose_b is not set.  False: most of
 * it needs multiply-adds, and they are not to be used. */
size_t attn__gemm_slices_packed_bytes(attn_context *context, const attn__gemm_args *args);
size_t attn__gemm_slices_copies_bytes(const attn_context *context);
bool attn__gemm_slices_pack_to(attn_context *context, const attn__gemm_args *args, float *copies, char *data);

/* Weights [n,k] as slices, for products of any number of rows.  As attn__gemm_pack. */
attn_status attn__gemm_slices_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                   attn__packed *packed);

/* attn__gemm_slices with any kernel and for all sizes (m, n > 0, k >= 64), for tests. */
attn_status attn__gemm_slices_with(attn_tape *tape, const attn__slices_kernel *kernel, const attn__gemm_args *args,
                                   const attn__packed *packed);

#endif
