/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares narrow and short heads with the reference solver: every padded size of a head, lengths around blocks of 32 x
 * 32 and tiles of a few rows, several heads in one vector, and keys that are not finite. Checks that the number of
 * threads changes no bits.
 */
#include "support/fixture.h"

#include "attn/attn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 15 };

static const struct {
    const char *text, *forward, *backward;
} problems[] = {
    {"b2h3q33k50d5v7", "small_head", "small_head_backward"},
    {"b1h8q32k32d8", "small_head", "small_head_backward"},
    {"b5h8q31k65d8", "small_head", "small_head_backward"},
    {"b40h4q7k9d3", "small_head", "small_head_backward"},
    {"b1h2q100k70d16", "small_head", "small_head_backward"},
    {"b3h1q1k1d1", "small_head", "small_head_backward"},
    {"b2h2q64k33d2v16", "small_head", "small_head_backward"},
    {"axis9x40c64h8:row", "small_head", "small_head_backward"},
    {"axis40x9c64h8:col", "small_head", "small_head_backward"},
    {"axis31x16c64h8:col", "small_head", "small_head_backward"},
    {"b2h3q33k50d5v7:softcap=2", "small_head", "small_head_backward"},
    {"b2h4q70k67d8:causal", "small_head", "small_head_backward"},
    {"b3h2q41k40d12:lens,softcap=3", "small_head", "small_head_backward"},
    {"b1h4q64k90d4:band=-9..5,dropout=0.2", "small_head", "small_head_backward"},
    {"b12h4q10k10d64", "small_sequence", "small_sequence_backward"},
    {"b2h3q33k50d20:softcap=2,causal", "small_sequence", "small_sequence_backward"},
    {"b1h5q32k32d64", "small_sequence", "small_sequence_backward"},
    {"b2h1q96k95d70v81", "small_sequence", "small_sequence_backward"},
    {"b3h2q13k17d31v16:causal", "small_sequence", "small_sequence_backward"},
    {"b2h3q25k47d64v5:lens", "small_sequence", "small_sequence_backward"},
    {"b1h2q7k3d256v200", "small_sequence", "small_sequence_backward"},
    {"b3h2q12k31d17v129:dropout=0.3", "small_sequence", "small_sequence_backward"},
    {"axis9x40c64h2:row", "small_sequence", "small_sequence_backward"},
    {"axis40x9c64h2:col", "small_sequence", "small_sequence_backward"},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

typedef struct arrays {
    float q[MOST], k[MOST], v[MOST], o[MOST], dout[MOST], lse[MOST], grad[3][MOST];
    int32_t lens[MOST];
} arrays;

static float number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static arrays *fill(void)
{
    arrays *a = calloc(1, sizeof *a);
    float *const inputs[] = {a->q, a->k, a->v, a->dout};
    uint32_t state = 1;
    for (int i = 0; i < 4; i++)
        for (int at = 0; at < MOST; at++)
            inputs[i][at] = 2 * number(&state);
    for (int at = 0; at < MOST; at++)
        a->lens[at] = at * 7 % 40;
    return a;
}

static void run(attn_context *c, const char *text, attn_direction direction, const char *solver, int threads, arrays *a,
                bool accumulate)
{
    attn_problem p;
    attn_plan *plan;
    assert_int_equal(attn_problem_parse(&p, c, text, direction), ATTN_OK);
    p.accumulate = accumulate && direction == ATTN_DIRECTION_BACKWARD;
    p.seed = 5;
    if (direction == ATTN_DIRECTION_FORWARD)
        p.flags |= ATTN_WANT_LSE;
    attn_plan_options options = {.solver = solver, .threads = threads};
    assert_int_equal(attn_plan_create(&plan, c, &p, &options), ATTN_OK);
    for (int array = 0; array < ATTN_ARRAY_COUNT; array++) {
        attn_span span;
        if (attn_plan_span(plan, (attn_array)array, &span))
            assert_true(span.low >= 0 && span.high <= MOST);
    }
    attn_arrays given = {.q = a->q,
                         .k = a->k,
                         .v = a->v,
                         .o = a->o,
                         .lse = a->lse,
                         .lens = a->lens,
                         .dout = a->dout,
                         .dq = a->grad[0],
                         .dk = a->grad[1],
                         .dv = a->grad[2]};
    assert_int_equal(attn_plan_execute(plan, &given, NULL), ATTN_OK);
    attn_plan_destroy(plan);
}

/* Checks that NaN and infinities are at the same places in both arrays, and that other differences are small
 * compared to the largest number. */
static void assert_close(const float *found, const float *expected)
{
    double largest = 0;
    for (int i = 0; i < MOST; i++)
        largest = isfinite(expected[i]) ? fmax(largest, fabs((double)expected[i])) : largest;
    for (int i = 0; i < MOST; i++)
        if (isfinite(expected[i]))
            assert_true(fabs((double)found[i] - (double)expected[i]) <= 1e-5 * largest);
        else
            assert_true(isnan(found[i]) || isinf(found[i]));
}

static void start_gradients(arrays *a, float value)
{
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < MOST; i++)
            a->grad[g][i] = value;
}

