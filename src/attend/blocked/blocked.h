/* SPDX-License-Identifier: MIT
 *
 * blocked.h - attention in float64 by blocks of queries and keys: dot products of f64 problems, and kernels of the
 * distance of any type, which leave nothing else to be fast with.
 *
 *     S[queries,keys] = scale * score         by the product of src/gemm, or by distances with keys in the lanes
 *     P = exp(S - running maximum)            (or S itself, where weights are not exponentials)
 *     O[queries,values] += P V
 *
 * A thread gathers the keys and values of a batch index into rows of double once for all of its blocks of queries;
 * this absorbs strides and types. */
#ifndef ATTN_ATTEND_BLOCKED_H
#define ATTN_ATTEND_BLOCKED_H

#include "attend/canonical/solver.h"
#include "kernels/rows_f64/rows_f64.h"

enum { ATTN__BLOCKED_QUERIES = 192, ATTN__BLOCKED_KEYS = 256 }; /* at most */

/* A thread's memory, offsets in doubles; k and v are stored twice, since a product wants its right side by rows. */
typedef struct attn__blocked_places {
    int64_t k, k_t, v, v_t;             /* [keys,channels] and transposed, [keys,values] and transposed */
    int64_t q, o, dout, s, dp, dq;      /* of a block of queries */
    int64_t dk, dv;                     /* sums over all queries */
    int64_t max, sum, from, to;         /* one for each query of a block */
    int64_t slope;                      /* backward: as s, of the softcap */
    int64_t bias_at, dbias_at, mask_at; /* offsets of the tile's keys, ... */
    int64_t drop_at;                    /* ... and their columns of dropout */
    int64_t gathered;                   /* forward: whose keys k and v are, and whether they are finite */
    int64_t offsets;                    /* room for the largest group */
    int64_t product;                    /* src/gemm's workspace */
    int64_t all;
} attn__blocked_places;

typedef struct attn__blocked_plan {
    const attn__rows_f64_kernel *kernel;
    int64_t ld;      /* keys, rounded up: between the rows of k_t and v_t */
    int64_t queries; /* of a block; blocks are even */
    attn__blocked_places at;
} attn__blocked_plan;

/* One thread at work on one batch index. */
typedef struct attn__blocked {
    const attn__canonical *canonical;
    const attn__blocked_plan *plan;
    const attn_arrays *arrays;
    double *memory;
    int64_t batch; /* whose keys are gathered; -1: none */
    bool careful;  /* something is not finite: products skip masked pairs one by one */
} attn__blocked;

/* A block of queries against a block of keys. */
typedef struct attn__blocked_tile {
    int64_t query, queries, key, keys;
} attn__blocked_tile;

static inline double *attn__blocked_at(const attn__blocked *b, int64_t place)
{
    return b->memory + place;
}

void attn__blocked_keys(attn__blocked *b, int64_t batch);
/* The queries of a block, their range of keys, and with `backward` what belongs to them. */
void attn__blocked_queries(attn__blocked *b, const attn__blocked_tile *t, bool backward);
/* Whether some query of the block sees some key of it. */
bool attn__blocked_meets(const attn__blocked *b, const attn__blocked_tile *t);
/* What the next two, and the gradient of the bias, read along the keys of a tile. */
void attn__blocked_find_pairs(attn__blocked *b, const attn__blocked_tile *t);
/* Row i of S: capped, with its bias, -inf where it is masked. */
void attn__blocked_adjust(attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s);
/* Row i of weights, or of their gradients: 0 what dropout drops, the rest scaled. */
void attn__blocked_drop(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *x);

/* S of the tile, -inf (of kernels that are no softmax: 0) where a query does not see a key. */
void attn__blocked_scores(attn__blocked *b, const attn__blocked_tile *t);

/* c[i,j] (+)= sum over l of a[i,l] b[l,j]; a is transposed in memory if `transposed`. */
typedef struct attn__blocked_product {
    const double *a, *b;
    double *c;
    int64_t lda, ldb, ldc, m, n, k;
    bool transposed, add;
} attn__blocked_product;
/* `t`: of the tile's pairs, which a has; NULL: of no pairs. */
void attn__blocked_multiply(attn__blocked *b, const attn__blocked_product *p, const attn__blocked_tile *t);
/* Doubles that the largest product of this size wants. */
int64_t attn__blocked_product_size(const attn__canonical *canonical, int64_t m, int64_t n, int64_t k, bool transposed);

void attn__blocked_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                           void *workspace);
void attn__blocked_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                            void *workspace);

#endif
