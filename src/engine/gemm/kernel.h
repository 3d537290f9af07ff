/* SPDX-License-Identifier: MIT
 *
 * kernel.h - the micro-kernel of the matrix product and its packing, for one type and instruction set.
 *
 * A micro-kernel computes one register tile of C over one K block:
 *
 *     C[i,j] = or += sum over k of A[i,k] B[k,j]        i < rows, j < columns
 *
 * Each element is one chain of multiply-adds from zero in ascending k. If k_step is above 1, the instruction sums a
 * group of k_step products, and the chain adds the groups. If `add` is set, the finished sum is added to C. (On AMX the
 * chain begins with C instead of zero.) The bits of an element therefore do not depend on the tile's size or the
 * element's place.
 *
 * A panel has some rows of A, or columns of B, in the order in which the kernel reads them. Past the end of the matrix,
 * a panel has zeros.  Element (k, j) is at [k * width + j]. If k_step is above 1, k_step numbers that are adjacent
 * along k are interleaved, as the kernel's file describes.
 */
#ifndef ATTN_GEMM_KERNEL_H
#define ATTN_GEMM_KERNEL_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum { ATTN__GEMM_UNROLL = 4, ATTN__GEMM_LINE = 64 };

/* The arguments of a register tile. Strides are in elements.  Nothing must be aligned, but panels in whole cache lines
 * are faster. */
typedef struct attn__gemm_tile {
    int64_t k;
    int rows, columns; /* at least 1, and at most the kernel's rows and columns */
    const void *a;
    int64_t lda; /* row stride of A, whose k is adjacent; 0 if A is a panel */
    const void *b;
    int64_t ldb; /* row stride of B; each row of B can be read in whole vectors */
    void *c;
    int64_t ldc;
    bool add;
    const void *ahead;  /* address from which kernels without `begin` prefetch into L2 */
    int64_t ahead_step; /* bytes that they prefetch per ATTN__GEMM_UNROLL of k */
} attn__gemm_tile;

/* Prefetches the line at an address and the lines of `bytes` from there into L2. The address is an integer, because one
 * past the end of B is no valid pointer. The first line is prefetched in any case, which costs less than a branch. */
static inline void attn__gemm_prefetch(uintptr_t address, int64_t bytes)
{
    __builtin_prefetch((const void *)address, 0, 2);
    for (int64_t i = ATTN__GEMM_LINE; i < bytes; i += ATTN__GEMM_LINE)
        __builtin_prefetch((const void *)(address + (uintptr_t)i), 0, 2);
}

/* Arguments for packing rows or columns of a matrix into consecutive panels. Element k of row or column j is x[k *
 * inner + j * outer]. Panels of A may be written and read up to ATTN__GEMM_SLACK bytes past their end. */
enum { ATTN__GEMM_SLACK = 64 };
typedef struct attn__gemm_pack {
    const void *x;
    int64_t outer, inner;
    int64_t k, n; /* length along k; number of rows or columns to pack */
    int width;    /* rows of A or columns of B per panel */
    bool bf16;    /* x is bf16; allowed for products of float and bf16 */
    bool is_b;    /* pack columns of B; otherwise pack rows of A */
    void *to;
} attn__gemm_pack;

enum { ATTN__GEMM_K = 256 }; /* length of a K block of float and double, and of some kernels of bf16 and int8 */

typedef struct attn__gemm_kernel {
    attn__isa isa;
    attn__cpu_extra needs;
    attn__cpu_extra gains_by; /* CPU feature that makes this kernel faster than f32 kernels */
    int rows, columns, lanes;
    bool in_place; /* a tile can also read A and B without packing */
    int k_step;    /* numbers along k that a panel interleaves; k is padded to a multiple of k_step */
    bool squares;  /* B's panels are squares of `lanes` columns by k_step, which interleave groups of 4 bytes along k */
    bool adds_128; /* B's panels hold int8 numbers plus 128 */
    int k_block;   /* length of a K block, a multiple of k_step; each K block has one sum */
    int a_size, b_size;  /* bytes of one packed element of A and of B */
    void (*begin)(void); /* called by each thread before its tiles; may be NULL */
    void (*end)(void);   /* called by each thread after its tiles; may be NULL */
    void (*run)(const attn__gemm_tile *tile);
    void (*pack)(const attn__gemm_pack *pack);
} attn__gemm_kernel;

/* Returns the fastest kernel for F32, F64, BF16 or I32 (products of int8) whose instruction set is not above `isa`. */
const attn__gemm_kernel *attn__gemm_kernel_for(attn_dtype dtype, attn__isa isa);
/* Returns the i-th best kernel for F32, F64, BF16 or I32 that this processor can run and whose instruction set is not
 * above `isa`. Returns NULL after the last kernel. */
const attn__gemm_kernel *attn__gemm_kernel_at(attn_dtype dtype, attn__isa isa, int i);

#endif
