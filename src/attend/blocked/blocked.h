/* SPDX-License-Identifier: MIT
 *
 * blocked.h - attention in float64 by blocks of queries and keys: f64 problems, and kernels of the distance of any
 * type, which leave nothing else to be fast with.
 *
 *     S[queries,keys] = scale * score         by the product of src/gemm, or with keys in the lanes
 *     P = exp(S - running maximum)            (or S itself, where weights are not exponentials)
 *     O[queries,values] += P V
 *
 * A thread gathers the keys and values of a batch index into rows of double once for all of its blocks of queries;
 * this absorbs strides and types.
 *
 * A row has pairs, one for each key or tap, and S has columns, one for each row of K.  Without windows a tile's pairs
 * are its columns.  With windows the columns are the positions that any query of the block touches, and a row's pairs
 * are some of them.
 *
 * A relative table T[rows,channels] enters by products too: X = Q T^T has a column for each distance, and pair j of
 * row i adds X[i, distance(i,j)].  Backward the gradients of the pairs are summed by distance, G[i, distance], and
 * dQ += G T, dT += G^T Q.  Tables of keys do the same with K, those of values with the weights. */
#ifndef ATTN_ATTEND_BLOCKED_H
#define ATTN_ATTEND_BLOCKED_H

#include "attend/canonical/gradient_sums.h"
#include "attend/canonical/solver.h"
#include "kernels/rows_f64/rows_f64.h"

enum { ATTN__BLOCKED_QUERIES = 192, ATTN__BLOCKED_KEYS = 256 }; /* at most; all taps of a window are one tile */
enum { ATTN__BLOCKED_ROWS = 256 };                              /* of tables: a multiple of the K block of f64 */

/* A thread's memory, offsets in doubles; k and v are stored twice, since a product wants its right side by rows. */
typedef struct attn__blocked_places {
    int64_t k, k_t, v, v_t;                       /* of all positions, [positions,channels] and transposed */
    int64_t near_k, near_k_t, near_v, near_v_t;   /* with windows: of a block's columns */
    int64_t near_dk, near_dv;                     /* ... and their gradients */
    int64_t q, o, dout, s, dp, dq;                /* of a block of queries */
    int64_t dk, dv;                               /* sums over all queries */
    int64_t max, sum, count, from, to;            /* one for each query of a block */
    int64_t pairs, dpairs;                        /* with windows: a row of S and of dP, pair by pair */
    int64_t slope, seen;                          /* of a row: the softcap's derivative; a byte for each pair */
    int64_t position;                             /* [key axes,pairs]: where a pair's key stands */
    int64_t column, place;                        /* with windows: of a pair; the position of a column, -1 outside */
    int64_t bias_at, dbias_at, mask_at, block_at; /* offsets of the tile's pairs, ... */
    int64_t drop_at;                              /* ... and their columns of dropout */
    int64_t w, dw;                                /* learned vectors, w then w2: of the batch index; of a tile */
    int64_t dk_t, of_keys;                        /* of a tile, where the score is not a product */
    int64_t gathered;                             /* forward: whose keys k and v are, and whether they are finite */
    int64_t offsets;                              /* room for the largest group */
    int64_t product, finite;                      /* src/gemm's workspace; a factor without infinity and NaN */
    int64_t all;
} attn__blocked_places;

/* A relative table. */
typedef struct attn__blocked_table {
    int64_t begin, rows; /* those that pairs may read, from a K block of the products on */
    int64_t most;        /* rows that hold all that a tile's pairs read */
    int64_t ld;          /* between the rows of x and g */
    int64_t ld_t;        /* between those of t_t */
    int64_t t, t_t;      /* [rows,channels]; transposed, scaled if it adds to scores */
    int64_t x;           /* [queries or columns, distances] */
    int64_t g;           /* backward, of a table of keys: as x */
    int64_t dt;          /* backward: [rows,channels] */
} attn__blocked_table;

typedef struct attn__blocked_plan {
    const attn__rows_f64_kernel *kernel;
    attn__group positions; /* the KEY group with positions in place of taps */
    int64_t queries;       /* of a block, at most */
    int64_t run;           /* a block lies inside one run of so many queries */
    int64_t keys, columns; /* of a tile, at most */
    int64_t ld;            /* between the rows of k_t and v_t, or of near_k_t and near_v_t */
    int64_t ld_s;          /* between the rows of s and dp */
    attn__blocked_places at;
    attn__blocked_table table[ATTN_MAX_RELATIVE];
} attn__blocked_plan;

/* Column c along a key axis of a block stands at start + c * step; from one tap to the next there are `spread`
 * columns. */
typedef struct attn__blocked_axis {
    int64_t start, step, spread, columns;
} attn__blocked_axis;

/* One thread at work on one batch index. */
typedef struct attn__blocked {
    const attn__canonical *canonical;
    const attn__blocked_plan *plan;
    const attn_arrays *arrays;
    double *memory;
    int64_t batch; /* whose keys are gathered; -1: none */
    bool careful;  /* something is not finite, and must not show where weights are 0 */
    attn__blocked_axis axis[ATTN_MAX_DIMS];
    struct {
        int64_t first, n; /* rows that hold all that the tile's pairs read, counted from the table's `begin` */
    } span[ATTN_MAX_RELATIVE];
    attn__sums *sums; /* backward */
} attn__blocked;

