/* SPDX-License-Identifier: MIT
 *
 * fixture.h - setup and teardown of tests. The teardown checks that the test freed all memory.
 */
#ifndef ATTN_TESTS_FIXTURE_H
#define ATTN_TESTS_FIXTURE_H

#include "support/context.h"

#include "attn/config.h"
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

/* Makes the settings of a small MSA Transformer for alignments of up to `positions` tokens: 2 layers, 2 heads and 8
 * channels. The caller destroys them. */
attn_config *fixture_msa_config(attn_context *context, int64_t positions);

/* Progress that a test was told: `done` of `total` things. */
typedef struct progress_told {
    const char *things;
    int64_t done, total;
} progress_told;
/* Receives progress (attn_context_set_progress). `user` is a progress_told. Fails the test unless each call about its
 * things counts one more, up to the total. */
bool next_progress(void *user, const char *things, int64_t done, int64_t total);

#endif
