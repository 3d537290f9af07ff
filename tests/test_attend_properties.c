/* SPDX-License-Identifier: MIT
 * labels: no-asan no-tsan
 *
 * Tests properties that every solver must have, on a few shapes.
 */
#include "support/context.h"

#include "support/solver_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Allowed error, relative to the largest value: scores of a few units, weights and sums have errors of about 16
 * roundings each. */
static const double close_enough = 1e-5;

CONTEXT_OF_TESTS(.threads = 2)

static const attn_heads shapes[] = {
    {.batch = 1, .heads = 1, .queries = 1, .keys = 1, .dim = 1},
    {.batch = 2, .heads = 3, .queries = 17, .keys = 33, .dim = 16},
    {.batch = 1, .heads = 2, .queries = 50, .keys = 49, .dim = 64},
    {.batch = 2, .heads = 2, .queries = 7, .keys = 130, .dim = 24, .dim_value = 40},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void make(random_problem *r, const attn_heads *shape, unsigned with)
{
    *r = (random_problem){0};
    assert_int_equal(attn_problem_heads(&r->forward, shape), ATTN_OK);
    r->forward.flags |= ATTN_WANT_LSE | with;
    r->forward.broadcast = with;
    r->backward = r->forward;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    random_problem_arrays(r, 5);
}

static bool forward(const char *solver, random_problem *r)
{
    return solver_run(context, solver, 0, &r->forward, &r->arrays);
}

static float *floats(const random_problem *r, array_id id)
{
    return r->array[id].block;
}

static float *copy(const random_problem *r, array_id id)
{
    float *x = malloc(r->array[id].bytes);
    return x ? memcpy(x, r->array[id].block, r->array[id].bytes) : NULL;
}

static double largest(const random_problem *r, array_id id)
{
    double most = 0;
    for (int64_t i = 0; i < r->array[id].n; i++)
        most = fmax(most, fabs((double)floats(r, id)[i]));
    return most;
}

static void assert_close(const float *got, const float *want, int64_t n, double scale)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= close_enough * scale))
            fail_msg("element %lld is %.9g, not %.9g", (long long)i, (double)got[i], (double)want[i]);
}

static void for_each(unsigned with, void (*property)(const char *solver, random_problem *r, const attn_heads *shape))
{
    for (int s = 0; attn_solver_name(s); s++)
        for (int i = 0; i < SHAPES; i++) {
            random_problem r;
            make(&r, &shapes[i], with);
            if (forward(attn_solver_name(s), &r))
                property(attn_solver_name(s), &r, &shapes[i]);
            random_problem_free(&r);
        }
}

static void ones(const char *solver, random_problem *r, const attn_heads *shape)
{
    (void)shape;
    for (int64_t i = 0; i < r->array[ARRAY_V].n; i++)
        floats(r, ARRAY_V)[i] = 1;
    forward(solver, r);
    for (int64_t i = 0; i < r->array[ARRAY_O].n; i++)
        assert_true(fabs((double)floats(r, ARRAY_O)[i] - 1) <= 1e-6);
}

static void values_of_one_give_one(void **state)
{
    (void)state;
    for_each(0, ones);
}

static void linear(const char *solver, random_problem *r, const attn_heads *shape)
{
    (void)shape;
    array_id o = ARRAY_O, v = ARRAY_V;
    float *v1 = copy(r, v), *o1 = copy(r, o);
    for (int64_t i = 0; i < r->array[v].n; i++)
        floats(r, v)[i] = (float)((i * 7) % 11) / 11 - 0.5f;
    float *v2 = copy(r, v);
    forward(solver, r);
    float *o2 = copy(r, o);
    for (int64_t i = 0; i < r->array[v].n; i++)
        floats(r, v)[i] = 3 * v1[i] - 2 * v2[i];
    forward(solver, r);
    for (int64_t i = 0; i < r->array[o].n; i++)
        o1[i] = 3 * o1[i] - 2 * o2[i];
    assert_close(floats(r, o), o1, r->array[o].n, 3 * largest(r, v));
    free(v1), free(v2), free(o1), free(o2);
}

static void output_is_linear_in_the_values(void **state)
{
    (void)state;
    for_each(0, linear);
}

