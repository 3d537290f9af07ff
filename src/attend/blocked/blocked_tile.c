/* SPDX-License-Identifier: MIT
 * What a tile is made of: gathered rows, ranges of keys, scores, products. */
#include "attend/blocked/blocked.h"

#include "attend/canonical/element.h"
#include "attend/canonical/offsets.h"
#include "base/integers.h"
#include "gemm/gemm.h"

#include <math.h>

/* ---------------------------------------------------------------------------------------------- gathering */

/* Rows of an operand: which groups, where the first lies, and where they go, as rows or as columns. */
typedef struct rows {
    const attn__group *group, *channels;
    size_t stride;
    const void *data;
    int64_t base, first, n;
    double *to, *transposed; /* NULL: not wanted */
    int64_t ld;              /* of `transposed`, ... */
    double factor;           /* ... which is multiplied by this */
} rows;

/* False if a number is not finite. */
static bool gather(const attn__blocked *b, const rows *r)
{
    attn_dtype dtype = b->canonical->problem.dtype;
    int64_t channels = r->channels->size;
    int64_t *offsets = (int64_t *)(void *)attn__blocked_at(b, b->plan->at.offsets), *at = offsets + channels;
    double sum = 0;
    attn__offsets_fill(r->channels, r->stride, 0, channels, offsets);
    attn__offsets_fill(r->group, r->stride, r->first, r->n, at);
    for (int64_t i = 0; i < r->n; i++) {
        const double *row = (const double *)r->data + r->base + at[i];
        if (dtype == ATTN_F64 && r->to && !r->transposed && attn__offsets_adjacent(r->channels, r->stride)) {
            memcpy(r->to + i * channels, row, (size_t)channels * sizeof *row);
            for (int64_t c = 0; c < channels; c++)
                sum += 0 * row[c];
            continue;
        }
        for (int64_t c = 0; c < channels; c++) {
            double x = attn__load(dtype, r->data, r->base + at[i] + offsets[c]);
            sum += 0 * x;
            if (r->to)
                r->to[i * channels + c] = x;
            if (r->transposed)
                r->transposed[c * r->ld + i] = x * r->factor;
        }
    }
    return sum == 0;
}

static int64_t base_of(const attn__blocked *b, size_t stride)
{
    return attn__offsets_one(&b->canonical->batch, stride, b->batch);
}

void attn__blocked_keys(attn__blocked *b, int64_t batch)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    bool backward = canonical->backward;
    b->batch = batch;
    rows k = {&canonical->key,
              &canonical->contract,
              ATTN__STRIDE(dim.k),
              b->arrays->k,
              base_of(b, ATTN__STRIDE(dim.k)),
              0,
              canonical->key.size,
              backward ? attn__blocked_at(b, at->k) : NULL,
              attn__blocked_at(b, at->k_t),
              b->plan->ld,
              canonical->problem.score == ATTN_SCORE_DOT ? canonical->problem.scale : 1};
    rows v = {&canonical->key,
              &canonical->value,
              ATTN__STRIDE(dim.v),
              b->arrays->v,
              base_of(b, ATTN__STRIDE(dim.v)),
              0,
              canonical->key.size,
              attn__blocked_at(b, at->v),
              backward ? attn__blocked_at(b, at->v_t) : NULL,
              b->plan->ld,
              1};
    bool finite = gather(b, &k);
    finite &= gather(b, &v);
    b->careful = !finite;
}

/* -------------------------------------------------------------------------------------------------- ranges */

/* index + bound without overflow; the bounds may be open ends, the index is not negative. */
static int64_t add_bound(int64_t index, int64_t bound)
{
    return bound > 0 && index > INT64_MAX - bound ? INT64_MAX : index + bound;
}

static int64_t clamped(int64_t x, int64_t n)
{
    return x < 0 ? 0 : attn__least(x, n);
}

/* There is one key axis where there are bands or lengths. */
static void find_range(const attn__blocked *b, int64_t query, int64_t lens_base, int64_t *from, int64_t *to)
{
    const attn__canonical *canonical = b->canonical;
    const attn_problem *p = &canonical->problem;
    int64_t n = canonical->key.size;
    *from = 0;
    *to = n;
    for (int i = 0; i < p->nbands; i++) {
        int64_t at = attn__offsets_index(&canonical->query, p->bands[i].query_dim, query);
        int64_t high = add_bound(at, p->bands[i].hi);
        *from = attn__most(*from, clamped(add_bound(at, p->bands[i].lo), n));
        *to = attn__least(*to, clamped(high == INT64_MAX ? high : high + 1, n));
    }
    if (canonical->has_lens)
        *to = attn__least(
            *to,
            clamped(b->arrays->lens[lens_base + attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.lens), query)],
                    n));
}

static int64_t *ranges(const attn__blocked *b, int64_t place)
{
    return (int64_t *)(void *)attn__blocked_at(b, place);
}

