/* SPDX-License-Identifier: MIT
 * labels: no-asan no-tsan
 *
 * Compares the window solver with the solver `blocked` on images and volumes of odd sizes, forward and backward, with
 * and without relative tables and biases. Checks that the number of threads changes no bits.
 */
#include "support/cmocka.h"

#include "support/solver_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int axes;
    int64_t n[3], taps[3], heads, channels;
    int64_t step, dilation;
    attn_border border;
    bool tables, bias;
    attn_dtype dtype;
    bool channels_first;
    bool query_tables; /* true: all tables are tables of queries */
    bool mask;         /* true: a mask over the positions is added */
} shape;

static int64_t positions_along(const shape *s, int axis)
{
    return s->n[axis] * s->step - (s->step > 1);
}

/* Adds the dims head, QUERY axes, KEY axes, CONTRACT and VALUE. The last axis is innermost. */
static void lay_grid(const shape *s, attn_problem *p)
{
    int64_t token = s->heads * s->channels, q = s->channels_first ? 1 : token, k = q, taps = 1, rows = 1, places = 1;
    int channel = 1 + 2 * s->axes;
    for (int a = s->axes - 1; a >= 0; a--) {
        p->dims[1 + a] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = s->n[a], .q = q, .o = q, .lse = rows};
        p->dims[1 + s->axes + a] =
            (attn_dim){.role = ATTN_ROLE_KEY, .n = s->taps[a], .k = k, .v = k, .bias = taps, .mask = places};
        p->windows[a] = (attn_window){.query_dim = 1 + a,
                                      .key_dim = 1 + s->axes + a,
                                      .size = positions_along(s, a),
                                      .step = s->step,
                                      .dilation = s->dilation,
                                      .border = s->border,
                                      .offset = -(s->taps[a] / 2) * s->dilation};
        q *= s->n[a];
        k *= positions_along(s, a);
        taps *= s->taps[a];
        rows *= s->n[a];
        places *= positions_along(s, a);
    }
    int64_t cq = s->channels_first ? q : 1, ck = s->channels_first ? k : 1;
    p->dims[0] = (attn_dim){.role = ATTN_ROLE_BATCH,
                            .n = s->heads,
                            .q = s->channels * cq,
                            .k = s->channels * ck,
                            .v = s->channels * ck,
                            .o = s->channels * cq,
                            .lse = rows,
                            .bias = taps};
    p->dims[channel] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = s->channels, .q = cq, .k = ck};
    p->dims[channel + 1] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = s->channels, .v = ck, .o = cq};
    p->ndims = channel + 2;
    p->nwindows = s->axes;
}

/* Adds one table for each axis, of the three kinds in turn. Each table covers a part of the channels. */
static void add_tables(const shape *s, attn_problem *p)
{
    for (int a = 0; a < s->axes; a++) {
        attn_relative *r = &p->relatives[p->nrelatives++];
        int64_t reach = positions_along(s, a) + s->taps[a] * s->dilation;
        r->kind = s->query_tables ? ATTN_RELATIVE_QUERY : (attn_relative_kind)((a + (int)s->n[0]) % 3);
        r->query_dim = 1 + a;
        r->key_dim = 1 + s->axes + a;
        r->offset = reach;
        r->rows = 2 * reach + 1;
        r->begin = a * s->channels / s->axes;
        r->end = (a + 1) * s->channels / s->axes;
        r->row_stride = r->end - r->begin;
        r->stride[1 + 2 * s->axes + (r->kind == ATTN_RELATIVE_VALUE)] = 1;
    }
}

static void make(const shape *s, random_problem *r)
{
    memset(r, 0, sizeof *r);
    r->forward.dtype = s->dtype;
    lay_grid(s, &r->forward);
    if (s->tables)
        add_tables(s, &r->forward);
    r->forward.flags = ATTN_WANT_LSE | (s->bias ? ATTN_WITH_BIAS : 0u) | (s->mask ? ATTN_WITH_MASK : 0u);
    r->backward = r->forward;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.flags = (r->forward.flags & (ATTN_WITH_BIAS | ATTN_WITH_MASK)) | ATTN_WANT_DQ | ATTN_WANT_DK |
                        ATTN_WANT_DV | (s->bias ? ATTN_WANT_DBIAS : 0u) | (s->tables ? ATTN_WANT_DTABLES : 0u);
    random_problem_arrays(r, 7);
}