/* Reverses the keys of a BTHD array [batch, keys, row]. */
static void reverse_keys(const random_problem *r, array_id id, const attn_heads *shape)
{
    int64_t row = r->array[id].n / (shape->batch * shape->keys);
    float *old = copy(r, id);
    for (int64_t b = 0; b < shape->batch; b++)
        for (int64_t j = 0; j < shape->keys; j++)
            memcpy(floats(r, id) + (b * shape->keys + j) * row, old + (b * shape->keys + shape->keys - 1 - j) * row,
                   (size_t)row * sizeof(float));
    free(old);
}

static void permuted(const char *solver, random_problem *r, const attn_heads *shape)
{
    float *before = copy(r, ARRAY_O);
    reverse_keys(r, ARRAY_K, shape);
    reverse_keys(r, ARRAY_V, shape);
    forward(solver, r);
    assert_close(floats(r, ARRAY_O), before, r->array[ARRAY_O].n, largest(r, ARRAY_V));
    free(before);
}

static void the_order_of_keys_does_not_matter(void **state)
{
    (void)state;
    for_each(0, permuted);
}

static void shifted(const char *solver, random_problem *r, const attn_heads *shape)
{
    (void)shape;
    for (int64_t i = 0; i < r->array[ARRAY_BIAS].n; i++)
        floats(r, ARRAY_BIAS)[i] = 0;
    forward(solver, r);
    float *before = copy(r, ARRAY_O);
    for (int64_t i = 0; i < r->array[ARRAY_BIAS].n; i++)
        floats(r, ARRAY_BIAS)[i] = 3;
    forward(solver, r);
    assert_close(floats(r, ARRAY_O), before, r->array[ARRAY_O].n, largest(r, ARRAY_V));
    free(before);
}

static void a_constant_in_all_scores_does_not_matter(void **state)
{
    (void)state;
    for_each(ATTN_WITH_BIAS, shifted);
}

static void select_one(const char *solver, random_problem *r, const attn_heads *shape)
{
    random_problem_free(r);
    make(r, shape, 0);
    random_problem_free(r);
    r->forward.flags |= ATTN_WITH_BIAS;
    r->backward.flags |= ATTN_WITH_BIAS;
    int key = r->forward.lens_dim;
    r->forward.dims[key].bias = r->backward.dims[key].bias = 1;
    random_problem_arrays(r, 6);
    int64_t chosen = shape->keys / 2;
    floats(r, ARRAY_BIAS)[chosen] = 1e4f;
    if (!forward(solver, r))
        return;
    int64_t row = r->array[ARRAY_V].n / (shape->batch * shape->keys);
    for (int64_t b = 0; b < shape->batch; b++)
        for (int64_t i = 0; i < shape->queries; i++)
            assert_memory_equal(floats(r, ARRAY_O) + (b * shape->queries + i) * row,
                                floats(r, ARRAY_V) + (b * shape->keys + chosen) * row, (size_t)row * sizeof(float));
}

static void one_huge_score_selects_its_value(void **state)
{
    (void)state;
    for_each(0, select_one);
}

static void halves(const char *solver, random_problem *r, const attn_heads *shape)
{
    int key = r->forward.lens_dim;
    int64_t half = shape->keys / 2, n = r->array[ARRAY_O].n, dv = shape->dim_value ? shape->dim_value : shape->dim;
    if (half == 0)
        return;
    float *whole = copy(r, ARRAY_O), *o[2], *lse[2];
    for (int part = 0; part < 2; part++) {
        attn_problem p = r->forward;
        attn_arrays a = r->arrays;
        p.dims[key].n = part ? shape->keys - half : half;
        a.k = (const float *)a.k + part * half * p.dims[key].k;
        a.v = (const float *)a.v + part * half * p.dims[key].v;
        solver_run(context, solver, 0, &p, &a);
        o[part] = copy(r, ARRAY_O), lse[part] = copy(r, ARRAY_LSE);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / dv, h = row % shape->heads, t = row / shape->heads % shape->queries;
        int64_t at = (row / shape->heads / shape->queries * shape->heads + h) * shape->queries + t;
        double share = 1 / (1 + exp((double)lse[1][at] - (double)lse[0][at]));
        o[0][i] = (float)(share * (double)o[0][i] + (1 - share) * (double)o[1][i]);
    }
    assert_close(o[0], whole, n, largest(r, ARRAY_V));
    free(whole), free(o[0]), free(o[1]), free(lse[0]), free(lse[1]);
}

