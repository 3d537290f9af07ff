/* SPDX-License-Identifier: MIT
 *
 * blocked_tile.h - the tiles of blocked.c. A tile is a block of queries and some of their keys.
 *
 * A thread gathers the keys and values of a batch index into rows of double, once for all blocks of queries. The rows
 * then have no strides and a single type. Adjacent rows of double are read in place.
 *
 * A pair is a query and a key or tap, so a row has as many pairs as keys or taps. A column of S belongs to a row of K.
 * Without windows, the pairs of a row are the columns of the tile.  With windows, the columns are the positions that
 * any query of the block reads, and each row has pairs in some of the columns.
 *
 * A relative table T[rows,channels] also becomes products. X = Q T^T has an entry per distance, and pair j of row i
 * adds X[i, distance(i,j)] to its score.  Backward, the gradients of pairs are summed by distance to G[i, distance],
 * and dQ += G T, dT += G^T Q.  Tables of keys use K instead of Q, and tables of values use the weights.  dT is summed
 * over the tiles of a batch index, and then over batch indices in the sums of gradient_sums.h.
 */
#ifndef ATTN_ATTEND_BLOCKED_TILE_H
#define ATTN_ATTEND_BLOCKED_TILE_H

#include "attend/block/dropout.h"
#include "attend/block/finite.h"
#include "attend/block/gradient_sums.h"
#include "attend/block/items.h"
#include "attend/block/largest.h"
#include "attend/block/rows.h"
#include "attend/block/scores.h"
#include "attend/block/softmax_f64.h"
#include "attend/block/table.h"
#include "attend/block/tile.h"
#include "attend/block/window_base.h"
#include "attend/scores/score.h"
#include "base/integers.h"
#include "gemm/gemm.h"
#include "gemm/kernel.h"
#include "kernels/rows_f64/rows_f64.h"

#include <math.h>
#include <string.h>

enum {
    BLOCKED_QUERIES = 192,
    BLOCKED_KEYS = 256
};                           /* maximum of queries and keys of a tile; with windows, a tile has all taps */
enum { BLOCKED_ROWS = 256 }; /* granularity of the table rows of a tile, a multiple of ATTN__GEMM_K */

/* S or dP of a tile. With windows, `pairs` has one row of pairs. */
typedef struct blocked_scores {
    double *rows, *pairs;
} blocked_scores;

typedef struct blocked_memory {
    double *k, *k_t, *v, *v_t; /* rows of k and v for all positions, [positions,channels], and their transposes */
    double *block_k, *block_k_t, *block_v, *block_v_t; /* with windows: rows of k and v for the columns of a block */
    double *block_dk, *block_dv;                       /* with windows: gradients of block_k and block_v */
    double *q, *o, *dout, *dq;                         /* rows of a block of queries */
    blocked_scores s, dp;
    double *dk, *dv;             /* dk and dv, summed over all queries */
    double *max, *sum, *count;   /* [queries]: running maximum, sum of weights, number of attended keys */
    uint8_t *fades;              /* [queries]: 1 if mask_fill has the weight 0, although not in each tile */
    attn__largest *largest;      /* with top_k: the largest scores of each query of the block */
    char *ranked;                /* memory of the candidates in `largest` */
    double *slope;               /* [pairs]: derivative of the softcap for the current row */
    uint8_t *seen;               /* ATTN__VISIBLE_... kind of each pair of a row */
    int64_t *position;           /* [key axes,pairs]: position of each pair's key */
    int64_t *column;             /* with windows: the column of each pair */
    int64_t *position_of;        /* with windows: position of each column; -1: outside of the axis */
    int64_t *bias_at, *dbias_at; /* offsets of the tile's pairs in the bias and in its gradient */
    uint32_t *drop_at;           /* dropout column number of each pair */
    double *w, *dw;              /* vectors w and w2 of the batch index; their gradients in a tile */
    double *dk_t, *scratch;      /* transpose of dk, and one row, for scores that are no products */
    double *m, *dm;              /* [channels,values]: K^T V and its gradient, if blocked_is_linear */
    double *tanh;                /* tanh of one pair, or [queries,columns,channels] if the plan keeps tanh */
    int64_t *offsets;            /* offsets of rows, for the largest group */
    double *product;             /* workspace of src/engine/gemm */
    double *finite;              /* copy of a product's right operand with 0 for infinity and NaN */
    /* Memory of each relative table. t: its rows, [rows,channels]. t_t: t transposed, and scaled if the table adds to
     * scores. dt: gradient of t. x: product of queries or columns with the table, [queries or columns,distances].
     * Weights and gradients are summed by distance in x, or in g for tables of keys. */
    struct {
        double *t, *t_t, *dt, *x, *g;
    } table[ATTN_MAX_RELATIVE];
} blocked_memory;

/* Sizes of a relative table. */
typedef struct blocked_table {
    int64_t begin, rows; /* table rows that any pair may read; `begin` is a multiple of BLOCKED_ROWS */
    int64_t most;        /* largest number of rows that the pairs of a tile read */
    int64_t ld;          /* row stride of x and g */
    int64_t ld_t;        /* row stride of t_t */
} blocked_table;

typedef struct blocked_plan {
    const attn__rows_f64_kernel *kernel;
    attn__group positions; /* the KEY group, with positions in place of taps */
    int64_t queries;       /* largest number of queries of a block */
    int64_t segment;       /* result of blocked_segment for the longest sequences */
    int64_t pairs;         /* largest number of pairs of a row in a tile */
    int64_t columns;       /* largest number of columns of a tile; with windows it is constant */
    int64_t ld;            /* row stride of k_t and v_t, or of block_k_t and block_v_t */
    int64_t ld_s;          /* row stride of s and dp */
    bool keeps_tanh;       /* tanh values are kept for the gradients */
    bool linear;           /* result of blocked_is_linear */
    attn__tile_plan tiles;
    int64_t product_size; /* doubles of the workspace of src/engine/gemm */
    size_t bytes;         /* bytes of the memory of a thread */
    blocked_table table[ATTN_MAX_RELATIVE];
} blocked_plan;

/* The columns along a key axis. Column c is position start + c * step. Adjacent taps are `spread` columns apart. */
typedef struct blocked_axis {
    int64_t start, step, spread, columns;
} blocked_axis;

/* The state of one thread for one batch index. */
typedef struct blocked {
    const attn__canonical *canonical;
    const blocked_plan *plan;
    const attn__execution *arrays;
    blocked_memory at;
    attn__sequence one;         /* problem and arrays of a packed sequence */
    int64_t batch;              /* the batch index whose keys are gathered, or -1 */
    const double *k, *v;        /* rows of k and v for all positions */
    const double *q, *o, *dout; /* rows of the block's queries; forward, o is in `at` instead */
    attn__visible_rows rows;    /* limits of the block's queries */
    attn__visible_keys keys;    /* limits of the tile's keys */
    attn__visible_span reach;
    unsigned hides;     /* result of attn__visible_of for the tile */
    bool has_nonfinite; /* whether k, v, q, dout, w or a table has NaN or infinity */
    bool ranks;         /* this pass over the tiles only finds the largest scores (top_k) */
    blocked_axis axis[ATTN_MAX_DIMS];
    struct {
        int64_t first, n; /* the tile's pairs read n table rows from row begin + first on */
    } span[ATTN_MAX_RELATIVE];
    attn__sums *sums; /* gradient sums of the slot; backward only */
} blocked;

