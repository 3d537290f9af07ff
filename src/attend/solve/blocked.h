/* SPDX-License-Identifier: MIT
 *
 * blocked.h - attention in float64 by blocks of queries and keys, for problems of all types: the only fast solver of f64
 * problems, of kernels of the distance, and of windows, tables and other scores in batch-invariant contexts.
 *
 *     S[queries,keys] = scale * score         by the product of src/gemm, or with keys in the lanes
 *     P = exp(S - running maximum)            (or S itself, where weights are not exponentials)
 *     O[queries,values] += P V
 *
 * A thread gathers the keys and values of a batch index into rows of double once for all of its blocks of queries;
 * this absorbs strides and types.  Rows of double that lie one after another are read where they are.
 *
 * A row has pairs, one for each key or tap, and S has columns, one for each row of K.  Without windows a tile's pairs
 * are its columns.  With windows the columns are the positions that any query of the block touches, and a row's pairs
 * are some of them.
 *
 * A relative table T[rows,channels] enters by products too: X = Q T^T has an entry for each distance, and pair j of
 * row i adds X[i, distance(i,j)].  Backward the gradients of the pairs are summed by distance, G[i, distance], and
 * dQ += G T, dT += G^T Q.  Tables of keys do the same with K, those of values with the weights.  dT is summed over the
 * tiles of a batch index, then over batch indices in slots.h's sums. */
#ifndef ATTN_ATTEND_BLOCKED_H
#define ATTN_ATTEND_BLOCKED_H

#include "attend/block/gradient_sums.h"
#include "attend/plan/solver.h"
#include "kernels/rows_f64/rows_f64.h"

enum { ATTN__BLOCKED_QUERIES = 192, ATTN__BLOCKED_KEYS = 256 }; /* at most; all taps of a window are one tile */
enum { ATTN__BLOCKED_ROWS = 256 };                              /* of tables: a multiple of src/gemm's K block */

/* A thread's memory, offsets in doubles; k and v may be stored twice, since a product wants its right side by rows. */
typedef struct attn__blocked_places {
    int64_t k, k_t, v, v_t;                         /* of all positions, [positions,channels] and transposed */
    int64_t block_k, block_k_t, block_v, block_v_t; /* with windows: of a block's columns */
    int64_t block_dk, block_dv;                     /* ... and their gradients */
    int64_t q, o, dout, s, dp, dq;                  /* of a block of queries */
    int64_t dk, dv;                                 /* sums over all queries */
    int64_t max, sum, count, from, to;              /* one for each query of a block */
    int64_t pairs, dpairs;                          /* with windows: a row of S and of dP, pair by pair */
    int64_t slope, seen;                            /* of a row: the softcap's derivative; two bytes for each pair */
    int64_t position;                               /* [key axes,pairs]: where a pair's key stands */
    int64_t column;                                 /* with windows: of a pair, ... */
    int64_t position_of;                            /* ... and a column's position, -1 outside */
    int64_t bias_at, dbias_at, mask_at, block_at;   /* offsets of the tile's pairs, ... */
    int64_t drop_at;                                /* ... and their numbers in dropout's rows */
    int64_t w, dw;                                  /* learned vectors, w then w2: of the batch index; of a tile */
    int64_t dk_t, scratch;                          /* of a tile's columns, where the score is not a product */
    int64_t m, dm;                                  /* [channels,values]: as blocked_linear.c has them */
    int64_t tanh;                                   /* [channels], or [queries,columns,channels] if it is kept */
    int64_t state;                                  /* forward: an attn__blocked, kept from item to item */
    int64_t offsets;               /* of the rows of the largest group; also a row of a table's channels */
    int64_t product, product_size; /* src/gemm's workspace */
    int64_t finite;                /* a factor of a product without infinity and NaN */
    int64_t all;
} attn__blocked_places;

/* A relative table. */
typedef struct attn__blocked_table {
    int64_t begin, rows; /* those that pairs may read; `begin` is a multiple of ATTN__BLOCKED_ROWS */
    int64_t most;        /* so many rows hold all that a tile's pairs read */
    int64_t ld;          /* between the rows of x and g */
    int64_t ld_t;        /* between those of t_t */
    int64_t t, t_t;      /* [rows,channels]; transposed, scaled if it adds to scores */
    /* [queries or columns, distances]: the product, then, of tables of queries and values, a row's sums by distance once
     * that row was read.  Several queries read a row of a table of keys: its sums are in g. */
    int64_t x, g;
    int64_t dt; /* backward: [rows,channels] */
} attn__blocked_table;

