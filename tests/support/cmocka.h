/* SPDX-License-Identifier: MIT
 *
 * cmocka.h - includes cmocka after the headers that cmocka needs, and defines the list of a program's tests.
 */
#ifndef ATTN_TESTS_CMOCKA_H
#define ATTN_TESTS_CMOCKA_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* Most tests do not use the state that cmocka passes to them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Returns N if the environment variable ATTN_TEST_STEP is N, and otherwise 1. Long loops then run only every N-th of
 * their problems. */
static inline int test_step(void)
{
    const char *text = getenv("ATTN_TEST_STEP");
    int step = text ? atoi(text) : 1;
    return step > 0 ? step : 1;
}

#define TEST(name)     cmocka_unit_test(name)
#define RUN_TESTS(...) RUN_TESTS_IN(NULL, NULL, __VA_ARGS__)
#define RUN_TESTS_IN(begin, end, ...)                                                                                  \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                                               \
        return cmocka_run_group_tests(tests, begin, end);                                                              \
    }

#endif