static double *values_of(const array *a)
{
    double *out = malloc((size_t)a->n * sizeof *out + 1);
    for (int64_t i = 0; i < a->n; i++)
        out[i] = array_get(a, a->low + i);
    return out;
}

static void check_close(const shape *s, int number, const array *a, const double *want)
{
    double most = 0, error = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double difference = fabs(array_get(a, a->low + i) - want[i]);
        if (isinf(want[i]) && array_get(a, a->low + i) == want[i])
            continue;
        if (isnan(difference))
            fail_msg("shape %d: %s[%lld] is NaN", number, a->name, (long long)i);
        most = fabs(want[i]) > most ? fabs(want[i]) : most;
        error = difference > error ? difference : error;
    }
    if (error > (s->dtype == ATTN_BF16 ? 1e-2 : 1e-5) * most)
        fail_msg("shape %d: %s differs by %g of %g", number, a->name, error, most);
}

static void check_direction(attn_context *c, const shape *s, int number, random_problem *r, attn_direction direction)
{
    const char *other = s->dtype == ATTN_BF16 && direction == ATTN_DIRECTION_BACKWARD ? "reference" : "blocked";
    const attn_problem *p = direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward;
    int first = direction == ATTN_DIRECTION_FORWARD ? ARRAY_O : ARRAY_DQ,
        last = direction == ATTN_DIRECTION_FORWARD ? ARRAY_DQ : ARRAY_COUNT;
    double *want[ARRAY_COUNT] = {NULL};
    assert_true(solver_run(c, other, 2, p, &r->arrays));
    for (int id = first; id < last; id++)
        want[id] = r->array[id].block && id != ARRAY_WEIGHTS ? values_of(&r->array[id]) : NULL;
    if (!solver_run(c, "window", 2, p, &r->arrays))
        fail_msg("shape %d: the solver refuses", number);
    for (int id = first; id < last; id++) {
        if (want[id])
            check_close(s, number, &r->array[id], want[id]);
        free(want[id]);
    }
    solver_check_threads(c, "window", r, direction);
}