static void halves_merged_by_log_sum_exp_are_the_whole(void **state)
{
    (void)state;
    for_each(0, halves);
}

static void the_past_does_not_know_the_future(void **state)
{
    (void)state;
    attn_heads shape = {.batch = 2, .heads = 2, .queries = 37, .keys = 37, .dim = 16, .causal = ATTN_CAUSAL_TOP_LEFT};
    for (int s = 0; attn_solver_name(s); s++) {
        random_problem r;
        make(&r, &shape, 0);
        if (forward(attn_solver_name(s), &r)) {
            float *before = copy(&r, ARRAY_O);
            int64_t row = shape.heads * shape.dim, now = 20;
            for (int64_t i = now * row; i < shape.keys * row; i++)
                floats(&r, ARRAY_K)[i] = floats(&r, ARRAY_V)[i] = i % 2 ? (float)NAN : 1e30f;
            forward(attn_solver_name(s), &r);
            assert_memory_equal(before, floats(&r, ARRAY_O), (size_t)(now * row) * sizeof(float));
            assert_true(isnan(floats(&r, ARRAY_O)[now * row]));
            free(before);
        }
        random_problem_free(&r);
    }
}

static void another_layout_gives_the_same_bits(void **state)
{
    (void)state;
    for (int s = 0; attn_solver_name(s); s++) {
        attn_heads shape = shapes[1];
        random_problem r[2];
        for (int layout = 0; layout < 2; layout++) {
            shape.layout = (attn_layout)layout;
            make(&r[layout], &shape, 0);
        }
        for (int side = 0; side < 3; side++) {
            array_id id = side == 0 ? ARRAY_Q : side == 1 ? ARRAY_K : ARRAY_V;
            int64_t tokens = side == 0 ? shape.queries : shape.keys, H = shape.heads, D = shape.dim;
            for (int64_t i = 0; i < r[0].array[id].n; i++) {
                int64_t c = i % D, h = i / D % H, t = i / D / H % tokens, b = i / D / H / tokens;
                floats(&r[1], id)[((b * H + h) * tokens + t) * D + c] = floats(&r[0], id)[i];
            }
        }
        if (forward(attn_solver_name(s), &r[0]) && forward(attn_solver_name(s), &r[1]))
            for (int64_t i = 0; i < r[0].array[ARRAY_O].n; i++) {
                int64_t D = shape.dim, H = shape.heads, T = shape.queries;
                int64_t c = i % D, h = i / D % H, t = i / D / H % T, b = i / D / H / T;
                assert_memory_equal(&floats(&r[0], ARRAY_O)[i], &floats(&r[1], ARRAY_O)[((b * H + h) * T + t) * D + c],
                                    sizeof(float));
            }
        random_problem_free(&r[0]);
        random_problem_free(&r[1]);
    }
}

static double inner(const float *a, const float *b, int64_t n, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
        *size += fabs((double)a[i] * (double)b[i]);
    }
    return sum;
}

static void adjoint(const char *solver, random_problem *r, const attn_heads *shape)
{
    (void)shape;
    double size[2];
    if (!solver_run(context, solver, 0, &r->backward, &r->arrays))
        return;
    double forwards = inner(floats(r, ARRAY_DOUT), floats(r, ARRAY_O), r->array[ARRAY_O].n, &size[0]);
    double backwards = inner(floats(r, ARRAY_DV), floats(r, ARRAY_V), r->array[ARRAY_V].n, &size[1]);
    assert_true(fabs(forwards - backwards) <= close_enough * (size[0] + size[1]));
}

static void the_gradient_of_values_is_the_adjoint(void **state)
{
    (void)state;
    for_each(0, adjoint);
}

static void all_zero(const random_problem *r, array_id id, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_true(floats(r, id)[from + i] == 0);
}

