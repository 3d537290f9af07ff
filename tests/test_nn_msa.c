/* SPDX-License-Identifier: MIT
 *
 * Tests the axial layer: gradients, computation in place and in parts, padding, and errors.
 */
#include "support/fixture.h"
#include "support/gradcheck.h"
#include "support/tensors.h"

#include "nn/msa.h"

#include <math.h>
#include <string.h>

enum { R = 3, C = 4, B = 2, D = 6, F = 5, HEADS = 3 };

static attn_nn_msa_layer made;

static const attn_nn_msa_layer_options small = {
    .dim = D, .ffn_dim = F, .heads = HEADS, .fill = -10000, .own_depth = true};

static void build(tape_fixture *f, attn_dtype dtype, const attn_nn_msa_layer_options *options)
{
    f->builder.dtype = dtype;
    attn_nn_msa_layer_init(&made, &f->builder, options);
}

/* Makes a padding mask, in which the second alignment has two rows and three columns. */
static attn_tensor *padding(attn_tape *tape)
{
    uint8_t keep[B * R * C];
    for (int i = 0; i < B * R * C; i++)
        keep[i] = i / (R * C) == 0 || (i / C % R < 2 && i % C < 3);
    return attn_tape_tensor(tape, ATTN_U8, 3, (int64_t[]){B, R, C}, keep);
}

/* ---------------------------------------------------------------------------------------------- gradients */

/* One block of the layer. The inputs of gradcheck are x and parameters of this block. */
typedef struct choice {
    const attn_nn_msa_layer *layer;
    int block; /* 0: rows; 1: columns; 2: feed-forward */
} choice;

static attn_tensor *build_layer(attn_tape *tape, attn_tensor *const *in, const void *user)
{
    const choice *c = user;
    attn_nn_msa_layer layer = *c->layer;
    attn_nn_msa_attention *attention = c->block == 0 ? &layer.rows : &layer.columns;
    attn_nn_layer_norm *norms[] = {&layer.rows_norm, &layer.columns_norm, &layer.ffn_norm};
    attn_nn_linear *first = c->block == 2 ? &layer.fc1 : &attention->q,
                   *second = c->block == 2 ? &layer.fc2 : &attention->k;
    norms[c->block]->weight = in[1];
    norms[c->block]->bias = in[2];
    *first = (attn_nn_linear){in[3], in[4]};
    *second = (attn_nn_linear){in[5], in[6]};
    if (c->block < 2) {
        attention->v.weight = in[7];
        attention->out.weight = in[8];
    }
    return attn_nn_msa_layer_forward(&layer, tape, in[0], padding(tape), NULL, NULL);
}

/* Dropout is active, but each evaluation drops the same numbers. */
static void gradients_are_differences(void **state)
{
    tape_fixture *f = *state;
    attn_nn_msa_layer_options options = small;
    options.dropout = options.activation_dropout = 0.2;
    build(f, ATTN_F64, &options);
    for (int64_t i = 0; i < f->parameters.n; i++)
        attn_tensor_set_requires_grad(f->parameters.items[i].tensor, false);
    const gradcheck_input attention[] = {{4, {R, C, B, D}}, {1, {D}}, {1, {D}},    {2, {D, D}}, {1, {D}},
                                         {2, {D, D}},       {1, {D}}, {2, {D, D}}, {2, {D, D}}};
    const gradcheck_input ffn[] = {{4, {R, C, B, D}}, {1, {D}}, {1, {D}}, {2, {F, D}}, {1, {F}}, {2, {D, F}}, {1, {D}}};
    for (int block = 0; block < 3; block++) {
        choice c = {&made, block};
        gradcheck(2, build_layer, &c, block < 2 ? 9 : 7, block < 2 ? attention : ffn);
    }
}

/* ------------------------------------------------------------------------------------------------ in parts */

typedef struct maps {
    attn_tensor *all;
    int64_t heads; /* number of heads that were computed so far */
    int calls;
} maps;

static void take(void *user, int64_t first, const attn_tensor *some)
{
    maps *m = user;
    int64_t each = attn_tensor_size(some) / attn_tensor_length(some, 0);
    assert_int_equal(first, m->heads);
    for (int64_t i = 0; i < attn_tensor_size(some); i++)
        assert_true(fabs(test_at(some, i) - test_at(m->all, first * each + i)) < 1e-6);
    m->heads += attn_tensor_length(some, 0);
    m->calls++;
}

/* Compares the layer that works in place, one head at a time, with the layer that records separate operations, which
 * has been compared with PyTorch. */
static void parts_change_nothing_but_rounding(void **state)
{
    tape_fixture *f = *state;
    build(f, ATTN_F32, &small);
    attn_tape_reset(f->tape, &(attn_tape_options){.record = true});
    attn_tensor *x = test_random(f->tape, ATTN_F32, 4, (int64_t[]){R, C, B, D}, 1), *keep = padding(f->tape);
    maps rows = {0}, columns = {0};
    attn_tensor *whole = attn_nn_msa_layer_forward(&made, f->tape, x, keep, &rows.all, &columns.all);
    assert_non_null(whole);
    for (int64_t max_tokens = 1; max_tokens <= 64; max_tokens *= 4) {
        attn_tape *tape;
        attn_tape_create(&tape, f->context);
        attn_tape_reset(tape, &(attn_tape_options){0});
        attn_tensor *y = attn_tape_tensor(tape, ATTN_F32, 4, attn_tensor_shape(x), attn_tensor_data(x));
        attn_nn_msa_layer_run run = {.keep = keep, .max_tokens = max_tokens, .rows = take, .user = &rows};
        rows.heads = rows.calls = 0;
        assert_true(attn_nn_msa_layer_apply(&made, tape, y, &run));
        assert_int_equal(rows.heads, HEADS);
        assert_int_equal(rows.calls, max_tokens >= R * C * B ? 1 : max_tokens >= 16 ? 2 : HEADS);
        assert_true(test_distance(y, whole) < 1e-6);
        attn_tape_destroy(tape);
    }
}

