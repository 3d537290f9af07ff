/* SPDX-License-Identifier: MIT
 * Scores of a tile's columns, and their gradients by queries, keys and learned vectors. */
#include "attend/blocked/blocked.h"

#include "attend/canonical/element.h"
#include "attend/canonical/offsets.h"

#include <math.h>

/* The learned vectors of query i. */
static void read_vectors(const attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__canonical *canonical = b->canonical;
    const attn__group *contract = &canonical->contract;
    attn_dtype dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_W);
    attn__strides strides = attn__operand_strides(contract, ATTN__OP_W);
    int64_t offset = attn__blocked_offset(b, ATTN__STRIDE(dim.w), t->query + i);
    double *w = attn__blocked_at(b, b->plan->at.w);
    attn__gather(contract, &strides, dtype, b->arrays->w, offset, w);
    if (canonical->problem.score == ATTN_SCORE_CONCAT)
        attn__gather(contract, &strides, dtype, b->arrays->w2, offset, w + contract->size);
}

/* ------------------------------------------------------------------------------------------------ forward */

/* The kernels of the distance d, from d^2. */
static void score_distances(const attn_problem *p, double *s, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double d = p->score == ATTN_SCORE_GAUSSIAN ? 0 : sqrt(s[j]);
        if (p->score == ATTN_SCORE_GAUSSIAN)
            s[j] = -s[j] / (2 * p->width * p->width);
        else if (p->score == ATTN_SCORE_BOXCAR)
            s[j] = d < p->width ? 1 : d >= p->width ? 0 : d;
        else
            s[j] = 1 - d / p->width <= 0 ? 0 : 1 - d / p->width;
    }
}

/* w.q + w2.k of each column. */
static void add_concatenations(attn__blocked *b, const attn__blocked_tile *t, const double *q, double *s)
{
    int64_t channels = b->canonical->contract.size;
    const double *w = attn__blocked_at(b, b->plan->at.w);
    double sum = 0;
    for (int64_t c = 0; c < channels; c++)
        sum += w[c] * q[c];
    attn__blocked_multiply(b, &(attn__blocked_product){.a = w + channels,
                                                       .lda = channels,
                                                       .b = t->k_t,
                                                       .ldb = b->plan->ld,
                                                       .c = s,
                                                       .ldc = t->columns,
                                                       .m = 1,
                                                       .n = t->columns,
                                                       .k = channels});
    for (int64_t j = 0; j < t->columns; j++)
        s[j] += sum;
}

static void score_row(attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s)
{
    const attn_problem *p = &b->canonical->problem;
    int64_t channels = b->canonical->contract.size, n = t->columns;
    const double *q = attn__blocked_at(b, b->plan->at.q) + i * channels;
    switch (p->score) {
    case ATTN_SCORE_ADDITIVE:
        read_vectors(b, t, i);
        b->plan->kernel->additive(q, t->k_t, b->plan->ld, attn__blocked_at(b, b->plan->at.w), channels, s, n);
        break;
    case ATTN_SCORE_CONCAT:
        read_vectors(b, t, i);
        add_concatenations(b, t, q, s);
        for (int64_t j = 0; j < n; j++)
            s[j] = s[j] <= 0 ? 0 : s[j]; /* NaN stays */
        break;
    default:
        b->plan->kernel->distances(q, t->k_t, b->plan->ld, channels, s, n);
        score_distances(p, s, n);
    }
    b->plan->kernel->scale(s, n, p->scale);
}

