/* SPDX-License-Identifier: MIT
 *
 * gemm_parts_work.h - what the files of gemm_parts.h share: one product, or a group of its columns.
 */
#ifndef ATTN_TENSOR_GEMM_PARTS_WORK_H
#define ATTN_TENSOR_GEMM_PARTS_WORK_H

#include "base/integers.h"
#include "kernels/parts/parts.h"
#include "tensor/gemm.h"
#include "tensor/op.h"

#include <stdatomic.h>

enum {
    SIDE = ATTN__PARTS_SIDE,
    PARTS = ATTN__PARTS_F32,
    CELL = ATTN__PARTS_F32 * ATTN__PARTS_TILE, /* numbers of a tile in all parts */
    PANEL = 2 * ATTN__PARTS_SIDE,              /* columns that are summed together, and rows */
    SQUARE = PANEL * PANEL,
    LONG = 768 /* most of k that is packed of A at a time */
};

typedef struct attn__parts_product {
    const attn__gemm_args *g; /* of this group of columns */
    const attn__parts_kernel *kernel;
    const attn__rows_table *rows;
    int64_t height, items, panels; /* rows of an item, whole squares; items; panels of columns */
    atomic_int_least64_t taken;    /* items */
    int64_t begin, end;            /* the part of k that is packed of B */
    attn__parts_side b;
    float *padded; /* the bias, of whole panels, where there is one */
    uint16_t *a;   /* two blocks of each thread */
    size_t a_step;
    float *sums;     /* `squares` of each thread, or of each item: */
    int64_t squares; /* where A is packed once, two, of which one is stored while the other is summed; ... */
    bool once;       /* ... where it is packed in turns, all of an item; ... */
    bool of_items;   /* ... where B is, all of every item */
    bool *odd;       /* of each 16 rows' panels: not finite */
    bool *odd_b;     /* of each piece of B */
} attn__parts_product;

/* B's rows [begin, end), in p->b.  False if some number is not finite. */
bool attn__gemm_parts_pack_b(int threads, attn__parts_product *p);
int64_t attn__gemm_parts_pieces_of_b(int64_t n); /* flags that it needs */
/* Rows [at, at + height) of op(A), where that is transposed. */
void attn__gemm_parts_turn_a(const attn__parts_product *p, int64_t at, int64_t height, int64_t k0, int64_t depth,
                             const attn__parts_side *to);
/* For attn__parallel_items, an item a thread: sums, and, where they are complete, what follows them. */
void attn__gemm_parts_work(void *product, int64_t index, int thread);

#endif
