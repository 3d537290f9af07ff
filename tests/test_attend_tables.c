/* SPDX-License-Identifier: MIT
 *
 * Compares relative tables over whole axes with plain loops in double, for the planner's choice and for the solver that
 * multiplies tables with tiles. Checks that the number of threads changes no bits. Elements of tables are NaN, with or
 * without a pair that reads them.
 */
#include "support/cmocka.h"

#include "support/table_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- against plain loops */

static void check_threads(random_problem *r, int number, const char *solver, attn_direction direction)
{
    static const int counts[] = {2, 5};
    table_results one;
    table_clear(r, direction);
    solver_run(table_context, solver, 1, table_direction(r, direction), &r->arrays);
    table_results_take(&one, r, direction);
    for (int i = 0; i < 2; i++) {
        table_clear(r, direction);
        solver_run(table_context, solver, counts[i], table_direction(r, direction), &r->arrays);
        table_results_assert_same(&one, r, "threads", number);
    }
    table_results_drop(&one);
}

/* Returns true if the flash solver must accept the problem. It may refuse problems with an empty role, tables of
 * keys, or sums over grouped heads that are not accumulated in f32. */
static bool must_take(const random_problem *r, attn_direction direction)
{
    if (direction == ATTN_DIRECTION_BACKWARD && r->forward.dims[TABLE_GROUP].n > 1 && r->forward.dtype == ATTN_BF16)
        return false;

    bool takes = true;
    for (int d = 0; d < r->forward.ndims; d++)
        takes = takes && r->forward.dims[d].n > 0;
    for (int i = 0; i < r->forward.nrelatives; i++)
        takes = takes && r->forward.relatives[i].kind != ATTN_RELATIVE_KEY;
    return takes;
}

static void check_direction(random_problem *r, const truth *t, int number, attn_direction direction, double *worst)
{
    for (int s = 0; s < 2; s++)
        if (solver_check(table_context, table_solvers[direction][s], r, t, direction, worst))
            check_threads(r, number, table_solvers[direction][s], direction);
        else if (must_take(r, direction))
            fail_msg("shape %d: %s refuses", number, table_solvers[direction][s]);
}

/* Checks a shape in which elements that no pair reads are NaN or infinite. */
static void check_shape(int number, attn_dtype dtype, double spoilt, double *worst)
{
    static random_problem r;
    truth t;
    table_problem(&r, &table_shapes[number], dtype);
    table_spoil(&r, spoilt);
    truth_make(&t, &r);
    if (table_truth(&r, &t) > 0x1p-20)
        fail_msg("shape %d: the two evaluations in double differ", number);
    check_direction(&r, &t, number, ATTN_DIRECTION_FORWARD, worst);
    solver_prepare_backward(table_context, &r);
    check_direction(&r, &t, number, ATTN_DIRECTION_BACKWARD, worst);
    truth_free(&t, &r);
    random_problem_free(&r);
}

static void agrees_with_plain_loops(void **state)
{
    double worst[2] = {0};
    (void)state;
    for (int i = 0; i < TABLE_SHAPES; i += test_step())
        for (int dtype = 0; dtype < 2; dtype++) {
            check_shape(i, dtype ? ATTN_BF16 : ATTN_F32, i % 2 == dtype ? (double)NAN : (double)INFINITY,
                        &worst[dtype]);
        }
    print_message("largest errors, in bounds: f32 %.3f, bf16 %.3f\n", worst[0], worst[1]);
}

/* ------------------------------------------------------------------------------------- a NaN that is read */

static void check_row(const random_problem *r, const truth *t, int id, int64_t at, int64_t n, bool reads)
{
    for (int64_t c = 0; c < n; c++) {
        double x = array_get(&r->array[id], at + c), want = t->value[id][at + c];
        if (reads ? !isnan(x) : !(fabs(x - want) <= t->bound[id][at + c]))
            fail_msg("%s[%lld] is %g, not %g%s", r->array[id].name, (long long)(at + c), x, want,
                     reads ? " but NaN" : "");
    }
}

enum { MOST_CHANNELS = 64 };