static const shape shapes[] = {
    {1, {701}, {9}, 2, 5, 1, 1, ATTN_BORDER_MASK, true, true, ATTN_F32, false, false, false},
    {1, {1300}, {33}, 1, 16, 1, 1, ATTN_BORDER_SHIFT, true, false, ATTN_F32, false, false, false},
    {1, {67}, {5}, 3, 3, 2, 3, ATTN_BORDER_ZERO, true, true, ATTN_F32, false, false, false},
    {2, {37, 53}, {7, 7}, 2, 8, 1, 1, ATTN_BORDER_MASK, false, false, ATTN_F32, false, false, false},
    {2, {38, 45}, {7, 5}, 2, 9, 1, 1, ATTN_BORDER_ZERO, true, true, ATTN_F32, false, false, false},
    {2, {31, 43}, {7, 7}, 1, 12, 1, 2, ATTN_BORDER_SHIFT, true, true, ATTN_F32, false, false, false},
    {2, {24, 35}, {3, 5}, 2, 7, 2, 1, ATTN_BORDER_MASK, true, false, ATTN_F32, true, false, false},
    {2, {27, 33}, {5, 3}, 2, 6, 3, 2, ATTN_BORDER_SHIFT, true, true, ATTN_F32, true, false, false},
    {2, {21, 40}, {5, 5}, 1, 33, 1, 1, ATTN_BORDER_MASK, true, false, ATTN_BF16, false, false, false},
    {2, {37, 53}, {7, 7}, 8, 8, 1, 1, ATTN_BORDER_MASK, true, false, ATTN_F32, false, true, false},
    {2, {35, 61}, {7, 3}, 16, 5, 1, 1, ATTN_BORDER_ZERO, true, false, ATTN_F32, false, true, true},
    {2, {40, 33}, {5, 7}, 8, 17, 1, 2, ATTN_BORDER_SHIFT, true, false, ATTN_F32, false, true, true},
    {2, {21, 701}, {3, 9}, 8, 6, 1, 3, ATTN_BORDER_MASK, true, false, ATTN_F32, false, true, false},
    {2, {19, 1201}, {5, 7}, 8, 8, 1, 1, ATTN_BORDER_SHIFT, false, false, ATTN_F32, false, false, true},
    {2, {21, 341}, {3, 15}, 8, 4, 1, 3, ATTN_BORDER_MASK, true, false, ATTN_F32, false, true, false}, /* a wide reach */
    {2, {33, 29}, {4, 6}, 1, 7, 1, 1, ATTN_BORDER_ZERO, true, false, ATTN_F32, true, true, true},
    {2, {26, 50}, {7, 7}, 8, 8, 1, 1, ATTN_BORDER_ZERO, true, false, ATTN_BF16, false, true, false},
    {2, {23, 44}, {7, 7}, 8, 8, 1, 1, ATTN_BORDER_MASK, true, false, ATTN_F32, false, false, false},
    {2, {24, 35}, {3, 5}, 8, 7, 2, 1, ATTN_BORDER_MASK, true, false, ATTN_F32, false, false, true},
    {2, {23, 41}, {7, 9}, 4, 9, 1, 1, ATTN_BORDER_SHIFT, true, false, ATTN_F32, false, true, true},
    {2, {34, 27}, {5, 5}, 12, 8, 1, 1, ATTN_BORDER_MASK, true, false, ATTN_F32, false, true, false},
    {1, {211}, {9}, 8, 5, 1, 2, ATTN_BORDER_SHIFT, true, false, ATTN_F32, false, true, true},
    {3, {16, 17, 18}, {3, 2, 3}, 3, 6, 1, 1, ATTN_BORDER_MASK, true, true, ATTN_F32, false, false, true},
    {3, {17, 16, 18}, {2, 3, 3}, 2, 6, 1, 1, ATTN_BORDER_SHIFT, true, true, ATTN_F32, false, true, false},
    {3, {6, 11, 35}, {3, 5, 3}, 1, 9, 1, 1, ATTN_BORDER_MASK, true, false, ATTN_F32, false, false, false},
    {3, {7, 6, 34}, {3, 3, 3}, 2, 6, 1, 2, ATTN_BORDER_SHIFT, true, true, ATTN_F32, false, false, false},
};

static void agrees_with_rows(void **state)
{
    (void)state;
    attn_context *c;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 2}), ATTN_OK);
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        static random_problem r;
        make(&shapes[i], &r);
        check_direction(c, &shapes[i], i, &r, ATTN_DIRECTION_FORWARD);
        solver_prepare_backward(c, &r);
        check_direction(c, &shapes[i], i, &r, ATTN_DIRECTION_BACKWARD);
        random_problem_free(&r);
    }
    attn_context_destroy(c);
}

/* Tests windows that begin after their query, so that no query reaches the first keys. */
static void windows_may_begin_ahead(void **state)
{
    static const shape s = {2,     {11, 19}, {3, 5},   4,     3,     1,    2, ATTN_BORDER_MASK,
                            false, false,    ATTN_F32, false, false, false};
    attn_context *c;
    (void)state;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 2}), ATTN_OK);
    for (int ahead = 1; ahead < 8; ahead++) {
        static random_problem r;
        make(&s, &r);
        for (int a = 0; a < s.axes; a++)
            r.forward.windows[a].offset = r.backward.windows[a].offset = ahead;
        check_direction(c, &s, ahead, &r, ATTN_DIRECTION_FORWARD);
        solver_prepare_backward(c, &r);
        check_direction(c, &s, ahead, &r, ATTN_DIRECTION_BACKWARD);
        random_problem_free(&r);
    }
    attn_context_destroy(c);
}

