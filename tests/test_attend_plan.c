/* SPDX-License-Identifier: MIT
 * labels: no-isa amx
 *
 * Tests the planner: the choice of a solver, problem texts, wisdom, operation counts and workspaces.
 */
#include "support/cmocka.h"

#include "attend/plan/plan.h"
#include "support/faults.h"

#include <stdio.h>
#include <string.h>

static attn_problem causal(int64_t queries, int64_t keys, attn_causal how)
{
    attn_problem p;
    attn_problem_heads(
        &p, &(attn_heads){.batch = 2, .heads = 3, .queries = queries, .keys = keys, .dim = 8, .causal = how});
    return p;
}

static attn_plan *plan_of(attn_context *c, const attn_problem *p, attn_plan_options options)
{
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, c, p, &options), ATTN_OK);
    return plan;
}

static double flops(attn_context *c, const attn_problem *p)
{
    attn_plan *plan = plan_of(c, p, (attn_plan_options){0});
    double n = attn_plan_flops(plan);
    attn_plan_destroy(plan);
    return n;
}

static void operations_are_counted_where_structure_leaves_pairs(void **state)
{
    (void)state;
    attn_context *c;
    attn_context_create(&c, NULL);
    const double each = 2 * 3 * 2 * (8 + 8);
    attn_problem p = causal(4, 6, ATTN_CAUSAL_NONE);
    assert_true(flops(c, &p) == each * 24);
    p = causal(4, 6, ATTN_CAUSAL_TOP_LEFT);
    assert_true(flops(c, &p) == each * (1 + 2 + 3 + 4));
    p = causal(4, 6, ATTN_CAUSAL_BOTTOM_RIGHT);
    assert_true(flops(c, &p) == each * (3 + 4 + 5 + 6));
    p = causal(6, 4, ATTN_CAUSAL_BOTTOM_RIGHT);
    assert_true(flops(c, &p) == each * (0 + 0 + 1 + 2 + 3 + 4));
    p.direction = ATTN_DIRECTION_BACKWARD;
    p.flags = ATTN_WANT_DQ;
    assert_true(flops(c, &p) == each * 10 * 2.5);
    attn_problem_window2d(
        &p, &(attn_window2d){.batch = 1, .height = 5, .width = 4, .heads = 1, .dim = 8, .window_y = 3, .window_x = 3});
    assert_true(flops(c, &p) == 32.0 * (5 * 3 - 2) * (4 * 3 - 2));
    attn_context_destroy(c);
}

