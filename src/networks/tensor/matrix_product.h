/* SPDX-License-Identifier: MIT
 *
 * matrix_product.h - matrix products for the operations of a tape, computed by src/engine/gemm. The tape determines
 * precision and workspace, and its context determines threads and instruction set. */
#ifndef ATTN_TENSOR_MATRIX_PRODUCT_H
#define ATTN_TENSOR_MATRIX_PRODUCT_H

#include "gemm/weights.h"
#include "tensor/tensor.h"

/* Weights [n,k] that were packed once. If all fields are zero, there are no weights. */
typedef struct attn__packed {
    attn__weights weights; /* panels; weights.data is NULL if `rows` is set */
    attn__hold hold;
    /* true: the weights are stored as rows of bf16 instead of panels, so that a product can read any part of them */
    bool rows;
} attn__packed;

bool attn__gemm(attn_tape *tape, const attn__gemm_problem *problem);
/* Computes a linear layer, C (+)= activation(A B + bias), where A is problem->a and B holds the weights. On a tape of
 * int8 precision the product is computed in int8. bias [n] may be NULL; for BF16 products it is F32. If problem->add is
 * set, there is no activation. `packed` is the packed form of B. If it is NULL or empty, B is packed for this call. */
bool attn__gemm_linear(attn_tape *tape, const attn__gemm_problem *problem, const void *bias, attn_activation activation,
                       const attn__packed *packed);

/* Packs a linear layer's weights for the tape's precision. If `drop` is true, the memory pages of the original weights
 * are released during packing, so the original weights must not be read again. If there is no memory, returns
 * ATTN_ERROR_MEMORY and keeps nothing. */
attn_status attn__gemm_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            bool drop, attn__packed *packed);
/* Packs weights for products of bf16. The weights are already stored in bf16. */
attn_status attn__gemm_pack_rounded(attn_tape *tape, const uint16_t *b, int64_t ldb, int64_t n, int64_t k,
                                    attn__packed *packed);
/* Returns whether these weights would be packed as slices. Products with slices also read the original weights. */
bool attn__gemm_packs_slices(const attn_tape *tape, attn_dtype dtype, int64_t n, int64_t k);
void attn__gemm_unpack(attn__packed *packed);
/* Returns whether every product on this tape with weights of type `dtype` can read this packed form. */
bool attn__gemm_packed_fits(const attn_tape *tape, attn_dtype dtype, const attn__packed *packed);
/* Copies row `row` of the original weights to `to`, from panels of F32 or F64. */
void attn__gemm_packed_row(const attn_context *context, const attn__packed *packed, int64_t row, void *to);

#endif
