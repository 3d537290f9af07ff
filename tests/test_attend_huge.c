/* SPDX-License-Identifier: MIT
 * labels: no-isa no-asan no-tsan
 *
 * Tests attention with huge finite scores and tiny weights, for every solver on every instruction set. Outputs and
 * gradients must be finite. A weight below 2^-126 times the largest weight must count as 0.
 */
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/cpu.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 160, MOST_DIM = 128, HEADS = 2, MOST = HEADS * MOST_ROWS * MOST_DIM };
enum { Q, K, V, O, DO, DQ, DK, DV, ARRAYS };

static float data[ARRAYS][MOST], lse[HEADS * MOST_ROWS];

static void fill(attn__rng *rng, float factor)
{
    for (int a = 0; a < ARRAYS; a++)
        for (int i = 0; i < MOST; i++)
            data[a][i] = (float)attn__rng_normal(rng) * (a == Q || a == K ? factor : 1);
}

static void assert_finite(int array, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(data[array][i]))
            fail_msg("%s: array %d is %g at %lld", what, array, (double)data[array][i], (long long)i);
}

static bool run(attn_context *c, attn_problem problem, attn_direction direction, const char *solver)
{
    attn_plan *plan;
    problem.direction = direction;
    problem.flags |= direction == ATTN_DIRECTION_FORWARD ? ATTN_WANT_LSE : ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    if (attn_plan_create(&plan, c, &problem, &(attn_plan_options){.solver = solver}) != ATTN_OK)
        return false;
    attn_arrays arrays = {.q = data[Q],
                          .k = data[K],
                          .v = data[V],
                          .o = data[O],
                          .lse = lse,
                          .dout = data[DO],
                          .dq = data[DQ],
                          .dk = data[DK],
                          .dv = data[DV]};
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    return true;
}

static attn_problem heads_of(const attn_heads *h)
{
    attn_problem problem;
    assert_int_equal(attn_problem_heads(&problem, h), ATTN_OK);
    return problem;
}

static int64_t try_solvers(attn_context *c, const attn_heads *h, const char *isa, float factor)
{
    static const char *const solvers[] = {"decode", "small_sequence", "small_head", "flash",
                                          "wide",   "blocked",        "reference"};
    static const char *const back[] = {
        "decode_backward", "small_sequence_backward", "small_head_backward", "flash_backward", "wide", "blocked",
        "reference"};
    char what[128];
    int64_t runs = 0, q = HEADS * h->queries * h->dim, k = HEADS * h->keys * h->dim;
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++) {
        (void)snprintf(what, sizeof what, "%s, %s, %d x %d x %d, factor %g", isa, solvers[i], (int)h->queries,
                       (int)h->keys, (int)h->dim, (double)factor);
        if (!run(c, heads_of(h), ATTN_DIRECTION_FORWARD, solvers[i]))
            continue;
        assert_finite(O, q, what);
        for (size_t j = 0; j < sizeof back / sizeof *back; j++) {
            (void)snprintf(what, sizeof what, "%s, %s after %s, %d x %d x %d, factor %g", isa, back[j], solvers[i],
                           (int)h->queries, (int)h->keys, (int)h->dim, (double)factor);
            if (!run(c, heads_of(h), ATTN_DIRECTION_BACKWARD, back[j]))
                continue;
            assert_finite(DQ, q, what);
            assert_finite(DK, k, what);
            assert_finite(DV, k, what);
            runs++;
        }
    }
    return runs;
}

/* Gives the keys in turn the unnormalized weights 1, 2^-130.5 and 2^-117.5. Channel `turn` of the values is 2^100,
 * so that the output shows which weights count. A gradient of 2^100 shows the same in dv. */
static void fill_turns(int64_t queries, int64_t keys, int64_t dim)
{
    static const float power[] = {0, -130.5f, -117.5f};
    const float to_score = sqrtf((float)dim) / 1.44269504f;
    memset(data, 0, sizeof data);
    for (int64_t i = 0; i < HEADS * queries * dim; i += dim) {
        data[Q][i] = to_score;
        data[DO][i] = 0x1p100f;
    }
    for (int64_t i = 0; i < HEADS * keys * dim; i += dim) {
        int64_t turn = i / dim % keys % 3;
        data[K][i] = power[turn];
        data[V][i + turn] = turn == 0 ? 1 : 0x1p100f;
    }
}

