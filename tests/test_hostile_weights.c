/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests that softmax of finite scores is finite, for scores up to a quarter of the largest f32. Checks weights, and
 * gradients, which compute weights again from the scores and the log-sum-exp, and may multiply a weight of 0 by a
 * difference that overflows. Every solver that accepts the problem runs on the instruction set that ATTN_ISA names.
 * test_hostile_attention.c explains ATTN_HOSTILE_SEED and ATTN_HOSTILE_CASE.
 */
#include "support/attention_cases.h"

#include <math.h>

enum { CASES = 40 };

/* Checks that no weight is above 1 and that weights sum to 1. The bound allows for rounding the log-sum-exp, which
 * is as large as the scores. */
static void check_weights(const attention *a, const char *solver)
{
    const float *weights = hostile_floats_of(a, ARRAY_WEIGHTS);
    const int64_t keys = a->heads.keys;
    const bool told = hostile_slack(a) < 0.1;
    const double slack = hostile_rounding(a) + (told ? expm1(hostile_slack(a)) : 0);
    for (int64_t row = 0; row < a->r.array[ARRAY_WEIGHTS].n / keys; row++) {
        double sum = 0;
        for (int64_t j = 0; j < keys; j++) {
            const double weight = (double)weights[row * keys + j];
            if (!(weight >= 0 && weight <= 1 + slack))
                hostile_complain(a, solver, "weights", row * keys + j, weight, 1);
            sum += weight;
        }
        if (told)
            hostile_assert_near(a, solver, "sum of weights", row, sum, 1, slack);
    }
}

static void open_scores(attention *a, uint64_t number, unsigned with, int where)
{
    hostile_open(a, number, 300, with);
    hostile_scale_scores(a, hostile_draw_size(a), where);
}

static void large_weights_stay_within_bound(void **state)
{
    uint64_t first, n = hostile_range(CASES, &first);
    for (uint64_t i = first; i < first + n; i++) {
        attention a;
        open_scores(&a, i, ATTN_WANT_WEIGHTS, (int)hostile_pick(i, 22, 3));
        for (int s = 0; attn_solver_name(s); s++) {
            random_problem_poison(&a.r);
            if (solver_run(hostile_context, attn_solver_name(s), 0, &a.r.forward, &a.r.arrays))
                check_weights(&a, attn_solver_name(s));
        }
        random_problem_free(&a.r);
    }
    hostile_end();
}

/* Tests gradients for q and k of similar sizes, so that no gradient itself is close to overflow. */
static void gradients(void **state)
{
    uint64_t first, n = hostile_range(CASES, &first);
    for (uint64_t i = first; i < first + n; i++) {
        attention a;
        open_scores(&a, i, 0, 0);
        hostile_prepare_backward(&a);
        for (int s = 0; attn_solver_name(s); s++) {
            if (solver_run(hostile_context, attn_solver_name(s), 0, &a.r.backward, &a.r.arrays)) {
                hostile_assert_finite(&a, attn_solver_name(s), ARRAY_DQ, "dq");
                hostile_assert_finite(&a, attn_solver_name(s), ARRAY_DK, "dk");
                hostile_assert_finite(&a, attn_solver_name(s), ARRAY_DV, "dv");
            }
        }
        random_problem_free(&a.r);
    }
    hostile_end();
}

static void set_row(const attention *a, float *row, double x)
{
    for (int64_t c = 0; c < a->heads.dim; c++)
        row[c] = (float)x;
}

/* Gives key 0 the weight 1 and all other keys 0. The dot product of dout and v is -`size` for key 0 and `size` for
 * the others. */
static void prefer_first_key(attention *a, double size)
{
    const double dim = (double)a->heads.dim, channel = sqrt(size / dim), score = sqrt(1000 / dim);
    for (int64_t n = 0; n < a->heads.batch * a->heads.heads; n++) {
        const int64_t b = n / a->heads.heads, h = n % a->heads.heads;
        for (int64_t i = 0; i < a->heads.queries; i++) {
            set_row(a, hostile_query(a, b, h, i), score);
            set_row(a, hostile_output(a, ARRAY_DOUT, b, h, i), channel);
        }
        for (int64_t j = 0; j < a->heads.keys; j++) {
            set_row(a, hostile_key(a, b, h, j), j ? -score : score);
            set_row(a, hostile_token(a, ARRAY_V, b, h, j), j ? channel : -channel);
        }
    }
}

static void zero_weights_stay_within_bound(void **state)
{
    uint64_t first, n = hostile_range(CASES, &first);
    for (uint64_t i = first; i < first + n; i++) {
        attention a;
        hostile_open(&a, i, 300, 0);
        prefer_first_key(&a, 2.5e38);
        hostile_prepare_backward(&a);
        for (int s = 0; attn_solver_name(s); s++) {
            if (solver_run(hostile_context, attn_solver_name(s), 0, &a.r.backward, &a.r.arrays)) {
                hostile_assert_finite(&a, attn_solver_name(s), ARRAY_DQ, "dq");
                hostile_assert_finite(&a, attn_solver_name(s), ARRAY_DK, "dk");
                hostile_assert_finite(&a, attn_solver_name(s), ARRAY_DV, "dv");
            }
        }
        random_problem_free(&a.r);
    }
    hostile_end();
}

RUN_TESTS_IN(hostile_open_context, hostile_close_context, TEST(large_weights_stay_within_bound), TEST(gradients),
             TEST(zero_weights_stay_within_bound))
