/* SPDX-License-Identifier: MIT
 *
 * Tests bf16 keys and values with f32 queries. Every solver that supports them gives the same bits as with the same
 * numbers in f32, on every instruction set.
 */
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/bf16.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 3, HEADS = 2, MOST_QUERIES = 20, MOST_KEYS = 150, MOST_DIM = 80 };
enum { ROWS = BATCH * HEADS * MOST_QUERIES, QUERIES = ROWS * MOST_DIM, KEYS = BATCH * HEADS * MOST_KEYS * MOST_DIM };

static float q[QUERIES], k[KEYS], v[KEYS], o[2][QUERIES], lse[2][ROWS];
static uint16_t small_k[KEYS], small_v[KEYS];
static const int32_t lens[BATCH] = {1, 7, MOST_KEYS};

static void fill(void)
{
    attn__rng rng = {.seed = 11};
    for (int i = 0; i < QUERIES; i++)
        q[i] = (float)attn__rng_normal(&rng);
    for (int i = 0; i < KEYS; i++) {
        small_k[i] = attn__to_bf16((float)attn__rng_normal(&rng));
        small_v[i] = attn__to_bf16((float)attn__rng_normal(&rng));
        k[i] = attn__from_bf16(small_k[i]);
        v[i] = attn__from_bf16(small_v[i]);
    }
}

static bool run(attn_context *c, const attn_heads *heads, const char *solver, bool small)
{
    attn_problem p;
    attn_plan *plan;
    assert_int_equal(attn_problem_heads(&p, heads), ATTN_OK);
    p.flags |= ATTN_WANT_LSE | (small ? (unsigned)ATTN_WITH_BF16_KEYS : 0);
    if (attn_plan_create(&plan, c, &p, &(attn_plan_options){.solver = solver}) != ATTN_OK)
        return false;
    attn_arrays arrays = {.q = q,
                          .k = small ? (void *)small_k : k,
                          .v = small ? (void *)small_v : v,
                          .lens = lens,
                          .o = o[small],
                          .lse = lse[small]};
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    return true;
}

static void compare(attn_context *c, const attn_heads *heads, const char *solver, bool wanted)
{
    memset(o, 0, sizeof o);
    memset(lse, 0, sizeof lse);
    bool taken = run(c, heads, solver, true);
    if (taken != wanted)
        fail_msg("%s, %s: %s", attn_context_isa(c), solver, wanted ? attn_context_error(c) : "is taken");
    attn_context_clear_error(c);
    if (!taken)
        return;
    assert_true(run(c, heads, solver, false));
    assert_memory_equal(o[0], o[1], sizeof o[0]);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
}

static void the_bits_are_those_of_f32(void **state)
{
    static const int64_t queries[] = {1, 4, 16, MOST_QUERIES}, keys[] = {1, 9, 33, MOST_KEYS},
                         dims[] = {5, 16, 64, MOST_DIM};
    const char *isa;
    (void)state;
    fill();
    for (int i = 0; (isa = attn_isa_name(i)); i++) {
        attn_context *c;
        if (attn_context_create(&c, &(attn_context_options){.isa = isa, .threads = 2}) != ATTN_OK)
            continue;
        for (int n = 0; n < 4 * 4 * 4; n++) {
            attn_heads heads = {.batch = BATCH,
                                .heads = HEADS,
                                .queries = queries[n % 4],
                                .keys = keys[n / 4 % 4],
                                .dim = dims[n / 16],
                                .layout = ATTN_LAYOUT_BTHD,
                                .lens_per = n % 3 == 0};
            compare(c, &heads, "decode", heads.queries <= 16);
            compare(c, &heads, "flash", true);
            compare(c, &heads, "small_sequence", false);
            if (n % 5 == 0)
                compare(c, &heads, "reference", true);
        }
        attn_context_destroy(c);
    }
}

static void plans_say_how_many_bytes(void **state)
{
    attn_context *c;
    attn_problem p;
    attn_plan *plan;
    attn_span span;
    (void)state;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    attn_problem_heads(&p, &(attn_heads){.batch = 1, .heads = 2, .queries = 1, .keys = 9, .dim = 32});
    p.flags |= ATTN_WITH_BF16_KEYS;
    assert_int_equal(attn_plan_create(&plan, c, &p, NULL), ATTN_OK);
    assert_string_equal(attn_plan_solver(plan), "decode");
    assert_true(attn_plan_span(plan, ATTN_ARRAY_K, &span));
    assert_int_equal(span.dtype, ATTN_BF16);
    assert_true(attn_plan_span(plan, ATTN_ARRAY_Q, &span));
    assert_int_equal(span.dtype, ATTN_F32);
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_f32),
        cmocka_unit_test(plans_say_how_many_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