/* A block of queries and a range of its pairs. */
typedef struct blocked_tile {
    int64_t query, queries, pair, pairs;
    int64_t columns;
    const double *k, *k_t, *v, *v_t; /* rows of the tile's columns */
    double *dk, *dv;
} blocked_tile;

static inline double *blocked_row(const blocked *b, const blocked_scores *of, int64_t i)
{
    return of->rows + i * b->plan->ld_s;
}

/* Returns the number of queries of a segment. A block of queries never crosses the end of a segment.  In the backward
 * pass, and with windows or tables, a segment is the last QUERY axis, so that blocks and the order of sums do not
 * depend on the lengths of outer axes.  Otherwise one segment has all queries. */
static inline int64_t blocked_segment(const attn__canonical *canonical)
{
    const attn__group *query = &canonical->query;
    bool along_last = canonical->backward || canonical->problem.nwindows || canonical->problem.nrelatives;
    return along_last ? query->axis[query->n - 1].dim.n : query->size;
}

/* Computes c[i,j] = sum over l < k of a[i,l] * b[l,j], for i < m and j < n. If c.add is set, computes c[i,j] += sum. */
typedef struct blocked_product {
    struct {
        int64_t m, n, k;
    } size;
    struct {
        const double *x;
        int64_t ld;
        bool transposed;
    } a, b;
    struct {
        double *x;
        int64_t ld;
        bool add;
    } c;
} blocked_product;

static int64_t blocked_offset(const blocked *b, size_t stride, int64_t query)
{
    return attn__offsets_one(&b->canonical->batch, stride, b->batch) +
           attn__offsets_one(&b->canonical->query, stride, query);
}

/* -------------------------------------------------------------------------------------------------- products */

_Static_assert(BLOCKED_ROWS % ATTN__GEMM_K == 0, "the rows of a table that a tile reads begin at a K block");

static void blocked_multiply(blocked *b, const blocked_product *p)
{
    attn__gemm_plan plan;
    attn__gemm_problem problem = {.dtype = ATTN_F64,
                                  .m = p->size.m,
                                  .n = p->size.n,
                                  .k = p->size.k,
                                  .a = attn__matrix_rows(p->a.x, p->a.ld, !p->a.transposed),
                                  .b = attn__matrix_rows(p->b.x, p->b.ld, p->b.transposed),
                                  .c = p->c.x,
                                  .ldc = p->c.ld,
                                  .add = p->c.add};
    attn__gemm_plan_make(&plan, &problem, b->canonical->isa, 1);
    attn__gemm_run(&plan, b->at.product);
}

/* Multiplies weights or their gradients (a) by rows (b), where b may have NaN and infinity.  Such a number does not
 * count where its weight is a mark (-0), because 0 * NaN is NaN. The product therefore reads a copy of b with zeros,
 * and the terms of NaN and infinity are added one by one.  Finite results keep their bits. */
static void blocked_multiply_masked(blocked *b, const blocked_product *p)
{
    blocked_product finite = *p;
    double *clean = b->at.finite;
    int64_t n = p->size.n;
    if (!b->has_nonfinite) {
        blocked_multiply(b, p);
        return;
    }
    for (int64_t l = 0; l < p->size.k; l++)
        for (int64_t j = 0; j < n; j++) {
            double x = p->b.x[l * p->b.ld + j];
            clean[l * n + j] = isfinite(x) ? x : 0;
        }
    finite.b.x = clean;
    finite.b.ld = n;
    blocked_multiply(b, &finite);
    for (int64_t l = 0; l < p->size.k; l++)
        for (int64_t j = 0; j < n; j++) {
            double x = p->b.x[l * p->b.ld + j];
            for (int64_t i = 0; i < p->size.m && !isfinite(x); i++) {
                double weight = p->a.x[p->a.transposed ? l * p->a.ld + i : i * p->a.ld + l];
                p->c.x[i * p->c.ld + j] += attn__is_mark_f64(weight) ? 0 : weight * x;
            }
        }
}

/* --------------------------------------------------------------------------- weights that are the scores themselves */

/* Reports whether O is computed as Q (K^T V) * scale / N without scores, because that is less work. N is the number of
 * keys or 1. The weights must be the scores divided by N, and no key may be masked. */
static bool blocked_is_linear(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    bool hides = canonical->has_mask || canonical->has_lens || canonical->has_blocks || p->nbands || p->nwindows;
    bool changes = canonical->has_bias || canonical->has_dropout || p->nrelatives || p->softcap != 0;
    double queries = (double)canonical->query.size, keys = (double)canonical->key.size;
    double contract = (double)canonical->contract.size, values = (double)canonical->value.size;
    bool plain = p->normalization == ATTN_NORMALIZATION_MEAN || p->normalization == ATTN_NORMALIZATION_NONE;
    return p->score == ATTN_SCORE_DOT && plain && !hides && !changes && !attn__is_packed(canonical) &&
           (queries + keys) * contract * values < queries * keys * (contract + values);
}

static double linear_divisor(const blocked *b)
{
    return b->canonical->problem.normalization == ATTN_NORMALIZATION_MEAN ? (double)b->canonical->key.size : 1;
}

/* Computes m = A^T B for n rows of A [n,channels] and B [n,values]. If `add` is set, adds it to m. */
static void sum_products(blocked *b, const double *a, const double *rows, int64_t n, bool add, double *m)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    blocked_multiply(
        b, &(blocked_product){{channels, values, n}, {a, channels, true}, {rows, values, false}, {m, values, add}});
}

/* Computes to = A m for A [n,channels]. If `transposed` is set, computes to = A m^T for A [n,values]. */
static void multiply_by_m(blocked *b, const double *a, const double *m, bool transposed, int64_t n, double *to)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    int64_t from_width = transposed ? values : channels, to_width = transposed ? channels : values;
    blocked_multiply(
        b, &(blocked_product){
               {n, to_width, from_width}, {a, from_width, false}, {m, values, transposed}, {to, to_width, false}});
}

/* Computes M = scale * K^T V of the batch index whose keys are gathered. */
static void blocked_linear_keys(blocked *b)
{
    double *m = b->at.m;
    sum_products(b, b->k, b->v, b->canonical->key.size, false, m);
    b->plan->kernel->scale(m, b->canonical->contract.size * b->canonical->value.size, b->canonical->problem.scale);
}

/* Computes Q M for a block of queries. Sets the divisor of each row to the number of keys. */
static void blocked_linear_queries(blocked *b, const blocked_tile *t)
{
    multiply_by_m(b, b->q, b->at.m, false, t->queries, b->at.o);
    for (int64_t i = 0; i < t->queries; i++)
        b->at.count[i] = (double)b->canonical->key.size;
}

