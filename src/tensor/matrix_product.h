/* SPDX-License-Identifier: MIT
 *
 * matrix_product.h - products of matrices for the operations of a tape: src/gemm does the work; precision and workspace
 * come from the tape, threads and instruction set from its context.
 */
#ifndef ATTN_TENSOR_MATRIX_PRODUCT_H
#define ATTN_TENSOR_MATRIX_PRODUCT_H

#include "gemm/weights.h"
#include "tensor/tensor.h"

/* Weights [n,k] packed once. All fields zero: no packed weights. */
typedef struct attn__packed {
    attn__weights weights; /* data NULL where `rows` */
    attn__hold hold;
    bool rows; /* not in the order of products but as they are, in bf16, so that any part of them can be read */
} attn__packed;

/* False (noted) without memory. */
bool attn__gemm(attn_tape *tape, const attn__gemm_problem *problem);
/* A linear layer's product, C (+)= activation(A B + bias). On a tape of int8 precision it is a product of int8. bias
 * [n] is F32 with BF16, or NULL; with `add` there is no activation. `packed`: B, or NULL or empty. */
bool attn__gemm_linear(attn_tape *tape, const attn__gemm_problem *problem, const void *bias, attn_activation activation,
                       const attn__packed *packed);

/* Packs a linear layer's weights for the tape's precision. `drop`: the weights are not read again, and their pages
 * are released while they are packed. ATTN_ERROR_MEMORY (noted): nothing is held then. */
attn_status attn__gemm_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            bool drop, attn__packed *packed);
/* Packs weights that are in bf16, for products of bf16. */
attn_status attn__gemm_pack_rounded(attn_tape *tape, const uint16_t *b, int64_t ldb, int64_t n, int64_t k,
                                    attn__packed *packed);
/* Whether these weights would be packed as slices. Products with slices also read the original weights. */
bool attn__gemm_packs_slices(const attn_tape *tape, attn_dtype dtype, int64_t n, int64_t k);
void attn__gemm_unpack(attn__packed *packed); /* releases the memory */
/* Whether products on this tape with weights of this type can all read this packed form. */
bool attn__gemm_packed_fits(const attn_tape *tape, attn_dtype dtype, const attn__packed *packed);
/* Copies one row of the original weights from panels of F32 or F64. */
void attn__gemm_packed_row(const attn_context *context, const attn__packed *packed, int64_t row, void *to);

#endif
