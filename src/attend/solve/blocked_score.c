/* SPDX-License-Identifier: MIT
 * Scores of a tile's columns, and their gradients by queries, keys and learned vectors. */
#include "attend/solve/blocked.h"

#include "attend/block/element.h"
#include "attend/block/rows.h"

#include <math.h>

/* ------------------------------------------------------------------------------------------------ forward */

/* The kernels of the distance d, from d^2. */
static void from_squares(const attn__blocked *b, double *s, int64_t n)
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

static double product_with(const double *w, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += w[c] * x[c];
    return sum;
}

/* w2.k of each column: a concatenation's score is relu(w.q + w2.k). */
static const double *score_keys(attn__blocked *b, const attn__blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    double *scratch = attn__blocked_at(b, b->plan->at.scratch);
    attn__blocked_multiply(b, &(attn__blocked_product){.a = attn__blocked_at(b, b->plan->at.w) + channels,
                                                       .lda = channels,
                                                       .b = t->k_t,
                                                       .ldb = b->plan->ld,
                                                       .c = scratch,
                                                       .ldc = t->columns,
                                                       .m = 1,
                                                       .n = t->columns,
                                                       .k = channels});
    return scratch;
}

static void score_concatenations(attn__blocked *b, const attn__blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    const double *scratch = score_keys(b, t), *q = b->q;
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = attn__blocked_row(b, b->plan->at.s, i);
        double of_query = product_with(attn__blocked_at(b, b->plan->at.w), q + i * channels, channels);
        for (int64_t j = 0; j < t->columns; j++)
            s[j] = of_query + scratch[j] <= 0 ? 0 : of_query + scratch[j]; /* NaN stays */
    }
}

/* Where tanh(q + k) of a pair is kept, for the gradients if the plan has room. */
static double *tanh_of(const attn__blocked *b, int64_t i, int64_t j)
{
    int64_t pair = b->plan->keeps_tanh ? i * b->plan->columns + j : 0;
    return attn__blocked_at(b, b->plan->at.tanh) + pair * b->canonical->contract.size;
}

static double score_pair(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int64_t j)
{
    int64_t channels = b->canonical->contract.size;
    return b->plan->kernel->additive(b->q + i * channels, t->k + j * channels, attn__blocked_at(b, b->plan->at.w),
                                     channels, tanh_of(b, i, j));
}

static void score_additive(attn__blocked *b, const attn__blocked_tile *t)
{
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = attn__blocked_row(b, b->plan->at.s, i);
        for (int64_t j = 0; j < t->columns; j++)
            s[j] = score_pair(b, t, i, j);
    }
}

/* Of all queries of the tile. */
static attn__rows_f64_distances distances_of(const attn__blocked *b, const attn__blocked_tile *t, int64_t place)
{
    int64_t channels = b->canonical->contract.size;
    return (attn__rows_f64_distances){.queries = t->queries,
                                      .channels = channels,
                                      .n = t->columns,
                                      .q = b->q,
                                      .ldq = channels,
                                      .k = t->k_t,
                                      .ld = b->plan->ld,
                                      .y = attn__blocked_at(b, place),
                                      .ldy = b->plan->ld_s};
}

static void score_distances(attn__blocked *b, const attn__blocked_tile *t)
{
    attn__rows_f64_distances distances = distances_of(b, t, b->plan->at.s);
    b->plan->kernel->distances(&distances);
    for (int64_t i = 0; i < t->queries; i++)
        from_squares(b, attn__blocked_row(b, b->plan->at.s, i), t->columns);
}

void attn__blocked_scores(attn__blocked *b, const attn__blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    const attn__blocked_places *at = &b->plan->at;
    attn_score score = b->canonical->problem.score;
    if (score == ATTN_SCORE_DOT) {
        attn__blocked_multiply(b, &(attn__blocked_product){.a = b->q,
                                                           .lda = channels,
                                                           .b = t->k_t,
                                                           .ldb = b->plan->ld,
                                                           .c = attn__blocked_at(b, at->s),
                                                           .ldc = b->plan->ld_s,
                                                           .m = t->queries,
                                                           .n = t->columns,
                                                           .k = channels});
        return;
    }
    (score == ATTN_SCORE_CONCAT     ? score_concatenations
     : score == ATTN_SCORE_ADDITIVE ? score_additive
                                    : score_distances)(b, t);
    for (int64_t i = 0; i < t->queries; i++)
        b->plan->kernel->scale(attn__blocked_row(b, at->s, i), t->columns, b->canonical->problem.scale);
}

/* ----------------------------------------------------------------------------------------------- backward */

static void multiply_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = b->canonical->contract.size;
    attn__blocked_product p = {.a = attn__blocked_at(b, at->dp),
                               .lda = b->plan->ld_s,
                               .b = t->k,
                               .ldb = channels,
                               .c = attn__blocked_at(b, at->dq),
                               .ldc = channels,
                               .m = t->queries,
                               .n = channels,
                               .k = t->columns,
                               .add = true};
    attn__blocked_multiply_masked(b, &p);
    p.b = b->q;
    p.c = t->dk;
    p.m = t->columns;
    p.k = t->queries;
    p.transposed = true;
    attn__blocked_multiply_masked(b, &p);
}

