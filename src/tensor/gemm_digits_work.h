/* SPDX-License-Identifier: MIT
 *
 * gemm_digits_work.h - what the files of gemm_digits.h share: one product, or a group of its columns.
 */
#ifndef ATTN_TENSOR_GEMM_DIGITS_WORK_H
#define ATTN_TENSOR_GEMM_DIGITS_WORK_H

#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/digits/digits.h"
#include "kernels/rows/rows.h"
#include "tensor/gemm.h"
#include "tensor/op.h"

enum {
    SIDE = ATTN__DIGITS_SIDE, /* columns of a panel */
    DEPTH = ATTN__DIGITS_DEPTH,
    GROUP = 8,               /* panels whose sums go to C together */
    WIDTH = GROUP * SIDE,    /* their columns */
    ATTN__DIGITS_LEAST = 64, /* of k: of fewer most of a tile would be zeros */
    STRETCH = 2              /* chunks of k that are packed of A at a time, at most */
};

/* k in chunks of one length, but for the last. */
typedef struct attn__digits_chunks {
    int64_t k, each, count;
} attn__digits_chunks;

/* B's tiles: panels, in each the steps of some chunks; and the units of its columns. */
typedef struct attn__digits_b {
    int8_t *tiles;
    float *units;               /* [chunk][columns] */
    bool *fine;                 /* [chunk][panel], see kernels/digits */
    int64_t panel, columns;     /* bytes from a panel to the next; whole panels */
    float *spread_a, *spread_b; /* [k], see kernels/digits; ... */
    bool spread;                /* ... if they are needed */
} attn__digits_b;

typedef struct attn__digits_product {
    const attn__gemm_args *g; /* of this group of columns */
    const attn__digits_kernel *kernel;
    const attn__rows_table *rows;
    int64_t height, items, panels; /* rows of an item, whole squares, at most; items; panels of columns */
    attn__shares shares;           /* of the items */
    attn__digits_chunks chunks;
    int64_t begin, end; /* the chunks that are packed of B */
    attn__digits_b b;
    float *padded; /* the bias, of whole panels, where there is one */
    int8_t *a;     /* two blocks of each thread, each with its units after the tiles */
    size_t a_step; /* bytes */
    float *copies; /* of each thread, of columns that are cut, where there are any */
    float *sums;   /* [kept][height][WIDTH]: of each thread, or of each item */
    int64_t kept;  /* groups of panels: ... */
    bool once;     /* ... 2, in turns, where the sums of one are complete before the next one */
    bool of_items;
    bool *odd;          /* of each 16 rows' panels: not finite; ... */
    uint16_t *odd_rows; /* ... in which of the rows */
    float *again;       /* [16][AGAIN panels]: what is computed again */
    bool *odd_b;        /* of each piece of B */
} attn__digits_product;

attn__digits_chunks attn__gemm_digits_chunks(int64_t k);
/* Where chunk c begins. */
static inline int64_t attn__gemm_digits_k(const attn__digits_chunks *chunks, int64_t c)
{
    return attn__least(c * chunks->each, chunks->k);
}
static inline int64_t attn__gemm_digits_bytes(int64_t rows, int64_t depth)
{
    return attn__pieces(rows, SIDE) * attn__pieces(depth, DEPTH) * ATTN__DIGITS_STEP;
}

/* The tiles of a panel of B in chunk c. */
static inline int8_t *attn__gemm_digits_tiles_of_b(const attn__digits_product *p, int64_t panel, int64_t c)
{
    return p->b.tiles + panel * p->b.panel + (c - p->begin) * p->chunks.each / DEPTH * ATTN__DIGITS_STEP;
}

/* Where n columns and the first `count` chunks of B are in `data`; returns its size in bytes.  NULL: just that. */
size_t attn__gemm_digits_lay_out_b(attn__digits_product *p, int64_t n, int64_t count, char *data);
/* By what the numbers of each k are spread, from all of B. */
void attn__gemm_digits_spread(int threads, const attn__gemm_args *g, attn__digits_product *p);
/* Chunks [begin, end) of B, in p->b.  False if some number is not finite. */
bool attn__gemm_digits_pack_b(int threads, attn__digits_product *p);
int64_t attn__gemm_digits_pieces_of_b(int64_t n); /* flags that it needs */
/* Rows [at, at + height) of op(A), where that is transposed, along chunk c. */
void attn__gemm_digits_turn_a(const attn__digits_product *p, int64_t at, int64_t height, int64_t c, int thread,
                              int8_t *tiles, float *units, bool *fine);
/* For attn__parallel_items, an item a thread: sums, and, where they are complete, what follows them. */
void attn__gemm_digits_work(void *product, int64_t index, int thread);

#endif
