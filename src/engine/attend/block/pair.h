/* SPDX-License-Identifier: MIT
 *
 * pair.h - computes scores of single pairs and their gradients in float64, for the reference solver and for the
 * attention weights.  Rows of channels are first gathered into arrays of doubles.
 */
#ifndef ATTN_ATTEND_PAIR_H
#define ATTN_ATTEND_PAIR_H

#include "attend/block/largest.h"
#include "attend/block/rows.h"
#include "attend/block/row.h"
#include "attend/block/table.h"
#include "attend/scores/score.h"

/* Scratch rows of one thread. Rows of q, k, w and w2 have `contract` doubles, and rows of v and dout have `value`. */
typedef struct attn__pair {
    const attn__canonical *canonical;
    const attn__execution *arrays;
    attn_dtype dtype, keys, side; /* types of q and o; of k and v; of bias, tables and w */
    double slope; /* d(capped score) / d(scale * (score + tables)) of the last pair; 1 without a softcap */
    double *qs, *ks, *ws, *w2s;           /* [contract] */
    double *dqs, *dks, *dws, *dw2s;       /* [contract]: gradients of qs, ks, ws and w2s */
    double *vs, *sum, *douts;             /* [value] */
    double *table_row[ATTN_MAX_RELATIVE]; /* the last row read of each table; 0 in channels outside of [begin, end) */
    attn__score_rows rows;
    attn__largest largest; /* the largest scores of the row; only with top_k */
} attn__pair;

/* Returns the bytes of scratch memory of one thread, or SIZE_MAX if the size overflows. */
size_t attn__pair_size(const attn__canonical *canonical);
/* Places the arrays of a pair in `memory`: attn__pair_size() bytes, aligned to 8 bytes. */
void attn__pair_start(attn__pair *pair, const attn__canonical *canonical, const attn__execution *arrays, void *memory);

/* The log-sum-exp of a row as two numbers. Their sum is never rounded, because rounding would lose digits of large
 * scores, such as a mask_fill of -1e6 in f32. A score minus log-sum-exp is computed as score - max - log_sum.  `max` is
 * -infinity if the row has no keys. For a sigmoid, both are 0. */
typedef struct attn__normalizer {
    double max, log_sum;
    double sigmoid_bias;
} attn__normalizer;

/* Gathers q, w and w2 of a row. If `normalizer` is not NULL, also sets the row's log-sum-exp. With a mask_fill, the
 * log-sum-exp is computed from the scores. Otherwise, it is read from arrays->at.lse. A sigmoid needs none. */
void attn__pair_row(attn__pair *pair, const attn__row *row, attn__normalizer *normalizer);
/* Computes the score of a key: mask_fill, or the capped scale * (score + tables), plus bias. Gathers k and the rows of
 * the tables.  A key that is not among the top_k is masked. */
double attn__pair_score(attn__pair *pair, attn__spot *spot);
/* Writes the value of the key plus the rows of value tables to pair->vs. */
void attn__pair_value(attn__pair *pair, const attn__spot *spot);
double attn__row_weight(const attn__row *row, const attn__normalizer *normalizer, double score);

#endif
