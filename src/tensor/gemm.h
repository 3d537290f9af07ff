/* SPDX-License-Identifier: MIT
 *
 * gemm.h - the one seam to matrix products of the linear layers:
 *
 *     C[m,n] (+)= op(A)[m,k] op(B)[k,n]         op transposes or not; rows contiguous, `ld` elements apart
 *
 * oneDNN's where it is built in and wins, else the engine's own tiles; plain loops for double.
 */
#ifndef ATTN_TENSOR_GEMM_H
#define ATTN_TENSOR_GEMM_H

#include "tensor/tensor.h"

typedef struct attn__gemm_args {
    attn_dtype dtype; /* F32 or F64 */
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    void *c;
    int64_t ldc;
    bool add; /* to C instead of overwriting it */
} attn__gemm_args;

/* Uses the context's threads and the tape's pool for scratch memory.  False (noted) without memory. */
bool attn__gemm(attn_tape *tape, const attn__gemm_args *args);

/* C[m,n] (+)= activation(A[m,k] B[n,k]^T + bias) in one pass; f32 or bf16 in, sums in f32. */
typedef struct attn__fused_args {
    attn_dtype in, out; /* of A and B, and of C; F32 or BF16 */
    int64_t m, n, k;
    const void *a, *b;
    int64_t ldb;        /* of B; A and C are contiguous */
    const float *bias;  /* [n]; NULL: none */
    bool gelu;          /* its exact form; not with `add` */
    bool add;
    void *c;
} attn__fused_args;
/* False, and nothing is done, where oneDNN is not there or refuses. */
bool attn__gemm_fused(const attn_tape *tape, const attn__fused_args *args);

/* The engine's own product, in parts; gemm_own.c and gemm_double.c. */
bool attn__gemm_own(attn_tape *tape, const attn__gemm_args *args);
void attn__gemm_double(attn_tape *tape, const attn__gemm_args *args);

#endif