static void masked_rows(const char *solver, random_problem *r, const attn_heads *shape)
{
    int64_t row = shape->heads * shape->dim, dv = shape->dim_value ? shape->dim_value : shape->dim;
    ((int32_t *)r->array[ARRAY_LENS].block)[0] = 0;
    for (int64_t b = 1; b < shape->batch; b++)
        ((int32_t *)r->array[ARRAY_LENS].block)[b] = (int32_t)shape->keys;
    for (int64_t i = 0; i < shape->keys * row; i++)
        floats(r, ARRAY_K)[i] = (float)NAN;
    forward(solver, r);
    all_zero(r, ARRAY_O, 0, shape->queries * shape->heads * dv);
    for (int64_t i = 0; i < shape->queries * shape->heads; i++)
        assert_true(floats(r, ARRAY_LSE)[i] == -INFINITY);
    if (!solver_run(context, solver, 0, &r->backward, &r->arrays))
        return;
    all_zero(r, ARRAY_DQ, 0, shape->queries * row);
    all_zero(r, ARRAY_DK, 0, shape->keys * row);
    all_zero(r, ARRAY_DV, 0, shape->keys * shape->heads * dv);
}

static void rows_without_keys_give_and_take_nothing(void **state)
{
    (void)state;
    for (int s = 0; attn_solver_name(s); s++)
        for (int i = 0; i < SHAPES; i++) {
            attn_heads shape = shapes[i];
            random_problem r;
            shape.lens_per = 1;
            make(&r, &shape, 0);
            if (forward(attn_solver_name(s), &r))
                masked_rows(attn_solver_name(s), &r, &shape);
            random_problem_free(&r);
        }
}

/* Returns true if a query sees a key in a pattern. In the patterns, nothing is masked, later keys are masked, the
 * last keys are masked, only blocks on the diagonal are visible, or some queries and keys are masked completely. */
static bool open_pair(int pattern, int64_t i, int64_t j)
{
    const bool open[] = {true, j <= i, j < 120, i / 100 == j / 100, i >= 100 && j >= 200};
    return open[pattern];
}

static void masks_of_whole_tiles(void **state)
{
    (void)state;
    const attn_heads shape = {.batch = 1, .heads = 2, .queries = 210, .keys = 310, .dim = 24};
    for (int pattern = 0; pattern < 5; pattern++) {
        static random_problem r;
        truth t;
        double worst = 0;
        r = (random_problem){0};
        assert_int_equal(attn_problem_heads(&r.forward, &shape), ATTN_OK);
        for (int i = 0; i < r.forward.ndims; i++) {
            attn_dim *dim = &r.forward.dims[i];
            dim->mask = dim->role == ATTN_ROLE_QUERY ? shape.keys : dim->role == ATTN_ROLE_KEY ? 1 : 0;
        }
        r.forward.flags |= ATTN_WANT_LSE | ATTN_WITH_MASK;
        r.backward = r.forward;
        r.backward.direction = ATTN_DIRECTION_BACKWARD;
        r.backward.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
        random_problem_arrays(&r, 5);
        for (int64_t at = 0; at < shape.queries * shape.keys; at++)
            ((uint8_t *)r.array[ARRAY_MASK].block)[at] = open_pair(pattern, at / shape.keys, at % shape.keys) ? 3 : 0;
        truth_make(&t, &r);
        for (int s = 0; attn_solver_name(s); s++)
            solver_check(context, attn_solver_name(s), &r, &t, ATTN_DIRECTION_FORWARD, &worst);
        solver_prepare_backward(context, &r);
        for (int s = 0; attn_solver_name(s); s++)
            solver_check(context, attn_solver_name(s), &r, &t, ATTN_DIRECTION_BACKWARD, &worst);
        truth_free(&t, &r);
        random_problem_free(&r);
    }
}

/* Runs the solver forward and the planner's choice backward. Returns false if the solver refuses the problem. */
static bool both(const char *solver, random_problem *r)
{
    if (!forward(solver, r))
        return false;
    assert_true(solver_run(context, NULL, 0, &r->backward, &r->arrays));
    return true;
}

