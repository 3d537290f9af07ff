/* SPDX-License-Identifier: MIT
 *
 * tile.h - the one matrix product that the engine is made of:
 *
 *     C[m,n] (+)= sum_k A[m,k] * B[k,n]        m < M, n < N, k < K
 *
 * with vectors along n and A broadcast element by element, so that A may lie anyhow while B and C are rows
 * of lanes.  Forward attention keeps queries in the lanes (scores: A = keys, B = queries transposed; values:
 * A = values transposed, B = weights); backward puts channels there for the gradients of k and v.
 *
 * Contract: N is a multiple of the kernel's `lanes` and at most `lanes * vectors`, or any larger multiple
 * (then in column strips); M and K are any, 0 included (K = 0 writes zeros unless accumulating).  Nothing needs
 * alignment, but b and c in whole lines are faster.  Nothing outside the rectangles is read or written.
 * Never allocates.  Every element's sum runs over k in ascending order, from zero; what an
 * accumulating product finds in C is added to the finished sum.
 */
#ifndef ATTN_KERNELS_TILE_H
#define ATTN_KERNELS_TILE_H

#include "base/cpu.h"
#include "kernels/aside.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__tile_args {
    int64_t m, n, k;
    const float *a;
    int64_t am, ak; /* A[m,k] = a[m * am + k * ak] */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool accumulate;
    float *top;        /* NULL or a row of n: becomes the largest of itself and the rows of C; a NaN may get lost */
    attn__aside aside; /* after each register tile */
} attn__tile_args;

/* The same on packed operands: `vectors` vectors of lanes to a row of B and C, rows one after the other; A in groups
 * of kernel->group rows, element (m, k) at a[m / group * args->group + k * ak + m % group].  4 vectors, where the
 * kernel has them, take one group only, or groups that adjoin. */
typedef struct attn__packed_args {
    int64_t m, k;
    int vectors; /* 1 to the kernel's `vectors` or `widest` */
    const float *a;
    int64_t ak, group;
    const float *b;
    float *c;
    bool accumulate;
    attn__aside aside;
} attn__packed_args;

typedef struct attn__tile_kernel {
    attn__isa isa;
    int lanes;   /* floats of one vector */
    int vectors; /* vectors of the widest register tile along n */
    int widest;  /* vectors of a packed row, at most */
    int rows;    /* rows of the register tile along m */
    int group;   /* rows of A that are adjacent when packed; a multiple of `rows` and `lanes` */
    void (*run)(const attn__tile_args *args);
    void (*run_packed)(const attn__packed_args *args);
} attn__tile_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__tile_kernel *attn__tile_for(attn__isa isa);

#endif