typedef struct attn__blocked_plan {
    const attn__rows_f64_kernel *kernel;
    attn__group positions; /* the KEY group with positions in place of taps */
    int64_t queries;       /* of a block, at most */
    int64_t segment;       /* attn__blocked_segment of the longest sequences */
    int64_t pairs;         /* of a row of a tile, at most */
    int64_t columns;       /* of a tile, at most; with windows of every tile */
    int64_t ld;            /* between the rows of k_t and v_t, or of block_k_t and block_v_t */
    int64_t ld_s;          /* between the rows of s and dp */
    bool keeps_tanh;       /* for the gradients */
    bool linear;           /* blocked_linear.c */
    attn__blocked_places at;
    attn__blocked_table table[ATTN_MAX_RELATIVE];
} attn__blocked_plan;

/* Column c along a key axis stands at position start + c * step; from one tap to the next there are `spread` columns. */
typedef struct attn__blocked_axis {
    int64_t start, step, spread, columns;
} attn__blocked_axis;

/* One thread at work on one batch index. */
typedef struct attn__blocked {
    const attn__canonical *canonical;
    const attn__blocked_plan *plan;
    const attn_arrays *arrays;
    double *memory;
    int64_t batch;              /* whose keys are gathered; -1: none */
    const double *k, *v;        /* of all positions */
    const double *q, *o, *dout; /* of the block; forward o is memory */
    bool has_nonfinite;         /* which must not show where weights are 0 */
    attn__blocked_axis axis[ATTN_MAX_DIMS];
    struct {
        int64_t first, n; /* rows that hold all that the tile's pairs read, counted from the table's `begin` */
    } span[ATTN_MAX_RELATIVE];
    attn__sums *sums; /* backward */
} attn__blocked;

/* A block of queries against some of their pairs. */
typedef struct attn__blocked_tile {
    int64_t query, queries, pair, pairs;
    int64_t columns;
    const double *k, *k_t, *v, *v_t; /* of the columns */
    double *dk, *dv;
} attn__blocked_tile;

static inline double *attn__blocked_at(const attn__blocked *b, int64_t place)
{
    return b->memory + place;
}

static inline int64_t *attn__blocked_integers(const attn__blocked *b, int64_t place)
{
    return (int64_t *)(void *)(b->memory + place);
}

/* Row i of s or dp. */
static inline double *attn__blocked_row(const attn__blocked *b, int64_t place, int64_t i)
{
    return attn__blocked_at(b, place) + i * b->plan->ld_s;
}

/* The number of queries in a segment; no block crosses a segment's end.  Backward, and with windows or tables, a segment is
 * the last QUERY axis: how it is cut into blocks does not depend on the lengths of outer axes, and nor do sums over
 * blocks.  Else all queries are one segment. */
static inline int64_t attn__blocked_segment(const attn__canonical *canonical)
{
    const attn__group *query = &canonical->query;
    bool along_last = canonical->backward || canonical->problem.nwindows || canonical->problem.nrelatives;
    return along_last ? query->axis[query->n - 1].dim.n : query->size;
}

/* The offset of the first row of a table, of `begin`, for the batch index. */
int64_t attn__blocked_table_at(const attn__blocked *b, int table);
/* The offset of a query's row in an operand, by its stride in the BATCH and QUERY groups. */
int64_t attn__blocked_offset(const attn__blocked *b, size_t stride, int64_t query);

/* ------------------------------------------------------------------------------------- gathering, products */

/* The keys, values, tables and learned vectors of a batch index. */
void attn__blocked_gather_batch(attn__blocked *b, int64_t batch);
/* Transposes n rows of k, unless scores are additive; for dot products it also multiplies them by the scale.  Backward it
 * transposes v as well. */
void attn__blocked_transpose(const attn__blocked *b, const double *k, int64_t k_t, const double *v, int64_t v_t,
                             int64_t n);
/* The queries of a block and, backward, what belongs to them. */
void attn__blocked_gather_queries(attn__blocked *b, const attn__blocked_tile *t);

/* c[i,j] (+)= sum over l of a[i,l] b[l,j]; a is transposed in memory if `transposed`, b if `b_transposed`. */
typedef struct attn__blocked_product {
    const double *a, *b;
    double *c;
    int64_t lda, ldb, ldc, m, n, k;
    bool transposed, b_transposed, add;
} attn__blocked_product;
void attn__blocked_multiply(attn__blocked *b, const attn__blocked_product *p);
/* The same for weights a, or their gradients.  A masked pair has weight 0, and 0 * NaN is NaN: so the product runs with
 * zeros for what is not finite in b, and each such number is added where its weight is not 0.  Finite results keep
 * their bits. */