static void compare_outputs(attn_context *c, const char *text, arrays *a, const char *solver)
{
    float *found = malloc(2 * sizeof a->o);
    memset(a->o, 0, sizeof a->o);
    memset(a->lse, 0, sizeof a->lse);
    run(c, text, ATTN_DIRECTION_FORWARD, solver, 2, a, false);
    memcpy(found, a->o, sizeof a->o);
    memcpy(found + MOST, a->lse, sizeof a->lse);
    run(c, text, ATTN_DIRECTION_FORWARD, "reference", 1, a, false);
    assert_close(found, a->o);
    assert_close(found + MOST, a->lse);
    free(found);
}

static void compare(attn_context *c, const char *text, arrays *a, const char *solver, bool accumulate)
{
    float *expected = malloc(sizeof a->grad);
    run(c, text, ATTN_DIRECTION_FORWARD, "reference", 1, a, false);
    start_gradients(a, accumulate ? 0.5f : 0.0f);
    run(c, text, ATTN_DIRECTION_BACKWARD, "reference", 1, a, accumulate);
    memcpy(expected, a->grad, sizeof a->grad);
    start_gradients(a, accumulate ? 0.5f : 0.0f);
    run(c, text, ATTN_DIRECTION_BACKWARD, solver, 2, a, accumulate);
    for (int i = 0; i < 3; i++)
        assert_close(a->grad[i], expected + i * MOST);
    free(expected);
}

static void results_agree_with_the_reference(void **state)
{
    attn_context *c = *state;
    arrays *a = fill();
    for (int i = 0; i < PROBLEMS; i++) {
        compare_outputs(c, problems[i].text, a, problems[i].forward);
        compare(c, problems[i].text, a, problems[i].backward, false);
        compare(c, problems[i].text, a, problems[i].backward, true);
    }
    free(a);
}

/* A key has the score -inf for some queries, and inf or NaN for others. It must have no effect on the queries with
 * -inf. */
static void infinite_keys_do_not_leak(void **state)
{
    attn_context *c = *state;
    arrays *a = fill();
    for (int i = 0; i < MOST; i++)
        a->q[i] = fabsf(a->q[i]) + 0.1f;
    for (int i = 40; i < 48; i++)
        a->k[i] = -INFINITY;
    for (int i = 0; i < 2; i++) {
        compare_outputs(c, "b1h1q33k40d8", a, i ? "small_sequence" : "small_head");
        compare(c, "b1h1q33k40d8", a, i ? "small_sequence_backward" : "small_head_backward", false);
        for (int j = 0; j < 33 * 8; j++)
            assert_true(isfinite(a->grad[0][j]));
    }
    free(a);
}

/* A weight that underflows still multiplies its value, unless it is dropped. Infinity times this weight is not
 * finite. */
static void underflowed_weights_still_multiply_infinity(void **state)
{
    attn_context *c = *state;
    arrays *a = fill();
    for (int i = 0; i < MOST; i++)
        a->q[i] = 1.0f;
    for (int i = 40; i < 48; i++) {
        a->k[i] = -100.0f;
        a->v[i] = INFINITY;
    }
    compare_outputs(c, "b1h1q33k20d8:dropout=0.4", a, "small_sequence");
    int finite = 0;
    for (int i = 0; i < 33; i++)
        finite += isfinite(a->o[8 * i]);
    assert_true(finite > 0 && finite < 33);
    free(a);
}

static void unseen_keys_change_no_bits(void **state)
{
    attn_context *c = *state;
    arrays *a = fill();
    float *first = malloc(2 * sizeof a->o);
    for (int i = 0; i < 2; i++) {
        run(c, "b1h1q30k50d40:causal", ATTN_DIRECTION_FORWARD, "small_sequence", 1, a, false);
        run(c, "b1h1q30k50d40:causal", ATTN_DIRECTION_BACKWARD, "small_sequence_backward", 1, a, false);
        for (int j = 0; i && j < 30 * 40; j++) {
            assert_memory_equal(first + j, a->o + j, sizeof(float));
            assert_memory_equal(first + MOST + j, a->grad[0] + j, sizeof(float));
        }
        memcpy(first, a->o, sizeof a->o);
        memcpy(first + MOST, a->grad[0], sizeof a->o);
        for (int j = 30 * 40; j < 50 * 40; j++)
            a->k[j] = a->v[j] = j % 3 ? NAN : INFINITY;
    }
    free(first);
    free(a);
}

static void threads_do_not_change_bits(void **state)
{
    static const int counts[] = {1, 2, 3, 7};
    static const char *const solvers[] = {"small_head_backward", "small_sequence_backward"};
    attn_context *c = *state;
    arrays *a = fill();
    float *first = malloc(sizeof a->grad);
    run(c, "b20h4q33k20d7", ATTN_DIRECTION_FORWARD, NULL, 1, a, false);
    for (int i = 0; i < 8; i++) {
        memset(a->grad, 0xff, sizeof a->grad);
        run(c, "b20h4q33k20d7", ATTN_DIRECTION_BACKWARD, solvers[i / 4], counts[i % 4], a, false);
        if (i % 4 == 0)
            memcpy(first, a->grad, sizeof a->grad);
        assert_memory_equal(first, a->grad, sizeof a->grad);
    }
    free(first);
    free(a);
}

RUN_TESTS(TEST_WITH_CONTEXT(results_agree_with_the_reference), TEST_WITH_CONTEXT(infinite_keys_do_not_leak),
          TEST_WITH_CONTEXT(underflowed_weights_still_multiply_infinity), TEST_WITH_CONTEXT(unseen_keys_change_no_bits),
          TEST_WITH_CONTEXT(threads_do_not_change_bits))
