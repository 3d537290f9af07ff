/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares wide heads with the float64 evaluation at the ends of chunks and blocks. There are heads with many queries,
 * more keys than a block, queries without keys, and masked NaN. Checks that the number of threads changes no bits.
 */
#include "support/cmocka.h"

#include "support/solver_check.h"

#include <math.h>
#include <string.h>

static attn_dim *dim_of(attn_problem *p, attn_role role)
{
    int i = 0;
    while (p->dims[i].role != role)
        i++;
    return &p->dims[i];
}

static attn_context *new_context(void)
{
    attn_context *c;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 2}), ATTN_OK);
    return c;
}

/* Fills the arrays of r->forward and checks the forward pass and, if `backward` is true, the backward pass. */
static void check(random_problem *r, bool backward, void (*change)(random_problem *r))
{
    attn_context *c = new_context();
    truth t;
    double worst = 0;
    r->forward.flags |= ATTN_WANT_LSE;
    r->backward = r->forward;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.flags = (r->forward.flags & ~(unsigned)ATTN_WANT_LSE) | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    random_problem_arrays(r, 3);
    if (change)
        change(r);
    truth_make(&t, r);
    assert_true(solver_check(c, "wide", r, &t, ATTN_DIRECTION_FORWARD, &worst));
    solver_check_threads(c, "wide", r, ATTN_DIRECTION_FORWARD);
    if (backward) {
        solver_prepare_backward(c, r);
        assert_true(solver_check(c, "wide", r, &t, ATTN_DIRECTION_BACKWARD, &worst));
        solver_check_threads(c, "wide", r, ATTN_DIRECTION_BACKWARD);
    }
    truth_free(&t, r);
    random_problem_free(r);
    attn_context_destroy(c);
}

static void tied_rows_of_odd_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{37, 61, 24}, {128, 9, 8}, {3, 50, 65}, {300, 1, 1},
                                       {1, 97, 200}, {17, 33, 7}, {3, 97, 32}, {1, 64, 96}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        static random_problem r;
        memset(&r, 0, sizeof r);
        assert_int_equal(
            attn_problem_tied_rows(&r.forward, sizes[i][0], sizes[i][1], 1 + (int64_t)i % 2, 2, sizes[i][2]), ATTN_OK);
        r.forward.dtype = i % 3 == 2 ? ATTN_BF16 : ATTN_F32;
        if (i % 2) {
            r.forward.flags |= ATTN_WITH_MASK;
            dim_of(&r.forward, ATTN_ROLE_KEY)->mask = 1;
        }
        check(&r, true, NULL);
    }
}

static void make_heads(random_problem *r, const attn_heads *heads)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(attn_problem_heads(&r->forward, heads), ATTN_OK);
}

/* A block has at most 512 keys in the forward pass, and 256 queries and keys in the backward pass. */
static void more_keys_than_a_block(void **state)
{
    (void)state;
    static random_problem r;
    attn_heads heads = {.batch = 1, .heads = 1, .queries = 23, .keys = 1100, .dim = 5, .dim_value = 150};
    make_heads(&r, &heads);
    check(&r, true, NULL);
    heads.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    heads.key_padding = true;
    make_heads(&r, &heads);
    r.forward.dropout = 0.2;
    check(&r, true, NULL);
    make_heads(&r, &heads);
    r.forward.dtype = ATTN_BF16;
    check(&r, false, NULL);
    heads = (attn_heads){.batch = 1,
                         .heads = 1,
                         .queries = 90,
                         .keys = 290,
                         .dim = 32,
                         .dim_value = 96,
                         .causal = ATTN_CAUSAL_BOTTOM_RIGHT,
                         .key_padding = true};
    make_heads(&r, &heads);
    r.forward.dropout = 0.2;
    check(&r, true, NULL);
}

/* The last queries of the first problem and the first queries of the second problem have no keys. */
static void blocks_that_nobody_sees(void **state)
{
    (void)state;
    static random_problem r;
    attn_heads heads = {.batch = 1, .heads = 2, .queries = 530, .keys = 270, .dim = 3, .causal = ATTN_CAUSAL_TOP_LEFT};
    make_heads(&r, &heads);
    r.forward.bands[0] = (attn_band){
        .query_dim = r.forward.bands[0].query_dim, .key_dim = r.forward.bands[0].key_dim, .lo = -100, .hi = -3};
    check(&r, true, NULL);
    heads.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    heads.lens_per = 1;
    make_heads(&r, &heads);
    check(&r, true, NULL);
    heads.dim = 32;
    heads.queries = 300;
    heads.heads = 1;
    make_heads(&r, &heads);
    check(&r, true, NULL);
}

/* Masks key 1 and the last key for all queries, and sets them to NaN. */
static void hide_poison(random_problem *r)
{
    const attn_dim *key = dim_of(&r->forward, ATTN_ROLE_KEY), *value = dim_of(&r->forward, ATTN_ROLE_VALUE);
    const int64_t hidden[] = {1, key->n - 1};
    for (int i = 0; i < 2; i++) {
        array_set(&r->array[ARRAY_MASK], hidden[i] * key->mask, 0);
        array_set(&r->array[ARRAY_K], hidden[i] * key->k, NAN);
        array_set(&r->array[ARRAY_V], hidden[i] * key->v + (value->n - 1) * value->v, i ? NAN : INFINITY);
    }
}

static void poison_behind_masks_stays_there(void **state)
{
    (void)state;
    static random_problem r;
    attn_heads heads = {.batch = 1, .heads = 1, .queries = 19, .keys = 45, .dim = 140, .key_padding = true};
    make_heads(&r, &heads);
    check(&r, true, hide_poison);
    heads.keys = 600;
    heads.dim = 9;
    make_heads(&r, &heads);
    check(&r, true, hide_poison);
    heads.queries = 70;
    heads.keys = 280;
    heads.dim = 96;
    make_heads(&r, &heads);
    check(&r, true, hide_poison);
}

static void the_planner_takes_it_for_tied_rows(void **state)
{
    (void)state;
    attn_context *c = new_context();
    attn_problem p;
    attn_plan *plan;
    assert_int_equal(attn_problem_tied_rows(&p, 128, 256, 1, 12, 64), ATTN_OK);
    assert_int_equal(attn_plan_create(&plan, c, &p, NULL), ATTN_OK);
    assert_string_equal(attn_plan_solver(plan), "wide");
    size_t workspace = attn_plan_workspace(plan);
    attn_plan_destroy(plan);
    assert_int_equal(attn_problem_tied_rows(&p, 128, 65536, 1, 12, 64), ATTN_OK);
    assert_int_equal(attn_plan_create(&plan, c, &p, NULL), ATTN_OK);
    assert_true(attn_plan_workspace(plan) < 4 * workspace);
    attn_plan_destroy(plan);
    p.direction = ATTN_DIRECTION_BACKWARD;
    p.flags = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    assert_int_equal(attn_plan_create(&plan, c, &p, NULL), ATTN_OK);
    assert_string_equal(attn_plan_solver(plan), "wide");
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_rows_of_odd_sizes),
        cmocka_unit_test(more_keys_than_a_block),
        cmocka_unit_test(blocks_that_nobody_sees),
        cmocka_unit_test(poison_behind_masks_stays_there),
        cmocka_unit_test(the_planner_takes_it_for_tied_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
