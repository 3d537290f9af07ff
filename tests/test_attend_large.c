/* SPDX-License-Identifier: MIT
 * labels: no-asan no-tsan
 * Compares random problems of hundreds of queries and keys with the float64 evaluation and its bounds, forward and
 * backward. The problems run with the planner's choice and with every solver that accepts them. They run on three
 * instruction sets: the set that ATTN_ISA names, or the machine's best set, and the next two sets below it.
 * test_attend_random has only problems that are too small for the AMX paths. ATTN_TEST_PROBLEMS is the number of
 * problems, and ATTN_TEST_FIRST is the number of the first problem. */
#include "support/cmocka.h"

#include "support/large_problem.h"
#include "support/solver_check.h"

#include <stdlib.h>
#include <string.h>

enum { PROBLEMS = 40, LEVELS = 3, MOST_SOLVERS = 64 };

/* Number of runs in each direction, and the largest error divided by its bound for each direction and type (f32,
 * bf16). */
typedef struct tally {
    int problems[2], chosen[2];
    double worst[2][2];
} tally;

typedef struct level {
    attn_context *context;
    tally of[MOST_SOLVERS];
    /* on_amx: runs of the planner's choice on AMX; with_dropout: how many of them have dropout */
    int on_amx[2], with_dropout[2];
} level;

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* Opens a context for the default instruction set, and one for each of the next sets below it. Returns the number of
 * contexts. */
static int open_levels(level levels[LEVELS])
{
    assert_int_equal(attn_context_create(&levels[0].context, &(attn_context_options){.threads = 2}), ATTN_OK);
    int first = 0, n = 1;
    while (strcmp(attn_isa_name(first), attn_context_isa(levels[0].context)) != 0)
        first++;
    for (; n < LEVELS && attn_isa_name(first + n); n++) {
        attn_context_options options = {.threads = 2, .isa = attn_isa_name(first + n)};
        assert_int_equal(attn_context_create(&levels[n].context, &options), ATTN_OK);
    }
    return n;
}

static void note_choice(level *l, const random_problem *r, attn_direction direction)
{
    attn_plan *plan;
    char text[1024];
    int i = 0;
    const attn_problem *p = direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward;
    if (attn_plan_create(&plan, l->context, p, NULL) != ATTN_OK)
        fail_msg("problem %llu: %s", (unsigned long long)r->number, attn_context_error(l->context));
    attn_plan_describe(plan, false, text, sizeof text);
    while (strcmp(attn_solver_name(i), attn_plan_solver(plan)) != 0)
        i++;
    bool on_amx = strstr(text, "bf16 term") || strstr(text, "amx");
    l->of[i].chosen[direction]++;
    l->on_amx[direction] += on_amx;
    l->with_dropout[direction] += on_amx && p->dropout > 0;
    attn_plan_destroy(plan);
}

/* Checks a problem with all solvers except the slow reference solver, whose code does not depend on sizes. */
static void check_level(level *l, random_problem *r, const truth *t, attn_direction direction, bool threads)
{
    double worst = 0;
    note_choice(l, r, direction);
    assert_true(solver_check(l->context, NULL, r, t, direction, &worst));
    for (int i = 0; attn_solver_name(i + 1); i++) {
        const char *name = attn_solver_name(i);
        if (!solver_check(l->context, name, r, t, direction, &l->of[i].worst[direction][r->forward.dtype == ATTN_BF16]))
            continue;
        l->of[i].problems[direction]++;
        if (threads)
            solver_check_threads(l->context, name, r, direction);
    }
}

static void report(const level *l)
{
    print_message("  %s: on AMX %d forward (%d with dropout), %d backward (%d)\n", attn_context_isa(l->context),
                  l->on_amx[0], l->with_dropout[0], l->on_amx[1], l->with_dropout[1]);
    for (int i = 0; attn_solver_name(i); i++) {
        for (int d = 0; d < 2; d++) {
            const tally *t = &l->of[i];
            if (t->problems[d] + t->chosen[d] > 0)
                print_message("    %-16s %-8s %3d, chosen %3d; worst %.2f of the bound, bf16 %.2f\n",
                              attn_solver_name(i), d ? "backward" : "forward", t->problems[d], t->chosen[d],
                              t->worst[d][0], t->worst[d][1]);
        }
    }
}

/* On a machine with AMX, enough problems must have used AMX, because other tests cover everything else. */
static void check_reach(const level *l, uint64_t problems)
{
    if (strcmp(attn_context_isa(l->context), "amx") != 0 || problems < PROBLEMS)
        return;
    for (int direction = 0; direction < 2; direction++) {
        assert_true(4 * l->on_amx[direction] >= (int)problems);
        assert_true(l->with_dropout[direction] > 0);
    }
}

static void large_problems_agree_with_the_evaluation(void **state)
{
    (void)state;
    uint64_t first = from_environment("ATTN_TEST_FIRST", 0), n = from_environment("ATTN_TEST_PROBLEMS", PROBLEMS);
    static level levels[LEVELS];
    int count = open_levels(levels);
    for (uint64_t number = first; number < first + n; number++) {
        static random_problem r;
        truth t;
        large_problem_make(&r, number);
        truth_make(&t, &r);
        for (int i = 0; i < count; i++)
            check_level(&levels[i], &r, &t, ATTN_DIRECTION_FORWARD, i == 0);
        solver_prepare_backward(levels[0].context, &r);
        for (int i = 0; i < count; i++)
            check_level(&levels[i], &r, &t, ATTN_DIRECTION_BACKWARD, i == 0);
        truth_free(&t, &r);
        random_problem_free(&r);
    }
    for (int i = 0; i < count; i++)
        report(&levels[i]);
    check_reach(&levels[0], n);
    for (int i = 0; i < count; i++)
        attn_context_destroy(levels[i].context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_problems_agree_with_the_evaluation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
