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

attn_config *fixture_msa_config(attn_context *context, int64_t positions)
{
    attn_config *config;
    assert_ok(context, attn_config_create(&config, context));
    attn_config_set_int(config, "layers", 2);
    attn_config_set_int(config, "embed_dim", 8);
    attn_config_set_int(config, "ffn_embed_dim", 16);
    attn_config_set_int(config, "attention_heads", 2);
    attn_config_set_int(config, "max_positions", positions);
    return config;
}
