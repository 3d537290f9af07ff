/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests attention on extreme numbers, for every solver that accepts the problem, on the instruction set that ATTN_ISA
 * names. The weights of an output must sum to 1, for scores up to a quarter of the largest f32. If one score of a query
 * is much larger than the others, the output must be the value of its key. Operands with a hostile structure must agree
 * with float64. ATTN_HOSTILE_SEED selects other cases. A failure prints the number of its case, and ATTN_HOSTILE_CASE=N
 * runs only that case.
 */
#include "support/attention_cases.h"

#include <math.h>

enum { SCORE_CASES = 40, SELECT_CASES = 40, STRUCTURE_CASES = 30, MOST_ROWS = 4 * 300 };

/* ----------------------------------------------------------------------------------- scores of any size */

/* The largest score of each row, and the largest sum of absolute values of a score's terms. */
typedef struct rows {
    double score[MOST_ROWS], size[MOST_ROWS];
} rows;

static void find_rows(const attention *a, rows *r)
{
    for (int64_t n = 0; n < a->heads.batch * a->heads.heads * a->heads.queries; n++) {
        const int64_t i = n % a->heads.queries, bh = n / a->heads.queries;
        const int64_t b = bh / a->heads.heads, h = bh % a->heads.heads;
        double size;
        r->score[n] = -INFINITY;
        r->size[n] = 0;
        for (int64_t j = 0; j < hostile_keys_of(a, i); j++) {
            r->score[n] =
                fmax(r->score[n], hostile_score(a, hostile_query(a, b, h, i), hostile_key(a, b, h, j), &size));
            r->size[n] = fmax(r->size[n], size);
        }
    }
}

static void check_lse(const attention *a, const char *solver, const rows *r)
{
    for (int64_t n = 0; n < a->heads.batch * a->heads.heads * a->heads.queries; n++) {
        const double half = log((double)hostile_keys_of(a, n % a->heads.queries)) / 2;
        const double slack = (double)(a->heads.dim + 8) * 0x1p-23 * r->size[n] + 1e-4;
        hostile_assert_near(a, solver, "lse", n, (double)hostile_floats_of(a, ARRAY_LSE)[n], r->score[n] + half,
                            half + slack);
    }
}

/* With all values 1, the outputs must be 1, because weights sum to 1. */
static void check_scores(attention *a, const char *solver, const rows *r)
{
    random_problem_poison(&a->r);
    if (!solver_run(hostile_context, solver, 0, &a->r.forward, &a->r.arrays))
        return;
    for (int64_t i = 0; i < a->r.array[ARRAY_O].n; i++) {
        hostile_assert_near(a, solver, "o of values 1", i, (double)hostile_floats_of(a, ARRAY_O)[i], 1,
                            hostile_rounding(a));
    }
    check_lse(a, solver, r);
}

static void any_size(uint64_t number)
{
    attention a;
    static rows r;
    hostile_open(&a, number, 300, 0);
    hostile_scale_scores(&a, hostile_draw_size(&a), (int)hostile_choose(&a, 22, 3));
    for (int64_t i = 0; i < a.r.array[ARRAY_V].n; i++)
        hostile_floats_of(&a, ARRAY_V)[i] = 1;
    find_rows(&a, &r);
    for (int s = 0; attn_solver_name(s); s++)
        check_scores(&a, attn_solver_name(s), &r);
    random_problem_free(&a.r);
}

/* ---------------------------------------------------------------------------------- one score is largest */

/* Gives each key its own direction, and each query the direction of one of its visible keys. */
static void point(attention *a, double size)
{
    for (int64_t n = 0; n < a->heads.batch * a->heads.heads; n++) {
        const int64_t b = n / a->heads.heads, h = n % a->heads.heads;
        for (int64_t j = 0; j < a->heads.keys; j++) {
            double length = 0;
            float *k = hostile_key(a, b, h, j);
            for (int64_t c = 0; c < a->heads.dim; c++)
                length += (double)k[c] * (double)k[c];
            for (int64_t c = 0; c < a->heads.dim; c++)
                k[c] = (float)((double)k[c] / sqrt(length));
        }
        for (int64_t i = 0; i < a->heads.queries; i++) {
            const float *k =
                hostile_key(a, b, h, hostile_choose(a, 1000 + (uint64_t)(n * 1000 + i), hostile_keys_of(a, i)));
            for (int64_t c = 0; c < a->heads.dim; c++)
                hostile_query(a, b, h, i)[c] = k[c];
        }
    }
    hostile_scale_scores(a, size, (int)hostile_choose(a, 22, 3));
}

