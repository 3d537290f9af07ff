/* SPDX-License-Identifier: MIT */
#include "support/fixture.h"

#include "support/tensors.h"

#include <string.h>

bool next_progress(void *user, const char *things, int64_t done, int64_t total)
{
    progress_told *told = user;
    if (strcmp(things, told->things) != 0)
        return true;
    assert_int_equal(done, told->done + 1);
    assert_true(done <= total && (told->total == 0 || told->total == total));
    told->done = done;
    told->total = total;
    return true;
}

int fixture_open_context(void **state)
{
    *state = test_context();
    return 0;
}

int fixture_close_context(void **state)
{
    end_context(*state);
    return 0;
}

static int open_tape(void **state, const attn_tape_options *options)
{
    static tape_fixture f;
    f = (tape_fixture){.context = test_context()};
    f.parameters = f.constants = (attn_named_list){.context = f.context, .owns = true};
    f.builder = (attn_nn_builder){.context = f.context,
                                  .parameters = &f.parameters,
                                  .constants = &f.constants,
                                  .dtype = ATTN_F64,
                                  .seed = 3,
                                  .policy = ATTN_POLICY_TORCH};
    assert_int_equal(attn_tape_create(&f.tape, f.context), ATTN_OK);
    attn_tape_reset(f.tape, options);
    *state = &f;
    return 0;
}

int fixture_open_tape(void **state)
{
    return open_tape(state, &(attn_tape_options){0});
}

int fixture_open_record(void **state)
{
    return open_tape(state, &(attn_tape_options){.record = true});
}

int fixture_close_tape(void **state)
{
    tape_fixture *f = *state;
    attn_tape_destroy(f->tape);
    attn_named_clear(&f->parameters);
    attn_named_clear(&f->constants);
    end_context(f->context);
    return 0;
}

void end_context(attn_context *context)
{
    size_t held = 1;
    attn_context_memory(context, &held, NULL, NULL);
    assert_int_equal(held, 0);
    attn_context_destroy(context);
}

void assert_status(const attn_context *context, attn_status status, const char *file, int line)
{
    if (status == ATTN_OK)
        return;
    print_error("status %d: %s\n", (int)status, attn_context_error(context));
    _fail(file, line);
}

void assert_error(attn_context *context, attn_status status, attn_status expected, const char *words, const char *file,
                  int line)
{
    if (status != expected || attn_context_status(context) != status || !strstr(attn_context_error(context), words)) {
        print_error("status %d, not %d with \"%s\": %s\n", (int)status, (int)expected, words,
                    attn_context_error(context));
        _fail(file, line);
    }
    attn_context_clear_error(context);
}
