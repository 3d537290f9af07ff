/* SPDX-License-Identifier: MIT
 *
 * context.h - one context for all tests of a program, and checks of what a context reports.
 */
#ifndef ATTN_TESTS_CONTEXT_H
#define ATTN_TESTS_CONTEXT_H

#include "support/cmocka.h"

#include "attn/attn.h"

/* Defines `context`, which all tests of the program share, and for RUN_TESTS_IN the functions open_context, which
 * creates it with these attn_context_options, and close_context (close_context_of_tests). */
#define CONTEXT_OF_TESTS(...)                                                                                          \
    static attn_context *context;                                                                                      \
    static int open_context(void **state)                                                                              \
    {                                                                                                                  \
        return attn_context_create(&context, &(attn_context_options){__VA_ARGS__}) != ATTN_OK;                         \
    }                                                                                                                  \
    static int close_context(void **state)                                                                             \
    {                                                                                                                  \
        return close_context_of_tests(context);                                                                        \
    }

/* Destroys the context after the last test. Exits with 1 if memory of the context was not freed, because cmocka's exit
 * status does not say that the teardown of a group failed. */
int close_context_of_tests(attn_context *context);
/* Fails the test if memory of the context was not freed. */
void end_context(attn_context *context);

/* Fails the test with the context's error unless `status` is ATTN_OK. */
#define assert_ok(context, status) assert_status(context, status, __FILE__, __LINE__)
void assert_status(const attn_context *context, attn_status status, const char *file, int line);
/* Fails the test unless `status` is `expected` and the context's error contains `words`. Then clears the error. */
#define assert_refused(context, status, expected, words)                                                               \
    assert_error(context, status, expected, words, __FILE__, __LINE__)
void assert_error(attn_context *context, attn_status status, attn_status expected, const char *words, const char *file,
                  int line);
/* Fails the test unless the error of the last failed call contains `words`. The status may be any. */
#define assert_says(context, words)                                                                                    \
    assert_error(context, attn_context_status(context), attn_context_status(context), words, __FILE__, __LINE__)

#endif