static void assert_turns(const attn_problem *problem, int64_t queries, int64_t keys, int64_t dim, const char *what)
{
    bool backward = problem->direction == ATTN_DIRECTION_BACKWARD;
    for (int64_t i = 0; i < HEADS * (backward ? keys : queries); i++) {
        int64_t turn = i % keys % 3, at = i * dim;
        if (backward && turn > 0 && !(turn == 1 ? data[DV][at] == 0 && data[DK][at] == 0 : data[DV][at] > 0))
            fail_msg("%s: turn %d has the gradients %g and %g", what, (int)turn, (double)data[DV][at],
                     (double)data[DK][at]);
        if (!backward && !(data[O][at + 1] == 0 && data[O][at + 2] > 0))
            fail_msg("%s: row %d is %g %g", what, (int)i, (double)data[O][at + 1], (double)data[O][at + 2]);
    }
}

/* Runs both passes with the solvers that compute in f32. */
static int64_t try_turns(attn_context *c, attn_problem problem, int64_t queries, int64_t keys, int64_t dim,
                         const char *isa)
{
    static const char *const solvers[] = {"decode", "small_sequence", "small_head", "flash", "wide", "window"};
    static const char *const back[] = {
        "decode_backward", "small_sequence_backward", "small_head_backward", "flash_backward", "wide", "window"};
    int64_t runs = 0;
    fill_turns(queries, keys, dim);
    for (size_t i = 0; i < 2 * sizeof solvers / sizeof *solvers; i++) {
        bool backward = i % 2;
        const char *solver = backward ? back[i / 2] : solvers[i / 2];
        char what[128];
        (void)snprintf(what, sizeof what, "%s, %s, %d x %d x %d", isa, solver, (int)queries, (int)keys, (int)dim);
        if (backward)
            assert_true(run(c, problem, ATTN_DIRECTION_FORWARD, "blocked"));
        problem.direction = backward ? ATTN_DIRECTION_BACKWARD : ATTN_DIRECTION_FORWARD;
        if (!run(c, problem, problem.direction, solver))
            continue;
        assert_turns(&problem, queries, keys, dim, what);
        runs++;
    }
    return runs;
}

static void tiny_weights_are_zero(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 160, 64}, {16, 16, 16}, {64, 160, 8}, {160, 160, 64}, {150, 140, 128}};
    for (attn__isa isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        attn_context *c;
        if (!attn__isa_runs_here(isa))
            continue;
        const char *name = attn__isa_text(isa);
        assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = name, .threads = 2}), ATTN_OK);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const int *n = sizes[i];
            attn_heads h = {.batch = 1, .heads = HEADS, .queries = n[0], .keys = n[1], .dim = n[2]};
            assert_true(try_turns(c, heads_of(&h), n[0], n[1], n[2], name) >= 4);
        }
        attn_problem window;
        assert_int_equal(
            attn_problem_window2d(
                &window,
                &(attn_window2d){
                    .batch = HEADS, .height = 1, .width = 90, .heads = 1, .dim = 32, .window_y = 1, .window_x = 7}),
            ATTN_OK);
        assert_true(try_turns(c, window, 90, 90, 32, name) >= 2);
        attn_context_destroy(c);
    }
}

static void huge_scores_give_finite_numbers(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 160, 64}, {16, 16, 16}, {64, 160, 8}, {160, 160, 64}, {150, 140, 128}};
    static const float factors[] = {3e4f, 1e8f, 1e11f, 1e15f};
    attn__rng rng = {.seed = 3};
    for (attn__isa isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        attn_context *c;
        if (!attn__isa_runs_here(isa))
            continue;
        const char *name = attn__isa_text(isa);
        assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = name, .threads = 2}), ATTN_OK);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
                attn_heads h = {
                    .batch = 1, .heads = HEADS, .queries = sizes[i][0], .keys = sizes[i][1], .dim = sizes[i][2]};
                fill(&rng, factors[f]);
                assert_true(try_solvers(c, &h, name, factors[f]) >= 2);
            }
        attn_context_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(huge_scores_give_finite_numbers),
                                       cmocka_unit_test(tiny_weights_are_zero)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
