/* SPDX-License-Identifier: MIT
 *
 * gemm_tile.h - the f32 GEMM micro-kernel of attention's tiles (gemm/kernel_tmpl.h has the micro-kernel of other
 * products):
 *
 *     C[m,n] (+)= sum_k A[m,k] * B[k,n]        m < M, n < N, k < K
 *
 * Vectors run along n.  Elements of A are broadcast, so A may have any strides. B and C are rows of vectors. In the
 * forward pass the lanes are queries. For scores, A holds keys and B holds transposed queries. For outputs, A holds
 * transposed values and B holds weights. In the backward pass the lanes are channels, for the gradients of k and v.
 *
 * Contract: N is a multiple of the kernel's `lanes`. More than `lanes * vectors` columns are divided into column
 * panels.  M and K may be 0. K = 0 writes zeros, unless `accumulate` is set.  Nothing needs alignment, but aligned b
 * and c are faster. Nothing outside the rectangles is read or written. Nothing is allocated. Each sum runs over
 * ascending k from zero. An accumulating product adds the finished sum to C.
 */
#ifndef ATTN_KERNELS_GEMM_TILE_H
#define ATTN_KERNELS_GEMM_TILE_H

#include "base/cpu.h"
#include "kernels/tile_hook.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__gemm_tile_args {
    int64_t m, n, k;
    const float *a;
    int64_t am, ak; /* A[m,k] = a[m * am + k * ak] */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool accumulate;
    float *top;           /* NULL, or n running maxima, which are raised to the maxima of C's columns; may ignore NaN */
    attn__tile_hook hook; /* called after each register tile */
} attn__gemm_tile_args;

/* Arguments of the same product with packed operands. Rows of B and C have `vectors` vectors and are adjacent. A
 * consists of groups of kernel->group rows. Element (m, k) is a[m / group * args->group + k * ak + m % group]. If
 * `vectors` is 4, A must be one group or adjacent groups. */
typedef struct attn__gemm_tile_packed_args {
    int64_t m, k;
    int vectors; /* number from 1 to the kernel's `vectors`, or the kernel's `widest` */
    const float *a;
    int64_t ak, group;
    const float *b;
    float *c;
    bool accumulate;
    attn__tile_hook hook;
} attn__gemm_tile_packed_args;

typedef struct attn__gemm_tile_kernel {
    attn__isa isa;
    int lanes;
    int vectors; /* vectors along n of the widest register tile of `run` */
    int widest;  /* largest number of vectors of a row of `run_packed` */
    int rows;    /* rows of the register tile along m */
    int group;   /* rows of A in a group of packed A; a multiple of `rows` and `lanes` */
    void (*run)(const attn__gemm_tile_args *args);
    void (*run_packed)(const attn__gemm_tile_packed_args *args);
} attn__gemm_tile_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__gemm_tile_kernel *attn__gemm_tile_for(attn__isa isa);

#endif
