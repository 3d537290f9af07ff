/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests the b of sigmoid attention: its default, of packed sequences, of causal rows and of a growing cache; and one b
 * for each head, with its gradient. Loops in float64 compute what is expected. test_attend_random and
 * test_attend_alive compare sigmoids with all other features.
 */
#include "support/fixture.h"

#include "attn/attn.h"

#include <math.h>
#include <string.h>

enum { HEADS = 3, MOST = 1 << 16 };

static float q[MOST], k[MOST], v[MOST], o[MOST], dout[MOST], dq[MOST], dk[MOST], dv[MOST], other[MOST];

static void fill(void)
{
    float *const all[] = {q, k, v, dout};
    uint32_t state = 1;
    for (int i = 0; i < 4; i++)
        for (int at = 0; at < MOST; at++) {
            state = state * 1664525u + 1013904223u;
            all[i][at] = (float)(state >> 8) / 8388608.0f - 1.0f;
        }
}

/* A problem of layout [T,H,D], with the normalization sigmoid. */
static attn_problem problem_of(int64_t queries, int64_t keys, int64_t dim, bool causal)
{
    attn_problem p;
    attn_heads heads = {.batch = 1,
                        .heads = HEADS,
                        .queries = queries,
                        .keys = keys,
                        .dim = dim,
                        .causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE};
    assert_int_equal(attn_problem_heads(&p, &heads), ATTN_OK);
    p.normalization = ATTN_NORMALIZATION_SIGMOID;
    return p;
}

/* Runs the problem with one solver, or with the best if `solver` is NULL. Returns false if the solver refuses it. */
static bool run(attn_context *c, const attn_problem *p, const char *solver, attn_arrays *arrays)
{
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, c, p, &(attn_plan_options){.threads = 2, .solver = solver});
    attn_context_clear_error(c);
    if (status == ATTN_ERROR_UNSUPPORTED)
        return false;
    assert_int_equal(status, ATTN_OK);
    assert_ok(c, attn_plan_execute(plan, arrays, NULL));
    attn_plan_destroy(plan);
    return true;
}

static double score(int64_t i, int64_t j, int64_t h, int64_t dim)
{
    double sum = 0;
    for (int64_t x = 0; x < dim; x++)
        sum += (double)q[(i * HEADS + h) * dim + x] * (double)k[(j * HEADS + h) * dim + x];
    return sum / sqrt((double)dim);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double output(int64_t i, int64_t h, int64_t channel, int64_t seen, int64_t dim, double b)
{
    double sum = 0;
    for (int64_t j = 0; j < seen; j++)
        sum += sigmoid(score(i, j, h, dim) + b) * (double)v[(j * HEADS + h) * dim + channel];
    return sum;
}

static attn_arrays arrays_of(void)
{
    return (attn_arrays){.q = q, .k = k, .v = v, .o = o, .dout = dout, .dq = dq, .dk = dk, .dv = dv};
}

static void by_default_b_is_minus_the_logarithm_of_all_keys(void **state)
{
    attn_context *c = *state;
    static const struct {
        int64_t queries, keys, dim;
        bool causal;
    } shapes[] = {
        {1, 300, 32, false}, {20, 20, 24, false}, {20, 31, 24, true}, {100, 150, 32, false}, {100, 100, 32, true}};
    fill();
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        int64_t queries = shapes[n].queries, keys = shapes[n].keys, dim = shapes[n].dim;
        attn_problem p = problem_of(queries, keys, dim, shapes[n].causal);
        attn_arrays arrays = arrays_of();
        int ran = 0;
        for (int s = 0; attn_solver_name(s); s++) {
            memset(o, 0xff, sizeof o);
            if (!run(c, &p, attn_solver_name(s), &arrays))
                continue;
            ran++;
            for (int64_t i = 0; i < queries; i++)
                for (int64_t h = 0; h < HEADS; h++) {
                    double want = output(i, h, 1, shapes[n].causal ? i + 1 : keys, dim, -log((double)keys));
                    assert_true(fabs((double)o[(i * HEADS + h) * dim + 1] - want) < 1e-5);
                }
        }
        assert_true(ran >= 3); /* flash, blocked, reference */
    }
}