/* The gradient by q of a kernel of the distance is a factor times q - k: g becomes that factor. */
static void slope_of_distances(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *g)
{
    const attn_problem *p = &b->canonical->problem;
    double *distance = attn__blocked_at(b, b->plan->at.scratch), width = p->width;
    if (p->score == ATTN_SCORE_GAUSSIAN) {
        b->plan->kernel->scale(g, t->columns, -1 / (width * width));
        return;
    }
    attn__rows_f64_distances one = distances_of(b, t, b->plan->at.scratch);
    one.q += i * one.ldq;
    one.queries = 1;
    b->plan->kernel->distances(&one);
    for (int64_t j = 0; j < t->columns; j++) {
        double d = sqrt(distance[j]);
        bool slopes = p->score == ATTN_SCORE_TRIANGULAR && d > 0 && d < width;
        g[j] = slopes ? -g[j] / (d * width) : p->score == ATTN_SCORE_TRIANGULAR && g[j] != 0 ? d * 0 : 0;
    }
}

static void add_times(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t c = 0; c < n && factor != 0; c++)
        to[c] += factor * x[c];
}

/* With the gradients of scores above 0 alone, dq = (their sum over keys) w and dk = (their sum over queries) w2. */
static void concatenation_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = b->canonical->contract.size;
    const double *w = attn__blocked_at(b, at->w), *w2 = w + channels, *scratch = score_keys(b, t);
    double *dw = attn__blocked_at(b, at->dw), *dw2 = dw + channels, *by_key = attn__blocked_at(b, at->dk_t);
    memset(by_key, 0, (size_t)t->columns * sizeof *by_key);
    for (int64_t i = 0; i < t->queries; i++) {
        const double *g = attn__blocked_row(b, at->dp, i), *q = b->q + i * channels;
        double of_query = product_with(w, q, channels), sum = 0;
        for (int64_t j = 0; j < t->columns; j++) {
            double open = of_query + scratch[j] <= 0 ? 0 : g[j];
            sum += open;
            by_key[j] += open;
        }
        add_times(attn__blocked_at(b, at->dq) + i * channels, sum, w, channels);
        add_times(dw, sum, q, channels);
    }
    for (int64_t j = 0; j < t->columns; j++) {
        add_times(t->dk + j * channels, by_key[j], w2, channels);
        add_times(dw2, by_key[j], t->k + j * channels, channels);
    }
}

static void additive_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = b->canonical->contract.size;
    for (int64_t i = 0; i < t->queries; i++) {
        const double *g = attn__blocked_row(b, at->dp, i);
        for (int64_t j = 0; j < t->columns; j++) {
            if (g[j] == 0) /* the pair may be masked, and its tanh NaN */
                continue;
            if (!b->plan->keeps_tanh)
                (void)score_pair(b, t, i, j);
            b->plan->kernel->additive_gradient(g[j], attn__blocked_at(b, at->w), tanh_of(b, i, j), channels,
                                               attn__blocked_at(b, at->dq) + i * channels, t->dk + j * channels,
                                               attn__blocked_at(b, at->dw));
        }
    }
}

/* With keys in the lanes. */
static void distance_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = b->canonical->contract.size, ld_s = b->plan->ld_s;
    double *dk = attn__blocked_at(b, at->dk_t);
    memset(dk, 0, (size_t)(channels * ld_s) * sizeof *dk);
    for (int64_t i = 0; i < t->queries; i++)
        slope_of_distances(b, t, i, attn__blocked_row(b, at->dp, i));
    attn__rows_f64_distances gradients = distances_of(b, t, at->dp);
    gradients.dq = attn__blocked_at(b, at->dq);
    gradients.lddq = channels;
    gradients.dk = dk;
    gradients.lddk = ld_s;
    b->plan->kernel->distance_gradient(&gradients);
    for (int64_t j = 0; j < t->columns; j++)
        for (int64_t c = 0; c < channels; c++)
            t->dk[j * channels + c] += dk[c * ld_s + j];
}

/* Of w and w2, which all batch indices may share. */
static void add_vector_gradients(attn__blocked *b)
{
    const attn__group *contract = &b->canonical->contract;
    attn__strides strides = attn__operand_strides(contract, ATTN__OP_W);
    for (int n = 0; n < 2; n++)
        if (b->sums->at[ATTN__SUM_W + n])
            attn__scatter_add(contract, &strides, b->sums->at[ATTN__SUM_W + n],
                              attn__blocked_offset(b, ATTN__STRIDE(dim.w), 0),
                              attn__blocked_at(b, b->plan->at.dw) + n * contract->size);
}

void attn__blocked_score_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    attn_score score = b->canonical->problem.score;
    if (score == ATTN_SCORE_DOT) {
        multiply_gradients(b, t);
        return;
    }
    memset(attn__blocked_at(b, b->plan->at.dw), 0, (size_t)(2 * b->canonical->contract.size) * sizeof(double));
    (score == ATTN_SCORE_CONCAT     ? concatenation_gradients
     : score == ATTN_SCORE_ADDITIVE ? additive_gradients
                                    : distance_gradients)(b, t);
    add_vector_gradients(b);
}
