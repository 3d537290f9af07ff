/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares the tiles of attend/block/tile.h with loops over their pairs: which pairs are seen, and scores, weights and
 * gradients of scores, with softcap, bias, masks, dropout and each kind of weights. Tiles are parts of random problems.
 */
#include "support/cmocka.h"

#include "support/random_problem.h"

#include "attend/block/finite.h"
#include "attend/block/row.h"
#include "attend/block/tile.h"
#include "attend/problem/problem.h"
#include "base/integers.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { PROBLEMS = 3000, MOST = 40, LD = 48, BYTES = 1 << 20 };

typedef struct subject {
    random_problem r;
    attn__execution run;
    attn__canonical canonical;
    attn__rng rng;
    attn__tile_plan plan;
    attn__arena arena;
    attn__visible_rows see;
    attn__visible_span span;
    attn__tile_rows rows;
    attn__tile_keys keys;
    int64_t batch, first, n, first_key, m;
} subject;

static _Alignas(64) char memory[BYTES];
static _Alignas(64) float s[LD * LD], ds[LD * LD], dbias[LD * LD], bias[LD * LD], flags[LD * LD];
static _Alignas(64) float given[LD * LD], given_ds[LD * LD];
static uint8_t mask[LD * LD], alive[LD * LD];

static int64_t below(subject *x, int64_t n)
{
    return (int64_t)attn__rng_below(&x->rng, (uint64_t)n);
}

static float number(subject *x, double size)
{
    return (float)(size * (2 * attn__rng_uniform(&x->rng) - 1));
}

/* Makes a random problem and draws a block of its queries and keys. Returns false if no tile has such problems. */
static bool make(subject *x, uint64_t problem, bool backward)
{
    x->rng = (attn__rng){.seed = problem, .stream = 11};
    random_problem_make(&x->r, problem);
    x->run = (attn__execution){.at = x->r.arrays};
    attn_problem p = backward ? x->r.backward : x->r.forward;
    attn__resolve_problem(&p);
    attn__canonical_make(&x->canonical, &p, false);
    const attn__canonical *c = &x->canonical;
    /* the float of a large mask_fill has too few digits for weights */
    bool fits = !(p.flags & ATTN_WITH_BIAS_INDEX) && p.dtype != ATTN_F64 && p.nwindows == 0 && c->batch.size > 0 &&
                c->query.size > 0 && fabs(p.mask_fill) < 100 && c->key.size > 0 &&
                !(c->extras & (ATTN__PACKED | ATTN__TOP_K)) &&
                (p.normalization == ATTN_NORMALIZATION_SOFTMAX || p.normalization == ATTN_NORMALIZATION_NONE ||
                 p.normalization == ATTN_NORMALIZATION_SIGMOID);
    if (!fits)
        return false;
    x->plan = attn__tile_plan_of(c, attn__isa_best());
    x->batch = below(x, c->batch.size);
    x->first = below(x, c->query.size), x->n = 1 + below(x, attn__min(MOST, c->query.size - x->first));
    x->first_key = below(x, c->key.size), x->m = 1 + below(x, attn__min(MOST, c->key.size - x->first_key));
    x->arena = (attn__arena){memory, 0};
    (backward ? attn__tile_rows_take : attn__tile_lanes_take)(&x->rows, &x->plan, &x->arena, 1, LD);
    attn__tile_keys_take(&x->keys, &x->plan, &x->arena, LD);
    attn__visible_rows_take(&x->see, &x->plan.visible, &x->arena, LD, ATTN__VISIBLE_ANY);
    assert_true(x->arena.used <= BYTES);
    if (x->plan.masks) {
        attn__visible_rows_start(&x->see, c, &x->run, x->batch, x->first, x->n, backward ? 1 : x->plan.lanes->lanes);
        x->span = attn__visible_span_of(&x->see, 0, x->n);
    }
    for (int i = 0; i < LD * LD; i++)
        given[i] = s[i] = number(x, 6), given_ds[i] = ds[i] = number(x, 2), bias[i] = 0, flags[i] = 1;
    return true;
}

static attn__tile tile_of(subject *x)
{
    attn__tile_place place = {&x->canonical, &x->run, 0, x->batch, x->first, x->n};
    attn__tile_rows_start(&x->rows, &x->plan, &place);
    attn__tile_rows_head(&x->rows, &x->plan, &place);
    attn__tile_keys_start(&x->keys, &x->plan, &x->canonical, x->first_key, x->m);
    return (attn__tile){.plan = &x->plan,
                        .canonical = &x->canonical,
                        .arrays = &x->run,
                        .see = &x->see,
                        .rows = &x->rows,
                        .nrows = x->n,
                        .keys = &x->keys,
                        .nkeys = x->m,
                        .ld = LD,
                        .s = s,
                        .bias = bias};
}

typedef struct pair {
    bool seen, alive; /* seen: visible, or filled; alive: the pair has a score of its own that is not -infinity */
    double score, slope, keep;
} pair;

/* Evaluates a pair whose product of q and k is `product`, in base 2. */
static pair pair_of(const subject *x, int64_t i, int64_t j, double product)
{
    const attn_problem *p = &x->canonical.problem;
    attn__row row;
    attn__spot spot;
    attn__row_at(&row, &x->canonical, &x->run, x->batch, x->first + i);
    attn__spot_at(&spot, &row, x->first_key + j);
    pair y = {.seen = spot.kind != ATTN__SPOT_OUT, .alive = spot.kind == ATTN__SPOT_KEY, .score = p->mask_fill};
    y.keep = y.seen ? attn__row_keep(&row, &spot) : 0;
    if (!y.alive)
        return y;
    double raw = product / ATTN__LOG2E, t = p->softcap != 0 ? tanh(raw / p->softcap) : 0;
    y.slope = 1 - t * t;
    y.score = p->softcap != 0 ? p->softcap * t : raw;
    if (x->canonical.has_bias)
        y.score += (double)((const float *)x->run.at.bias)[spot.offset[ATTN__OP_BIAS]];
    y.alive = y.score != -(double)INFINITY;
    return y;
}

