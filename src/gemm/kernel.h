/* SPDX-License-Identifier: MIT
 *
 * kernel.h - the micro-kernel of the product and the packing that feeds it, for one type and instruction set.
 *
 * A micro-kernel computes one register tile of C over one K block:
 *
 *     C[i,j] (+)= sum over k of A[i,k] B[k,j]        i < rows, j < columns
 *
 * Each element is one chain of multiply-adds in ascending k from zero (where k_step is above 1, of groups along k, as the
 * instruction sums them); with `add` the finished sum is added to C.
 * (On AMX the chain begins with C.)  So its bits depend on neither the tile's size nor the element's place.
 *
 * A panel holds some rows of A, or columns of B, in the order in which the kernel reads them, with zeros where the
 * matrix ends.  Element (k, j) is at [k * width + j]; if `k_step` is above 1, so many numbers that are adjacent along k
 * are interleaved, as documented in the kernel's file. */
#ifndef ATTN_GEMM_KERNEL_H
#define ATTN_GEMM_KERNEL_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum { ATTN__GEMM_UNROLL = 4 };

/* Strides are in elements.  Nothing needs alignment; panels are faster in whole lines. */
typedef struct attn__gemm_tile {
    int64_t k;
    int rows, columns; /* at least 1, at most the kernel's */
    const void *a;
    int64_t lda; /* 0: A is a panel; else rows of A, `lda` apart, with k adjacent */
    const void *b;
    int64_t ldb; /* stride between rows of B; rows are readable in whole vectors */
    void *c;
    int64_t ldc;
    bool add;
    const void *ahead;  /* what a kernel of multiply-adds prefetches into L2 meanwhile: ... */
    int64_t ahead_step; /* ... a line for each ATTN__GEMM_UNROLL of k, so many bytes apart */
} attn__gemm_tile;

/* Packs some rows or columns of a matrix, x[k * inner + j * outer], into consecutive panels. Panels of A may be
 * written and read up to ATTN__GEMM_SLACK bytes past their end. */
enum { ATTN__GEMM_SLACK = 64 };
typedef struct attn__gemm_pack {
    const void *x;
    int64_t outer, inner;
    int64_t k, n; /* n is cut into panels */
    int width;    /* the kernel's rows or columns */
    bool bf16;    /* x is bf16; only for float and bf16 */
    bool is_b;    /* packs columns of B, else rows of A */
    void *to;
} attn__gemm_pack;

enum { ATTN__GEMM_K = 256 }; /* the K block: of float and double on every instruction set, of bf16 and int8 on some */

typedef struct attn__gemm_kernel {
    attn__isa isa;
    attn__cpu_extra needs;
    attn__cpu_extra gains_by; /* without it kernels of f32 are faster */
    int rows, columns, lanes;
    bool in_place;       /* a tile may read A and B in place */
    int k_step;          /* panels are padded along k to a multiple of it */
    int k_block;         /* length of a K block, a multiple of k_step: the range of one sum */
    int a_size, b_size;  /* bytes of a packed number of A and of B */
    void (*begin)(void); /* NULL, or to be called by a thread before some tiles ... */
    void (*end)(void);   /* ... and after them */
    void (*run)(const attn__gemm_tile *tile);
    void (*pack)(const attn__gemm_pack *pack);
} attn__gemm_kernel;

/* The fastest kernel for F32, F64, BF16 or I32 (products of int8) with at most this instruction set. */
const attn__gemm_kernel *attn__gemm_kernel_for(attn_dtype dtype, attn__isa isa);
/* The i-th best kernel for F32, F64, BF16 or I32 that this processor runs with at most this instruction set. NULL
 * after the last kernel. */
const attn__gemm_kernel *attn__gemm_kernel_at(attn_dtype dtype, attn__isa isa, int i);

#endif