void attn__blocked_scores(attn__blocked *b, const attn__blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size;
    const attn__blocked_places *at = &b->plan->at;
    if (b->canonical->problem.score == ATTN_SCORE_DOT) {
        attn__blocked_multiply(b, &(attn__blocked_product){.a = attn__blocked_at(b, at->q),
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
    for (int64_t i = 0; i < t->queries; i++)
        score_row(b, t, i, attn__blocked_row(b, at->s, i));
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
    attn__blocked_multiply_weights(b, &p);
    p.b = attn__blocked_at(b, at->q);
    p.c = t->dk;
    p.m = t->columns;
    p.k = t->queries;
    p.transposed = true;
    attn__blocked_multiply_weights(b, &p);
}

/* Of a kernel of the distance: g becomes the factor of q - k in the gradient by q. */
static void slope_of_distances(const attn__blocked *b, const attn__blocked_tile *t, const double *q, double *g)
{
    const attn_problem *p = &b->canonical->problem;
    double *distance = attn__blocked_at(b, b->plan->at.distance), width = p->width;
    if (p->score == ATTN_SCORE_GAUSSIAN) {
        b->plan->kernel->scale(g, t->columns, -1 / (width * width));
        return;
    }
    b->plan->kernel->distances(q, t->k_t, b->plan->ld, b->canonical->contract.size, distance, t->columns);
    for (int64_t j = 0; j < t->columns; j++) {
        double d = sqrt(distance[j]);
        bool slopes = p->score == ATTN_SCORE_TRIANGULAR && d > 0 && d < width;
        g[j] = slopes ? -g[j] / (d * width) : p->score == ATTN_SCORE_TRIANGULAR && g[j] != 0 ? d * 0 : 0;
    }
}

/* dk_t += w2 g, and the sums over the columns that the other gradients have as factors. */
static void concat_gradient(attn__blocked *b, const attn__blocked_tile *t, const double *q, double *g, double *dq)
{
    int64_t channels = b->canonical->contract.size, ld = b->plan->ld_s;
    const double *w = attn__blocked_at(b, b->plan->at.w), *w2 = w + channels;
    double *dw = attn__blocked_at(b, b->plan->at.dw), *dw2 = dw + channels, sum = 0;
    double *score = attn__blocked_at(b, b->plan->at.distance);
    add_concatenations(b, t, q, score);
    for (int64_t j = 0; j < t->columns; j++) {
        g[j] = score[j] <= 0 ? 0 : g[j];
        sum += g[j];
    }
    for (int64_t c = 0; c < channels; c++) {
        const double *k = t->k_t + c * b->plan->ld;
        double *dk = attn__blocked_at(b, b->plan->at.dk_t) + c * ld;
        dq[c] += sum * w[c];
        dw[c] += sum * q[c];
        for (int64_t j = 0; j < t->columns; j++) {
            dk[j] += g[j] == 0 ? 0 : g[j] * w2[c];
            dw2[c] += g[j] == 0 ? 0 : g[j] * k[j];
        }
    }
}

static void add_vector_gradients(attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__group *contract = &b->canonical->contract;
    attn__strides strides = attn__operand_strides(contract, ATTN__OP_W);
    int64_t offset = attn__blocked_offset(b, ATTN__STRIDE(dim.w), t->query + i);
    for (int n = 0; n < 2; n++) {
        double *sums = b->sums->at[ATTN__SUM_W + n];
        if (sums)
            attn__scatter_add(contract, &strides, sums, offset,
                              attn__blocked_at(b, b->plan->at.dw) + n * contract->size);
    }
}

static void score_row_gradient(attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__blocked_places *at = &b->plan->at;
    const attn__rows_f64_kernel *kernel = b->plan->kernel;
    int64_t channels = b->canonical->contract.size, ld = b->plan->ld;
    const double *q = attn__blocked_at(b, at->q) + i * channels, *w = attn__blocked_at(b, at->w);
    double *g = attn__blocked_row(b, at->dp, i), *dq = attn__blocked_at(b, at->dq) + i * channels;
    double *dk = attn__blocked_at(b, at->dk_t), *dw = attn__blocked_at(b, at->dw);
    attn_score score = b->canonical->problem.score;
    if (score != ATTN_SCORE_ADDITIVE && score != ATTN_SCORE_CONCAT) {
        slope_of_distances(b, t, q, g);
        kernel->distance_gradient(q, t->k_t, ld, channels, g, t->columns, dq, dk, b->plan->ld_s);
        return;
    }
    read_vectors(b, t, i);
    memset(dw, 0, (size_t)(2 * channels) * sizeof *dw);
    if (score == ATTN_SCORE_ADDITIVE)
        kernel->additive_gradient(q, t->k_t, ld, w, channels, g, t->columns, dq, dk, b->plan->ld_s, dw);
    else
        concat_gradient(b, t, q, g, dq);
    add_vector_gradients(b, t, i);
}

void attn__blocked_score_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size, ld = b->plan->ld_s;
    double *dk_t = attn__blocked_at(b, b->plan->at.dk_t);
    if (b->canonical->problem.score == ATTN_SCORE_DOT) {
        multiply_gradients(b, t);
        return;
    }
    memset(dk_t, 0, (size_t)(channels * ld) * sizeof *dk_t);
    for (int64_t i = 0; i < t->queries; i++)
        score_row_gradient(b, t, i);
    for (int64_t j = 0; j < t->columns; j++)
        for (int64_t c = 0; c < channels; c++)
            t->dk[j * channels + c] += dk_t[c * ld + j];
}