/* Returns the key whose weight is 1, or -1 if the second largest score is too close for f32. */
static int64_t selected(const attention *a, int64_t b, int64_t h, int64_t i)
{
    double first = -INFINITY, second = -INFINITY, sizes = 0, size;
    int64_t best = -1;
    for (int64_t j = 0; j < hostile_keys_of(a, i); j++) {
        const double s = hostile_score(a, hostile_query(a, b, h, i), hostile_key(a, b, h, j), &size);
        sizes = fmax(sizes, size);
        if (s > first) {
            second = first;
            first = s;
            best = j;
        } else {
            second = fmax(second, s);
        }
    }
    return first - second > 200 + 2 * (double)(a->heads.dim + 8) * 0x1p-24 * sizes ? best : -1;
}

/* Checks that o[i] equals v[j] except for the last bits, where j is the key that query i selects. */
static void check_selected(const attention *a, const char *solver, const int64_t *best)
{
    for (int64_t n = 0; n < a->heads.batch * a->heads.heads * a->heads.queries; n++) {
        const int64_t i = n % a->heads.queries, bh = n / a->heads.queries;
        const int64_t b = bh / a->heads.heads, h = bh % a->heads.heads;
        for (int64_t c = 0; c < a->heads.dim && best[n] >= 0; c++) {
            const double want = (double)hostile_token(a, ARRAY_V, b, h, best[n])[c];
            hostile_assert_near(a, solver, "o of the selected value", n * a->heads.dim + c,
                                (double)hostile_output(a, ARRAY_O, b, h, i)[c], want, 0x1p-22 * fabs(want));
        }
    }
}

/* Checks that dv[j] is the sum of dout[i] over the queries i that select key j. The bound allows the error of a
 * weight from rounded scores and the log-sum-exp. A head is skipped if this error is large, or if a query selects no
 * key. */
static void check_dv(const attention *a, const char *solver, const int64_t *best, double *sums)
{
    const int64_t dim = a->heads.dim, keys = a->heads.keys, queries = a->heads.queries;
    const double slack = hostile_slack(a);
    for (int64_t bh = 0; bh < a->heads.batch * a->heads.heads; bh++) {
        const int64_t b = bh / a->heads.heads, h = bh % a->heads.heads;
        bool all = slack < 0.1;
        for (int64_t i = 0; i < 2 * keys * dim; i++)
            sums[i] = 0;
        for (int64_t i = 0; i < queries; i++) {
            const int64_t j = best[bh * queries + i];
            all = all && j >= 0;
            for (int64_t c = 0; c < dim && j >= 0; c++) {
                const double g = (double)hostile_output(a, ARRAY_DOUT, b, h, i)[c];
                sums[j * dim + c] += g;
                sums[(keys + j) * dim + c] += fabs(g);
            }
        }
        for (int64_t at = 0; at < keys * dim && all; at++) {
            hostile_assert_near(a, solver, "dv of the selected value", at,
                                (double)hostile_token(a, ARRAY_DV, b, h, at / dim)[at % dim], sums[at],
                                ((double)(queries + 8) * 0x1p-24 + expm1(slack)) * sums[keys * dim + at]);
        }
    }
}

static int64_t count_selected(const attention *a, int64_t *best)
{
    int64_t told = 0;
    for (int64_t n = 0; n < a->heads.batch * a->heads.heads * a->heads.queries; n++) {
        const int64_t i = n % a->heads.queries, bh = n / a->heads.queries;
        best[n] = selected(a, bh / a->heads.heads, bh % a->heads.heads, i);
        told += best[n] >= 0;
    }
    return told;
}

static int64_t one_is_selected(uint64_t number)
{
    attention a;
    static int64_t best[MOST_ROWS];
    static double sums[2 * 300 * 256];
    hostile_open(&a, number, 300, 0);
    point(&a, fmax(hostile_draw_size(&a), hostile_choose(&a, 23, 2) ? 2e3 : 1e5));
    const int64_t told = count_selected(&a, best);
    for (int s = 0; attn_solver_name(s); s++) {
        random_problem_poison(&a.r);
        if (solver_run(hostile_context, attn_solver_name(s), 0, &a.r.forward, &a.r.arrays))
            check_selected(&a, attn_solver_name(s), best);
    }
    hostile_prepare_backward(&a);
    for (int s = 0; attn_solver_name(s); s++)
        if (solver_run(hostile_context, attn_solver_name(s), 0, &a.r.backward, &a.r.arrays))
            check_dv(&a, attn_solver_name(s), best, sums);
    random_problem_free(&a.r);
    return told;
}

/* -------------------------------------------------------------------------------- operands by structure */

/* Returns true if products of the structure may overflow, or are infinity or NaN. */
static bool is_wild(hostile_structure s)
{
    return s == HOSTILE_huge_entry || s == HOSTILE_dead_k || s == HOSTILE_tiny_huge || s == HOSTILE_small_normal ||
           s == HOSTILE_subnormal || s == HOSTILE_infinite || s == HOSTILE_not_a_number || s == HOSTILE_complement;
}