/* Computes dQ of a block of queries and adds Q^T dO to dM. dK and dV are computed from dM later. */
static void blocked_linear_query_gradients(blocked *b, const blocked_tile *t)
{
    double *dq = b->at.dq;
    multiply_by_m(b, b->dout, b->at.m, true, t->queries, dq);
    b->plan->kernel->scale(dq, t->queries * b->canonical->contract.size, 1 / linear_divisor(b));
    sum_products(b, b->q, b->dout, t->queries, true, b->at.dm);
}

static void blocked_linear_key_gradients(blocked *b)
{
    int64_t keys = b->canonical->key.size;
    double *dm = b->at.dm;
    b->plan->kernel->scale(dm, b->canonical->contract.size * b->canonical->value.size,
                           b->canonical->problem.scale / linear_divisor(b));
    multiply_by_m(b, b->v, dm, true, keys, b->at.dk);
    multiply_by_m(b, b->k, dm, false, keys, b->at.dv);
}

/* ---------------------------------------------------------------------------------------------- gathering */

/* Transposes n rows and multiplies them by `factor`. `ld` is the row stride of `to`. */
static void transpose(const double *rows, int64_t n, int64_t channels, double factor, double *to, int64_t ld)
{
    enum { ROWS = 8 }; /* rows per step, which fill a cache line of the result */
    for (int64_t first = 0; first < n; first += ROWS)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = first; i < n && i < first + ROWS; i++)
                to[c * ld + i] = factor * rows[i * channels + c];
}

/* Returns rows [first, first + n) of an operand. Adjacent rows are read in place, others are copied to `to`. */
static const double *gather(blocked *b, attn__operand op, const attn__group *group, int64_t first, int64_t n,
                            double *to)
{
    attn_dtype dtype = b->canonical->problem.dtype;
    const attn__group *channels = attn__channels_of(b->canonical, op);
    const void *array = attn__operand_array(b->arrays, op);
    size_t stride = attn__stride_of(op);
    int64_t *at = b->at.offsets;
    int64_t base = attn__offsets_one(&b->canonical->batch, stride, b->batch);
    const double *data = to;
    if (dtype == ATTN_F64 && attn__offsets_adjacent(channels, stride) &&
        attn__offsets_even(group, stride, channels->size)) {
        data = (const double *)array + base + first * channels->size;
    } else {
        attn__offsets_from(group, stride, base, first, n, at);
        for (int64_t i = 0; i < n; i++)
            attn__gather(channels, op, dtype, array, at[i], to + i * channels->size);
    }
    b->has_nonfinite |= op != ATTN__OP_O && !b->plan->kernel->finite(data, n * channels->size);
    return data;
}

/* Returns the offset of table row `begin` for the current batch index. */
static int64_t blocked_table_at(const blocked *b, int table)
{
    return attn__offsets_one(&b->canonical->batch, attn__table_stride(table), b->batch) +
           b->plan->table[table].begin * b->canonical->problem.relatives[table].row_stride;
}

/* Gathers the rows of the i-th table for the batch index, and transposes them. */
static void gather_table(blocked *b, int i)
{
    const attn__canonical *canonical = b->canonical;
    const attn_relative *r = &canonical->problem.relatives[i];
    const blocked_table *table = &b->plan->table[i];
    int64_t channels = attn__table_channels(canonical, i)->size, at = blocked_table_at(b, i);
    double factor = r->kind == ATTN_RELATIVE_VALUE ? 1 : canonical->problem.scale, *rows = b->at.table[i].t;
    for (int64_t d = 0; d < table->rows; d++, at += r->row_stride)
        attn__table_gather(canonical, i, b->arrays->at.table[i], at, rows + d * channels);
    transpose(rows, table->rows, channels, factor, b->at.table[i].t_t, table->ld_t);
    b->has_nonfinite |= !b->plan->kernel->finite(rows, table->rows * channels);
}

static void gather_vectors(blocked *b)
{
    const attn__group *contract = &b->canonical->contract;
    attn_dtype dtype = attn__operand_dtype(&b->canonical->problem, ATTN__OP_W);
    const void *const vectors[] = {b->arrays->at.w, b->arrays->at.w2};
    int n = attn__score_of(&b->canonical->problem)->vectors;
    for (int i = 0; i < n && i < 2; i++) {
        double *to = b->at.w + i * contract->size;
        attn__gather(contract, ATTN__OP_W, dtype, vectors[i], blocked_offset(b, ATTN__STRIDE(dim.w), 0), to);
        b->has_nonfinite |= !b->plan->kernel->finite(to, contract->size);
    }
}

/* Transposes n rows of k, unless scores are additive. Dot products include the scale. Backward, also transposes v. */
static void blocked_transpose(const blocked *b, const double *k, double *k_t, const double *v, double *v_t, int64_t n)
{
    const attn__canonical *canonical = b->canonical;
    if (b->plan->linear)
        return;
    if (canonical->problem.score != ATTN_SCORE_ADDITIVE)
        transpose(k, n, canonical->contract.size,
                  canonical->problem.score == ATTN_SCORE_DOT ? canonical->problem.scale : 1, k_t, b->plan->ld);
    if (canonical->backward)
        transpose(v, n, canonical->value.size, 1, v_t, b->plan->ld);
}

static void blocked_gather_batch(blocked *b, int64_t batch)
{
    const attn__canonical *canonical = b->canonical;
    const attn__group *group = canonical->problem.nwindows ? &b->plan->positions : &canonical->key;
    b->batch = batch;
    b->has_nonfinite = false;
    b->k = gather(b, ATTN__OP_K, group, 0, group->size, b->at.k);
    b->v = gather(b, ATTN__OP_V, group, 0, group->size, b->at.v);
    if (!canonical->problem.nwindows) /* with windows, find_columns transposes rows for each block */
        blocked_transpose(b, b->k, b->at.k_t, b->v, b->at.v_t, group->size);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        gather_table(b, i);
    gather_vectors(b);
    if (b->plan->linear)
        blocked_linear_keys(b);
}

static void blocked_gather_queries(blocked *b, const blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__group *group = &canonical->query;
    b->q = gather(b, ATTN__OP_Q, group, t->query, t->queries, b->at.q);
    if (!canonical->backward)
        return;
    b->o = gather(b, ATTN__OP_O, group, t->query, t->queries, b->at.o);
    b->dout = gather(b, ATTN__OP_DOUT, group, t->query, t->queries, b->at.dout);
}

/* ------------------------------------------------------------------------------------------ of a block */

static int64_t base_of(const blocked *b, const attn_window *w, int64_t query)
{
    const attn__canonical *canonical = b->canonical;
    return attn__window_base(w, canonical->key.axis[w->key_dim].dim.n,
                             attn__offsets_index(&canonical->query, w->query_dim, query));
}

/* Finds the columns along a key axis, which are all positions that the block's queries read. If all windows are at the
 * same position, the columns are the taps. */
