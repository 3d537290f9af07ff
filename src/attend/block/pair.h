/* SPDX-License-Identifier: MIT
 *
 * pair.h - scores of single pairs in float64, with their gradients: what the reference solver and the weights
 * pass compute with.  Rows of channels are gathered into plain arrays of doubles first.
 */
#ifndef ATTN_ATTEND_PAIR_H
#define ATTN_ATTEND_PAIR_H

#include "attend/block/largest.h"
#include "attend/block/rows.h"
#include "attend/block/row.h"
#include "attend/block/table.h"
#include "attend/scores/score.h"

/* Scratch rows of one thread: `contract` doubles in each row of the first group, `value` in each row of the rest. */
typedef struct attn__pair {
    const attn__canonical *canonical;
    const attn_arrays *arrays;
    attn_dtype dtype, keys, side;   /* types of q and o; of k and v; of bias, tables and w */
    double slope;                   /* derivative of the last score by scale * (score + tables); 1 without a softcap */
    double *qs, *ks, *ws, *w2s;     /* [contract] */
    double *dqs, *dks, *dws, *dw2s; /* [contract] gradients */
    double *vs, *sum, *douts;       /* [value] */
    double *table_row[ATTN_MAX_RELATIVE]; /* [contract] or [value]: the last row read; 0 outside [begin, end) */
    attn__score_rows rows;                /* q, k, w and w2 of a pair */
    attn__largest largest;                /* with top_k: the largest scores of the row */
} attn__pair;

/* Bytes of scratch for one thread, SIZE_MAX if too many. */
size_t attn__pair_size(const attn__canonical *canonical);
/* Lays a pair out in `memory`, attn__pair_size() bytes aligned to 8. */
void attn__pair_start(attn__pair *pair, const attn__canonical *canonical, const attn_arrays *arrays, void *memory);

/* The logarithm of a row's normalizer as the unrounded sum of two numbers: subtracting them from a score in turn keeps
 * digits that their rounded sum would lose (a fill of -1e6 in f32).  `max` is -inf if the row has no keys. */
typedef struct attn__normalizer {
    double max, log_sum;
} attn__normalizer;

/* Gathers q, w and w2 of a row, and finds its normalizer unless that is NULL: the log-sum-exp of the array where one
 * number is precise enough, else from the scores again. */
void attn__pair_row(attn__pair *pair, const attn__row *row, attn__normalizer *normalizer);
/* The score of one key of that row: fill, or scale * (score + tables), capped, + bias. Gathers k and the rows of the
 * tables for it. A key that is not among the top_k is masked. */
double attn__pair_score(attn__pair *pair, attn__spot *spot);
/* Gathers the key's value, tables added, into pair->vs. */
void attn__pair_value(attn__pair *pair, const attn__spot *spot);
/* The normalized weight of a key that scores `score`. */
double attn__row_weight(const attn__row *row, const attn__normalizer *normalizer, double score);

#endif