void attn__blocked_multiply_masked(attn__blocked *b, const attn__blocked_product *p);

/* ---------------------------------------------------------------------------------------- what queries see */

/* The block of queries that begins at t->query: its ranges of keys; with windows its columns and their keys and values. */
void attn__blocked_start_block(attn__blocked *b, attn__blocked_tile *t);
/* The tile whose pairs begin at t->pair; false if no query of the block sees any. */
bool attn__blocked_start_tile(attn__blocked *b, attn__blocked_tile *t);
/* What to add to position[key_dim][j] to get the distance from query i to pair j. */
int64_t attn__blocked_distance_shift(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int query_dim,
                                     int key_dim);

enum { ATTN__BLOCKED_OUT, ATTN__BLOCKED_KEY, ATTN__BLOCKED_FILL };
/* What query i sees of each of the tile's pairs.  NULL: it sees those in [from, to). */
const uint8_t *attn__blocked_classify(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int64_t *from,
                                      int64_t *to);

/* A row of the columns of s or dp as a row of pairs, and back. */
double *attn__blocked_gather_pairs(const attn__blocked *b, const attn__blocked_tile *t, int64_t place, int64_t i);
void attn__blocked_scatter_pairs(const attn__blocked *b, const attn__blocked_tile *t, int64_t place, int64_t i);
/* Pair j of row i has column[j] + this.  Without windows `column` is NULL: pair j has column j. */
int64_t attn__blocked_column_shift(const attn__blocked *b, const attn__blocked_tile *t, int64_t i,
                                   const int64_t **column);

/* ------------------------------------------------------------------------------------------------- scores */

/* The scores of the tile's columns, scaled; no table, bias or mask is in them yet. */
void attn__blocked_scores(attn__blocked *b, const attn__blocked_tile *t);
/* dp holds scale * dS.  Adds the gradients of q, k and the learned vectors. */
void attn__blocked_score_gradients(attn__blocked *b, const attn__blocked_tile *t);

/* Row i of scores as pairs, with tables, softcap and bias: -inf where the row does not see the key (without a softmax: 0). */
double *attn__blocked_finish_scores(attn__blocked *b, const attn__blocked_tile *t, int64_t i);
/* Updates the running maximum and sum and turns scores to weights; a row `o` is scaled to a larger maximum. */
void attn__blocked_softmax_step(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s, double *o);
/* The running maxima and sums of rows that have seen no key. */
void attn__blocked_reset_softmax(const attn__blocked *b, const attn__blocked_tile *t);
/* Dropout of row i of weights, or of their gradients. */
void attn__blocked_drop(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *x);

/* ------------------------------------------------------------------------------------------------- tables */

/* The products of tables with queries and keys, and backward with dout. */
void attn__blocked_multiply_tables(attn__blocked *b, const attn__blocked_tile *t);
/* Adds the terms of tables to row i: to its scores or, of tables of values, to the gradients of its weights. */
void attn__blocked_add_tables(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, bool values, double *x);
/* Sums row i of pairs by distance: weights for the tables of values, gradients for those of scores. */
void attn__blocked_sum_tables(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, bool values,
                              const double *x);
/* What these sums give to o, to the gradients of q and k, and to those of the tables. */
void attn__blocked_apply_value_tables(attn__blocked *b, const attn__blocked_tile *t);
void attn__blocked_apply_score_tables(attn__blocked *b, const attn__blocked_tile *t);
void attn__blocked_sum_table_gradients(attn__blocked *b, const attn__blocked_tile *t);

/* ------------------------------------------------------------------------- weights that are the scores themselves */

/* Whether every query sees every key, with its dot product over their number for a weight: O = Q (K^T V) scale / N, which
 * needs no scores, if that is less work. */
bool attn__blocked_is_linear(const attn__canonical *canonical);
/* Of a batch index that was gathered: M = K^T V scale. */
void attn__blocked_linear_keys(attn__blocked *b);
/* Q M of a block of queries, and what to divide it by. */
void attn__blocked_linear_queries(attn__blocked *b, const attn__blocked_tile *t);
/* dQ of a block of queries; adds to dM = Q^T dO.  Then dK and dV. */
void attn__blocked_linear_query_gradients(attn__blocked *b, const attn__blocked_tile *t);
void attn__blocked_linear_key_gradients(attn__blocked *b);

void attn__blocked_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                           void *workspace);
void attn__blocked_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                            void *workspace);
/* The gradients (ATTN_WANT_...) where several batch indices or pairs add to one element. */
unsigned attn__blocked_broadcast(const attn__canonical *canonical);

#endif
