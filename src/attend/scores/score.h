/* SPDX-License-Identifier: MIT
 *
 * score.h - the kinds of scores.  Each has a row in ATTN_SCORES (attn.h) and a file, score_NAME.c.  All other files use
 * its attn__score_kind; only solvers made for one kind name it.  docs/adding-a-score.md adds a kind.
 */
#ifndef ATTN_ATTEND_SCORE_H
#define ATTN_ATTEND_SCORE_H

#include "attn/attn.h"

/* One query and one key, in float64 whatever the problem's type: this is the reference's arithmetic. */
typedef struct attn__score_rows {
    int64_t n;            /* channels: all CONTRACT dims at once */
    const double *q, *k;  /* [n] */
    const double *w, *w2; /* [n]; NULL where the kind learns none */
    double width;         /* of the problem; never 0 */
} attn__score_rows;

/* Destinations to which derivatives are added, [n] each; w and w2 as above. */
typedef struct attn__score_slopes {
    double *q, *k, *w, *w2;
} attn__score_slopes;

typedef struct attn__score_kind {
    const char *name; /* its word in a problem's text and in a plan's description */
    int vectors;      /* learned vectors over the channels: 0; 1: w; 2: w and w2 */
    bool blind;       /* reads neither q nor k, which may then be NULL */
    bool by_root;     /* the default scale is 1/sqrt(channels) instead of 1 */
    double (*value)(const attn__score_rows *rows);
    /* Adds g times the derivatives by q, k, w and w2. NULL: the derivative is zero wherever it exists. */
    void (*gradient)(const attn__score_rows *rows, double g, const attn__score_slopes *to);
} attn__score_kind;

/* The kind of every attn_score, at its value. */
extern const attn__score_kind *const attn__score_kinds[ATTN_SCORE_COUNT];

const attn__score_kind *attn__score_of(const attn_problem *problem); /* of a problem that was checked */

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

/* |q - k|^2, and the gradient along q - k in which every function of it moves. */
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