/* The planner must choose the window solver for the windows that this solver supports best. */
static void is_chosen(void **state)
{
    (void)state;
    attn_context *c;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    for (int direction = 0; direction < 2; direction++) {
        attn_problem p;
        attn_plan *plan;
        attn_problem_window2d(
            &p, &(attn_window2d){
                    .batch = 1, .height = 64, .width = 64, .heads = 4, .dim = 32, .window_y = 7, .window_x = 7});
        p.direction = (attn_direction)direction;
        p.flags = direction ? ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV : 0;
        assert_int_equal(attn_plan_create(&plan, c, &p, NULL), ATTN_OK);
        assert_string_equal(attn_plan_solver(plan), "window");
        attn_plan_destroy(plan);
    }
    attn_context_destroy(c);
}

/* Makes a problem of two adjacent heads that share a mask or a length for each query, as `with` selects. */
static void make_by_query(random_problem *r, int64_t queries, unsigned with)
{
    enum { HEADS = 2, TAPS = 3, CHANNELS = 4, TOKEN = HEADS * CHANNELS };
    attn_problem *p = &r->forward;
    memset(r, 0, sizeof *r);
    p->dtype = ATTN_F32;
    p->flags = ATTN_WANT_LSE | with;
    p->ndims = 5;
    p->dims[0] = (attn_dim){.role = ATTN_ROLE_BATCH,
                            .n = HEADS,
                            .q = CHANNELS,
                            .k = CHANNELS,
                            .v = CHANNELS,
                            .o = CHANNELS,
                            .lse = queries};
    p->dims[1] =
        (attn_dim){.role = ATTN_ROLE_QUERY, .n = queries, .q = TOKEN, .o = TOKEN, .mask = queries, .lens = 1, .lse = 1};
    p->dims[2] = (attn_dim){.role = ATTN_ROLE_KEY, .n = TAPS, .k = TOKEN, .v = TOKEN, .mask = 1};
    p->dims[3] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = CHANNELS, .q = 1, .k = 1};
    p->dims[4] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = CHANNELS, .v = 1, .o = 1};
    p->lens_dim = 2;
    p->nwindows = 1;
    p->windows[0] = (attn_window){.query_dim = 1, .key_dim = 2, .size = queries, .offset = -1};
    r->backward = *p;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.flags = with | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    random_problem_arrays(r, 11);
}

static void check_by_query(random_problem *r)
{
    attn_context *c;
    truth t;
    double worst = 0;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    truth_make(&t, r);
    assert_true(solver_check(c, "window", r, &t, ATTN_DIRECTION_FORWARD, &worst));
    solver_prepare_backward(c, r);
    assert_true(solver_check(c, "window", r, &t, ATTN_DIRECTION_BACKWARD, &worst));
    truth_free(&t, r);
    attn_context_destroy(c);
}

/* Every second query sees no key, and the others see all keys. */
static void a_mask_by_query_holds_for_all_heads(void **state)
{
    (void)state;
    for (int64_t queries = 1; queries < 20; queries += 6) {
        static random_problem r;
        make_by_query(&r, queries, ATTN_WITH_MASK);
        for (int64_t i = 0; i < queries * queries; i++)
            ((uint8_t *)r.array[ARRAY_MASK].block)[i] = (uint8_t)(i / queries % 2);
        check_by_query(&r);
        random_problem_free(&r);
    }
}

/* Query i attends only to key i - 1, or to no key if i % 3 is 0. */
static void lengths_by_query_hold_for_all_heads(void **state)
{
    (void)state;
    for (int64_t queries = 1; queries < 20; queries += 6) {
        static random_problem r;
        make_by_query(&r, queries, ATTN_WITH_LENS);
        for (int64_t i = 0; i < queries; i++)
            ((int32_t *)r.array[ARRAY_LENS].block)[i] = (int32_t)(i % 3 ? i : 0);
        check_by_query(&r);
        random_problem_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_rows), cmocka_unit_test(windows_may_begin_ahead), cmocka_unit_test(is_chosen),
        cmocka_unit_test(a_mask_by_query_holds_for_all_heads), cmocka_unit_test(lengths_by_query_hold_for_all_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