/* Makes a problem with a mask of pairs and weights of the same layout. */
static void make_masked(random_problem *r, const attn_heads *shape, attn_normalization normalization, int64_t top_k)
{
    *r = (random_problem){0};
    assert_int_equal(attn_problem_heads(&r->forward, shape), ATTN_OK);
    for (int i = 0; i < r->forward.ndims; i++)
        r->forward.dims[i].mask = r->forward.dims[i].weights;
    r->forward.normalization = normalization;
    r->forward.top_k = top_k;
    r->forward.flags |= ATTN_WANT_LSE | ATTN_WANT_WEIGHTS | ATTN_WITH_MASK;
    r->backward = r->forward;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.flags = ATTN_WITH_MASK | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    random_problem_arrays(r, 5);
}

static void largest_scores(const char *solver, const attn_heads *shape)
{
    static const array_id results[] = {ARRAY_O, ARRAY_LSE, ARRAY_DQ, ARRAY_DK, ARRAY_DV};
    const int64_t k = 3;
    float *with[5];
    random_problem r;
    make_masked(&r, shape, ATTN_NORMALIZATION_SOFTMAX, k);
    uint8_t *mask = r.array[ARRAY_MASK].block;
    if (!both(solver, &r)) {
        random_problem_free(&r);
        return;
    }
    for (int i = 0; i < 5; i++)
        with[i] = copy(&r, results[i]);
    for (int64_t at = 0; at < r.array[ARRAY_MASK].n; at += shape->keys) {
        int64_t visible = 0, kept = 0;
        for (int64_t j = at; j < at + shape->keys; j++) {
            visible += mask[j] != 0;
            mask[j] = floats(&r, ARRAY_WEIGHTS)[j] != 0;
            kept += mask[j];
        }
        assert_int_equal(kept, visible < k ? visible : k);
    }
    r.forward.top_k = r.backward.top_k = 0;
    assert_true(both(NULL, &r));
    for (int i = 0; i < 5; i++) {
        for (int64_t e = 0; e < r.array[results[i]].n; e++)
            if (with[i][e] == -INFINITY && floats(&r, results[i])[e] == -INFINITY)
                /* Without keys, both numbers are -infinity, and their difference would be NaN. */
                with[i][e] = floats(&r, results[i])[e] = 0;
        assert_close(with[i], floats(&r, results[i]), r.array[results[i]].n, 1 + largest(&r, results[i]));
        free(with[i]);
    }
    random_problem_free(&r);
}

static void top_k_masks_all_but_the_largest_scores(void **state)
{
    (void)state;
    for (int s = 0; attn_solver_name(s); s++)
        for (int i = 0; i < SHAPES; i++)
            largest_scores(attn_solver_name(s), &shapes[i]);
}

/* With equal scores, hardmax selects the first key, and a top-2 selects the first two keys. */
static void equal_scores(const char *solver, const attn_heads *shape, attn_normalization normalization, int64_t top_k)
{
    int64_t dv = shape->dim_value ? shape->dim_value : shape->dim, row = shape->heads * dv, n = top_k ? top_k : 1;
    random_problem r;
    make_masked(&r, shape, normalization, top_k);
    memset(r.array[ARRAY_MASK].block, 1, (size_t)r.array[ARRAY_MASK].n);
    memset(r.array[ARRAY_MASK].block, 0, 1);
    for (int64_t i = 0; i < r.array[ARRAY_K].n; i++)
        floats(&r, ARRAY_K)[i] = 0.25f;
    for (int64_t i = 0; i < r.array[ARRAY_V].n; i++)
        floats(&r, ARRAY_V)[i] = (float)(i * 7 % 11);
    bool took = both(solver, &r);
    for (int64_t i = 0; took && i < shape->batch * shape->queries * row; i++) {
        const float *v = floats(&r, ARRAY_V) + i / row / shape->queries * shape->keys * row + i % row;
        double mean = 0;
        for (int64_t key = i < dv; key < n + (i < dv); key++)
            mean += (double)v[key * row] / (double)n;
        assert_true(fabs((double)floats(&r, ARRAY_O)[i] - mean) < 1e-6);
    }
    for (int64_t i = 0; took && i < r.array[ARRAY_DV].n; i++)
        assert_true((floats(&r, ARRAY_DV)[i] != 0) == (i / row % shape->keys < n || (i / row == n && i % row < dv)));
    if (took && normalization == ATTN_NORMALIZATION_HARDMAX) {
        all_zero(&r, ARRAY_DQ, 0, r.array[ARRAY_DQ].n);
        all_zero(&r, ARRAY_DK, 0, r.array[ARRAY_DK].n);
    }
    random_problem_free(&r);
}