/* A block of queries against the keys of a tile. */
typedef struct attn__blocked_tile {
    int64_t query, queries, key, keys;
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

/* The queries that follow one another without a block crossing their end.  Blocks count from the start of the last axis
 * where sums depend on them, so that the lengths of outer axes do not show, and where distances or windows do. */
static inline int64_t attn__blocked_run(const attn__canonical *canonical)
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

/* The keys, values and tables of a batch index. */
void attn__blocked_keys(attn__blocked *b, int64_t batch);
/* Of n rows of k and v, which lie at these places: transposed k, scaled if its product is the score, and backward v. */
void attn__blocked_transpose(const attn__blocked *b, int64_t k, int64_t k_t, int64_t v, int64_t v_t, int64_t n);
/* The queries of a block and, backward, what belongs to them. */
void attn__blocked_queries(attn__blocked *b, const attn__blocked_tile *t);

/* c[i,j] (+)= sum over l of a[i,l] b[l,j]; a is transposed in memory if `transposed`. */
typedef struct attn__blocked_product {
    const double *a, *b;
    double *c;
    int64_t lda, ldb, ldc, m, n, k;
    bool transposed, add;
} attn__blocked_product;
void attn__blocked_multiply(attn__blocked *b, const attn__blocked_product *p);
/* The same for weights a, or their gradients: one of 0 takes nothing from b, which may not be finite there. */
void attn__blocked_multiply_weights(attn__blocked *b, const attn__blocked_product *p);

/* ---------------------------------------------------------------------------------------- what queries see */

/* The block of queries that begins at t->query: its ranges of keys and, with windows, its columns. */
void attn__blocked_look(attn__blocked *b, attn__blocked_tile *t);
/* The tile whose pairs begin at t->key; false if no query of the block sees any. */
bool attn__blocked_tile_at(attn__blocked *b, attn__blocked_tile *t);
/* The position of a pair's key along `key_dim`, less that of query i: position[key_dim][j] + this. */
int64_t attn__blocked_distance(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int query_dim,
                               int key_dim);

enum { ATTN__BLOCKED_OUT, ATTN__BLOCKED_KEY, ATTN__BLOCKED_FILL };
/* What query i sees of each of the tile's pairs; NULL: those in [from, to), and scores of -inf say the rest. */
const uint8_t *attn__blocked_see(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int64_t *from,
                                 int64_t *to);

/* A row of the columns of s or dp as a row of pairs, and back. */
double *attn__blocked_take(const attn__blocked *b, const attn__blocked_tile *t, int64_t place, int64_t i);
void attn__blocked_put(const attn__blocked *b, const attn__blocked_tile *t, int64_t place, int64_t i);
/* The column of row i's pair 0 less that pair's `column`; those are NULL where pairs are columns. */
int64_t attn__blocked_columns(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, const int64_t **column);

/* ------------------------------------------------------------------------------------------------- scores */

/* The scores of the tile's columns, scaled; no table, bias or mask is in them yet. */
void attn__blocked_scores(attn__blocked *b, const attn__blocked_tile *t);
/* Adds the gradients by q, k and w, given those of the scaled scores times the scale, in dp. */
void attn__blocked_score_gradients(attn__blocked *b, const attn__blocked_tile *t);

/* Row i of scores as pairs, with everything: -inf where the row does not see the key (other than softmax: 0). */
double *attn__blocked_complete(attn__blocked *b, const attn__blocked_tile *t, int64_t i);
/* Turns it to weights after a new running maximum and sum; the row `o`, if any, is scaled to them. */
void attn__blocked_weigh(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s, double *o);
/* The running maxima and sums of rows that have seen no key. */
void attn__blocked_start(const attn__blocked *b, const attn__blocked_tile *t);
/* Row i of weights, or of their gradients: 0 what dropout drops, the rest scaled. */
void attn__blocked_drop(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *x);

/* ------------------------------------------------------------------------------------------------- tables */

/* The products with queries and keys, and for backward with dout. */
void attn__blocked_tables(attn__blocked *b, const attn__blocked_tile *t);
/* Adds to row i of pairs what its tables of scores say; or, of values, to the gradients of its weights. */
void attn__blocked_add_tables(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, bool values, double *x);
/* Sums row i of pairs by distance: weights for the tables of values, gradients for those of scores. */
void attn__blocked_sum_tables(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, bool values,
                              const double *x);
/* What these sums give to o, to the gradients of q and k, and to those of the tables. */
void attn__blocked_apply_value_tables(attn__blocked *b, const attn__blocked_tile *t);
void attn__blocked_apply_score_tables(attn__blocked *b, const attn__blocked_tile *t);
void attn__blocked_sum_table_gradients(attn__blocked *b, const attn__blocked_tile *t);

void attn__blocked_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                           void *workspace);
void attn__blocked_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                            void *workspace);
/* Gradients (ATTN_WANT_...) of which several batch indices or pairs give to one element. */
unsigned attn__blocked_shared(const attn__canonical *canonical);

#endif
