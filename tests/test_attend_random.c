/* SPDX-License-Identifier: MIT
 *
 * Compares random problems with the float64 evaluation, forward and backward, for every solver that accepts them.
 * ATTN_TEST_PROBLEMS is the number of problems (default 2000), and ATTN_TEST_FIRST is the number of the first problem.
 */
#include "support/cmocka.h"

#include "support/solver_check.h"

#include <stdlib.h>

enum { MOST_SOLVERS = 64 };

typedef struct tally {
    int problems[2];
    double worst[2];
} tally;

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void check_direction(attn_context *c, random_problem *r, const truth *t, attn_direction direction,
                            tally tallies[])
{
    if (direction == ATTN_DIRECTION_BACKWARD)
        solver_prepare_backward(c, r);
    for (int i = 0; attn_solver_name(i); i++) {
        const char *name = attn_solver_name(i);
        if (!solver_check(c, name, r, t, direction, &tallies[i].worst[direction]))
            continue;
        tallies[i].problems[direction]++;
        if (r->number % 8 == 0)
            solver_check_threads(c, name, r, direction);
    }
}

static void check_problem(attn_context *c, uint64_t number, tally tallies[])
{
    static random_problem r;
    truth t;
    random_problem_make(&r, number);
    truth_make(&t, &r);
    check_direction(c, &r, &t, ATTN_DIRECTION_FORWARD, tallies);
    check_direction(c, &r, &t, ATTN_DIRECTION_BACKWARD, tallies);
    truth_free(&t, &r);
    if (random_problem_narrow_keys(&r)) {
        truth_make(&t, &r);
        check_direction(c, &r, &t, ATTN_DIRECTION_FORWARD, tallies);
        truth_free(&t, &r);
    }
    random_problem_free(&r);
}

static void every_solver_agrees_with_the_evaluation(void **state)
{
    (void)state;
    uint64_t first = from_environment("ATTN_TEST_FIRST", 0), n = from_environment("ATTN_TEST_PROBLEMS", 2000);
    static const uint64_t found[] = {
        20017902, /* a window whose taps all lie before the query, by two or more */
        20018921, /* hardmax with a softcap: equal scores before rounding, for several queries */
    };
    static tally tallies[MOST_SOLVERS];
    attn_context *c;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 2}), ATTN_OK);
    for (uint64_t number = first; number < first + n; number++)
        check_problem(c, number, tallies);
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        check_problem(c, found[i], tallies);
    for (int i = 0; attn_solver_name(i); i++)
        print_message("  %-16s forward %5d (worst %.2f of the bound)   backward %5d (worst %.2f)\n",
                      attn_solver_name(i), tallies[i].problems[0], tallies[i].worst[0], tallies[i].problems[1],
                      tallies[i].worst[1]);
    size_t held;
    attn_context_memory(c, &held, NULL, NULL);
    assert_int_equal(held, 0);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_solver_agrees_with_the_evaluation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