static blocked_axis axis_of(const blocked *b, const blocked_tile *t, int axis)
{
    const attn_window *w = attn__window_of(&b->canonical->problem, axis);
    int64_t taps = b->canonical->key.axis[axis].dim.n, least = INT64_MAX, most = INT64_MIN;
    if (!w)
        return (blocked_axis){.start = 0, .step = 1, .spread = 1, .columns = taps};
    for (int64_t i = 0; i < t->queries; i++) {
        int64_t base = base_of(b, w, t->query + i);
        least = attn__min(least, base);
        most = attn__max(most, base);
    }
    if (least == most)
        return (blocked_axis){.start = least, .step = w->dilation, .spread = 1, .columns = taps};
    return (blocked_axis){
        .start = least, .step = 1, .spread = w->dilation, .columns = most - least + (taps - 1) * w->dilation + 1};
}

/* Returns the index of a column in the plan's `positions`, or -1 if the column is outside of an axis. */
static int64_t position_of_column(const blocked *b, int64_t column)
{
    const attn__group *positions = &b->plan->positions;
    int64_t position = 0, stride = 1;
    for (int a = positions->n - 1; a >= 0; a--) {
        const blocked_axis *axis = &b->axis[a];
        int64_t at = axis->start + column % axis->columns * axis->step;
        if (at < 0 || at >= positions->axis[a].dim.n)
            return -1;
        position += at * stride;
        stride *= positions->axis[a].dim.n;
        column /= axis->columns;
    }
    return column == 0 ? position : -1; /* -1 for unused columns, because all blocks have the same number of columns */
}

/* Copies the rows of k or v for the block's columns. Columns outside of an axis get zeros. */
static const double *gather_columns(const blocked *b, const blocked_tile *t, const double *from, double *to,
                                    int64_t channels)
{
    const int64_t *position = b->at.position_of;
    for (int64_t c = 0; c < t->columns; c++) {
        double *near = to + c * channels;
        if (position[c] < 0)
            memset(near, 0, (size_t)channels * sizeof *near);
        else
            memcpy(near, from + position[c] * channels, (size_t)channels * sizeof *near);
    }
    return to;
}

static void find_columns(blocked *b, blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    int64_t *position = b->at.position_of;
    for (int a = 0; a < canonical->key.n; a++)
        b->axis[a] = axis_of(b, t, a);
    t->columns = b->plan->columns;
    for (int64_t c = 0; c < t->columns; c++)
        position[c] = position_of_column(b, c);
    t->k = gather_columns(b, t, b->k, b->at.block_k, canonical->contract.size);
    t->v = gather_columns(b, t, b->v, b->at.block_v, canonical->value.size);
    blocked_transpose(b, t->k, b->at.block_k_t, t->v, b->at.block_v_t, t->columns);
    t->k_t = b->at.block_k_t;
    t->v_t = b->at.block_v_t;
    t->dk = b->at.block_dk;
    t->dv = b->at.block_dv;
}

/* Starts the block of queries at t->query: finds the limits of its keys and, with windows, gathers its columns. */
static void blocked_start_block(blocked *b, blocked_tile *t)
{
    attn__visible_rows_start(&b->rows, b->canonical, b->arrays, b->batch, t->query, t->queries, 1);
    b->reach = attn__visible_span_of(&b->rows, 0, t->queries);
    if (b->canonical->problem.nwindows) {
        find_columns(b, t);
        return;
    }
    for (int a = 0; a < b->canonical->key.n; a++)
        b->axis[a] = (blocked_axis){.start = 0, .step = 1, .spread = 1};
}

/* ------------------------------------------------------------------------------------------- of a tile */

/* Finds the position along each key axis and the column of each pair, for a query whose windows begin at `start`. */
static void find_positions(const blocked *b, const blocked_tile *t)
{
    const attn__group *key = &b->canonical->key;
    int64_t *position = b->at.position, *column = b->at.column, tap[ATTN_MAX_DIMS];
    bool windows = b->canonical->problem.nwindows;
    for (int64_t j = 0; j < t->pairs; j++) {
        int64_t at = 0;
        attn__split(key, t->pair + j, tap);
        for (int a = 0; a < key->n; a++) {
            const blocked_axis *axis = &b->axis[a];
            position[a * b->plan->pairs + j] = axis->start + tap[a] * axis->spread * axis->step;
            at = at * axis->columns + tap[a] * axis->spread;
        }
        if (windows)
            column[j] = at;
    }
}

static void find_offsets(const blocked *b, const blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const struct {
        bool used;
        size_t stride;
        int64_t *at;
    } parts[] = {{canonical->has_bias, ATTN__STRIDE(dim.bias), b->at.bias_at},
                 {canonical->problem.flags & ATTN_WANT_DBIAS, ATTN__STRIDE(dim.dbias), b->at.dbias_at}};
    for (int i = 0; i < 2; i++)
        if (parts[i].used)
            attn__offsets_fill(&canonical->key, parts[i].stride, t->pair, t->pairs, parts[i].at);
    if (canonical->has_dropout)
        attn__dropout_columns(canonical, t->pair, t->pairs, b->at.drop_at);
}

/* Starts the tile whose pairs begin at t->pair. Returns false if all of its pairs are masked and have no score. */
static bool blocked_start_tile(blocked *b, blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    int64_t channels = canonical->contract.size, values = canonical->value.size;
    t->pairs = attn__min(canonical->key.size - t->pair, b->plan->pairs);
    if (canonical->problem.nwindows == 0) {
        t->columns = t->pairs;
        t->k = b->k + t->pair * channels;
        t->k_t = b->at.k_t + t->pair;
        t->v = b->v + t->pair * values;
        t->v_t = b->at.v_t + t->pair;
        t->dk = b->at.dk + t->pair * channels;
        t->dv = b->at.dv + t->pair * values;
    }
    if (canonical->problem.nwindows || canonical->problem.nrelatives)
        find_positions(b, t);
    find_offsets(b, t);
    attn__visible_keys_start(&b->keys, canonical, t->pair, t->pairs);
    attn__visible_tile tile = {&b->rows, 0, t->queries, &b->keys, 0, t->pairs};
    b->hides = attn__visible_of(&tile, &b->reach);
    return b->hides != ATTN__VISIBLE_NONE;
}

/* ------------------------------------------------------------------------------------------ of a query */

/* Returns the distance along a key axis from `start` to the window of query i. Without a window it is 0. */
static int64_t moved(const blocked *b, const blocked_tile *t, int64_t i, int axis)
{
    const attn_window *w = attn__window_of(&b->canonical->problem, axis);
    return w ? base_of(b, w, t->query + i) - b->axis[axis].start : 0;
}

/* Returns a shift: pair j of row i is in column[j] + shift. Without windows, `column` is NULL and pair j is in column
 * j. */
static int64_t blocked_column_shift(const blocked *b, const blocked_tile *t, int64_t i, const int64_t **column)
{
    const attn__canonical *canonical = b->canonical;
    int64_t at = 0;
    *column = canonical->problem.nwindows ? b->at.column : NULL;
    for (int a = 0; *column && a < canonical->key.n; a++) {
        const blocked_axis *axis = &b->axis[a];
        at = at * axis->columns + moved(b, t, i, a);
    }
    return at;
}