static double own_weight(const subject *x, double score)
{
    const attn_problem *p = &x->canonical.problem;
    double b = p->own_sigmoid_bias ? p->sigmoid_bias : -log((double)x->canonical.key.size);
    return p->normalization == ATTN_NORMALIZATION_SIGMOID ? 1 / (1 + exp(-(score + b))) : score;
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 2e-5 * (1 + fabs(want))))
        fail_msg("%.9g instead of %.9g", got, want);
}

static bool sees_any(const subject *x)
{
    bool any = false;
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < x->m; j++)
            any = any || pair_of(x, i, j, 0).seen;
    return any;
}

/* ------------------------------------------------------------------------------------------------ forward */

static void check_forward(subject *x)
{
    const attn__tile_rows *rows = &x->rows;
    bool softmax = x->canonical.problem.normalization == ATTN_NORMALIZATION_SOFTMAX, careful = below(x, 2);
    attn__tile t = tile_of(x);
    for (int64_t i = 0; i < LD; i++)
        rows->m[i] = -INFINITY, rows->l[i] = 0;
    t.flags = below(x, 2) ? flags : NULL;
    t.alive = careful ? alive : NULL;
    if (!attn__tile_sees(&t, &x->span)) {
        assert_false(sees_any(x));
        return;
    }
    attn__tile_scores(&t);
    attn__tile_softmax(&t, NULL);
    for (int64_t i = 0; i < x->n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < x->m; j++) {
            pair y = pair_of(x, i, j, (double)given[j * LD + i]);
            bool counts = y.seen && y.score != -(double)INFINITY;
            double weight = !counts   ? 0
                            : softmax ? exp(y.score - (double)rows->m[i] / ATTN__LOG2E)
                                      : own_weight(x, y.score);
            sum += softmax ? weight : 0;
            assert_near((double)s[j * LD + i], y.keep == 0 ? 0 : weight);
            if (careful)
                assert_int_equal(alive[j * LD + i], (y.alive || weight != 0) && y.keep != 0);
            if (counts && !softmax)
                assert_true(rows->m[i] == 0 && rows->l[i] == 1);
        }
        if (softmax)
            assert_near((double)rows->l[i], sum);
    }
}

/* ----------------------------------------------------------------------------------------------- backward */

static void check_backward(subject *x)
{
    attn_normalization how = x->canonical.problem.normalization;
    bool capped = x->plan.softcap != 0, fills = x->plan.visible.fills, noted = below(x, 2);
    attn__tile_place place = {&x->canonical, &x->run, 0, x->batch, x->first, x->n};
    attn__tile t = tile_of(x);
    double lse[LD];
    for (int64_t i = 0; i < x->n; i++) {
        attn__row row;
        attn__row_at(&row, &x->canonical, &x->run, x->batch, x->first + i);
        lse[i] = 3 + (double)(i % 3);
        x->rows.delta[i] = number(x, 1);
        if (how != ATTN_NORMALIZATION_SIGMOID)
            ((float *)x->run.at.lse)[row.offset[ATTN__OP_LSE]] = (float)lse[i];
    }
    attn__tile_rows_lse(&x->rows, &x->plan, &place, &x->see);
    t.ds = ds;
    t.dbias = x->plan.wants_dbias && capped ? dbias : NULL;
    t.mask = mask;
    t.alive = noted ? alive : NULL;
    if (!attn__tile_sees(&t, &x->span)) {
        assert_false(sees_any(x));
        return;
    }
    attn__tile_weights(&t);
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < x->m; j++) {
            int64_t at = i * LD + j;
            pair y = pair_of(x, i, j, (double)given[at]);
            if (!y.alive) {
                assert_true(attn__is_mark(ds[at]));
                assert_true(attn__is_mark(s[at]) || (fills && y.seen));
                continue;
            }
            double weight = how == ATTN_NORMALIZATION_SOFTMAX ? exp(fmin(0, y.score - lse[i])) : own_weight(x, y.score);
            double dp = y.keep * (double)given_ds[at];
            double want = how == ATTN_NORMALIZATION_SOFTMAX ? weight * (dp - (double)x->rows.delta[i])
                          : how == ATTN_NORMALIZATION_NONE  ? dp
                                                            : weight * (1 - weight) * dp;
            assert_near((double)s[at], weight * y.keep);
            assert_int_equal(attn__is_mark(s[at]), y.keep == 0);
            assert_near((double)ds[at], y.slope * want);
            assert_false(attn__is_mark(ds[at]));
            if (t.dbias)
                assert_near((double)dbias[at], want);
            if (noted)
                assert_int_equal(alive[at], y.keep != 0 ? 3 : 1);
        }
}

static void each_problem(bool backward, void (*check)(subject *x))
{
    static subject x;
    int checked = 0;
    for (uint64_t problem = 0; problem < PROBLEMS; problem++) {
        if (make(&x, problem, backward)) {
            check(&x);
            checked++;
        }
        random_problem_free(&x.r);
    }
    assert_true(checked > PROBLEMS / 4);
}

static void scores_and_weights_are_those_of_the_pairs(void **state)
{
    (void)state;
    each_problem(false, check_forward);
}

static void gradients_of_scores_are_those_of_the_pairs(void **state)
{
    (void)state;
    each_problem(true, check_backward);
}

RUN_TESTS(TEST(scores_and_weights_are_those_of_the_pairs), TEST(gradients_of_scores_are_those_of_the_pairs))
