/* SPDX-License-Identifier: MIT
 *
 * score.h - the kinds of scores.  Each kind has a row in ATTN_SCORES (attn.h) and a file score_NAME.c.  Other files use
 * the attn__score_kind of the problem's score. Only solvers for a single kind of score use the name of a kind.
 * docs/adding-a-score.md explains how to add a kind.
 */
#ifndef ATTN_ATTEND_SCORE_H
#define ATTN_ATTEND_SCORE_H

#include "attn/attn.h"

/* The channels of one query and one key. They are always float64, as in the reference solver. */
typedef struct attn__score_rows {
    int64_t n;            /* number of channels over all CONTRACT dims */
    const double *q, *k;  /* [n] */
    const double *w, *w2; /* [n]; NULL if this kind of score does not learn the vector */
    double width;         /* the problem's width, never 0 */
} attn__score_rows;

/* Arrays of n numbers to which derivatives are added. w and w2 are NULL if the kind does not learn these vectors. */
typedef struct attn__score_slopes {
    double *q, *k, *w, *w2;
} attn__score_slopes;

typedef struct attn__score_kind {
    const char *name; /* name of the kind in the text of problems and plans */
    int vectors;      /* number of learned vectors over the channels; 1: w; 2: w and w2 */
    bool blind;       /* the score reads neither q nor k, so both may be NULL */
    bool by_root;     /* the default scale is 1/sqrt(channels) instead of 1 */
    double (*value)(const attn__score_rows *rows);
    /* Adds g times the derivatives by q, k, w and w2. It is NULL if the derivative is 0 wherever it exists. */
    void (*gradient)(const attn__score_rows *rows, double g, const attn__score_slopes *to);
} attn__score_kind;

/* The kinds of scores, indexed by attn_score. */
extern const attn__score_kind *const attn__score_kinds[ATTN_SCORE_COUNT];

const attn__score_kind *attn__score_of(const attn_problem *problem); /* requires a checked problem */

/* ------------------------------------------------------------------------------ parts that kinds share */

static inline double attn__dot_channels(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

static inline void attn__add_channels(double *to, double g, const double *from, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c] += g * from[c];
}

static inline double attn__distance2(const attn__score_rows *r)
{
    double sum = 0;
    for (int64_t c = 0; c < r->n; c++)
        sum += (r->q[c] - r->k[c]) * (r->q[c] - r->k[c]);
    return sum;
}

static inline void attn__add_difference(const attn__score_rows *r, double slope, const attn__score_slopes *to)
{
    for (int64_t c = 0; c < r->n; c++) {
        double d = slope * (r->q[c] - r->k[c]);
        to->q[c] += d;
        to->k[c] -= d;
    }
}

#endif
