/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares relative tables of the flash solvers with the float64 evaluation at the ends of tiles and blocks. There are
 * several tiles of queries and blocks of keys, heads that share keys and a table, two axes, and bands that need fewer
 * table rows. Checks that the number of threads changes no bits, and that a NaN in a table reaches only results that
 * read it.
 */
#include "support/context.h"

#include "support/solver_check.h"

#include <math.h>
#include <string.h>

CONTEXT_OF_TESTS(.threads = 2)

static int dim_of(const attn_problem *p, attn_role role, int number)
{
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == role && number-- == 0)
            return i;
    return -1;
}

/* Adds a table of queries and a table of values along a pair of axes. If `heads` is true, each index of BATCH dim 1
 * has rows of its own. */
static void add_tables(attn_problem *p, int query, int key, bool heads)
{
    for (int i = 0; i < 2; i++) {
        int channel = dim_of(p, i ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT, 0);
        attn_relative *r = &p->relatives[p->nrelatives++];
        *r = (attn_relative){.kind = i ? ATTN_RELATIVE_VALUE : ATTN_RELATIVE_QUERY,
                             .query_dim = query,
                             .key_dim = key,
                             .offset = p->dims[query].n - 1,
                             .rows = p->dims[query].n + p->dims[key].n - 1,
                             .row_stride = p->dims[channel].n};
        r->stride[channel] = 1;
        r->stride[1] = heads ? r->rows * r->row_stride : 0;
    }
}

static void check(random_problem *r, void (*change)(random_problem *r))
{
    truth t;
    double worst = 0;
    r->forward.flags |= ATTN_WANT_LSE;
    r->backward = r->forward;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DTABLES;
    random_problem_arrays(r, 5);
    if (change)
        change(r);
    truth_make(&t, r);
    assert_true(solver_check(context, "flash", r, &t, ATTN_DIRECTION_FORWARD, &worst));
    solver_check_threads(context, "flash", r, ATTN_DIRECTION_FORWARD);
    solver_prepare_backward(context, r);
    assert_true(solver_check(context, "flash_backward", r, &t, ATTN_DIRECTION_BACKWARD, &worst));
    solver_check_threads(context, "flash_backward", r, ATTN_DIRECTION_BACKWARD);
    truth_free(&t, r);
    random_problem_free(r);
}

static void make_heads(random_problem *r, const attn_heads *heads, bool own)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(attn_problem_heads(&r->forward, heads), ATTN_OK);
    add_tables(&r->forward, dim_of(&r->forward, ATTN_ROLE_QUERY, 0), dim_of(&r->forward, ATTN_ROLE_KEY, 0), own);
}

static void several_tiles_and_blocks(void **state)
{
    (void)state;
    static random_problem r;
    make_heads(&r, &(attn_heads){.batch = 2, .heads = 2, .queries = 161, .keys = 300, .dim = 20, .dim_value = 9}, true);
    check(&r, NULL);
    make_heads(&r, &(attn_heads){.batch = 1, .heads = 3, .queries = 300, .keys = 97, .dim = 8, .dim_value = 33}, false);
    r.forward.dropout = 0.3;
    check(&r, NULL);
    make_heads(&r, &(attn_heads){.batch = 1, .heads = 1, .queries = 200, .keys = 200, .dim = 16}, false);
    r.forward.dtype = ATTN_BF16;
    check(&r, NULL);
}

/* Tests heads that share a tile: the last tile of one is the first tile of the next. */
static void heads_that_share_keys(void **state)
{
    (void)state;
    static random_problem r;
    make_heads(&r, &(attn_heads){.batch = 2, .heads = 3, .kv_heads = 1, .queries = 90, .keys = 131, .dim = 12}, false);
    check(&r, NULL);
    make_heads(&r,
               &(attn_heads){.batch = 1,
                             .heads = 4,
                             .kv_heads = 2,
                             .queries = 130,
                             .keys = 130,
                             .dim = 12,
                             .causal = ATTN_CAUSAL_TOP_LEFT,
                             .key_padding = true},
               false);
    check(&r, NULL);
}

