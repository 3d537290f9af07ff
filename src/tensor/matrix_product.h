/* SPDX-License-Identifier: MIT
 *
 * matrix_product.h - products of matrices for the operations of a tape:
 *
 *     C[m,n] (+)= activation(op(A)[m,k] op(B)[k,n] + bias[n])
 *
 * op transposes or not; rows contiguous, `ld` elements apart.  src/gemm does the work; workspace comes from the tape's
 * pool, threads from its context.
 */
#ifndef ATTN_TENSOR_MATRIX_PRODUCT_H
#define ATTN_TENSOR_MATRIX_PRODUCT_H

#include "gemm/gemm.h"
#include "tensor/tensor.h"

/* Weights [n,k] in the order in which the product reads them, rounded to bf16 or quantized for products of that type: for
 * several products with the same ones.  hold.data NULL: none. */
typedef struct attn__packed {
    attn_dtype dtype; /* of the product: I32 for int8 */
    int64_t n, k;
    attn__hold hold;
    bool slices;   /* for AMX, see gemm_slices.h */
    bool rows;     /* not in the order of products but as they are, in bf16, so that any part of them can be read */
    float *scales; /* of int8: one for each of n rows, in the same memory */
} attn__packed;

typedef struct attn__gemm_args {
    attn_dtype dtype; /* F32 or F64, of all arrays; BF16: of A, and B, which is F32, is rounded to it */
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    bool a_bf16, b_bf16; /* F32 products rounded to bf16: this operand is bf16 already */
    void *c;             /* with BF16 F32, ... */
    bool c_bf16;         /* ... or BF16, not with `add` */
    int64_t ldc;
    bool add;                   /* to C instead of overwriting it; then without activation */
    const void *bias;           /* [n], F32 with BF16; NULL: none */
    attn_activation activation; /* applied to C */
    bool weights;               /* B is a linear layer's: on a tape of that precision the product is one of int8 */
    const attn__packed *packed; /* op(B), packed before; NULL or empty: it is packed here */
} attn__gemm_args;

/* False (noted) without memory. */
bool attn__gemm(attn_tape *tape, const attn__gemm_args *args);
/* The same for any problem of src/gemm, in multiply-adds. */
bool attn__gemm_problem_run(attn_tape *tape, const attn__gemm_problem *problem);

/* A linear layer's weights, for the tape's precision.  ATTN_ERROR_MEMORY (noted): nothing is held then. */
attn_status attn__gemm_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            attn__packed *packed);
/* The same of weights in bf16, for products of bf16. */
attn_status attn__gemm_pack_rounded(attn_tape *tape, const uint16_t *b, int64_t ldb, int64_t n, int64_t k,
                                    attn__packed *packed);
/* The same for weights that nobody reads any more: their pages leave memory while they are packed.
 * ATTN_ERROR_UNSUPPORTED: products on this machine may need them beside their packed form (slices); nothing has
 * happened then. */
attn_status attn__gemm_pack_over(attn_tape *tape, attn_dtype dtype, float *b, int64_t ldb, int64_t n, int64_t k,
                                 attn__packed *packed);
void attn__gemm_unpack(attn__packed *packed); /* lets go of the memory */
/* Whether products with all weights of this type and k on the tape read them packed so. */
bool attn__gemm_packed_fits(const attn_tape *tape, attn_dtype dtype, const attn__packed *packed);
/* A row of the weights, as they were: of panels of F32 or F64. */
void attn__gemm_packed_row(const attn_context *context, const attn__packed *packed, int64_t row, void *to);

/* attn__gemm in multiply-adds. */
bool attn__gemm_in_vectors(attn_tape *tape, const attn__gemm_args *args);
/* What is left of a product from a row on. */
attn__gemm_args attn__gemm_rows_from(const attn__gemm_args *args, int64_t row);

#endif
