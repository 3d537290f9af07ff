/* SPDX-License-Identifier: MIT
 *
 * Replaces the part of cmocka that the engine's tests use, for systems that have a compiler and no cmocka.
 */
#ifndef ATTN_TESTS_PLAIN_CMOCKA_H
#define ATTN_TESTS_PLAIN_CMOCKA_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define fail_msg(...)                (printf(__VA_ARGS__), puts(""), exit(1))
#define assert_true(x)               ((x) ? (void)0 : fail_msg("%s:%d: %s", __FILE__, __LINE__, #x))
#define assert_false(x)              assert_true(!(x))
#define assert_null(x)               assert_true((x) == NULL)
#define assert_non_null(x)           assert_true((x) != NULL)
#define assert_string_equal(a, b)    assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_int_equal(a, b)       assert_true((long long)(a) == (long long)(b))
#define print_message(...)           printf(__VA_ARGS__)
struct CMUnitTest {
    void (*run)(void **);
};
#define cmocka_unit_test(f)                                                                                            \
    {                                                                                                                  \
        f                                                                                                              \
    }
#define cmocka_run_group_tests(tests, setup, teardown) run_tests(tests, sizeof tests / sizeof *tests, setup, teardown)
static inline int run_tests(const struct CMUnitTest *t, size_t n, int (*setup)(void **), int (*teardown)(void **))
{
    void *state = NULL;
    if (setup && setup(&state))
        return 1;
    for (size_t i = 0; i < n; i++)
        t[i].run(&state);
    return teardown ? teardown(&state) : 0;
}
#endif