static void bf16_rounds_to_eight_bits(void **state)
{
    tape_fixture *f = *state;
    build(f, ATTN_F32, &(attn_nn_msa_layer_options){.dim = 64, .ffn_dim = 96, .heads = 2});
    attn_tensor *x = test_random(f->tape, ATTN_F32, 4, (int64_t[]){8, 16, 1, 64}, 1);
    attn_tensor *y = attn_tape_tensor(f->tape, ATTN_F32, 4, attn_tensor_shape(x), attn_tensor_data(x));
    attn_tensor *z = attn_tape_tensor(f->tape, ATTN_F32, 4, attn_tensor_shape(x), attn_tensor_data(x));
    assert_true(attn_nn_msa_layer_apply(&made, f->tape, y, &(attn_nn_msa_layer_run){0}));
    assert_true(attn_nn_msa_layer_apply(&made, f->tape, z, &(attn_nn_msa_layer_run){.bf16 = true}));
    assert_true(test_distance(z, y) < 1.0 / 128);
    assert_true(test_distance(z, y) > 1e-5);
}

/* --------------------------------------------------------------------------------------------- padding */

/* Returns alignment b of x [R,C,B,D] alone, as [rows,cols,1,D]. */
static attn_tensor *alone(attn_tape *tape, const attn_tensor *x, int64_t b, int64_t rows, int64_t cols)
{
    attn_tensor *y = attn_tape_tensor(tape, ATTN_F64, 4, (int64_t[]){rows, cols, 1, D}, NULL);
    for (int64_t i = 0; i < rows * cols * D; i++) {
        int64_t row = i / D / cols, col = i / D % cols;
        test_set(y, i, test_at(x, ((row * C + col) * B + b) * D + i % D));
    }
    return y;
}

static void padding_keeps_the_result(void **state)
{
    tape_fixture *f = *state;
    build(f, ATTN_F64, &small);
    attn_tensor *x = test_random(f->tape, ATTN_F64, 4, (int64_t[]){R, C, B, D}, 1);
    attn_tensor *together = attn_nn_msa_layer_forward(&made, f->tape, x, padding(f->tape), NULL, NULL);
    attn_tensor *single = attn_nn_msa_layer_forward(&made, f->tape, alone(f->tape, x, 1, 2, 3), NULL, NULL, NULL);
    assert_non_null(together);
    assert_true(test_distance(alone(f->tape, together, 1, 2, 3), single) < 1e-12);
    made.rows.own_depth = false;
    together = attn_nn_msa_layer_forward(&made, f->tape, x, padding(f->tape), NULL, NULL);
    assert_true(test_distance(alone(f->tape, together, 1, 2, 3), single) > 1e-6);
}

/* ------------------------------------------------------------------------------------------------ errors */

static void errors_say_what_is_wrong(void **state)
{
    tape_fixture *f = *state;
    build(f, ATTN_F32, &(attn_nn_msa_layer_options){.dim = 6, .ffn_dim = 5, .heads = 4});
    assert_says(f->context, "4 heads do not divide 6");
    attn_named_clear(&f->parameters);
    build(f, ATTN_F32, &small);
    attn_tensor *x = test_random(f->tape, ATTN_F32, 3, (int64_t[]){R, C, D}, 1);
    assert_null(attn_nn_msa_layer_forward(&made, f->tape, x, NULL, NULL, NULL));
    assert_int_equal(attn_context_status(f->context), ATTN_ERROR_SHAPE);
    attn_context_clear_error(f->context);
    x = test_random(f->tape, ATTN_F32, 4, (int64_t[]){R, C + 1, B, D}, 1);
    assert_null(attn_nn_msa_layer_forward(&made, f->tape, x, padding(f->tape), NULL, NULL));
    assert_says(f->context, "expected u8 [2,3,5]");
    attn_tape_reset(f->tape, &(attn_tape_options){.record = true});
    x = test_random(f->tape, ATTN_F32, 4, (int64_t[]){R, C, B, D}, 1);
    assert_false(attn_nn_msa_layer_apply(&made, f->tape, x, &(attn_nn_msa_layer_run){0}));
    assert_int_equal(attn_context_status(f->context), ATTN_ERROR_ARGUMENT);
}

RUN_TESTS(TEST_WITH_TAPE(gradients_are_differences), TEST_WITH_TAPE(parts_change_nothing_but_rounding),
          TEST_WITH_TAPE(bf16_rounds_to_eight_bits), TEST_WITH_TAPE(padding_keeps_the_result),
          TEST_WITH_TAPE(errors_say_what_is_wrong))
