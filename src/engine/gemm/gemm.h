/* SPDX-License-Identifier: MIT
 *
 * gemm.h - the product of matrices, with any strides and batched:
 *
 *     C[i,j] = or += sum over l of A[i,l] B[l,j]        i < m, j < n, l < k
 *
 * Order: k is divided into the micro-kernel's K blocks.  In a K block, an element of C is one chain of multiply-adds in
 * ascending k. K blocks are added to C in ascending order.  The bits of an element therefore depend only on its row of
 * A, its column of B and k. They do not depend on m, n, strides, packing or the number of threads. They depend on the
 * batch only if C is the sum over the batch.
 *
 * Error: at most k * 2^-24 * sum |a||b| (f64: 2^-53).
 *
 * Packing: an operand is read in place, packed into panels (kernel.h) once for all blocks of C, or packed by each
 * block. The rows of a block of C get the epilogue after the last K block.
 */
#ifndef ATTN_GEMM_GEMM_H
#define ATTN_GEMM_GEMM_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes rows [row, row + rows) and columns [column, column + columns) of matrix `batch` to `to`, as float or double.
 * The rows of `to` are `ld` apart. Each row is padded with zeros to a multiple of 16 columns. A gather serves operands
 * that are not stored as a strided matrix, such as an im2col matrix. */
typedef void attn__gemm_gather(const void *source, int64_t batch, int64_t row, int64_t rows, int64_t column,
                               int64_t columns, int64_t ld, void *to);

/* An operand. Element (i, k) of A is data[i * outer + k * inner], and element (k, j) of B is data[j * outer + k *
 * inner]. With `gather`, the stride along rows is 1 and the other stride is 0. */
typedef struct attn__gemm_operand {
    const void *data;
    int64_t outer, inner;
    int64_t batch;             /* stride between matrices of the batch; 0 if the whole batch uses one matrix */
    bool bf16;                 /* data is bf16; otherwise the elements have the product's type */
    attn__gemm_gather *gather; /* called to get elements instead of reading `data`, or NULL */
    const void *source;
} attn__gemm_operand;

/* Describes a matrix of the product's type by its strides. */
static inline attn__gemm_operand attn__matrix(const void *data, int64_t outer, int64_t inner)
{
    return (attn__gemm_operand){.data = data, .outer = outer, .inner = inner};
}

/* Describes a matrix of the product's type by its rows, which are `ld` apart. If `along_k` is set, rows run along k,
 * otherwise across k. */
static inline attn__gemm_operand attn__matrix_rows(const void *data, int64_t ld, bool along_k)
{
    return along_k ? attn__matrix(data, ld, 1) : attn__matrix(data, 1, ld);
}

/* Rounds n numbers x to bf16 and writes them to y. */
typedef void attn__gemm_round_row(const float *x, int64_t n, uint16_t *y);
attn__gemm_round_row *attn__gemm_round_row_for(attn__isa isa);

/* Epilogue of a segment of C: row `row`, columns [column, column + n). c points to float, double or int32. The thread
 * that computed the sums calls it once, when the sums are complete. The epilogue must not use AMX. */
typedef void attn__gemm_finish(const void *user, void *c, int64_t row, int64_t column, int64_t n);

typedef struct attn__gemm_problem {
    /* Type of the product. F32 and F64: type of the sums. BF16: operands are rounded to bf16 and summed in f32. I32:
     * operands are int8, sums and C are int32. */
    attn_dtype dtype;
    int64_t batch; /* number of matrices; 0 means 1 */
    int64_t m, n, k;
    attn__gemm_operand a, b;
    const void *packed;                  /* all of B, packed by attn__gemm_pack_b, or NULL */
    const struct attn__weights *weights; /* B in a packed form (weights.h), or NULL; only product.h reads it */
    bool int8;                           /* multiply f32 as int8 if B is a linear layer; only product.h reads it */
    void *c;                             /* C as float, double, int32 or bf16; its columns are adjacent */
    int64_t ldc;                         /* stride between rows of C, in elements */
    int64_t c_batch;                     /* stride between matrices of C; if it is 0, C is the sum over the batch */
    bool c_bf16;                         /* C is bf16; `add` is then not allowed, and the epilogue gets f32 numbers */
    bool add;
    attn__gemm_finish *finish; /* epilogue, may be NULL */
    const void *user;
    const struct attn__caches *caches; /* caches for which to plan; NULL means this machine's caches */
} attn__gemm_problem;

