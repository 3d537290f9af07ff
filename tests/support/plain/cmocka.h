/* SPDX-License-Identifier: MIT
 *
 * Replaces the part of cmocka that the tests use, for systems that have a compiler and no cmocka. The first assertion
 * that fails ends the program.
 */
#ifndef ATTN_TESTS_PLAIN_CMOCKA_H
#define ATTN_TESTS_PLAIN_CMOCKA_H
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define fail_msg(...)                    (printf(__VA_ARGS__), puts(""), fflush(stdout), exit(1))
#define _fail(file, line)                fail_msg("%s:%d", file, line)
#define plain_assert(holds, what)        ((holds) ? (void)0 : fail_msg("%s:%d: %s", __FILE__, __LINE__, what))
#define assert_true(x)                   plain_assert(x, #x)
#define assert_false(x)                  plain_assert(!(x), "!(" #x ")")
#define assert_null(x)                   plain_assert((x) == NULL, #x " is not null")
#define assert_non_null(x)               plain_assert((x) != NULL, #x " is null")
#define assert_ptr_equal(a, b)           plain_assert((const void *)(a) == (const void *)(b), #a " is not " #b)
#define assert_string_equal(a, b)        plain_assert(strcmp(a, b) == 0, #a " is not " #b)
#define assert_string_not_equal(a, b)    plain_assert(strcmp(a, b) != 0, #a " is " #b)
#define assert_memory_equal(a, b, n)     plain_assert(memcmp(a, b, n) == 0, #a " is not " #b)
#define assert_memory_not_equal(a, b, n) plain_assert(memcmp(a, b, n) != 0, #a " is " #b)
#define assert_int_equal(a, b)           plain_assert((long long)(a) == (long long)(b), #a " is not " #b)
#define assert_int_not_equal(a, b)       plain_assert((long long)(a) != (long long)(b), #a " is " #b)
#define assert_in_range(x, least, most)  plain_assert((x) >= (least) && (x) <= (most), #x " is out of range")
#define assert_float_equal(a, b, epsilon)                                                                              \
    plain_assert(plain_float_equal((float)(a), (float)(b), (float)(epsilon)), #a " is not " #b)
#define print_message(...) printf(__VA_ARGS__)
#define print_error(...)   fprintf(stderr, __VA_ARGS__)
#define skip()             longjmp(plain_skipped, 1)
struct CMUnitTest {
    const char *name;
    void (*run)(void **);
    int (*setup)(void **), (*teardown)(void **);
};
#define cmocka_unit_test(f)                                                                                            \
    {                                                                                                                  \
#f, f, NULL, NULL                                                                                              \
    }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                                            \
    {                                                                                                                  \
#f, f, setup, teardown                                                                                         \
    }
#define cmocka_run_group_tests(tests, setup, teardown)                                                                 \
    plain_run_tests(tests, sizeof tests / sizeof *tests, setup, teardown)
static jmp_buf plain_skipped __attribute__((unused));

static inline int plain_float_equal(float a, float b, float epsilon)
{
    float difference = a < b ? b - a : a - b;
    return difference <= epsilon;
}

static inline int plain_run_tests(const struct CMUnitTest *t, size_t n, int (*setup)(void **), int (*teardown)(void **))
{
    void *group = NULL;
    if (setup && setup(&group))
        return 1;
    for (size_t i = 0; i < n; i++) {
        void *state = group;
        if (t[i].setup && t[i].setup(&state))
            return 1;
        printf("[ RUN      ] %s\n", t[i].name);
        if (setjmp(plain_skipped) == 0) {
            t[i].run(&state);
            printf("[       OK ] %s\n", t[i].name);
        } else
            printf("[  SKIPPED ] %s\n", t[i].name);
        fflush(stdout);
        if (t[i].teardown && t[i].teardown(&state))
            return 1;
    }
    return teardown ? teardown(&group) : 0;
}
#endif
