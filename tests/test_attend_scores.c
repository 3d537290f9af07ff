/* SPDX-License-Identifier: MIT
 *
 * Tests every row of ATTN_SCORES, including rows that are added later. A score's gradient is compared with differences
 * of its value. NaN, the score's word and its declared properties (blind, vectors) are checked, too.
 */
#include "support/cmocka.h"

#include "attend/scores/score.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 17 };

/* The numbers of q, k, w and w2 in one array, so that one loop can change each of them. */
typedef struct point {
    double x[4 * MOST];
    attn__score_rows rows;
} point;

static void draw(point *p, const attn__score_kind *kind, int64_t n, attn__rng *g)
{
    for (int64_t i = 0; i < 4 * MOST; i++)
        p->x[i] = 4 * attn__rng_uniform(g) - 2;
    p->rows = (attn__score_rows){.n = n, .q = p->x, .k = p->x + MOST, .width = 0.5 + 3 * attn__rng_uniform(g)};
    if (kind->vectors > 0)
        p->rows.w = p->x + 2 * MOST;
    if (kind->vectors > 1)
        p->rows.w2 = p->x + 3 * MOST;
}

static double value_at(point *p, const attn__score_kind *kind, int64_t i, double step)
{
    double kept = p->x[i];
    p->x[i] += step;
    double value = kind->value(&p->rows);
    p->x[i] = kept;
    return value;
}

typedef struct tally {
    int slopes, corners;
} tally;

/* Compares a slope with a difference quotient. If the slopes on both sides differ, the point is a corner, which is
 * only counted. */
static void check_slope(point *p, const attn__score_kind *kind, int64_t i, double slope, tally *t)
{
    const double h = 1e-5;
    double above = value_at(p, kind, i, h), here = kind->value(&p->rows), below = value_at(p, kind, i, -h);
    t->slopes++;
    if (fabs((above - here) - (here - below)) > 1e-3 * h * (1 + fabs(slope))) {
        t->corners++;
        return;
    }
    double difference = (above - below) / (2 * h);
    if (fabs(difference - slope) > 1e-7 * (1 + fabs(slope) + fabs(here)))
        fail_msg("%s: the gradient of channel %d is %.12g, differences say %.12g", kind->name, (int)(i % MOST), slope,
                 difference);
}

static void check_point(point *p, const attn__score_kind *kind, tally *t)
{
    double d[4 * MOST] = {0};
    attn__score_slopes to = {d, d + MOST, d + 2 * MOST, d + 3 * MOST};
    if (kind->gradient)
        kind->gradient(&p->rows, 1, &to);
    for (int64_t vector = 0; vector < 2 + kind->vectors; vector++)
        for (int64_t c = 0; c < p->rows.n; c++)
            check_slope(p, kind, vector * MOST + c, d[vector * MOST + c], t);
    /* The gradient function must add g times the slope to these elements and change no others. */
    for (int64_t i = 0; i < 4 * MOST; i++)
        d[i] = i % MOST < p->rows.n ? 1 - 2 * d[i] : d[i];
    if (kind->gradient)
        kind->gradient(&p->rows, 2, &to);
    for (int64_t i = 0; i < (2 + kind->vectors) * MOST; i++)
        assert_true(fabs(d[i] - (i % MOST < p->rows.n)) <= 1e-12 * (1 + fabs(d[i])) * 1e3);
}

static void gradients_are_those_of_the_values(void **state)
{
    (void)state;
    for (int s = 0; s < ATTN_SCORE_COUNT; s++) {
        const attn__score_kind *kind = attn__score_kinds[s];
        attn__rng g = {.seed = 7, .stream = (uint64_t)s};
        tally t = {0};
        for (int round = 0; round < 200; round++) {
            point p;
            draw(&p, kind, 1 + round % MOST, &g);
            check_point(&p, kind, &t);
        }
        assert_true(t.corners * 20 < t.slopes);
    }
}

static void nan_goes_through_and_blind_kinds_read_nothing(void **state)
{
    (void)state;
    for (int s = 0; s < ATTN_SCORE_COUNT; s++) {
        const attn__score_kind *kind = attn__score_kinds[s];
        attn__rng g = {.seed = 8};
        point p;
        draw(&p, kind, 5, &g);
        if (kind->blind) {
            p.rows.q = p.rows.k = NULL;
            assert_true(isfinite(kind->value(&p.rows)));
            continue;
        }
        p.x[2] = (double)NAN;
        assert_true(isnan(kind->value(&p.rows)));
    }
}

/* The word selects the score in a problem's text, and names it in the plan. "additive" is a synonym of "add". */
static void every_kind_has_its_word(void **state)
{
    (void)state;
    attn_context *c;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 1}), ATTN_OK);
    for (int s = 0; s < ATTN_SCORE_COUNT; s++) {
        const char *word = attn__score_kinds[s]->name;
        char text[64], said[512];
        attn_problem p;
        attn_plan *plan;
        snprintf(text, sizeof text, "b1h2q5k6d3:%s", word);
        assert_int_equal(attn_problem_parse(&p, c, text, ATTN_DIRECTION_FORWARD), ATTN_OK);
        assert_int_equal(p.score, s);
        assert_int_equal(attn_plan_create(&plan, c, &p, NULL), ATTN_OK);
        attn_plan_describe(plan, false, said, sizeof said);
        assert_true(s == ATTN_SCORE_DOT || strstr(said, word) != NULL);
        attn_plan_destroy(plan);
    }
    attn_problem p;
    assert_int_equal(attn_problem_parse(&p, c, "q5d3:gaussian,boxcar", ATTN_DIRECTION_FORWARD), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(c), "boxcar and gaussian cannot be used together"));
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_values),
        cmocka_unit_test(nan_goes_through_and_blind_kinds_read_nothing),
        cmocka_unit_test(every_kind_has_its_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
