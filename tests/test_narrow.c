/* SPDX-License-Identifier: MIT
 * Gradients of narrow heads against the reference solver: every padded size of a head, lengths around the squares of 32,
 * several heads to a line, keys that are not finite, and the same bits for any number of threads. */
#include "support/cmocka.h"

#include "attn/attn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 15 };

static const char *const problems[] = {
    "b2h3q33k50d5v7", "b1h8q32k32d8",    "b5h8q31k65d8",      "b40h4q7k9d3",       "b1h2q100k70d16",
    "b3h1q1k1d1",     "b2h2q64k33d2v16", "axis9x40c64h8:row", "axis40x9c64h8:col", NULL,
};

typedef struct arrays {
    float q[MOST], k[MOST], v[MOST], o[MOST], dout[MOST], lse[MOST], grad[3][MOST];
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
    return a;
}

static void run(attn_context *c, const char *text, attn_direction direction, const char *solver, int threads, arrays *a,
                bool accumulate)
{
    attn_problem p;
    attn_plan *plan;
    assert_int_equal(attn_problem_parse(&p, c, text, direction), ATTN_OK);
    p.accumulate = accumulate && direction == ATTN_BACKWARD;
    if (direction == ATTN_FORWARD)
        p.with |= ATTN_WANT_LSE;
    attn_plan_options options = {.solver = solver, .threads = threads};
    assert_int_equal(attn_plan_create(&plan, c, &p, &options), ATTN_OK);
    for (int array = 0; array < ATTN_ARRAYS; array++) {
        attn_span span;
        if (attn_plan_span(plan, (attn_array)array, &span))
            assert_true(span.low >= 0 && span.high <= MOST);
    }
    attn_arrays given = {.q = a->q,
                         .k = a->k,
                         .v = a->v,
                         .o = a->o,
                         .lse = a->lse,
                         .dout = a->dout,
                         .dq = a->grad[0],
                         .dk = a->grad[1],
                         .dv = a->grad[2]};
    assert_int_equal(attn_plan_execute(plan, &given, NULL), ATTN_OK);
    attn_plan_destroy(plan);
}

/* Both have the same NaN and infinities, and else differ by little beside the largest. */
static void assert_close(const float *found, const float *expected)
{
    double largest = 0;
    for (int i = 0; i < MOST; i++)
        largest = isfinite(expected[i]) ? fmax(largest, fabs((double)expected[i])) : largest;
    for (int i = 0; i < MOST; i++) {
        if (isfinite(expected[i]))
            assert_true(fabs((double)found[i] - (double)expected[i]) <= 1e-5 * largest);
        else
            assert_true(isnan(found[i]) || isinf(found[i]));
    }
}

static void start_gradients(arrays *a, float value)
{
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < MOST; i++)
            a->grad[g][i] = value;
}

static void compare(attn_context *c, const char *text, arrays *a, bool accumulate)
{
    float *expected = malloc(sizeof a->grad);
    run(c, text, ATTN_FORWARD, "reference", 1, a, false);
    start_gradients(a, accumulate ? 0.5f : 0.0f);
    run(c, text, ATTN_BACKWARD, "reference", 1, a, accumulate);
    memcpy(expected, a->grad, sizeof a->grad);
    start_gradients(a, accumulate ? 0.5f : 0.0f);
    run(c, text, ATTN_BACKWARD, "narrow_backward", 2, a, accumulate);
    for (int i = 0; i < 3; i++)
        assert_close(a->grad[i], expected + i * MOST);
    free(expected);
}

static void gradients_agree_with_the_reference(void **state)
{
    (void)state;
    attn_context *c;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    arrays *a = fill();
    for (int i = 0; problems[i]; i++) {
        compare(c, problems[i], a, false);
        compare(c, problems[i], a, true);
    }
    free(a);
    attn_context_destroy(c);
}

/* Keys whose score is -inf for some queries (and inf or NaN for others) take no part with the first. */
static void infinite_keys_do_not_leak(void **state)
{
    (void)state;
    attn_context *c;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    arrays *a = fill();
    for (int i = 0; i < MOST; i++)
        a->q[i] = fabsf(a->q[i]) + 0.1f;
    for (int i = 40; i < 48; i++)
        a->k[i] = -INFINITY;
    compare(c, "b1h1q33k40d8", a, false);
    for (int i = 0; i < 33 * 8; i++)
        assert_true(isfinite(a->grad[0][i]));
    free(a);
    attn_context_destroy(c);
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 7};
    attn_context *c;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    arrays *a = fill();
    float *first = malloc(sizeof a->grad);
    run(c, "b20h4q33k20d7", ATTN_FORWARD, NULL, 1, a, false);
    for (int i = 0; i < 4; i++) {
        memset(a->grad, 0xff, sizeof a->grad);
        run(c, "b20h4q33k20d7", ATTN_BACKWARD, "narrow_backward", counts[i], a, false);
        if (i == 0)
            memcpy(first, a->grad, sizeof a->grad);
        assert_memory_equal(first, a->grad, sizeof a->grad);
    }
    free(first);
    free(a);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_the_reference),
        cmocka_unit_test(infinite_keys_do_not_leak),
        cmocka_unit_test(threads_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
