/* SPDX-License-Identifier: MIT
 *
 * sliced.h - products of f32 by int8 slices (slices.h), with weights that were packed before:
 *
 *     C[m,n] = or += A[m,k] W[n,k]^T
 *
 * Some rows of A are processed at a time. All of them are quantized and measured. A row whose error bound is proved for
 * each K block and panel of W is computed by slices. All other rows are computed by multiply-adds, in one product with
 * all columns.  Panels that fail the test for ordinary rows are found when W is packed, and their columns are computed
 * by multiply-adds for all rows.  Nothing is multiplied twice, and the bits of an element depend only on its row of A
 * and on W.
 */
#ifndef ATTN_GEMM_SLICED_H
#define ATTN_GEMM_SLICED_H

#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/gemm.h"
#include "gemm/slices.h"

/* W in panels of 16 columns. Each panel consists of K blocks of equal length, except for the last one. */
typedef struct attn__sliced_weights {
    int64_t n, k, panels, blocks;
    int64_t panel; /* bytes between panels */
    int8_t *tiles;
    attn__slices_panel *bounds; /* [K block][panels]: bounds of each panel */
    attn__slices_panel *joined; /* [K block]: joined bounds of all panels that slices compute */
    bool *multiply_adds;        /* [panels]: whether multiply-adds compute the panel */
} attn__sliced_weights;

/* Reports whether packed weights of this size should be slices. */
bool attn__sliced_serves(const attn__slices_kernel *kernel, int64_t n, int64_t k);
size_t attn__sliced_bytes(int64_t n, int64_t k);
/* Returns the addresses of all parts in `data`. */
attn__sliced_weights attn__sliced_weights_in(void *data, int64_t n, int64_t k);
/* Packs rows of W, which are w->outer apart. Returns false if slices gain nothing, because too many panels need
 * multiply-adds. */
bool attn__sliced_pack(const attn__slices_kernel *kernel, const attn__gemm_operand *w, int64_t n, int64_t k,
                       int threads, void *data);

typedef struct attn__sliced_plan {
    attn__gemm_problem g; /* the problem, whose B is the unpacked W */
    const attn__slices_kernel *kernel;
    attn__sliced_weights w;
    attn__isa isa;
    int threads;
    float limit;
    int64_t rows; /* rows of A per part, in whole tiles */
    int64_t kept; /* number of groups of panels whose sums are kept */
    bool once;    /* a group's sums are complete before the next group begins, so two groups are kept in turn */
    attn__gemm_plan rest;
    size_t index, a, measures, sums, redone, columns; /* bytes of parts of the workspace */
} attn__sliced_plan;

/* Plans a product. A must be a matrix in place with adjacent k, and C must be f32. */
void attn__sliced_plan_make(attn__sliced_plan *plan, const attn__gemm_problem *problem,
                            const attn__slices_kernel *kernel, const void *weights, attn__isa isa, int threads);
size_t attn__sliced_workspace(const attn__sliced_plan *plan);
void attn__sliced_run(const attn__sliced_plan *plan, void *workspace);

/* ------------------------------------------------------------------------------- shared by sliced_*.c */

enum {
    ATTN__SLICED_GROUP = 8, /* panels whose sums are added to C together */
    ATTN__SLICED_WIDTH = ATTN__SLICED_GROUP * ATTN__SLICES_SIDE,
    ATTN__SLICED_STRETCH = 2,      /* number of K blocks of A that stay in L2 */
    ATTN__SLICED_BLOCK_ROWS = 256, /* largest number of rows of an item, which take 0.6 MB */
};

/* A part of the rows of A. The rows that are computed by slices are first in `order`, and all others follow. */
typedef struct attn__sliced_part {
    const attn__sliced_plan *p;
    int64_t first, m, proved; /* rows [first, first + m) of A; number of rows by slices */
    int32_t *order;           /* indices of rows, relative to `first` */
    int8_t *a;                /* [K block][tiles of 16 rows]: slices of A */
    attn__slices_rows *measures;
    float *sums;
    int64_t row_blocks, column_parts; /* division of the part into items */
    attn__shares shares;
} attn__sliced_part;

/* Returns the first k of K block c, or the weights' k for c after the last block. */
static inline int64_t attn__sliced_k(const attn__sliced_weights *w, int64_t c)
{
    return attn__min(c * ATTN__SLICES_K_BLOCK, w->k);
}

static inline int64_t attn__sliced_depth(const attn__sliced_weights *w, int64_t c)
{
    return attn__sliced_k(w, c + 1) - attn__sliced_k(w, c);
}

/* Returns the bytes of the tiles of `rows` rows along `depth` numbers of k. */
static inline int64_t attn__sliced_tiles(int64_t rows, int64_t depth)
{
    return attn__ceil_div(rows, ATTN__SLICES_SIDE) * attn__ceil_div(depth, ATTN__SLICES_DEPTH) * ATTN__SLICES_STEP;
}

static inline int8_t *attn__sliced_tiles_of_w(const attn__sliced_weights *w, int64_t panel, int64_t c)
{
    return w->tiles + panel * w->panel + attn__sliced_tiles(ATTN__SLICES_SIDE, attn__sliced_k(w, c));
}

/* Returns the tiles of A's 16 rows of tile `tile` in K block c. */
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

/* Divides rows and columns into items (sliced_sums.c). */
void attn__sliced_divide(const attn__sliced_plan *plan, int64_t rows, int64_t *row_blocks, int64_t *column_parts);
void attn__sliced_multiply(attn__sliced_part *part);
/* Writes a segment of the row at `place` in the order to C, and runs the epilogue. Columns that all rows compute by
 * multiply-adds are skipped. */
void attn__sliced_store(const attn__sliced_part *part, const float *x, int64_t place, int64_t column, int64_t width);

#endif
