/* SPDX-License-Identifier: MIT
 *
 * sliced.h - products of f32 by int8 slices (slices.h), with weights that were packed before:
 *
 *     C[m,n] (+)= A[m,k] W[n,k]^T
 *
 * Way, for some rows of A at a time: all are quantized and measured; a row whose error is proved for each K block and
 * panel of W is computed by slices, each other one by multiply-adds, in one product of all such rows and columns.
 * Panels that ordinary rows do not pass are found when W is packed: their columns are computed by multiply-adds for all
 * rows.  So nothing is multiplied twice, and the bits of an element depend on its row of A and on W alone. */
#ifndef ATTN_GEMM_SLICED_H
#define ATTN_GEMM_SLICED_H

#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/gemm.h"
#include "gemm/slices.h"

/* W in panels of 16 columns. Each panel consists of K blocks, which all have one length except for the last one. */
typedef struct attn__sliced_weights {
    int64_t n, k, panels, blocks;
    int64_t panel; /* bytes from a panel to the next */
    int8_t *tiles;
    attn__slices_panel *bounds; /* [K block][panels] */
    attn__slices_panel *joined; /* [K block]: of all panels by slices */
    bool *multiply_adds;        /* [panels] */
} attn__sliced_weights;

/* Whether packed weights of this size are to be slices. */
bool attn__sliced_serves(const attn__slices_kernel *kernel, int64_t n, int64_t k);
size_t attn__sliced_bytes(int64_t n, int64_t k);
/* Offsets of all parts in `data`, on whole cache lines. */
attn__sliced_weights attn__sliced_weights_in(void *data, int64_t n, int64_t k);
/* Packs rows of W, w->outer apart. False: slices gain nothing, because too many panels need multiply-adds. */
bool attn__sliced_pack(const attn__slices_kernel *kernel, const attn__gemm_operand *w, int64_t n, int64_t k,
                       int threads, void *data);

typedef struct attn__sliced_plan {
    attn__gemm_problem g; /* B is W as it was */
    const attn__slices_kernel *kernel;
    attn__sliced_weights w;
    attn__isa isa;
    int threads;
    float limit;
    int64_t rows; /* of A at a time, whole tiles */
    int64_t kept; /* groups of panels whose sums are kept: ... */
    bool once;    /* ... 2, in turns, where the sums of one are complete before the next one */
    attn__gemm_plan rest;
    size_t index, a, measures, sums, redone, columns; /* bytes of workspace */
} attn__sliced_plan;

/* Whether the problem has a matrix A in place with adjacent k, and C in f32. */
void attn__sliced_plan_make(attn__sliced_plan *plan, const attn__gemm_problem *problem,
                            const attn__slices_kernel *kernel, const void *weights, attn__isa isa, int threads);
size_t attn__sliced_workspace(const attn__sliced_plan *plan);
void attn__sliced_run(const attn__sliced_plan *plan, void *workspace);

/* ------------------------------------------------------------------------------- shared by sliced_*.c */

enum {
    ATTN__SLICED_GROUP = 8, /* panels whose sums are added to C together */
    ATTN__SLICED_WIDTH = ATTN__SLICED_GROUP * ATTN__SLICES_SIDE,
    ATTN__SLICED_STRETCH = 2,      /* K blocks of A that stay in L2 */
    ATTN__SLICED_BLOCK_ROWS = 256, /* of an item, at most: 0.6 MB */
};

/* Some rows of A: those computed by slices are first in `order`, the others follow. */
typedef struct attn__sliced_part {
    const attn__sliced_plan *p;
    int64_t first, m, proved; /* rows of A; how many are computed by slices */
    int32_t *order;           /* indices from `first` on */
    int8_t *a;                /* [K block][tiles of 16 rows] */
    attn__slices_rows *measures;
    float *sums;
    int64_t row_blocks, column_parts; /* of the items */
    attn__shares shares;
} attn__sliced_part;

/* The first k of K block c. For c after the last block the result is k. */
static inline int64_t attn__sliced_k(const attn__sliced_weights *w, int64_t c)
{
    return attn__min(c * ATTN__SLICES_K_BLOCK, w->k);
}

static inline int64_t attn__sliced_depth(const attn__sliced_weights *w, int64_t c)
{
    return attn__sliced_k(w, c + 1) - attn__sliced_k(w, c);
}

/* Bytes of tiles of so many rows along so much of k. */
static inline int64_t attn__sliced_tiles(int64_t rows, int64_t depth)
{
    return attn__ceil_div(rows, ATTN__SLICES_SIDE) * attn__ceil_div(depth, ATTN__SLICES_DEPTH) * ATTN__SLICES_STEP;
}

static inline int8_t *attn__sliced_tiles_of_w(const attn__sliced_weights *w, int64_t panel, int64_t c)
{
    return w->tiles + panel * w->panel + attn__sliced_tiles(ATTN__SLICES_SIDE, attn__sliced_k(w, c));
}

/* A's tile of 16 rows within K block c, and its measures. */
static inline int8_t *attn__sliced_tiles_of_a(const attn__sliced_part *t, int64_t tile, int64_t c)
{
    const attn__sliced_weights *w = &t->p->w;
    return t->a + attn__sliced_tiles(t->p->rows, attn__sliced_k(w, c)) +
           tile * attn__sliced_tiles(ATTN__SLICES_SIDE, attn__sliced_depth(w, c));
}

static inline attn__slices_rows *attn__sliced_measures(const attn__sliced_part *t, int64_t tile, int64_t c)
{
    return t->measures + c * (t->p->rows / ATTN__SLICES_SIDE) + tile;
}

/* Defined in sliced_sums.c: writes the proved rows to C. */
void attn__sliced_divide(const attn__sliced_plan *plan, int64_t rows, int64_t *row_blocks, int64_t *column_parts);
void attn__sliced_multiply(attn__sliced_part *part);
/* Writes a segment of the row at this place of the order to C, and runs the epilogue. Columns that all rows compute
 * by multiply-adds are skipped. */
void attn__sliced_store(const attn__sliced_part *part, const float *x, int64_t place, int64_t column, int64_t width);

#endif