static void a_packed_sequence_has_the_output_that_it_has_alone(void **state)
{
    attn_context *c = *state;
    static const int32_t at[] = {0, 20, 20, 57, 100};
    enum { SEQUENCES = 4, DIM = 32, TOKENS = 100, LONGEST = 43 };
    attn_problem p;
    attn_heads heads = {.batch = SEQUENCES,
                        .heads = HEADS,
                        .queries = LONGEST,
                        .keys = LONGEST,
                        .dim = DIM,
                        .packed = true,
                        .packed_queries = TOKENS,
                        .packed_keys = TOKENS};
    fill();
    assert_int_equal(attn_problem_heads(&p, &heads), ATTN_OK);
    p.normalization = ATTN_NORMALIZATION_SIGMOID;
    for (int s = 0; attn_solver_name(s); s++) {
        attn_arrays arrays = arrays_of();
        arrays.q_offsets = arrays.k_offsets = at;
        if (!run(c, &p, attn_solver_name(s), &arrays))
            continue;
        for (int i = 0; i < SEQUENCES; i++) {
            int64_t n = at[i + 1] - at[i], first = (int64_t)at[i] * HEADS * DIM;
            attn_problem alone = problem_of(n, n, DIM, false);
            attn_arrays own = {.q = q + first, .k = k + first, .v = v + first, .o = other};
            for (int64_t t = 0; t < n; t++) {
                double want = 0;
                for (int64_t j = 0; j < n; j++)
                    want += sigmoid(score(at[i] + t, at[i] + j, 1, DIM) - log((double)n)) *
                            (double)v[((at[i] + j) * HEADS + 1) * DIM];
                assert_true(fabs((double)o[((at[i] + t) * HEADS + 1) * DIM] - want) < 1e-5);
            }
            bool exact = strcmp(attn_solver_name(s), "reference") == 0 || strcmp(attn_solver_name(s), "blocked") == 0;
            if (n && run(c, &alone, attn_solver_name(s), &own) && exact)
                assert_memory_equal(o + first, other, (size_t)(n * HEADS * DIM) * sizeof *o);
        }
    }
}

static void a_step_of_a_cache_is_a_row_of_the_prompt_if_both_have_one_b(void **state)
{
    attn_context *c = *state;
    enum { TOKENS = 40, DIM = 16 };
    attn_arrays arrays = arrays_of();
    attn_problem whole = problem_of(TOKENS, TOKENS, DIM, true);
    fill();
    whole.own_sigmoid_bias = true;
    whole.sigmoid_bias = -log(1000.0);
    assert_true(run(c, &whole, NULL, &arrays));
    for (int64_t t = 0; t < TOKENS; t++) {
        attn_problem step = problem_of(1, t + 1, DIM, false);
        attn_arrays own = {.q = q + t * HEADS * DIM, .k = k, .v = v, .o = other};
        bool differs = false;
        for (int fixed = 0; fixed < 2; fixed++) {
            step.own_sigmoid_bias = fixed;
            step.sigmoid_bias = fixed ? whole.sigmoid_bias : 0;
            assert_true(run(c, &step, NULL, &own));
            for (int64_t x = 0; x < HEADS * DIM; x++) {
                bool near = fabsf(other[x] - o[t * HEADS * DIM + x]) < 1e-5f;
                differs = differs || !near;
                assert_true(near || !fixed);
            }
        }
        assert_true(differs); /* the default of a step is that of its own keys */
    }
}

static void each_head_has_its_own_b_with_a_gradient(void **state)
{
    attn_context *c = *state;
    enum { QUERIES = 37, KEYS = 53, DIM = 20 };
    static const float b[HEADS] = {-4.0f, -1.0f, 0.5f};
    float db[HEADS];
    double want[HEADS] = {0};
    attn_problem p = problem_of(QUERIES, KEYS, DIM, false);
    attn_arrays arrays = arrays_of();
    fill();
    p.own_sigmoid_bias = true;
    p.flags = ATTN_WITH_BIAS;
    p.dims[1].bias = 1;
    arrays.bias = b;
    arrays.dbias = db;
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < QUERIES; i++)
            for (int64_t j = 0; j < KEYS; j++) {
                double w = sigmoid(score(i, j, h, DIM) + (double)b[h]), dw = 0;
                for (int64_t x = 0; x < DIM; x++)
                    dw += (double)v[(j * HEADS + h) * DIM + x] * (double)dout[(i * HEADS + h) * DIM + x];
                want[h] += w * (1 - w) * dw;
            }
    for (int s = 0; attn_solver_name(s); s++) {
        p.direction = ATTN_DIRECTION_FORWARD;
        p.flags = ATTN_WITH_BIAS;
        if (run(c, &p, attn_solver_name(s), &arrays))
            for (int64_t i = 0; i < QUERIES; i++)
                assert_true(fabs((double)o[(i * HEADS + 2) * DIM] - output(i, 2, 0, KEYS, DIM, (double)b[2])) < 1e-4);
        p.direction = ATTN_DIRECTION_BACKWARD;
        p.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS;
        if (run(c, &p, attn_solver_name(s), &arrays))
            for (int64_t h = 0; h < HEADS; h++)
                assert_true(fabs((double)db[h] - want[h]) < 1e-3);
    }
}

RUN_TESTS(TEST_WITH_CONTEXT(by_default_b_is_minus_the_logarithm_of_all_keys),
          TEST_WITH_CONTEXT(a_packed_sequence_has_the_output_that_it_has_alone),
          TEST_WITH_CONTEXT(a_step_of_a_cache_is_a_row_of_the_prompt_if_both_have_one_b),
          TEST_WITH_CONTEXT(each_head_has_its_own_b_with_a_gradient))