/* The array that gets an operand of the structure, and the axis over which the sum runs. */
typedef struct aim {
    int id;
    hostile_operand operand;
    bool tokens; /* true: the sum runs over tokens; false: it runs over channels */
} aim;
static const aim aims[4][2] = {
    {{ARRAY_Q, HOSTILE_A, false}, {ARRAY_K, HOSTILE_B, false}}, /* operands of sums that give scores */
    {{ARRAY_V, HOSTILE_B, true}, {-1, HOSTILE_A, false}},       /* operands of o */
    /* operands of sums that give gradients of weights */
    {{ARRAY_DOUT, HOSTILE_A, false}, {ARRAY_V, HOSTILE_B, false}},
    {{ARRAY_DOUT, HOSTILE_B, true}, {-1, HOSTILE_A, false}} /* operands of dv */
};

static void lay_out(attention *a, const hostile *h, const aim *to)
{
    const int64_t tokens = to->id == ARRAY_Q || to->id == ARRAY_DOUT ? a->heads.queries : a->heads.keys;
    for (int64_t bh = 0; bh < a->heads.batch * a->heads.heads; bh++) {
        const int64_t b = bh / a->heads.heads, head = bh % a->heads.heads;
        for (int64_t i = 0; i < tokens; i++) {
            float *x = to->id == ARRAY_Q      ? hostile_query(a, b, head, i)
                       : to->id == ARRAY_K    ? hostile_key(a, b, head, i)
                       : to->id == ARRAY_DOUT ? hostile_output(a, ARRAY_DOUT, b, head, i)
                                              : hostile_token(a, ARRAY_V, b, head, i);
            for (int64_t c = 0; c < a->heads.dim; c++)
                x[c] = to->tokens ? hostile_value(h, to->operand, c, i, bh) : hostile_value(h, to->operand, i, c, bh);
        }
    }
}

/* Widens the bounds of the reference, 2e-6 for a sum and 8 roundings for a score, to as many roundings as a sum has
 * terms. */
static void widen(truth *t, const attention *a)
{
    const double longest = (double)(a->heads.keys > a->heads.queries ? a->heads.keys : a->heads.queries);
    const double by = fmax(1, fmax(longest * 0x1p-24 / 2e-6, (double)a->heads.dim / 8));
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        for (int64_t i = 0; t->bound[id] && i < a->r.array[id].n; i++)
            t->bound[id][a->r.array[id].low + i] *= t->bound[id][a->r.array[id].low + i] > 0 ? by : 1;
}

static void by_structure(uint64_t number)
{
    attention a;
    truth t;
    double worst = 0;
    hostile_open(&a, number, hostile_pick(number, 30, 8) ? 40 : 150, 0);
    const aim *to = aims[hostile_choose(&a, 31, 4)];
    hostile h = {
        .structure = (hostile_structure)hostile_choose(&a, 32, HOSTILE_COUNT), .seed = number, .k = a.heads.dim};
    h.structure = is_wild(h.structure) ? HOSTILE_exponents : h.structure;
    h.rows[0] = h.rows[1] = a.heads.keys;
    if (to[0].tokens) {
        h.k = to[0].id == ARRAY_V ? a.heads.keys : a.heads.queries;
        h.rows[0] = h.rows[1] = a.heads.dim;
    }
    for (int i = 0; i < 2 && to[i].id >= 0; i++)
        lay_out(&a, &h, &to[i]);
    a.r.forward.scale = a.r.backward.scale = 16 / fmax(hostile_largest_size(&a), 1e-20);
    truth_make(&t, &a.r);
    widen(&t, &a);
    for (int s = 0; attn_solver_name(s); s++)
        solver_check(hostile_context, attn_solver_name(s), &a.r, &t, ATTN_DIRECTION_FORWARD, &worst);
    solver_prepare_backward(hostile_context, &a.r);
    for (int s = 0; attn_solver_name(s); s++)
        solver_check(hostile_context, attn_solver_name(s), &a.r, &t, ATTN_DIRECTION_BACKWARD, &worst);
    truth_free(&t, &a.r);
    random_problem_free(&a.r);
}

/* ----------------------------------------------------------------------------------------------- all of them */

static void scores_of_any_magnitude_stay_within_bound(void **state)
{
    uint64_t first, n = hostile_range(SCORE_CASES, &first);
    for (uint64_t i = 0; i < n; i++)
        any_size(first + i);
    hostile_end();
}

static void dominant_score_selects_its_value(void **state)
{
    uint64_t first, n = hostile_range(SELECT_CASES, &first);
    int64_t told = 0;
    for (uint64_t i = 0; i < n; i++)
        told += one_is_selected(first + i);
    assert_true(told > 0);
    hostile_end();
}

static void structured_operands_stay_within_bound(void **state)
{
    uint64_t first, n = hostile_range(STRUCTURE_CASES, &first);
    for (uint64_t i = 0; i < n; i++)
        by_structure(first + i);
}

RUN_TESTS_IN(hostile_open_context, hostile_close_context, TEST(scores_of_any_magnitude_stay_within_bound),
             TEST(dominant_score_selects_its_value), TEST(structured_operands_stay_within_bound))
