/* SPDX-License-Identifier: MIT
 *
 * gemm.h - the one seam to matrix products of the linear layers:
 *
 *     C[m,n] (+)= activation(op(A)[m,k] op(B)[k,n] + bias[n])
 *
 * op transposes or not; rows contiguous, `ld` elements apart.  In the matrix unit where the machine has one and the
 * product is large enough to gain (gemm_slices.h); oneDNN's where it is built in and wins, else the engine's own tiles;
 * plain loops for double.
 */
#ifndef ATTN_TENSOR_GEMM_H
#define ATTN_TENSOR_GEMM_H

#include "tensor/tensor.h"

/* Weights [n,k] in the order in which the product reads them, oneDNN's or the matrix unit's, rounded to bf16 on the way
 * if so wanted: for several products with the same ones.  hold.data NULL: none. */
typedef struct attn__packed {
    attn_dtype dtype;
    int64_t n, k;
    attn__hold hold;
    bool slices; /* for AMX, see gemm_slices.h */
} attn__packed;
typedef struct attn__gemm_args {
    attn_dtype dtype; /* F32 or F64, of all arrays */
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    void *c;
    int64_t ldc;
    bool add;                   /* to C instead of overwriting it; then without activation */
    const void *bias;           /* [n]; NULL: none */
    attn_activation activation; /* applied to C */
    const attn__packed *packed; /* all of op(B) in slices, or NULL */
} attn__gemm_args;

/* Uses the context's threads and the tape's pool for scratch memory.  False (noted) without memory. */
bool attn__gemm(attn_tape *tape, const attn__gemm_args *args);

/* ATTN_MEMORY (noted), or ATTN_UNSUPPORTED (not noted) where neither is there, or oneDNN refuses, or, for the matrix
 * unit, a number is not finite and oneDNN is not there: then nothing is held. */
attn_status attn__gemm_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            attn__packed *packed);
void attn__gemm_unpack(attn__packed *packed); /* lets go of the memory */

/* C[m,n] (+)= activation(A[m,k] B[n,k]^T + bias) in one pass, f32 or bf16 in, sums in f32. */
typedef struct attn__fused_args {
    attn_dtype in, out; /* of A, and of C; F32 or BF16.  B is F32, and rounded to A's type */
    int64_t m, n, k;
    const void *a; /* contiguous, as C is */
    const float *b;
    int64_t ldb;
    const attn__packed *packed; /* B, or NULL: it is packed for this product */
    const float *bias;          /* [n]; NULL: none */
    bool gelu;                  /* its exact form; not with `add` */
    bool add;
    void *c;
} attn__fused_args;
/* As attn__gemm_pack; nothing is done then. */
attn_status attn__gemm_fused(attn_tape *tape, const attn__fused_args *args);

/* attn__gemm without the matrix unit. */
bool attn__gemm_in_vectors(attn_tape *tape, const attn__gemm_args *args);
/* What is left of a product from a row on. */
attn__gemm_args attn__gemm_rows_from(const attn__gemm_args *args, int64_t row);

/* The engine's own product, of sizes from 1 on, and that of doubles; gemm_own.c and gemm_double.c. */
bool attn__gemm_own(attn_tape *tape, const attn__gemm_args *args);
void attn__gemm_double(attn_tape *tape, const attn__gemm_args *args);

#endif
