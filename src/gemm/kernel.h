/* SPDX-License-Identifier: MIT
 *
 * kernel.h - the micro-kernel of the matrix product and its packing, for one type and instruction set.
 *
 * A micro-kernel computes one register tile of C over one K block:
 *
 *     C[i,j] = or += sum over k of A[i,k] B[k,j]        i < rows, j < columns
 *
 * Each element is one chain of multiply-adds from zero in ascending k. If k_step is above 1, it is a chain of groups
 * along k, as the instruction sums them. With `add`, the finished sum is added to C. (On AMX the chain begins with C.)
 * The bits of an element therefore depend on neither the tile's size nor the element's place.
 *
 * A panel holds some rows of A, or columns of B, in the order in which the kernel reads them, with zeros past the end
 * of the matrix.  Element (k, j) is at [k * width + j]. If k_step is above 1, k_step numbers that are adjacent along k
 * are interleaved, as the kernel's file describes.
 */
#ifndef ATTN_GEMM_KERNEL_H
#define ATTN_GEMM_KERNEL_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum { ATTN__GEMM_UNROLL = 4 };

/* The arguments of a register tile. Strides are in elements.  Nothing must be aligned, but panels in whole cache lines
 * are faster. */
typedef struct attn__gemm_tile {
    int64_t k;
    int rows, columns; /* at least 1, at most those of the kernel */
    const void *a;
    int64_t lda; /* 0: A is a panel; otherwise the stride of rows of A with adjacent k */
    const void *b;
    int64_t ldb; /* stride between rows of B, which are readable in whole vectors */
    void *c;
    int64_t ldc;
    bool add;
    const void *ahead;  /* what the kernel prefetches into L2; multiply-add kernels only */
    int64_t ahead_step; /* a line is prefetched per ATTN__GEMM_UNROLL of k; bytes between these lines */
} attn__gemm_tile;

/* The arguments of packing rows or columns of a matrix, x[k * inner + j * outer], into consecutive panels. Panels of A
 * may be written and read up to ATTN__GEMM_SLACK bytes past their end. */
enum { ATTN__GEMM_SLACK = 64 };
typedef struct attn__gemm_pack {
    const void *x;
    int64_t outer, inner;
    int64_t k, n; /* k and n; n is divided into panels */
    int width;    /* rows or columns of the kernel */
    bool bf16;    /* x is bf16; only for products of float and bf16 */
    bool is_b;    /* packs columns of B, otherwise rows of A */
    void *to;
} attn__gemm_pack;

enum { ATTN__GEMM_K = 256 }; /* K block of float and double, and on some instruction sets of bf16 and int8 */

typedef struct attn__gemm_kernel {
    attn__isa isa;
    attn__cpu_extra needs;
    attn__cpu_extra gains_by; /* feature without which the kernels of f32 are faster */
    int rows, columns, lanes;
    bool in_place;       /* whether a tile may read A and B in place */
    int k_step;          /* panels are padded along k to a multiple of k_step */
    int k_block;         /* length of a K block, the range of one sum; a multiple of k_step */
    int a_size, b_size;  /* bytes of a packed number of A; of B */
    void (*begin)(void); /* called by a thread before its tiles; may be NULL */
    void (*end)(void);   /* called by a thread after its tiles; may be NULL */
    void (*run)(const attn__gemm_tile *tile);
    void (*pack)(const attn__gemm_pack *pack);
} attn__gemm_kernel;

/* Returns the fastest kernel for F32, F64, BF16 or I32 (products of int8) with at most this instruction set. */
const attn__gemm_kernel *attn__gemm_kernel_for(attn_dtype dtype, attn__isa isa);
/* Returns the i-th best kernel for F32, F64, BF16 or I32 that this processor runs with at most this instruction set.
 * Returns NULL after the last kernel. */
const attn__gemm_kernel *attn__gemm_kernel_at(attn_dtype dtype, attn__isa isa, int i);

#endif