static bool has_whole_rows(const blocked *b)
{
    return b->canonical->key.size <= b->plan->pairs;
}

static bool is_sigmoid(const blocked *b)
{
    return b->canonical->problem.normalization == ATTN_NORMALIZATION_SIGMOID;
}

/* Reports whether rows need the kind of each pair, and not only the range of visible pairs. */
static bool counts(const blocked *b)
{
    const attn_problem *p = &b->canonical->problem;
    return p->normalization != ATTN_NORMALIZATION_SOFTMAX || p->mask_fill != 0 || p->top_k != 0;
}

/* Returns the ATTN__VISIBLE_... kinds of query i's pairs in the tile. If only the pairs in [from, to) are visible,
 * returns NULL. */
static const uint8_t *blocked_kinds(const blocked *b, const blocked_tile *t, int64_t i, int64_t *from, int64_t *to)
{
    uint8_t *kinds = b->at.seen;
    bool ranges = b->hides == ATTN__VISIBLE_ALL || (b->hides == ATTN__VISIBLE_LIMITS && b->plan->tiles.visible.ranges);
    *from = 0;
    *to = t->pairs;
    if (!ranges || counts(b)) {
        attn__visible_kinds(&(attn__visible_tile){&b->rows, i, 1, &b->keys, 0, t->pairs}, kinds);
        return kinds;
    }
    if (b->hides == ATTN__VISIBLE_LIMITS) {
        *from = attn__clamp(b->rows.begin[i] - t->pair, 0, t->pairs);
        *to = attn__clamp(b->rows.end[i] - t->pair, *from, t->pairs);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------- columns and pairs */

/* Copies the columns of row i of s or dp to a row of pairs. blocked_scatter_pairs copies back. */
static double *blocked_gather_pairs(const blocked *b, const blocked_tile *t, const blocked_scores *of, int64_t i)
{
    const int64_t *column;
    double *row = blocked_row(b, of, i);
    int64_t first = blocked_column_shift(b, t, i, &column);
    if (!column)
        return row;
    for (int64_t j = 0; j < t->pairs; j++)
        of->pairs[j] = row[first + column[j]];
    return of->pairs;
}

/* Starts sums of weights or of their gradients. A sum of marks only is a mark. */
static void fill_marks(double *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        x[j] = -0.0;
}

static void blocked_scatter_pairs(const blocked *b, const blocked_tile *t, const blocked_scores *of, int64_t i)
{
    const int64_t *column;
    double *row = blocked_row(b, of, i);
    int64_t first = blocked_column_shift(b, t, i, &column);
    if (!column)
        return;
    fill_marks(row, t->columns);
    for (int64_t j = 0; j < t->pairs; j++)
        row[first + column[j]] = of->pairs[j];
}

/* ----------------------------------------------------------------------------------------------------------- tables */

static bool is_of(const blocked *b, int i, attn_relative_kind kind)
{
    return b->canonical->problem.relatives[i].kind == kind;
}

/* Returns a shift: pair j of query i reads table row position[j] + shift. Rows count from the table's `begin`. */
static int64_t row_shift(const blocked *b, const blocked_tile *t, int64_t i, int table)
{
    const attn_relative *r = &b->canonical->problem.relatives[table];
    const attn_window *w = attn__window_of(&b->canonical->problem, r->key_dim);
    int64_t index = attn__offsets_index(&b->canonical->query, r->query_dim, t->query + i);
    return moved(b, t, i, r->key_dim) - index * (w ? w->step : 1) + r->offset - b->plan->table[table].begin;
}

static const int64_t *positions_of(const blocked *b, int table)
{
    return b->at.position + b->canonical->problem.relatives[table].key_dim * b->plan->pairs;
}

/* Finds a range of table rows that contains the rows that the tile's pairs read.  The range begins at a multiple of
 * BLOCKED_ROWS, so that sums over rows have the same order in every tile. */
static void find_span(blocked *b, const blocked_tile *t, int table)
{
    const int64_t *position = positions_of(b, table);
    int64_t rows = b->plan->table[table].rows, least = INT64_MAX, nearest = INT64_MAX;
    for (int64_t j = 0; j < t->pairs; j++)
        nearest = attn__min(nearest, position[j]);
    for (int64_t i = 0; i < t->queries; i++)
        least = attn__min(least, row_shift(b, t, i, table));
    int64_t first = attn__min(attn__max(nearest + least, 0), rows - 1) / BLOCKED_ROWS * BLOCKED_ROWS;
    b->span[table].first = first;
    b->span[table].n = attn__min(rows - first, b->plan->table[table].most);
}

/* Returns the rows by which the table is multiplied: keys, queries, or dout (backward only). */
static const double *rows_of(const blocked *b, const blocked_tile *t, int table, int64_t *n)
{
    *n = is_of(b, table, ATTN_RELATIVE_KEY) ? t->columns : t->queries;
    return is_of(b, table, ATTN_RELATIVE_KEY) ? t->k : is_of(b, table, ATTN_RELATIVE_QUERY) ? b->q : b->dout;
}

/* Multiplies tables by queries and keys, and in the backward pass also by dout. */
static void blocked_multiply_tables(blocked *b, const blocked_tile *t)
{
    for (int i = 0; i < b->canonical->problem.nrelatives; i++) {
        const blocked_table *table = &b->plan->table[i];
        int64_t rows, channels = attn__table_channels(b->canonical, i)->size;
        const double *a = rows_of(b, t, i, &rows);
        find_span(b, t, i);
        if (is_of(b, i, ATTN_RELATIVE_VALUE) && !b->canonical->backward)
            continue;
        blocked_multiply(b, &(blocked_product){{rows, b->span[i].n, channels},
                                               {a, channels, false},
                                               {b->at.table[i].t_t + b->span[i].first, table->ld_t, false},
                                               {b->at.table[i].x, table->ld, false}});
        if (b->canonical->backward && is_of(b, i, ATTN_RELATIVE_KEY))
            fill_marks(b->at.table[i].g, rows * table->ld);
    }
}

/* An iterator over the pairs of a row. It finds each pair's entry in x or g. */
typedef struct walk {
    const int64_t *position, *column; /* column of pair j; NULL: column j */
    int64_t row, n, first_column;
    bool by_key;
} walk;

static walk walk_of(const blocked *b, const blocked_tile *t, int64_t i, int table)
{
    walk w = {.position = positions_of(b, table),
              .row = row_shift(b, t, i, table) - b->span[table].first,
              .n = b->span[table].n,
              .by_key = is_of(b, table, ATTN_RELATIVE_KEY)};
    w.first_column = blocked_column_shift(b, t, i, &w.column);
    return w;
}

static int64_t entry_of(const walk *w, int64_t i, int64_t j, int64_t ld)
{
    int64_t at = attn__min(attn__max(w->position[j] + w->row, 0), w->n - 1); /* a masked pair may be out of the table */
    return (w->by_key ? w->first_column + (w->column ? w->column[j] : j) : i) * ld + at;
}

/* Adds table terms to row i of scores, or if `values` is set, terms of value tables to gradients of weights. */
static void blocked_add_tables(const blocked *b, const blocked_tile *t, int64_t i, bool values, double *x)
{
    for (int n = 0; n < b->canonical->problem.nrelatives; n++) {
        const blocked_table *table = &b->plan->table[n];
        if (is_of(b, n, ATTN_RELATIVE_VALUE) != values)
            continue;
        walk w = walk_of(b, t, i, n);
        const double *from = b->at.table[n].x;
        for (int64_t j = 0; j < t->pairs; j++)
            x[j] += from[entry_of(&w, i, j, table->ld)];
    }
}

/* Sums row i of pairs by distance: weights if `values` is set (for tables of values), otherwise gradients of scores. */
static void blocked_sum_tables(const blocked *b, const blocked_tile *t, int64_t i, bool values, const double *x)
{
    for (int n = 0; n < b->canonical->problem.nrelatives; n++) {
        const blocked_table *table = &b->plan->table[n];
        bool by_key = is_of(b, n, ATTN_RELATIVE_KEY);
        if (is_of(b, n, ATTN_RELATIVE_VALUE) != values)
            continue;
        walk w = walk_of(b, t, i, n);
        double *to = by_key ? b->at.table[n].g : b->at.table[n].x;
        if (!by_key)
            fill_marks(to + i * table->ld, b->span[n].n);
        for (int64_t j = 0; j < t->pairs; j++)
            to[entry_of(&w, i, j, table->ld)] += x[j];
    }
}

/* Multiplies the sums by distance by the table and adds the products to `rows`. */
static void apply_table(blocked *b, int table, double *rows, int64_t n)
{
    const blocked_table *of = &b->plan->table[table];
    int64_t channels = attn__table_channels(b->canonical, table)->size;
    bool by_key = is_of(b, table, ATTN_RELATIVE_KEY);
    blocked_multiply_masked(
        b, &(blocked_product){{n, channels, b->span[table].n},
                              {by_key ? b->at.table[table].g : b->at.table[table].x, of->ld, false},
                              {b->at.table[table].t + b->span[table].first * channels, channels, false},
                              {rows, channels, true}});
}

/* Adds the products of sums by distance and tables: forward to o, backward to the gradients of q and k. */
static void blocked_apply_tables(blocked *b, const blocked_tile *t)
{
    for (int i = 0; i < b->canonical->problem.nrelatives; i++) {
        bool value = is_of(b, i, ATTN_RELATIVE_VALUE), key = is_of(b, i, ATTN_RELATIVE_KEY);
        if (value != b->canonical->backward)
            apply_table(b, i, value ? b->at.o : key ? t->dk : b->at.dq, key ? t->columns : t->queries);
    }
}

static void blocked_sum_table_gradients(blocked *b, const blocked_tile *t)
{
    for (int i = 0; i < b->canonical->problem.nrelatives; i++) {
        const blocked_table *table = &b->plan->table[i];
        int64_t rows, channels = attn__table_channels(b->canonical, i)->size;
        const double *with = rows_of(b, t, i, &rows);
        bool by_key = is_of(b, i, ATTN_RELATIVE_KEY);
        if (!b->sums->at[ATTN__SUM_TABLE + i])
            continue;
        blocked_multiply_masked(b,
                                &(blocked_product){{b->span[i].n, channels, rows},
                                                   {by_key ? b->at.table[i].g : b->at.table[i].x, table->ld, true},
                                                   {with, channels, false},
                                                   {b->at.table[i].dt + b->span[i].first * channels, channels, true}});
    }
}

/* ---------------------------------------------------------------------------------------------------- rows of pairs */

/* Adds the scores of row i to the search for the row's largest scores, or masks keys that are not among the largest.
 * Does both if a tile has whole rows. */
static void rank(const blocked *b, const blocked_tile *t, int64_t i, const double *s)
{
    bool alone = has_whole_rows(b);
    int step = (b->canonical->problem.mask_fill != 0 ? ATTN__VISIBLE_FILL : ATTN__VISIBLE_OUT) - ATTN__VISIBLE_KEY;
    uint8_t *seen = b->at.seen;
    attn__largest of = alone ? attn__largest_start(b->at.ranked, b->canonical->problem.top_k) : b->at.largest[i];
    for (int64_t j = 0; j < t->pairs && (alone || b->ranks); j++)
        attn__largest_add(&of, seen[j] == ATTN__VISIBLE_KEY ? s[j] : -(double)INFINITY, t->pair + j);
    if (alone)
        attn__largest_end(&of);
    for (int64_t j = 0; j < t->pairs && !b->ranks; j++) {
        bool out = !attn__largest_takes(&of, s[j], t->pair + j) & (s[j] != -(double)INFINITY);
        seen[j] = (uint8_t)(seen[j] + step * (out & (seen[j] == ATTN__VISIBLE_KEY)));
    }
    b->at.largest[i] = of;
}

static void hide(const blocked *b, const blocked_tile *t, int64_t i, double *s)
{
    int64_t from, to;
    const uint8_t *seen = blocked_kinds(b, t, i, &from, &to);
    if (b->canonical->extras & ATTN__TOP_K)
        rank(b, t, i, s);
    if (counts(b)) {
        bool exponential = attn__is_softmax(b->canonical) || is_sigmoid(b);
        b->at.count[i] += attn__f64_hide(exponential ? -(double)INFINITY : 0, b->canonical->problem.mask_fill,
                                         b->at.seen, s, t->pairs);
    } else if (seen) {
        b->plan->kernel->hide(s, seen, t->pairs);
    } else {
        attn__f64_limit(from, to, s, t->pairs);
    }
}

/* Reports whether weights and their gradients have marks (-0) where a pair has no term, because NaN or infinity there
 * must not count. */
static bool blocked_marks(const blocked *b)
{
    return b->has_nonfinite;
}

/* Adds tables, softcap, bias and masks to row i of scores. A masked key gets -infinity, or 0 if there is no softmax. If
 * there are marks, b->at.seen gets the kind of each pair, where a score of -infinity is OUT. */
static double *blocked_finish_scores(blocked *b, const blocked_tile *t, int64_t i)
{
    const attn__canonical *canonical = b->canonical;
    double *s = blocked_gather_pairs(b, t, &b->at.s, i);
    blocked_add_tables(b, t, i, false, s);
    if (canonical->problem.softcap != 0)
        attn__f64_cap(canonical->problem.softcap, s, b->at.slope, t->pairs);
    if (canonical->has_bias) {
        attn_dtype dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_BIAS);
        const int64_t *key = b->at.bias_at;
        int64_t row = blocked_offset(b, ATTN__STRIDE(dim.bias), t->query + i);
        for (int64_t j = 0; j < t->pairs; j++)
            s[j] += attn__load(dtype, b->arrays->at.bias, row + key[j]);
    }
    hide(b, t, i, s);
    for (int64_t j = 0; j < t->pairs && blocked_marks(b) && !counts(b); j++)
        b->at.seen[j] = s[j] == -(double)INFINITY ? ATTN__VISIBLE_OUT : ATTN__VISIBLE_KEY;
    return s;
}

/* A sink is a key of value 0 that comes before all others. */
static void blocked_reset_softmax(const blocked *b, const blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    attn_dtype dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_SINKS);
    for (int64_t i = 0; i < t->queries; i++) {
        double sink = -(double)INFINITY;
        if (canonical->extras & ATTN__SINKS)
            sink = attn__load(dtype, b->arrays->at.sinks, blocked_offset(b, ATTN__STRIDE(dim.sinks), t->query + i));
        b->at.max[i] = attn__is_softmax(b->canonical) ? sink : 0;
        b->at.sum[i] = sink > -(double)INFINITY || sink != sink;
        b->at.count[i] = 0;
        b->at.fades[i] = 0;
    }
}

