/* SPDX-License-Identifier: MIT
 *
 * fixture.h - setup and teardown of tests. The teardown checks that the test freed all memory.
 */
#ifndef ATTN_TESTS_FIXTURE_H
#define ATTN_TESTS_FIXTURE_H

#include "support/cmocka.h"

#include "nn/layers.h"

/* Defines a test whose *state is an attn_context. After the test, all memory of the context must be freed. */
#define TEST_WITH_CONTEXT(name) cmocka_unit_test_setup_teardown(name, fixture_open_context, fixture_close_context)
/* Defines a test whose *state is a tape_fixture. After the test, the fixture is freed, and no memory may remain
 * allocated. */
#define TEST_WITH_TAPE(name)   cmocka_unit_test_setup_teardown(name, fixture_open_tape, fixture_close_tape)
#define TEST_WITH_RECORD(name) cmocka_unit_test_setup_teardown(name, fixture_open_record, fixture_close_tape)

typedef struct tape_fixture {
    attn_context *context;
    attn_tape *tape;
    attn_named_list parameters, constants;
    attn_nn_builder builder; /* builder of layers in f64, which adds their tensors to `parameters` and `constants` */
} tape_fixture;

int fixture_open_context(void **state);
int fixture_close_context(void **state);
int fixture_open_tape(void **state);
int fixture_open_record(void **state);
int fixture_close_tape(void **state);

/* Progress that a test was told: `done` of `total` things. */
typedef struct progress_told {
    const char *things;
    int64_t done, total;
} progress_told;
/* Receives progress (attn_context_set_progress). `user` is a progress_told. Fails the test unless each call about its
 * things counts one more, up to the total. */
bool next_progress(void *user, const char *things, int64_t done, int64_t total);

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