static void the_first_of_equal_scores_are_taken(void **state)
{
    (void)state;
    for (int s = 0; attn_solver_name(s); s++)
        for (int i = 1; i < SHAPES; i++) {
            equal_scores(attn_solver_name(s), &shapes[i], ATTN_NORMALIZATION_HARDMAX, 0);
            equal_scores(attn_solver_name(s), &shapes[i], ATTN_NORMALIZATION_SOFTMAX, 2);
        }
}

static void enough_keys_are_all_keys(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        random_problem r;
        make(&r, &shapes[i], 0);
        assert_true(both(NULL, &r));
        float *o = copy(&r, ARRAY_O), *dq = copy(&r, ARRAY_DQ);
        r.forward.top_k = r.backward.top_k = shapes[i].keys;
        assert_true(both(NULL, &r));
        assert_memory_equal(o, floats(&r, ARRAY_O), r.array[ARRAY_O].bytes);
        assert_memory_equal(dq, floats(&r, ARRAY_DQ), r.array[ARRAY_DQ].bytes);
        free(o), free(dq);
        random_problem_free(&r);
    }
}

static void scores_as_weights_are_the_mean_times_the_keys(void **state)
{
    (void)state;
    for (int s = 0; attn_solver_name(s); s++)
        for (int i = 0; i < SHAPES; i++) {
            random_problem r;
            make(&r, &shapes[i], 0);
            r.forward.normalization = r.backward.normalization = ATTN_NORMALIZATION_NONE;
            if (both(attn_solver_name(s), &r)) {
                float *o = copy(&r, ARRAY_O), *dk = copy(&r, ARRAY_DK);
                r.forward.normalization = r.backward.normalization = ATTN_NORMALIZATION_MEAN;
                both(NULL, &r);
                for (int64_t e = 0; e < r.array[ARRAY_O].n; e++)
                    o[e] /= (float)shapes[i].keys;
                for (int64_t e = 0; e < r.array[ARRAY_K].n; e++)
                    dk[e] /= (float)shapes[i].keys;
                assert_close(o, floats(&r, ARRAY_O), r.array[ARRAY_O].n, largest(&r, ARRAY_V));
                assert_close(dk, floats(&r, ARRAY_DK), r.array[ARRAY_DK].n, 1 + largest(&r, ARRAY_DK));
                free(o), free(dk);
            }
            random_problem_free(&r);
        }
}

/* Returns sum(outputs * dout) in the float64 evaluation. Difference quotients of this sum test the gradients of the
 * evaluation itself. */

static double objective(random_problem *r, truth *t)
{
    double sum = 0;
    truth_free(t, r);
    truth_make(t, r);
    for (int64_t i = 0; i < r->array[ARRAY_O].n; i++)
        sum += t->value[ARRAY_O][r->array[ARRAY_O].low + i] * ((const double *)r->array[ARRAY_DOUT].block)[i];
    return sum;
}

static void differentiate(random_problem *r, array_id by, array_id gradient)
{
    truth t, at;
    const double h = 1e-5;
    double *x = r->array[by].block;
    truth_make(&t, r);
    truth_make(&at, r);
    for (int64_t i = 0; i < r->array[by].n; i += 1 + r->array[by].n / 12) {
        double was = x[i];
        x[i] = was + h;
        double up = objective(r, &at);
        x[i] = was - h;
        double down = objective(r, &at);
        x[i] = was;
        double got = t.value[gradient][r->array[gradient].low + i];
        if (t.bound[gradient][r->array[gradient].low + i] < 0)
            continue;
        if (!(fabs((up - down) / (2 * h) - got) <= 1e-6 * (1 + fabs(got))))
            fail_msg("score %d norm %d, array %d[%lld]: difference quotient %.9g, gradient %.9g", (int)r->forward.score,
                     (int)r->forward.normalization, (int)by, (long long)i, (up - down) / (2 * h), got);
    }
    truth_free(&t, r);
    truth_free(&at, r);
}

