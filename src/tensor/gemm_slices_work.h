/* SPDX-License-Identifier: MIT
 *
 * gemm_slices_work.h - what the files of gemm_slices.h share: one product, or a group of its columns.
 */
#ifndef ATTN_TENSOR_GEMM_SLICES_WORK_H
#define ATTN_TENSOR_GEMM_SLICES_WORK_H

#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/slices.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/matrix_product.h"
#include "tensor/op.h"

enum {
    SIDE = ATTN__SLICES_SIDE, /* columns of a panel */
    DEPTH = ATTN__SLICES_DEPTH,
    GROUP = 8,               /* panels whose sums go to C together */
    WIDTH = GROUP * SIDE,    /* their columns */
    ATTN__SLICES_LEAST = 64, /* of k: of fewer most of a tile would be zeros */
    STRETCH = 2              /* K blocks that are packed of A at a time, at most */
};

/* k in K blocks of one length, but for the last. */
typedef struct attn__slices_blocks {
    int64_t k, count;
} attn__slices_blocks;

/* B's tiles: panels, in each the steps of some K blocks; and the scales and bounds of its columns. */
typedef struct attn__slices_b {
    int8_t *tiles;
    attn__slices_panel *panels; /* [K block][columns / SIDE] */
    int64_t panel, columns;     /* bytes from a panel to the next; whole panels */
} attn__slices_b;

typedef struct attn__slices_product {
    const attn__gemm_args *g; /* of this group of columns */
    const attn__slices_kernel *kernel;
    const attn__elementwise_table *rows;
    int64_t height, items, panels; /* rows of an item, whole C tiles, at most; items; panels of columns */
    attn__shares shares;           /* of the items */
    attn__slices_blocks blocks;
    float limit;
    int64_t begin, end; /* the K blocks that are packed of B */
    attn__slices_b b;
    float *padded; /* the bias, of whole panels, where there is one */
    int8_t *a;     /* two blocks of each thread, each with its bounds after the tiles */
    size_t a_step; /* bytes */
    float *copies; /* of each thread, of columns that are quantized, where there are any */
    float *sums;   /* [kept][height][WIDTH]: of each thread, or of each item */
    int64_t kept;  /* groups of panels: ... */
    bool once;     /* ... 2, in turns, where the sums of one are complete before the next one */
    bool of_items;
    uint16_t *again;          /* of each C tile, the rows that go to multiply-adds */
    float *gathered, *redone; /* these rows of A, and of the product */
} attn__slices_product;

attn__slices_blocks attn__gemm_slices_blocks(int64_t k);
/* Where K block c begins. */
static inline int64_t attn__gemm_slices_k(const attn__slices_blocks *blocks, int64_t c)
{
    return attn__least(c * ATTN__SLICES_K_BLOCK, blocks->k);
}
static inline int64_t attn__gemm_slices_bytes(int64_t rows, int64_t depth)
{
    return attn__pieces(rows, SIDE) * attn__pieces(depth, DEPTH) * ATTN__SLICES_STEP;
}

/* The tiles of a panel of B in K block c. */
static inline int8_t *attn__gemm_slices_tiles_of_b(const attn__slices_product *p, int64_t panel, int64_t c)
{
    return p->b.tiles + panel * p->b.panel + (c - p->begin) * (ATTN__SLICES_K_BLOCK / DEPTH) * ATTN__SLICES_STEP;
}

/* Where n columns and the first `count` K blocks of B are in `data`; returns its size in bytes.  NULL: just that. */
size_t attn__gemm_slices_lay_out_b(attn__slices_product *p, int64_t n, int64_t count, char *data);
/* K blocks [begin, end) of B, in p->b. */
void attn__gemm_slices_pack_b(int threads, attn__slices_product *p);
/* Whether so many panels of B need multiply-adds for all rows that slices gain nothing. */
bool attn__gemm_slices_hopeless(const attn__slices_b *b, int64_t blocks);
/* Rows [at, at + height) of op(A), where that is transposed, along K block c. */
void attn__gemm_slices_transpose_a(const attn__slices_product *p, int64_t at, int64_t height, int64_t c, int thread,
                                   int8_t *tiles, attn__slices_rows *rows);
/* For attn__parallel_items, an item a thread: sums, and, where they are complete, what follows them. */
void attn__gemm_slices_work(void *product, int64_t index, int thread);

#endif