/* With a band, tables need no rows for distances outside of it. */
static void a_band_spares_rows(void **state)
{
    (void)state;
    static random_problem r;
    make_heads(&r, &(attn_heads){.batch = 1, .heads = 2, .queries = 250, .keys = 250, .dim = 8}, true);
    attn_problem *p = &r.forward;
    p->bands[p->nbands++] = (attn_band){p->relatives[0].query_dim, p->relatives[0].key_dim, -20, 7};
    for (int i = 0; i < 2; i++) {
        p->relatives[i].offset = 20;
        p->relatives[i].rows = 28;
    }
    check(&r, NULL);
}

/* Tests rows and columns of images of different sizes, with separate tables. */
static void two_axes(void **state)
{
    (void)state;
    enum { H = 13, W = 17, H2 = 11, W2 = 19, D = 10 };
    static random_problem r;
    memset(&r, 0, sizeof r);
    r.forward.ndims = 8;
    const attn_dim dims[] = {{.role = ATTN_ROLE_BATCH,
                              .n = 2,
                              .q = H * W * D,
                              .k = H2 * W2 * D,
                              .v = H2 * W2 * D,
                              .o = H * W * D,
                              .lse = H * W},
                             {.role = ATTN_ROLE_BATCH, .n = 1},
                             {.role = ATTN_ROLE_QUERY, .n = H, .q = W * D, .o = W * D, .lse = W},
                             {.role = ATTN_ROLE_QUERY, .n = W, .q = D, .o = D, .lse = 1},
                             {.role = ATTN_ROLE_KEY, .n = H2, .k = W2 * D, .v = W2 * D},
                             {.role = ATTN_ROLE_KEY, .n = W2, .k = D, .v = D},
                             {.role = ATTN_ROLE_CONTRACT, .n = D, .q = 1, .k = 1},
                             {.role = ATTN_ROLE_VALUE, .n = D, .v = 1, .o = 1}};
    memcpy(r.forward.dims, dims, sizeof dims);
    add_tables(&r.forward, 2, 4, false);
    add_tables(&r.forward, 3, 5, false);
    r.forward.relatives[0].end = 4;
    r.forward.relatives[2].begin = 4;
    r.forward.relatives[2].end = D;
    check(&r, NULL);
}

/* Sets an element of row 3 to NaN, which only the last queries of the first head read. */
static void break_a_row_of_values(random_problem *r)
{
    array_set(&r->array[ARRAY_TABLE + 1], 3 * r->forward.relatives[1].row_stride + 2, (double)NAN);
}

static void break_a_row_of_queries(random_problem *r)
{
    array_set(&r->array[ARRAY_TABLE], 3 * r->forward.relatives[0].row_stride + 2, (double)NAN);
}

static void not_a_number_shows_where_it_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        static random_problem r;
        attn_heads heads = {.batch = 1, .heads = 2, .queries = 100, .keys = 120, .dim = 8};
        heads.causal = i >= 2 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
        make_heads(&r, &heads, true);
        check(&r, i % 2 ? break_a_row_of_queries : break_a_row_of_values);
    }
}

/* The lanes of the window solver are several heads, or positions of the short axis if there is only one head. */
static void short_axes_go_by_their_heads(void **state)
{
    (void)state;
    for (int64_t heads = 1; heads <= 8; heads += 7) {
        static random_problem r;
        attn_plan *plan;
        make_heads(&r, &(attn_heads){.batch = 64, .heads = heads, .queries = 8, .keys = 8, .dim = 8}, false);
        r.forward.nrelatives = 1;
        assert_int_equal(attn_plan_create(&plan, context, &r.forward, NULL), ATTN_OK);
        assert_string_equal(attn_plan_solver(plan), heads == 1 ? "flash" : "window");
        attn_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_tiles_and_blocks),     cmocka_unit_test(heads_that_share_keys),
        cmocka_unit_test(a_band_spares_rows),           cmocka_unit_test(two_axes),
        cmocka_unit_test(short_axes_go_by_their_heads), cmocka_unit_test(not_a_number_shows_where_it_is_read)};
    return cmocka_run_group_tests(tests, open_context, close_context);
}
