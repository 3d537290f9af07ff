/* SPDX-License-Identifier: MIT
 *
 * sliced.h - products of f32 by int8 slices (slices.h), with weights that were packed before:
 *
 *     C[m,n] = or += A[m,k] W[n,k]^T
 *
 * Rows of A are quantized to slices, and inputs of an error bound are measured for each row. If the bound is small
 * enough for each K block and panel of W, the row is computed by slices. All other rows are computed by multiply-adds.
 * When W is packed, some panels turn out to need multiply-adds for ordinary rows. The columns of such panels are
 * computed by multiply-adds for all rows.  No element is computed twice, and the bits of an element depend only on its
 * row of A and on W.
 */
#ifndef ATTN_GEMM_SLICED_H
#define ATTN_GEMM_SLICED_H

#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/gemm.h"
#include "gemm/slices.h"

/* W, packed in panels of 16 columns. Each panel consists of K blocks. All K blocks have the same length, except the
 * last one. */
typedef struct attn__sliced_weights {
    int64_t n, k, panels, blocks;
    int64_t panel; /* bytes from one panel to the next */
    int8_t *tiles;
    attn__slices_panel *bounds; /* [K block][panels]: inputs of the error bound of each panel */
    attn__slices_panel *joined; /* [K block]: inputs of the error bound that hold for all panels that slices compute */
    bool *multiply_adds;        /* [panels]: true if multiply-adds compute the panel */
} attn__sliced_weights;

/* Reports whether weights of size n x k should be packed as slices. */
bool attn__sliced_serves(const attn__slices_kernel *kernel, int64_t n, int64_t k);
size_t attn__sliced_bytes(int64_t n, int64_t k);
attn__sliced_weights attn__sliced_weights_in(void *data, int64_t n, int64_t k);
/* Packs rows of W, which are w->outer apart. Returns false if slices would gain nothing, because too many panels need
 * multiply-adds. */
bool attn__sliced_pack(const attn__slices_kernel *kernel, const attn__gemm_operand *w, int64_t n, int64_t k,
                       int threads, void *data);

typedef struct attn__sliced_plan {
    attn__gemm_problem g; /* the problem; its B is W in the original, unpacked form */
    const attn__slices_kernel *kernel;
    attn__sliced_weights w;
    attn__isa isa;
    int threads;
    float limit;
    int64_t rows; /* rows of A that are processed at a time, a multiple of 16 */
    int64_t kept; /* number of groups of panels whose sums are in memory at once */
    bool once;    /* a group's sums are complete before the next group begins, so memory for two groups is enough */
    attn__gemm_plan rest;
    size_t index, a, measures, sums, redone, columns; /* bytes of each part of the workspace */
} attn__sliced_plan;

/* A must have adjacent k and no gather, and C must be f32. */
void attn__sliced_plan_make(attn__sliced_plan *plan, const attn__gemm_problem *problem,
                            const attn__slices_kernel *kernel, const void *weights, attn__isa isa, int threads);
size_t attn__sliced_workspace(const attn__sliced_plan *plan);
void attn__sliced_run(const attn__sliced_plan *plan, void *workspace);

/* ------------------------------------------------------------------------------- shared by sliced_*.c */

enum {
    ATTN__SLICED_GROUP = 8, /* number of panels whose sums are added to C together */
    ATTN__SLICED_WIDTH = ATTN__SLICED_GROUP * ATTN__SLICES_SIDE,
    ATTN__SLICED_STRETCH = 2,      /* K blocks per stretch; A's part of a stretch stays in L2 */
    ATTN__SLICED_BLOCK_ROWS = 256, /* maximum number of rows of an item, which take 0.6 MB */
};

/* Rows of A that are processed together. `order` lists first the rows that slices compute, then all other rows. */
typedef struct attn__sliced_part {
    const attn__sliced_plan *p;
    int64_t first, m, proved; /* rows [first, first + m) of A, of which `proved` rows are computed by slices */
    int32_t *order;
    int8_t *a; /* [K block][tiles of 16 rows]: slices of A */
    attn__slices_rows *measures;
    float *sums;
    int64_t row_blocks, column_parts; /* numbers of parts of rows and of columns; an item is a pair of parts */
    attn__shares shares;
} attn__sliced_part;

/* Returns the first k of K block c. If c is past the last block, returns the total k. */
static inline int64_t attn__sliced_k(const attn__sliced_weights *w, int64_t c)
{
    return attn__min(c * ATTN__SLICES_K_BLOCK, w->k);
}

static inline int64_t attn__sliced_depth(const attn__sliced_weights *w, int64_t c)
{
    return attn__sliced_k(w, c + 1) - attn__sliced_k(w, c);
}

/* Returns the bytes of the tiles that hold the slices of `rows` rows and `depth` numbers along k. */
static inline int64_t attn__sliced_tiles(int64_t rows, int64_t depth)
{
    return attn__ceil_div(rows, ATTN__SLICES_SIDE) * attn__ceil_div(depth, ATTN__SLICES_DEPTH) * ATTN__SLICES_STEP;
}

static inline int8_t *attn__sliced_tiles_of_w(const attn__sliced_weights *w, int64_t panel, int64_t c)
{
    return w->tiles + panel * w->panel + attn__sliced_tiles(ATTN__SLICES_SIDE, attn__sliced_k(w, c));
}

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

/* Divides rows and columns into parts for work items (sliced_sums.c). */
void attn__sliced_divide(const attn__sliced_plan *plan, int64_t rows, int64_t *row_blocks, int64_t *column_parts);
void attn__sliced_multiply(attn__sliced_part *part);
/* Writes a segment of one row to C and runs the epilogue. `place` is the row's index in `order`. Columns that
 * multiply-adds compute for all rows are skipped. */
void attn__sliced_store(const attn__sliced_part *part, const float *x, int64_t place, int64_t column, int64_t width);

#endif