typedef struct attn__gemm_plan {
    attn__gemm_problem g; /* the problem, with A and B exchanged if `transposed` */
    bool transposed;      /* compute C^T and store it as C */
    const struct attn__gemm_kernel *kernel;
    attn__gemm_round_row *round_row; /* rounds rows of C if C is bf16 */
    int threads;
    const struct attn__caches *caches;
    int64_t m_block, n_block; /* size of a block of C; a block is one item of work */
    int64_t m_blocks, n_blocks;
    int64_t m_group;     /* rows of A that are multiplied at once */
    int64_t k_panel;     /* length of a K panel, a multiple of the K block */
    int64_t k_round;     /* length of k that is packed at once for all items, a multiple of k_panel */
    bool pack_a, pack_b; /* each item packs its own part of A (pack_a), of B (pack_b) */
    bool share_a;        /* A is packed once for all items */
    bool share_b;        /* B is packed once for all items */
    bool gather_a, gather_b;
    bool own_c;                       /* blocks of C are computed in scratch memory first */
    int64_t shared_a, shared_b, each; /* bytes of workspace: packed A, packed B, and scratch memory of each thread */
} attn__gemm_plan;

/* Plans a product for at most `threads` threads. If the product is small, it uses fewer. */
void attn__gemm_plan_make(attn__gemm_plan *plan, const attn__gemm_problem *problem, attn__isa isa, int threads);
/* Bytes that the plan moves between L2 and the L3 cache or memory, for a product of one matrix whose operands are
 * larger than L2. */
typedef struct attn__gemm_traffic {
    int64_t a, b, c;
} attn__gemm_traffic;
attn__gemm_traffic attn__gemm_plan_traffic(const attn__gemm_plan *plan);
/* Prints the plan as one line to text[size]. Returns the same value as snprintf. */
int attn__gemm_plan_print(const attn__gemm_plan *plan, char *text, size_t size);
/* Changes the plan to m rows, fewer than before. It then needs no more workspace. A must be a gather of rows. */
void attn__gemm_plan_shorten(attn__gemm_plan *plan, int64_t m);
/* Returns the bytes of scratch memory of attn__gemm_run, aligned to 64 bytes. */
size_t attn__gemm_workspace(const attn__gemm_plan *plan);
/* Returns an upper bound of the workspace of every product of at most m, n and k, of one matrix, with one thread,
 * without gathers and without a bf16 C, for any strides. */
size_t attn__gemm_workspace_most(attn_dtype dtype, attn__isa isa, int64_t m, int64_t n, int64_t k);
/* Runs the plan. It allocates nothing. Several threads may run one plan at once if each has its own workspace. */
void attn__gemm_run(const attn__gemm_plan *plan, void *workspace);

/* B can be packed once for several products. Each call packs columns [first, end). `first` and `end` are multiples of
 * ATTN__GEMM_PART, or `end` is n, so that each part begins with a panel in every micro-kernel. The problem's m, A and C
 * are not read. Its batch must be 1, and B must have no gather. */
enum { ATTN__GEMM_PART = 960 };
/* Returns the bytes of one packed element. */
int attn__gemm_packed_size(attn_dtype dtype, attn__isa isa);
size_t attn__gemm_packed_bytes(const attn__gemm_problem *problem, attn__isa isa);
void attn__gemm_pack_b(const attn__gemm_problem *problem, attn__isa isa, int threads, int64_t first, int64_t end,
                       void *packed);
/* Copies one column of B from its panels. The k elements have the type of packed elements: float, double, int8, and for
 * BF16 bf16 or, if attn__gemm_packed_size is 4, float. */
void attn__gemm_packed_column(const attn__gemm_problem *problem, attn__isa isa, const void *packed, int64_t column,
                              void *to);
/* Returns a number that tells the orders of packed elements apart. Products can read weights that were packed by a
 * kernel, and on a machine, with the same number. */
uint64_t attn__gemm_packed_layout(attn_dtype dtype, attn__isa isa);

#endif
