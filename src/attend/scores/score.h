/* SPDX-License-Identifier: MIT
 *
 * score.h - the kinds of scores.  Each kind has a row in ATTN_SCORES (attn.h) and a file score_NAME.c.  Other files use
 * its attn__score_kind. Only solvers for a single kind use its name.  docs/adding-a-score.md explains how to add a
 * kind.
 */
#ifndef ATTN_ATTEND_SCORE_H
#define ATTN_ATTEND_SCORE_H

#include "attn/attn.h"

/* One query and one key, always in float64 as in the reference solver. */
typedef struct attn__score_rows {
    int64_t n;            /* number of channels over all CONTRACT dims */
    const double *q, *k;  /* [n] */
    const double *w, *w2; /* [n] each; NULL if the kind does not learn the vector */
    double width;         /* the problem's width, never 0 */
} attn__score_rows;

/* The arrays to which derivatives are added, with n numbers each. w and w2 are NULL if the kind does not learn them. */
typedef struct attn__score_slopes {
    double *q, *k, *w, *w2;
} attn__score_slopes;

typedef struct attn__score_kind {
    const char *name; /* name of the kind in a problem's text and a plan's description */
    int vectors;      /* number of learned vectors over the channels; 1: w; 2: w and w2 */
    bool blind;       /* the score reads neither q nor k, so both may be NULL */
    bool by_root;     /* the default scale is 1/sqrt(channels) instead of 1 */
    double (*value)(const attn__score_rows *rows);
    /* Adds g times the derivatives by q, k, w and w2. NULL: the derivative is 0 wherever it exists. */
    void (*gradient)(const attn__score_rows *rows, double g, const attn__score_slopes *to);
} attn__score_kind;

/* The kind of each attn_score, indexed by its value. */
extern const attn__score_kind *const attn__score_kinds[ATTN_SCORE_COUNT];

const attn__score_kind *attn__score_of(const attn_problem *problem); /* the problem must have been checked */

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

/* Returns |q - k|^2. */
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
