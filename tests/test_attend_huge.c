/* SPDX-License-Identifier: MIT
 * Attention whose scores are huge and finite: every solver of every instruction set gives finite outputs and gradients,
 * for softmax knows no overflow. */
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

/* False where the solver does not take the problem. */
static bool run(attn_context *c, const attn_heads *h, attn_direction direction, const char *solver)
{
    attn_problem problem;
    attn_plan *plan;
    attn_heads heads = *h;
    assert_int_equal(attn_problem_heads(&problem, &heads), ATTN_OK);
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

static int64_t try_solvers(attn_context *c, const attn_heads *h, const char *isa, float factor)
{
    static const char *const solvers[] = {"decode", "small_sequence", "small_head", "flash", "wide_head", "reference"};
    static const char *const back[] = {"decode_backward", "small_sequence_backward", "small_head_backward",
                                       "flash_backward",  "wide_head_backward",      "reference"};
    char what[128];
    int64_t runs = 0, q = HEADS * h->queries * h->dim, k = HEADS * h->keys * h->dim;
    for (size_t i = 0; i < sizeof solvers / sizeof *solvers; i++) {
        (void)snprintf(what, sizeof what, "%s, %s, %d x %d x %d, factor %g", isa, solvers[i], (int)h->queries,
                       (int)h->keys, (int)h->dim, (double)factor);
        if (!run(c, h, ATTN_DIRECTION_FORWARD, solvers[i]))
            continue;
        assert_finite(O, q, what);
        for (size_t j = 0; j < sizeof back / sizeof *back; j++) {
            (void)snprintf(what, sizeof what, "%s, %s after %s, %d x %d x %d, factor %g", isa, back[j], solvers[i],
                           (int)h->queries, (int)h->keys, (int)h->dim, (double)factor);
            if (!run(c, h, ATTN_DIRECTION_BACKWARD, back[j]))
                continue;
            assert_finite(DQ, q, what);
            assert_finite(DK, k, what);
            assert_finite(DV, k, what);
            runs++;
        }
    }
    return runs;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(huge_scores_give_finite_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
