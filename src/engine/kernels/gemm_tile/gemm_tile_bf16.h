/* SPDX-License-Identifier: MIT
 *
 * gemm_tile_bf16.h - the GEMM micro-kernel on pairs of bf16 numbers: two multiply-adds per lane and instruction.
 *
 *     C[m,n] (+)= factor * sum_k A[m,k] * B[k,n]        A, B bf16, C and the sums f32
 *
 * k counts pairs: an element of A is the pair (A[m,2k], A[m,2k+1]) in 32 bits, and each lane of a row of B holds such a
 * pair.  Sums run over ascending k.  Needs AVX512-BF16, whose instruction treats subnormal numbers as zero.
 */
#ifndef ATTN_KERNELS_GEMM_TILE_BF16_H
#define ATTN_KERNELS_GEMM_TILE_BF16_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__gemm_tile_bf16_args {
    int64_t m, n, k; /* n is a multiple of 16; k is a number of pairs */
    const uint32_t *a;
    int64_t am, ak; /* one of these strides must be 1 */
    const uint32_t *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    float factor;
    bool accumulate; /* add to C; `factor` must then be 1 */
} attn__gemm_tile_bf16_args;

typedef struct attn__gemm_tile_bf16_kernel {
    void (*run)(const attn__gemm_tile_bf16_args *args);
    /* Computes out[r/2][c] = the pair (in[r][c], in[r+1][c]), rounded to bf16. If the number of rows is odd, the last
     * row is paired with zeros. */
    void (*round_rows)(const float *in, int64_t rows, int64_t width, uint32_t *out);
    /* Makes the same pairs from bf16 rows of the caller, which begin at row_offset[r]. Rows of out have ld pairs and
     * are padded with zeros to a multiple of 16 columns. Returns false if any number is infinite or NaN. */
    bool (*pair_rows)(const uint16_t *in, const int64_t *row_offset, int64_t rows, int64_t columns, uint32_t *out,
                      int64_t ld);
    /* Copies rows of the caller to rows of ld pairs in out. Rows are padded with zeros to whole pairs. */
    void (*copy_rows)(const uint16_t *in, const int64_t *row_offset, int64_t rows, int64_t columns, uint32_t *out,
                      int64_t ld);
} attn__gemm_tile_bf16_kernel;

/* Returns the kernel, or NULL if `isa` is below ATTN_ISA_AVX512BF16. */
const attn__gemm_tile_bf16_kernel *attn__gemm_tile_bf16_for(attn__isa isa);

#endif
