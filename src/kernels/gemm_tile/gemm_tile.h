/* SPDX-License-Identifier: MIT
 *
 * gemm_tile.h - the GEMM micro-kernel of attention's tiles in f32 (the one of other products is gemm/kernel_tmpl.h):
 *
 *     C[m,n] (+)= sum_k A[m,k] * B[k,n]        m < M, n < N, k < K
 *
 * Vectors run along n.  Elements of A are broadcast, so that A may have any strides while B and C are rows of vectors.
 * In the forward pass queries are the lanes (scores: A = keys, B = queries transposed; values: A = values transposed,
 * B = weights); in the backward pass channels are, for the gradients of k and v.
 *
 * Contract: N is a multiple of the kernel's `lanes`; more than `lanes * vectors` are divided into column panels.  M and
 * K may be 0 (K = 0 writes zeros unless accumulating).  Nothing needs alignment, but aligned b and c are faster.
 * Nothing outside the rectangles is read or written; nothing is allocated.  Each sum runs over ascending k from zero;
 * an accumulating product adds the finished sum to C.
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
    float *top;           /* NULL, or n numbers: becomes the maximum of itself and each column of C; may ignore NaN */
    attn__tile_hook hook; /* after each register tile */
} attn__gemm_tile_args;

/* The same on packed operands.  A row of B and of C is `vectors` vectors, rows are adjacent.  A is in groups of
 * kernel->group rows: element (m, k) is a[m / group * args->group + k * ak + m % group].  With 4 vectors, where the
 * kernel has them, A must be one group or adjacent groups. */
typedef struct attn__gemm_tile_packed_args {
    int64_t m, k;
    int vectors; /* 1 to the kernel's `vectors` or `widest` */
    const float *a;
    int64_t ak, group;
    const float *b;
    float *c;
    bool accumulate;
    attn__tile_hook hook;
} attn__gemm_tile_packed_args;

typedef struct attn__gemm_tile_kernel {
    attn__isa isa;
    int lanes;   /* floats of one vector */
    int vectors; /* vectors of the widest register tile along n */
    int widest;  /* vectors of a packed row, at most */
    int rows;    /* rows of the register tile along m */
    int group;   /* rows of A that are adjacent when packed; a multiple of `rows` and `lanes` */
    void (*run)(const attn__gemm_tile_args *args);
    void (*run_packed)(const attn__gemm_tile_packed_args *args);
} attn__gemm_tile_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__gemm_tile_kernel *attn__gemm_tile_for(attn__isa isa);

#endif