/* Finds the rows in which mask_fill has the weight 0, from the final maxima. Reports whether there are any. */
static bool blocked_fades(const blocked *b, const blocked_tile *t)
{
    bool any = false;
    for (int64_t i = 0; i < t->queries; i++) {
        b->at.fades[i] = exp(b->canonical->problem.mask_fill - b->at.max[i]) == 0;
        any = any || b->at.fades[i];
    }
    return any;
}

/* Converts scores to the weights of a sigmoid. */
static void squash(const blocked *b, const blocked_tile *t, double *s)
{
    double bias = attn__sigmoid_bias(&b->canonical->problem, b->canonical->key.size);
    for (int64_t j = 0; j < t->pairs; j++)
        s[j] = attn__sigmoid(s[j] + bias);
}

/* Updates the running maximum and sum, and converts scores to weights.  Returns the factor for earlier sums. */
static double blocked_softmax_step(const blocked *b, const blocked_tile *t, int64_t i, double *s)
{
    const attn__rows_f64_kernel *kernel = b->plan->kernel;
    double *max = b->at.max + i, *sum = b->at.sum + i;
    if (is_sigmoid(b))
        squash(b, t, s);
    for (int64_t j = 0; j < t->pairs && !attn__is_softmax(b->canonical); j++)
        *sum += s[j];
    if (!attn__is_softmax(b->canonical))
        return 1;
    if (b->canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX)
        return attn__f64_softmax(kernel, s, t->pairs, max, sum);
    double factor;
    bool any = attn__f64_raise(kernel, s, t->pairs, max, sum, &factor);
    for (int64_t j = 0; j < t->pairs; j++) {
        s[j] = !any || s[j] == -(double)INFINITY ? 0 : *max != *max ? *max : 1;
        *sum += any ? s[j] : 0;
    }
    return factor;
}