/* A NaN in row `bad` of a table must reach the results of exactly those queries that read the row. */
static void check_rows(const random_problem *r, const truth *t, int which, int64_t bad, bool backward)
{
    const attn_problem *p = &r->forward;
    const attn_dim *d = p->dims;
    int64_t tq = d[TABLE_QUERY].n, tk = d[TABLE_QUERY + 1].n, row = 0;
    unsigned char *pairs = calloc((size_t)(d[0].n * d[1].n * d[2].n * tq * tk), 1);
    table_pairs(r, pairs);
    for (int64_t b = 0; b < d[0].n * d[1].n * d[2].n; b++)
        for (int64_t i = 0; i < tq; i++, row++) {
            int64_t j = i + bad - p->relatives[which].offset, h = b / d[2].n % d[1].n, group = b % d[2].n;
            int64_t batch = b / (d[1].n * d[2].n);
            bool reads = j >= 0 && j < tk && pairs[row * tk + j];
            check_row(r, t, backward ? ARRAY_DQ : ARRAY_O,
                      backward ? batch * d[0].q + h * d[1].q + group * d[2].q + i * d[3].q
                               : batch * d[0].o + h * d[1].o + group * d[2].o + i * d[3].o,
                      backward ? d[5].n : d[6].n, reads);
        }
    free(pairs);
}

static void check_solvers(random_problem *r, const truth *t, int which, int64_t bad)
{
    for (int i = 0; i < 4; i++) {
        attn_direction direction = i / 2 ? ATTN_DIRECTION_BACKWARD : ATTN_DIRECTION_FORWARD;
        table_clear(r, direction);
        if (i == 2)
            solver_prepare_backward(table_context, r);
        if (solver_run(table_context, table_solvers[i / 2][i % 2], 0, table_direction(r, direction), &r->arrays))
            check_rows(r, t, which, bad, i / 2);
    }
}

/* Tests NaN in five rows of a table, one after another. The first and the last row are among them. */
static void check_nan(const table_shape *s, attn_dtype dtype, int which)
{
    static random_problem r;
    truth t;
    table_problem(&r, s, dtype);
    truth_make(&t, &r);
    const attn_relative *relative = &r.forward.relatives[which];
    const array *a = &r.array[ARRAY_TABLE + which];
    for (int share = 0; share <= 4; share++) {
        int64_t bad = (relative->rows - 1) * share / 4;
        float *row = (float *)a->block + bad * relative->row_stride, kept[MOST_CHANNELS];
        memcpy(kept, row, (size_t)relative->row_stride * sizeof *row);
        for (int64_t c = 0; c < relative->row_stride; c++)
            row[c] = NAN;
        check_solvers(&r, &t, which, bad);
        memcpy(row, kept, (size_t)relative->row_stride * sizeof *row);
    }
    truth_free(&t, &r);
    random_problem_free(&r);
}

static void a_nan_shows_where_it_is_read(void **state)
{
    static const int some[][2] = {{8, 0},  {9, 0},  {10, 0}, {11, 0}, {21, 0}, {21, 1}, {22, 0}, {22, 1},
                                  {24, 0}, {24, 1}, {25, 0}, {25, 1}, {26, 0}, {26, 1}, {43, 0}, {43, 1}};
    (void)state;
    for (int i = 0; i < (int)(sizeof some / sizeof *some); i += test_step()) {
        check_nan(&table_shapes[some[i][0]], ATTN_F32, some[i][1]);
        check_nan(&table_shapes[some[i][0]], ATTN_BF16, some[i][1]);
    }
}

/* Tests tables of values without masks. A NaN is in rows near the first and the last key. */
static void a_nan_of_values_shows_where_it_is_read(void **state)
{
    static const int some[][2] = {{7, 0}, {8, 1}, {10, 1}, {11, 1}};
    (void)state;
    for (int i = 0; i < (int)(sizeof some / sizeof *some); i += test_step()) {
        check_nan(&table_shapes[some[i][0]], ATTN_F32, some[i][1]);
        check_nan(&table_shapes[some[i][0]], ATTN_BF16, some[i][1]);
    }
}

/* Tests table rows that only masked pairs read, in problems for which the planner chooses `window`. */
static void masked_rows_of_small_problems(void **state)
{
    double worst = 0;
    (void)state;
    for (int i = TABLE_SHAPES; i < TABLE_SHAPES + 4; i++) {
        check_shape(i, ATTN_F32, (double)NAN, &worst);
        check_shape(i, ATTN_BF16, (double)INFINITY, &worst);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_plain_loops), cmocka_unit_test(a_nan_shows_where_it_is_read),
        cmocka_unit_test(a_nan_of_values_shows_where_it_is_read), cmocka_unit_test(masked_rows_of_small_problems)};
    return cmocka_run_group_tests(tests, table_start, table_end);
}