static void a_plan_tells_what_it_is(void **state)
{
    (void)state;
    attn_context *c;
    attn_context_create(&c, &(attn_context_options){.threads = 2});
    attn_problem p = causal(4, 6, ATTN_CAUSAL_TOP_LEFT);
    attn_plan *plan = plan_of(c, &p, (attn_plan_options){.solver = "reference"});
    char text[2000], cut[20];
    size_t length = attn_plan_describe(plan, false, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_null(strchr(text, '\n'));
    assert_non_null(
        strstr(text, "forward f32 batch 2x3 query 4 key 6 contract 8 value 8, 1 band: reference (asked for"));
    assert_int_equal(attn_plan_describe(plan, false, cut, sizeof cut), length);
    assert_memory_equal(cut, text, 19);
    assert_int_equal(cut[19], 0);
    assert_string_equal(attn_plan_solver(plan), "reference");
    attn_plan_describe(plan, true, text, sizeof text);
    for (int i = 0; attn_solver_name(i + 1); i++) {
        char line[80];
        snprintf(line, sizeof line, "\n  not %s: ", attn_solver_name(i));
        assert_non_null(strstr(text, line));
    }
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

/* Returns the number of instruction sets that a line names, each after a comma. */
static int sets_named(const char *line)
{
    int n = 0;
    for (const char *at = line; (at = strstr(at, ", ")) != NULL; at += 2) {
        char name[16];
        attn__isa isa;
        n += sscanf(at + 2, "%15[a-z0-9]", name) == 1 && attn__isa_parse(name, &isa);
    }
    return n;
}

/* The text must name the instruction set of the kernels that run, even if the machine has better sets. */
static void a_plan_names_one_instruction_set(void **state)
{
    (void)state;
    attn_context *c;
    attn_context_create(&c, NULL);
    for (int direction = ATTN_DIRECTION_FORWARD; direction <= ATTN_DIRECTION_BACKWARD; direction++) {
        int asked = 0;
        for (int i = 0; attn_solver_name(i); i++) {
            for (int dim = 8; dim <= 512; dim *= 8) {
                attn_problem p;
                attn_problem_heads(&p, &(attn_heads){.batch = 2, .heads = 2, .queries = 90, .keys = 90, .dim = dim});
                p.direction = (attn_direction)direction;
                if (direction == ATTN_DIRECTION_BACKWARD)
                    p.flags = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
                attn_plan *plan;
                char text[2000];
                if (attn_plan_create(&plan, c, &p, &(attn_plan_options){.solver = attn_solver_name(i)}) != ATTN_OK)
                    continue;
                attn_plan_describe(plan, false, text, sizeof text);
                bool reference = strcmp(attn_plan_solver(plan), "reference") == 0;
                if (sets_named(text) != !reference)
                    fail_msg("%s", text);
                asked++;
                attn_plan_destroy(plan);
            }
        }
        assert_true(asked > 6);
    }
    attn_context_destroy(c);
}

static void keep_line(void *user, const char *line)
{
    snprintf(user, 2000, "%s", line);
}

static void plans_are_logged(void **state)
{
    (void)state;
    char line[2000] = "", text[2000];
    attn_context *c;
    attn_context_create(&c, &(attn_context_options){.log = keep_line, .log_user = line});
    attn_problem p = causal(4, 6, ATTN_CAUSAL_NONE);
    attn_plan *plan = plan_of(c, &p, (attn_plan_options){0});
    attn_plan_describe(plan, false, text, sizeof text);
    assert_string_equal(line, text);
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

static void what_measuring_learned_can_be_carried_over(void **state)
{
    (void)state;
    char text[500], again[500], words[500];
    attn_context *c, *other;
    attn_context_create(&c, NULL);
    attn_context_create(&other, NULL);
    attn_problem p = causal(9, 12, ATTN_CAUSAL_NONE);
    attn_plan *measured = plan_of(c, &p, (attn_plan_options){.effort = ATTN_MEASURE});
    attn_plan_describe(measured, false, words, sizeof words);
    assert_non_null(strstr(words, "(measured)"));
    size_t length = attn_wisdom_export(c, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_int_equal(attn_wisdom_import(other, text), ATTN_OK);
    attn_wisdom_export(other, again, sizeof again);
    assert_string_equal(text, again);
    attn_plan *remembered = plan_of(other, &p, (attn_plan_options){0});
    attn_plan_describe(remembered, false, words, sizeof words);
    assert_non_null(strstr(words, "(remembered)"));
    assert_string_equal(attn_plan_solver(remembered), attn_plan_solver(measured));
    attn_plan_destroy(measured);
    attn_plan_destroy(remembered);
    attn_context_destroy(c);
    attn_context_destroy(other);
}

/* Many signatures have equal low bits. Returns the end of the text. */
static char *write_wisdom(char *at, int lessons, bool later)
{
    static const char *const solvers[] = {"flash", "reference", "blocked"};
    at += sprintf(at, "attn-wisdom 2\n");
    for (int i = 0; i < lessons; i++)
        at += sprintf(at, "%016llx %s\n", (unsigned long long)i << (i % 2 ? 40 : 0), solvers[(i + later) % 3]);
    return at;
}

static void much_wisdom_is_found_and_replaced(void **state)
{
    (void)state;
    enum { LESSONS = 5000, BYTES = 40 * LESSONS };
    static char text[BYTES], out[BYTES];
    attn_context *c;
    attn_context_create(&c, NULL);
    for (int later = 0; later < 2; later++) {
        size_t length = (size_t)(write_wisdom(text, LESSONS, later) - text);
        assert_int_equal(attn_wisdom_import(c, text), ATTN_OK);
        assert_int_equal(attn_wisdom_export(c, out, sizeof out), length);
        assert_string_equal(out, text);
    }
    attn_context_destroy(c);
}

static void the_own_workspace_serves_one_at_a_time(void **state)
{
    (void)state;
    attn_context *c;
    attn_context_create(&c, NULL);
    attn_problem p = causal(2, 2, ATTN_CAUSAL_NONE);
    float x[96] = {0}, o[96];
    attn_arrays arrays = {.q = x, .k = x, .v = x, .o = o};
    attn_plan *plan = plan_of(c, &p, (attn_plan_options){0});
    void *mine = attn__alloc(c, attn_plan_workspace(plan));
    uint64_t before, after;
    attn_context_memory(c, NULL, NULL, &before);
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
    assert_false(atomic_flag_test_and_set(plan->busy));
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_ERROR_BUSY);
    assert_int_equal(attn_plan_execute(plan, &arrays, mine), ATTN_OK);
    atomic_flag_clear(plan->busy);
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
    attn_context_memory(c, NULL, NULL, &after);
    assert_true(before == after);
    attn__free(c, mine);
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

static void canonical_form_is_small(void **state)
{
    (void)state;
    attn_context *c;
    attn_context_create(&c, NULL);
    attn_problem p;
    /* The plan drops dims of length 1. In BHTD, it merges batches with heads, and grouped heads with queries. */
    attn_problem_heads(
        &p, &(attn_heads){.batch = 4, .heads = 3, .queries = 5, .keys = 7, .dim = 8, .layout = ATTN_LAYOUT_BHTD});
    attn_plan *plan = plan_of(c, &p, (attn_plan_options){0});
    assert_int_equal(plan->canonical.batch.n, 1);
    assert_int_equal(plan->canonical.batch.size, 12);
    attn_plan_destroy(plan);
    attn_problem_heads(
        &p, &(attn_heads){
                .batch = 1, .heads = 6, .kv_heads = 2, .queries = 5, .keys = 7, .dim = 8, .layout = ATTN_LAYOUT_BHTD});
    plan = plan_of(c, &p, (attn_plan_options){0});
    assert_int_equal(plan->canonical.batch.size, 2);
    assert_int_equal(plan->canonical.query.n, 1);
    assert_int_equal(plan->canonical.query.size, 15);
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

/* The planner takes the first of several solvers of the same time, and the reference solver only if there is no other. */
static void the_reference_solver_is_the_last(void **state)
{
    (void)state;
    const char *last = "";
    for (int i = 0; attn_solver_name(i); i++)
        last = attn_solver_name(i);
    assert_string_equal(last, "reference");
}

/* For float64, the planner must choose `blocked`, the only fast solver. The reference solver takes a hundred times
 * as long. */
static void float64_runs_by_blocks(void **state)
{
    (void)state;
    attn_context *c;
    attn_context_create(&c, NULL);
    static const struct {
        unsigned flags;
        double dropout, softcap;
    } cases[] = {{0, 0, 0},
                 {ATTN_WITH_BIAS, 0, 0},
                 {ATTN_WITH_MASK, 0, 0},
                 {ATTN_WITH_LENS, 0.1, 0},
                 {ATTN_WITH_SINKS, 0, 30},
                 {ATTN_WITH_BIAS | ATTN_WITH_MASK, 0.1, 30}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        attn_problem p;
        attn_problem_heads(&p, &(attn_heads){.batch = 2, .heads = 3, .queries = 300, .keys = 400, .dim = 32});
        int64_t strides[] = {3 * 120000, 120000, 0, 400, 1};
        p.dtype = ATTN_F64;
        p.flags |= cases[i / 2].flags;
        p.dropout = cases[i / 2].dropout;
        p.softcap = cases[i / 2].softcap;
        for (int d = 0, pair = 0; d < p.ndims; d++) {
            attn_dim *dim = &p.dims[d];
            if (dim->n == 1 || dim->role > ATTN_ROLE_KEY)
                continue;
            pair += pair == 2;
            dim->bias = dim->mask = strides[pair++];
            dim->lens = 0;
            dim->sinks = dim->role == ATTN_ROLE_BATCH && dim->n == 3;
        }
        if (i % 2) {
            p.direction = ATTN_DIRECTION_BACKWARD;
            p.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
            p.flags |= p.flags & ATTN_WITH_BIAS ? ATTN_WANT_DBIAS : 0u;
        }
        attn_plan *plan = plan_of(c, &p, (attn_plan_options){0});
        assert_string_equal(attn_plan_solver(plan), "blocked");
        attn_plan_destroy(plan);
    }
    attn_context_destroy(c);
}

/* Problems, and how many steps their plans run before and after the solver. */
static const struct wrapped {
    const char *text;
    attn_direction direction;
    unsigned flags;
    bool accumulate;
    int steps;
} wrapped[] = {
    {"b2h4q9k7d8g2:sinks", ATTN_DIRECTION_FORWARD, 0, false, 0},
    {"b2h4q9k7d8:bias", ATTN_DIRECTION_BACKWARD, 0, false, 0},
    {"b2h4q9k7d8:lse", ATTN_DIRECTION_FORWARD, ATTN_WANT_WEIGHTS, false, 1},
    {"b2h4q9k7d8:buckets=5", ATTN_DIRECTION_FORWARD, ATTN_WANT_WEIGHTS, false, 2},
    {"b2h4q9k7d8:buckets=5", ATTN_DIRECTION_BACKWARD, 0, false, 1},
    {"b2h4q9k7d8:sinks", ATTN_DIRECTION_BACKWARD, 0, false, 1},
    {"b2h4q9k7d8:biask,sinks", ATTN_DIRECTION_BACKWARD, 0, true, 2},
};
enum { WRAPPED = sizeof wrapped / sizeof *wrapped };

static attn_problem problem_of(attn_context *c, const struct wrapped *w)
{
    static const int64_t picks[] = {3, 0};
    attn_problem p;
    assert_int_equal(attn_problem_parse(&p, c, w->text, w->direction), ATTN_OK);
    p.flags |= w->flags;
    p.accumulate = w->accumulate;
    if (w->flags & ATTN_WANT_WEIGHTS)
        p.picks[p.npicks++] = (attn_pick){.dim = 1, .n = 2, .index = picks};
    return p;
}

static void a_plan_has_the_steps_that_its_problem_needs(void **state)
{
    (void)state;
    attn_context *c;
    attn_context_create(&c, NULL);
    for (int i = 0; i < WRAPPED; i++) {
        attn_problem p = problem_of(c, &wrapped[i]);
        attn_plan *plan = plan_of(c, &p, (attn_plan_options){0});
        if (plan->nsteps != wrapped[i].steps + 1)
            fail_msg("%s: %d steps", wrapped[i].text, plan->nsteps);
        attn_plan_destroy(plan);
    }
    attn_context_destroy(c);
}

/* Lets each allocation fail once, even while solvers are measured. The status must be ATTN_ERROR_MEMORY, and all
 * memory must be freed. */
static void a_plan_survives_each_allocation_that_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * WRAPPED; i++) {
        faults f = {0};
        attn_context *c;
        attn_plan *plan = NULL;
        assert_int_equal(attn_context_create(&c, &(attn_context_options){.allocator = faults_allocator(&f)}), ATTN_OK);
        attn_problem p = problem_of(c, &wrapped[i / 2]);
        long before = f.held;
        for (long n = 1; !plan; n++) {
            f.calls = 0, f.fail_at = n;
            attn_status status =
                attn_plan_create(&plan, c, &p, &(attn_plan_options){.effort = i % 2 ? ATTN_MEASURE : ATTN_ESTIMATE});
            if (status != ATTN_OK) {
                assert_int_equal(status, ATTN_ERROR_MEMORY);
                assert_true(f.held == before || i % 2);
            }
            assert_true(n < 1000);
        }
        attn_plan_destroy(plan);
        attn_context_destroy(c);
        assert_int_equal(f.held, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_counted_where_structure_leaves_pairs),
        cmocka_unit_test(a_plan_tells_what_it_is),
        cmocka_unit_test(a_plan_names_one_instruction_set),
        cmocka_unit_test(plans_are_logged),
        cmocka_unit_test(what_measuring_learned_can_be_carried_over),
        cmocka_unit_test(much_wisdom_is_found_and_replaced),
        cmocka_unit_test(the_own_workspace_serves_one_at_a_time),
        cmocka_unit_test(canonical_form_is_small),
        cmocka_unit_test(the_reference_solver_is_the_last),
        cmocka_unit_test(float64_runs_by_blocks),
        cmocka_unit_test(a_plan_has_the_steps_that_its_problem_needs),
        cmocka_unit_test(a_plan_survives_each_allocation_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