/* Applies dropout to x, which is row i of the weights or of their gradients. */
static void blocked_drop(const blocked *b, const blocked_tile *t, int64_t i, double *x)
{
    const attn__canonical *canonical = b->canonical;
    if (!canonical->has_dropout)
        return;
    const uint32_t *column = b->at.drop_at;
    uint64_t row = (uint64_t)blocked_offset(b, ATTN__STRIDE(drop), t->query + i);
    attn__f64_drop(canonical, b->arrays, row, column, x, t->pairs);
}

/* Marks pairs without a term in the sums of values: pairs without a score, and masked keys whose mask_fill has the
 * weight 0. Other zeros become +0. Then applies dropout, which also marks. */
static void blocked_finish_weights(const blocked *b, const blocked_tile *t, int64_t i, double *p)
{
    if (blocked_marks(b))
        attn__f64_mark_weights(b->at.seen, b->at.fades[i], p, t->pairs);
    blocked_drop(b, t, i, p);
}

/* Marks pairs whose score has no gradient. Other zeros become +0. */
static void blocked_mark_gradients(const blocked *b, const blocked_tile *t, double *ds)
{
    if (blocked_marks(b))
        attn__f64_mark_gradients(b->at.seen, ds, t->pairs);
}

/* ------------------------------------------------------------------------------------------------ forward */

/* Computes scores that are kernels of the distance d. `s` has d^2 and receives the scores. */
static void from_squares(const blocked *b, double *s, int64_t n)
{
    const attn_problem *p = &b->canonical->problem;
    if (p->score == ATTN_SCORE_GAUSSIAN)
        b->plan->kernel->scale(s, n, -1 / (2 * p->width * p->width));
    for (int64_t j = 0; j < n && p->score != ATTN_SCORE_GAUSSIAN; j++) {
        double d = sqrt(s[j]);
        if (p->score == ATTN_SCORE_BOXCAR)
            s[j] = d < p->width ? 1 : d >= p->width ? 0 : d;
        else
            s[j] = 1 - d / p->width <= 0 ? 0 : 1 - d / p->width;
    }
}

/* Computes w2.k of each column, a part of the concatenation score relu(w.q + w2.k). */
static const double *score_keys(blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    double *scratch = b->at.scratch;
    blocked_multiply(b, &(blocked_product){{1, t->columns, channels},
                                           {b->at.w + channels, channels, false},
                                           {t->k_t, b->plan->ld, false},
                                           {scratch, t->columns, false}});
    return scratch;
}

static void score_concatenations(blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    const double *scratch = score_keys(b, t), *q = b->q;
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = blocked_row(b, &b->at.s, i);
        double of_query = attn__dot_channels(b->at.w, q + i * channels, channels);
        for (int64_t j = 0; j < t->columns; j++)
            s[j] = of_query + scratch[j] <= 0 ? 0 : of_query + scratch[j]; /* NaN stays NaN */
    }
}

/* Returns the memory for tanh(q + k) of a pair. If the plan keeps tanh, the gradients read it again. */
static double *tanh_of(const blocked *b, int64_t i, int64_t j)
{
    int64_t pair = b->plan->keeps_tanh ? i * b->plan->columns + j : 0;
    return b->at.tanh + pair * b->canonical->contract.size;
}

static double score_pair(const blocked *b, const blocked_tile *t, int64_t i, int64_t j)
{
    int64_t channels = b->canonical->contract.size;
    return b->plan->kernel->additive(b->q + i * channels, t->k + j * channels, b->at.w, channels, tanh_of(b, i, j));
}

static void score_additive(blocked *b, const blocked_tile *t)
{
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = blocked_row(b, &b->at.s, i);
        for (int64_t j = 0; j < t->columns; j++)
            s[j] = score_pair(b, t, i, j);
    }
}

/* Returns arguments for the squared distances of the tile's queries and columns. The results are written to `y`. */
static attn__rows_f64_distances distances_of(const blocked *b, const blocked_tile *t, double *y)
{
    int64_t channels = b->canonical->contract.size;
    return (attn__rows_f64_distances){.queries = t->queries,
                                      .channels = channels,
                                      .n = t->columns,
                                      .q = b->q,
                                      .ldq = channels,
                                      .k = t->k_t,
                                      .ld = b->plan->ld,
                                      .y = y,
                                      .ldy = b->plan->ld_s};
}

static void score_distances(blocked *b, const blocked_tile *t)
{
    attn__rows_f64_distances distances = distances_of(b, t, b->at.s.rows);
    b->plan->kernel->distances(&distances);
    for (int64_t i = 0; i < t->queries; i++)
        from_squares(b, blocked_row(b, &b->at.s, i), t->columns);
}