void attn__blocked_queries(attn__blocked *b, const attn__blocked_tile *t, bool backward)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    int64_t lens = canonical->has_lens ? base_of(b, ATTN__STRIDE(dim.lens)) : 0;
    rows r = {&canonical->query,
              &canonical->contract,
              ATTN__STRIDE(dim.q),
              b->arrays->q,
              base_of(b, ATTN__STRIDE(dim.q)),
              t->query,
              t->queries,
              attn__blocked_at(b, at->q),
              NULL,
              0,
              1};
    bool finite = gather(b, &r);
    if (backward) {
        r = (rows){&canonical->query,
                   &canonical->value,
                   ATTN__STRIDE(dim.o),
                   b->arrays->o,
                   base_of(b, ATTN__STRIDE(dim.o)),
                   t->query,
                   t->queries,
                   attn__blocked_at(b, at->o),
                   NULL,
                   0,
                   1};
        (void)gather(b, &r);
        r.stride = ATTN__STRIDE(dim.dout);
        r.base = base_of(b, r.stride);
        r.data = b->arrays->dout;
        r.to = attn__blocked_at(b, at->dout);
        finite &= gather(b, &r);
    }
    b->careful |= !finite;
    for (int64_t i = 0; i < t->queries; i++)
        find_range(b, t->query + i, lens, ranges(b, at->from) + i, ranges(b, at->to) + i);
}

/* The keys of the tile that query i sees: [from, to) of the tile's. */
static void seen(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int64_t *from, int64_t *to)
{
    *from = clamped(ranges(b, b->plan->at.from)[i] - t->key, t->keys);
    *to = clamped(ranges(b, b->plan->at.to)[i] - t->key, t->keys);
    *to = attn__most(*to, *from);
}

bool attn__blocked_meets(const attn__blocked *b, const attn__blocked_tile *t)
{
    for (int64_t i = 0; i < t->queries; i++) {
        int64_t from, to;
        seen(b, t, i, &from, &to);
        if (from < to)
            return true;
    }
    return false;
}

/* -------------------------------------------------------------------------------------------------- products */

static attn__gemm_problem problem_of(const attn__blocked_product *p)
{
    return (attn__gemm_problem){.dtype = ATTN_F64,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .a = attn__matrix(p->a, p->transposed ? 1 : p->lda, p->transposed ? p->lda : 1),
                                .b = attn__matrix(p->b, 1, p->ldb),
                                .c = p->c,
                                .ldc = p->ldc,
                                .add = p->add};
}

int64_t attn__blocked_product_size(const attn__canonical *canonical, int64_t m, int64_t n, int64_t k, bool transposed)
{
    attn__blocked_product p = {.lda = transposed ? m : k, .ldb = n, .ldc = n, .m = m, .n = n, .k = k};
    attn__gemm_plan plan;
    p.transposed = transposed;
    attn__gemm_problem problem = problem_of(&p);
    attn__gemm_plan_make(&plan, &problem, canonical->isa, 1);
    return (int64_t)((attn__gemm_workspace(&plan) + sizeof(double) - 1) / sizeof(double));
}

/* Pair by pair: what is masked is not touched. */
static void multiply_seen(const attn__blocked *b, const attn__blocked_product *p, const attn__blocked_tile *t)
{
    for (int64_t i = 0; i < p->m && !p->add; i++)
        memset(p->c + i * p->ldc, 0, (size_t)p->n * sizeof *p->c);
    for (int64_t i = 0; i < t->queries; i++) {
        int64_t from, to;
        seen(b, t, i, &from, &to);
        for (int64_t j = from; j < to; j++) {
            double weight = p->a[i * p->lda + j];
            if (weight == 0) /* of a score of -inf, which masks too */
                continue;
            const double *x = p->b + (p->transposed ? i : j) * p->ldb;
            double *y = p->c + (p->transposed ? j : i) * p->ldc;
            for (int64_t c = 0; c < p->n; c++)
                y[c] += weight * x[c];
        }
    }
}

void attn__blocked_multiply(attn__blocked *b, const attn__blocked_product *p, const attn__blocked_tile *t)
{
    if (t && b->careful) {
        multiply_seen(b, p, t);
        return;
    }
    attn__gemm_plan plan;
    attn__gemm_problem problem = problem_of(p);
    attn__gemm_plan_make(&plan, &problem, b->canonical->isa, 1);
    attn__gemm_run(&plan, attn__blocked_at(b, b->plan->at.product));
}

/* -------------------------------------------------------------------------------------------------- scores */

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
        s[j] *= p->scale;
    }
}

void attn__blocked_scores(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn_problem *p = &canonical->problem;
    const attn__blocked_places *at = &b->plan->at;
    const double *q = attn__blocked_at(b, at->q), *k = attn__blocked_at(b, at->k_t) + t->key;
    int64_t n = canonical->contract.size, ld = ATTN__BLOCKED_KEYS;
    double *s = attn__blocked_at(b, at->s),
           masked = p->normalization == ATTN_NORMALIZATION_SOFTMAX ? -(double)INFINITY : 0;
    attn__blocked_find_pairs(b, t);
    if (p->score == ATTN_SCORE_DOT)
        attn__blocked_multiply(
            b,
            &(attn__blocked_product){
                .a = q, .lda = n, .b = k, .ldb = b->plan->ld, .c = s, .ldc = ld, .m = t->queries, .n = t->keys, .k = n},
            NULL);
    for (int64_t i = 0; i < t->queries; i++, s += ld) {
        int64_t from, to;
        if (p->score != ATTN_SCORE_DOT) {
            b->plan->kernel->distances(q + i * n, k, b->plan->ld, n, s, t->keys);
            score_distances(p, s, t->keys);
        }
        attn__blocked_adjust(b, t, i, s);
        seen(b, t, i, &from, &to);
        for (int64_t j = 0; j < from; j++)
            s[j] = masked;
        for (int64_t j = to; j < t->keys; j++)
            s[j] = masked;
    }
}
