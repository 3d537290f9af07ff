/* SPDX-License-Identifier: MIT
 *
 * Tests relative tables over whole axes. Plans run again with other contents, or in two threads. Sequences are padded
 * in batch-invariant contexts. Solvers that refuse a problem give messages.
 */
#include "support/cmocka.h"

#include "support/table_problem.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- plans used again */

typedef struct task {
    const attn_plan *plan;
    const attn_arrays *arrays;
    attn_status status;
} task;

static void *execute_often(void *work)
{
    task *t = work;
    void *workspace = NULL;
    size_t size = attn_plan_workspace(t->plan) + 64;
    t->status = posix_memalign(&workspace, 64, size) ? ATTN_ERROR_MEMORY : ATTN_OK;
    for (int i = 0; i < 8 && t->status == ATTN_OK; i++)
        t->status = attn_plan_execute(t->plan, t->arrays, workspace);
    free(workspace);
    return NULL;
}

/* Executes a plan repeatedly, and in two threads at the same time, for two problems whose tables differ. */
static void check_again(random_problem *const r[2], attn_direction direction, const char *solver, int number)
{
    attn_plan *plan;
    table_results want[2];
    pthread_t thread[2];
    task tasks[2];
    for (int i = 0; i < 2; i++) {
        table_clear(r[i], direction);
        if (!solver_run(table_context, solver, 2, table_direction(r[i], direction), &r[i]->arrays))
            fail_msg("shape %d: refused", number);
        table_results_take(&want[i], r[i], direction);
    }
    attn_plan_options options = {.solver = solver, .threads = 2};
    assert_int_equal(attn_plan_create(&plan, table_context, table_direction(r[0], direction), &options), ATTN_OK);
    for (int i = 0; i < 4; i++) {
        table_clear(r[i % 2], direction);
        assert_int_equal(attn_plan_execute(plan, &r[i % 2]->arrays, NULL), ATTN_OK);
        table_results_assert_same(&want[i % 2], r[i % 2], "other tables", number);
    }
    for (int i = 0; i < 2; i++) {
        table_clear(r[i], direction);
        tasks[i] = (task){plan, &r[i]->arrays, ATTN_OK};
        assert_int_equal(pthread_create(&thread[i], NULL, execute_often, &tasks[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(tasks[i].status, ATTN_OK);
        table_results_assert_same(&want[i], r[i], "at once", number);
        table_results_drop(&want[i]);
    }
    attn_plan_destroy(plan);
}

static void a_plan_reads_tables_anew(void **state)
{
    static const int some[] = {5, 8, 13, 17, 21, 24};
    static random_problem r[2];
    random_problem *const both[] = {&r[0], &r[1]};
    (void)state;
    for (int i = 0; i < 12; i += test_step()) {
        for (int side = 0; side < 2; side++)
            table_problem(&r[side], &table_shapes[some[i / 2]], i % 2 ? ATTN_BF16 : ATTN_F32);
        for (int t = 0; t < r[1].forward.nrelatives; t++)
            for (int64_t e = 0; e < r[1].array[ARRAY_TABLE + t].n; e++)
                array_set(&r[1].array[ARRAY_TABLE + t], e, (double)(e * 7 % 13) / 8 - 0.75);
        for (int s = 0; s < 2; s++)
            check_again(both, ATTN_DIRECTION_FORWARD, table_solvers[0][s], some[i / 2]);
        for (int s = 0; s < 2; s++)
            check_again(both, ATTN_DIRECTION_BACKWARD, table_solvers[1][s], some[i / 2]);
        random_problem_free(&r[0]), random_problem_free(&r[1]);
    }
}

/* -------------------------------------------------------------------------------------------------- padding */

/* Copies the array of a single sequence to the first sequence of `many`, or compares them. */
static void match(const random_problem *one, const random_problem *many, int id, bool compare)
{
    const array *a = &one->array[id], *b = &many->array[id];
    int table = id >= ARRAY_DTABLE ? id - ARRAY_DTABLE : id < ARRAY_O ? id - ARRAY_TABLE : -1;
    const attn_problem *p = &one->forward, *q = &many->forward;
    int64_t blocks = id == ARRAY_LSE || table >= 0 ? p->dims[TABLE_HEAD].n * p->dims[TABLE_GROUP].n : 1, shift = 0;
    /* The number of a distance's row differs between the two tables. The shift aligns rows of distance 0. */
    if (table >= 0)
        shift = (q->relatives[table].offset - p->relatives[table].offset) * p->relatives[table].row_stride;
    int64_t size = (int64_t)attn_dtype_size(a->dtype), n = a->n / blocks * size;
    for (int64_t i = 0; i < blocks; i++) {
        char *x = (char *)a->block + i * n, *y = (char *)b->block + (i * (b->n / (2 * blocks)) + shift) * size;
        if (compare && memcmp(x, y, (size_t)n) != 0)
            fail_msg("%lld queries padded to %lld, %s: other bits in %s", (long long)p->dims[TABLE_QUERY].n,
                     (long long)q->dims[TABLE_QUERY].n, attn_dtype_name(p->dtype), a->name);
        if (!compare)
            memcpy(y, x, (size_t)n);
    }
}

/* Fills elements past the length with `unseen` if no pair reads them. Queries past the length that attend to keys
 * become zero. */
static void pad(random_problem *many, const random_problem *one, int64_t length, bool by_query, double unseen)
{
    static const array_id ids[] = {ARRAY_Q, ARRAY_DOUT, ARRAY_K, ARRAY_V};
    int64_t padded = many->forward.dims[TABLE_QUERY].n;
    for (int i = 0; i < 4; i++)
        for (int64_t e = one->array[ids[i]].n; e < many->array[ids[i]].n / 2; e++)
            array_set(&many->array[ids[i]], e, i >= 2 || by_query ? unseen : 0);
    for (int64_t e = 0; e < one->array[ARRAY_LENS].n; e++)
        ((int32_t *)one->array[ARRAY_LENS].block)[e] = (int32_t)length;
    for (int64_t e = 0; e < many->array[ARRAY_LENS].n; e++)
        ((int32_t *)many->array[ARRAY_LENS].block)[e] = (int32_t)(!by_query    ? (e ? padded : length)
                                                                  : e < length ? length
                                                                  : e < padded ? 0
                                                                               : padded - 1);
    for (int64_t e = 0; e < one->array[ARRAY_MASK].n; e++)
        ((uint8_t *)one->array[ARRAY_MASK].block)[e] = 1;
    for (int64_t e = 0; e < many->array[ARRAY_MASK].n; e++)
        ((uint8_t *)many->array[ARRAY_MASK].block)[e] = e % padded < (e < padded * padded ? length : padded);
}

static void check_padding(table_shape s, const int64_t *lengths, attn_dtype dtype, double unseen)
{
    static random_problem one, many;
    int64_t length = lengths[0], padded = lengths[1];
    s.q[0] = s.k[0] = length, s.batch = 1;
    table_problem(&one, &s, dtype);
    s.q[0] = s.k[0] = padded, s.batch = 2;
    table_problem(&many, &s, dtype);
    table_fill(&one, 1), table_fill(&many, 2);
    for (int id = 0; id < ARRAY_O; id++)
        if (one.array[id].block && id != ARRAY_LENS && id != ARRAY_MASK)
            match(&one, &many, id, false);
    pad(&many, &one, length, s.lens_by_query, unseen);
    for (int direction = 0; direction < 2; direction++) {
        solver_run(table_context, NULL, 2, table_direction(&one, (attn_direction)direction), &one.arrays);
        solver_run(table_context, NULL, 2, table_direction(&many, (attn_direction)direction), &many.arrays);
    }
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        if (one.array[id].block)
            match(&one, &many, id, true);
    random_problem_free(&one), random_problem_free(&many);
}

/* Tests a length for each sequence, a length for each query, or a mask. Queries attend to all keys, or only to keys
 * at or before their own position. */
static void check_lengths(const int64_t *lengths, int form, double unseen)
{
    table_shape s = {.dim = form % 2 ? 20 : 8, .dim_value = 8, .heads = 2, .lo = INT64_MIN};
    for (int i = 0; i < 2; i++)
        s.tables[i] =
            (table_part){true, i ? ATTN_RELATIVE_VALUE : ATTN_RELATIVE_QUERY, .per_head = true, .per_batch = true};
    s.banded = form / 2 % 2;
    s.with = form / 4 == 2 ? ATTN_WITH_MASK : ATTN_WITH_LENS;
    s.lens_by_query = form / 4 == 1;
    check_padding(s, lengths, ATTN_F32, unseen);
    check_padding(s, lengths, ATTN_BF16, unseen);
}

static void padding_does_not_show(void **state)
{
    static const int64_t lengths[][2] = {{1, 9}, {15, 33}, {64, 65}, {97, 200}, {150, 300}};
    attn_context *usual = table_context;
    const attn_context_options options = {.threads = 2, .batch_invariant = true};
    (void)state;
    assert_int_equal(attn_context_create(&table_context, &options), ATTN_OK);
    for (int i = 0; i < 5; i++)
        for (int form = 0; form < 12; form += test_step())
            check_lengths(lengths[i], form, form < 4 ? (double)NAN : 0);
    attn_context_destroy(table_context);
    table_context = usual;
}

/* ----------------------------------------------------------------------------------------------- refusals */

static void check_words(const random_problem *r, attn_direction direction, const char *solver)
{
    attn_plan *plan;
    attn_plan_options options = {.solver = solver};
    attn_status status = attn_plan_create(&plan, table_context, table_direction(r, direction), &options);
    if (status != ATTN_OK) {
        assert_int_equal(status, ATTN_ERROR_UNSUPPORTED);
        assert_non_null(strstr(attn_context_error(table_context), solver));
        assert_true(strlen(attn_context_error(table_context)) > strlen(solver) + 10);
        assert_string_not_equal(solver, "reference");
    }
    attn_context_clear_error(table_context);
    attn_plan_destroy(plan);
}

static void solvers_take_tables_or_say_why_not(void **state)
{
    static random_problem r;
    (void)state;
    for (int i = 0; i < 2 * TABLE_SHAPES; i++) {
        table_problem(&r, &table_shapes[i / 2], i % 2 ? ATTN_BF16 : ATTN_F32);
        for (int s = 0; attn_solver_name(s); s++)
            for (int direction = 0; direction < 2; direction++)
                check_words(&r, (attn_direction)direction, attn_solver_name(s));
        random_problem_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_plan_reads_tables_anew),
                                       cmocka_unit_test(padding_does_not_show),
                                       cmocka_unit_test(solvers_take_tables_or_say_why_not)};
    return cmocka_run_group_tests(tests, table_start, table_end);
}