static void make_small(random_problem *r, attn_score score, attn_normalization normalize, int variant)
{
    *r = (random_problem){0};
    attn_problem *p = &r->forward;
    attn_heads shape = {.batch = 1,
                        .heads = 2,
                        .queries = 4,
                        .keys = 5,
                        .dim = 3,
                        .causal = variant == 1 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE};
    attn_problem_heads(p, &shape);
    p->dtype = ATTN_F64;
    p->score = score;
    p->normalization = normalize;
    p->width = 2.5;
    p->dims[4].w = 1;
    p->dims[2].bias = 5, p->dims[3].bias = 1;
    if (variant == 2)
        p->windows[p->nwindows++] = (attn_window){2, 3, 4, 1, 1, -2, ATTN_BORDER_ZERO};
    if (variant == 4)
        p->top_k = 2;
    if (variant == 3)
        p->dropout = 0.3, p->mask_fill = -0.5, p->bands[p->nbands++] = (attn_band){2, 3, -1, 2};
    for (int kind = 0; kind < 3; kind++)
        p->relatives[p->nrelatives++] = (attn_relative){.kind = (attn_relative_kind)kind,
                                                        .query_dim = 2,
                                                        .key_dim = 3,
                                                        .offset = 5,
                                                        .rows = 12,
                                                        .row_stride = 3,
                                                        .stride = {[4] = kind < 2, [5] = kind == 2}};
    p->flags = ATTN_WANT_LSE | ATTN_WITH_BIAS;
    r->backward = *p;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES;
    if (score == ATTN_SCORE_ADDITIVE || score == ATTN_SCORE_CONCAT)
        r->backward.flags |= ATTN_WANT_DW;
    random_problem_arrays(r, 11);
    for (int64_t i = 0; normalize == ATTN_NORMALIZATION_SUM && i < r->array[ARRAY_BIAS].n; i++)
        ((double *)r->array[ARRAY_BIAS].block)[i] = 8; /* a large bias keeps the sum away from 0 */
}

static void the_evaluation_agrees_with_difference_quotients(void **state)
{
    (void)state;
    for (attn_score score = 0; score <= ATTN_SCORE_TRIANGULAR; score++)
        for (attn_normalization normalize = 0; normalize <= ATTN_NORMALIZATION_NONE; normalize++)
            for (int variant = 0; variant < (normalize == ATTN_NORMALIZATION_SOFTMAX ? 5 : 3); variant++) {
                random_problem r;
                make_small(&r, score, normalize, variant);
                differentiate(&r, ARRAY_Q, ARRAY_DQ);
                differentiate(&r, ARRAY_K, ARRAY_DK);
                differentiate(&r, ARRAY_V, ARRAY_DV);
                differentiate(&r, ARRAY_BIAS, ARRAY_DBIAS);
                for (int i = 0; i < 3; i++)
                    differentiate(&r, (array_id)(ARRAY_TABLE + i), (array_id)(ARRAY_DTABLE + i));
                if (r.array[ARRAY_DW].block)
                    differentiate(&r, ARRAY_W, ARRAY_DW);
                if (r.array[ARRAY_DW2].block)
                    differentiate(&r, ARRAY_W2, ARRAY_DW2);
                random_problem_free(&r);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_evaluation_agrees_with_difference_quotients),
        cmocka_unit_test(values_of_one_give_one),
        cmocka_unit_test(output_is_linear_in_the_values),
        cmocka_unit_test(the_order_of_keys_does_not_matter),
        cmocka_unit_test(a_constant_in_all_scores_does_not_matter),
        cmocka_unit_test(one_huge_score_selects_its_value),
        cmocka_unit_test(halves_merged_by_log_sum_exp_are_the_whole),
        cmocka_unit_test(the_past_does_not_know_the_future),
        cmocka_unit_test(another_layout_gives_the_same_bits),
        cmocka_unit_test(the_gradient_of_values_is_the_adjoint),
        cmocka_unit_test(rows_without_keys_give_and_take_nothing),
        cmocka_unit_test(masks_of_whole_tiles),
        cmocka_unit_test(top_k_masks_all_but_the_largest_scores),
        cmocka_unit_test(the_first_of_equal_scores_are_taken),
        cmocka_unit_test(enough_keys_are_all_keys),
        cmocka_unit_test(scores_as_weights_are_the_mean_times_the_keys),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