/* Computes the scaled scores of the tile's columns, without tables, bias and masks. */
static void blocked_score(blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    attn_score score = b->canonical->problem.score;
    if (score == ATTN_SCORE_DOT) {
        blocked_multiply(b, &(blocked_product){{t->queries, t->columns, channels},
                                               {b->q, channels, false},
                                               {t->k_t, b->plan->ld, false},
                                               {b->at.s.rows, b->plan->ld_s, false}});
        return;
    }
    (score == ATTN_SCORE_CONCAT     ? score_concatenations
     : score == ATTN_SCORE_ADDITIVE ? score_additive
                                    : score_distances)(b, t);
    for (int64_t i = 0; i < t->queries; i++)
        b->plan->kernel->scale(blocked_row(b, &b->at.s, i), t->columns, b->canonical->problem.scale);
}

/* ----------------------------------------------------------------------------------------------- backward */

static void multiply_gradients(blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    const double *ds = b->at.dp.rows;
    int64_t ld = b->plan->ld_s;
    blocked_multiply_masked(b, &(blocked_product){{t->queries, channels, t->columns},
                                                  {ds, ld, false},
                                                  {t->k, channels, false},
                                                  {b->at.dq, channels, true}});
    blocked_multiply_masked(
        b, &(blocked_product){
               {t->columns, channels, t->queries}, {ds, ld, true}, {b->q, channels, false}, {t->dk, channels, true}});
}

/* Reports whether a pair adds nothing to the gradients, from the gradient of its score. Without marks each 0 adds
 * nothing, because the numbers that it multiplies are finite. */
static bool has_no_term(const blocked *b, double gradient)
{
    return gradient == 0 && (!blocked_marks(b) || signbit(gradient));
}

/* Converts gradients `g` of scores to factors f, if scores depend on the distance. The gradient of q is then f * (q -
 * k). If f is -0, the pair adds nothing. */
static void slope_of_distances(const blocked *b, const blocked_tile *t, int64_t i, double *g)
{
    const attn_problem *p = &b->canonical->problem;
    double *distance = b->at.scratch, width = p->width;
    if (p->score == ATTN_SCORE_GAUSSIAN) {
        b->plan->kernel->scale(g, t->columns, -1 / (width * width));
        for (int64_t j = 0; j < t->columns; j++) /* the negative factor changes the signs of zeros */
            g[j] = g[j] != 0 ? g[j] : blocked_marks(b) ? -g[j] : -0.0;
        return;
    }
    attn__rows_f64_distances one = distances_of(b, t, b->at.scratch);
    one.q += i * one.ldq;
    one.queries = 1;
    b->plan->kernel->distances(&one);
    for (int64_t j = 0; j < t->columns; j++) {
        double d = sqrt(distance[j]);
        bool slopes = p->score == ATTN_SCORE_TRIANGULAR && d > 0 && d < width;
        bool none = has_no_term(b, g[j]) || p->score != ATTN_SCORE_TRIANGULAR;
        g[j] = none ? -0.0 : slopes ? -g[j] / (d * width) : d * 0;
    }
}

static void add_times(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t c = 0; c < n && !attn__is_mark_f64(factor); c++)
        to[c] += factor * x[c];
}

/* Adds the gradients of q, k, w and w2 for concatenation scores. Only pairs with positive scores have gradients. dq is
 * w times the sum over keys, and dk is w2 times the sum over queries. */
static void concatenation_gradients(blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    const double *w = b->at.w, *w2 = w + channels, *scratch = score_keys(b, t);
    double *dw = b->at.dw, *dw2 = dw + channels, *by_key = b->at.dk_t;
    fill_marks(by_key, t->columns);
    for (int64_t i = 0; i < t->queries; i++) {
        const double *g = blocked_row(b, &b->at.dp, i), *q = b->q + i * channels;
        double of_query = attn__dot_channels(w, q, channels), sum = -0.0;
        for (int64_t j = 0; j < t->columns; j++) {
            double open = of_query + scratch[j] <= 0 ? -0.0 : g[j];
            sum += open;
            by_key[j] += open;
        }
        add_times(b->at.dq + i * channels, sum, w, channels);
        add_times(dw, sum, q, channels);
    }
    for (int64_t j = 0; j < t->columns; j++) {
        add_times(t->dk + j * channels, by_key[j], w2, channels);
        add_times(dw2, by_key[j], t->k + j * channels, channels);
    }
}

static void additive_gradients(blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    for (int64_t i = 0; i < t->queries; i++) {
        const double *g = blocked_row(b, &b->at.dp, i);
        for (int64_t j = 0; j < t->columns; j++) {
            if (has_no_term(b, g[j])) /* tanh of a masked pair may be NaN */
                continue;
            if (!b->plan->keeps_tanh)
                (void)score_pair(b, t, i, j);
            b->plan->kernel->additive_gradient(g[j], b->at.w, tanh_of(b, i, j), channels, b->at.dq + i * channels,
                                               t->dk + j * channels, b->at.dw);
        }
    }
}

/* Adds the gradients of q and k for kernels of the distance, with keys in the lanes. */
static void distance_gradients(blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size, ld_s = b->plan->ld_s;
    double *dk = b->at.dk_t;
    memset(dk, 0, (size_t)(channels * ld_s) * sizeof *dk);
    for (int64_t i = 0; i < t->queries; i++)
        slope_of_distances(b, t, i, blocked_row(b, &b->at.dp, i));
    attn__rows_f64_distances gradients = distances_of(b, t, b->at.dp.rows);
    gradients.dq = b->at.dq;
    gradients.lddq = channels;
    gradients.dk = dk;
    gradients.lddk = ld_s;
    b->plan->kernel->distance_gradient(&gradients);
    for (int64_t j = 0; j < t->columns; j++)
        for (int64_t c = 0; c < channels; c++)
            t->dk[j * channels + c] += dk[c * ld_s + j];
}

static void add_vector_gradients(blocked *b)
{
    const attn__group *contract = &b->canonical->contract;
    for (int n = 0; n < 2; n++)
        if (b->sums->at[ATTN__SUM_W + n])
            attn__scatter(contract, ATTN__OP_W, ATTN_F64, b->sums->at[ATTN__SUM_W + n],
                          blocked_offset(b, ATTN__STRIDE(dim.w), 0), b->at.dw + n * contract->size, true);
}

/* Adds the gradients of q, k and the learned vectors. dp holds scale * dS. */
static void blocked_score_gradients(blocked *b, const blocked_tile *t)
{
    attn_score score = b->canonical->problem.score;
    if (score == ATTN_SCORE_DOT) {
        multiply_gradients(b, t);
        return;
    }
    memset(b->at.dw, 0, (size_t)(2 * b->canonical->contract.size) * sizeof(double));
    (score == ATTN_SCORE_CONCAT     ? concatenation_gradients
     : score == ATTN_SCORE_ADDITIVE ? additive_gradients
                                    : distance_gradients)(b, t);
    add_vector_gradients(b);
}

#endif
