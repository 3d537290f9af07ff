/* SPDX-License-Identifier: MIT
 *
 * Tests layers over images: gradients in double, positions by their formulas, blocks that begin as the identity, and
 * errors for invalid sizes.
 */
#include "support/fixture.h"
#include "support/gradcheck.h"
#include "support/tensors.h"

#include "nn/axial.h"
#include "nn/spatial.h"

#include <math.h>
#include <string.h>

typedef attn_tensor *const *tensors;
#define IN(...) ((const gradcheck_input[]){__VA_ARGS__})

static attn_tensor *image(tape_fixture *f, int64_t c, int64_t y, int64_t x)
{
    return test_random(f->tape, ATTN_F64, 4, (int64_t[]){2, c, y, x}, 1);
}

static void expect_error(tape_fixture *f, attn_status status, const char *text)
{
    assert_refused(f->context, attn_context_status(f->context), status, text);
}

/* ------------------------------------------------------------------------------------------- gradients */

static attn_tensor *build_attention(attn_tape *t, tensors in, const void *user)
{
    attn_nn_image_attention layer = {.options = *(const attn_nn_image_attention_options *)user};
    attn_nn_conv *convs[] = {&layer.query, &layer.key, &layer.value, &layer.wout};
    for (int i = 0; i < 4; i++) {
        convs[i]->weight = in[1 + i];
        convs[i]->geometry.spatial = 2;
    }
    layer.row = in[5];
    layer.col = in[6];
    layer.query.bias = in[7];
    layer.value.bias = in[8];
    layer.wout.bias = in[9];
    return attn_nn_image_attention_forward(&layer, t, in[0], NULL);
}

static void gradients_of_attention_over_images(void **state)
{
    attn_nn_image_attention_options o = {.in_channels = 2,
                                         .mid = 4,
                                         .out_channels = 2,
                                         .heads = 2,
                                         .max_positions = 4,
                                         .relative = true,
                                         .bias = true,
                                         .project = true};
    const gradcheck_input x = {4, {1, 2, 3, 4}}, w = {4, {8, 2, 1, 1}}, out = {4, {2, 8, 1, 1}}, all = {1, {8}};
    gradcheck(2, build_attention, &o, 10, IN(x, w, w, w, out, {2, {7, 2}}, {2, {7, 2}}, all, all, {1, {2}}));
    for (int border = ATTN_BORDER_MASK; border <= ATTN_BORDER_SHIFT; border++) {
        o.window = 3;
        o.stride = 1 + border % 2;
        o.border = (attn_border)border;
        o.whole = o.head_major = border == ATTN_BORDER_ZERO;
        int64_t rows = border == ATTN_BORDER_SHIFT ? 5 : 3, wide = o.whole ? 4 : 2;
        const gradcheck_input table = {2, {rows, wide}};
        gradcheck(1, build_attention, &o, 10, IN(x, w, w, w, out, table, table, all, all, {1, {2}}));
    }
}

static attn_tensor *build_non_local(attn_tape *t, tensors in, const void *user)
{
    attn_nn_non_local layer = *(const attn_nn_non_local *)user;
    attn_nn_conv *convs[] = {&layer.g, &layer.theta, &layer.phi, &layer.w};
    for (int i = 0; i < 4; i++) {
        convs[i]->weight = in[1 + i];
        convs[i]->geometry.spatial = 2;
    }
    layer.norm = (attn_nn_batch_norm){.weight = in[5], .bias = in[6], .momentum = 0.1, .eps = 1e-5};
    layer.norm.running_mean = attn_tape_tensor(t, ATTN_F64, 1, (int64_t[]){4}, NULL);
    layer.norm.running_var = attn_tape_tensor(t, ATTN_F64, 1, (int64_t[]){4}, NULL);
    layer.concat = layer.pairwise == ATTN_PAIRWISE_CONCAT ? in[7] : NULL;
    return attn_nn_non_local_forward(&layer, t, in[0], NULL);
}

static void gradients_of_non_local_blocks(void **state)
{
    const gradcheck_input x = {4, {2, 4, 3, 4}}, w = {4, {2, 4, 1, 1}}, c = {1, {4}};
    for (int pairwise = ATTN_PAIRWISE_EMBEDDED; pairwise <= ATTN_PAIRWISE_CONCAT; pairwise++) {
        if (pairwise == ATTN_PAIRWISE_GAUSSIAN)
            continue;
        attn_nn_non_local layer = {
            .pairwise = (attn_nn_pairwise)pairwise, .spatial = 2, .inter = 2, .sub_sample = true, .batch_norm = true};
        int n = pairwise == ATTN_PAIRWISE_CONCAT ? 8 : 7;
        gradcheck(2, build_non_local, &layer, n, IN(x, w, w, w, {4, {4, 2, 1, 1}}, c, c, {4, {1, 4, 1, 1}}));
    }
}

/* Queries and keys are the input itself. The keys are the maxima of four neighbours. So x gets gradients from
 * queries, keys, values and the residual. */
static attn_tensor *build_gaussian(attn_tape *t, tensors in, const void *user)
{
    attn_nn_non_local layer = *(const attn_nn_non_local *)user;
    layer.g.weight = in[1];
    layer.w.weight = in[2];
    layer.g.geometry.spatial = layer.w.geometry.spatial = 2;
    return attn_nn_non_local_forward(&layer, t, in[0], NULL);
}

static void gradients_of_gaussian_non_local_blocks(void **state)
{
    for (int i = 0; i < 2; i++) {
        attn_nn_non_local layer = {.pairwise = ATTN_PAIRWISE_GAUSSIAN, .spatial = 2, .inter = 2, .sub_sample = i};
        gradcheck(2, build_gaussian, &layer, 3, IN({4, {2, 4, 3, 4}}, {4, {2, 4, 1, 1}}, {4, {4, 2, 1, 1}}));
    }
}

static attn_tensor *build_generalized(attn_tape *t, tensors in, const void *user)
{
    attn_nn_generalized_attention layer = *(const attn_nn_generalized_attention *)user;
    attn_nn_conv *convs[] = {&layer.query, &layer.key, &layer.value, &layer.proj};
    for (int i = 0; i < 4; i++) {
        convs[i]->weight = in[1 + i];
        convs[i]->geometry.spatial = 2;
    }
    layer.fc_x.weight = in[5];
    layer.fc_y.weight = in[6];
    layer.u = in[7];
    layer.v = in[8];
    layer.gamma = in[9];
    return attn_nn_generalized_attention_forward(&layer, t, in[0], NULL);
}

static void gradients_of_generalized_attention(void **state)
{
    attn_nn_generalized_attention layer = {.factors = 15, .heads = 2, .dim_head = 2, .position_dim = 4, .magnitude = 1};
    const gradcheck_input x = {4, {1, 3, 2, 3}}, w = {4, {4, 3, 1, 1}}, fc = {2, {4, 2}}, b = {1, {4}};
    gradcheck(2, build_generalized, &layer, 10, IN(x, w, w, w, {4, {3, 4, 1, 1}}, fc, fc, b, b, {1, {1}}));
}

static attn_tensor *build_vit_block(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    attn_nn_vit_block block = {.activation = ATTN_ACTIVATION_GELU_ERF, .attention = {.hidden = 4, .heads = 2}};
    attn_tensor *ones = attn_affine(t, attn_tape_tensor(t, ATTN_F64, 1, (int64_t[]){4}, NULL), 1, 1);
    block.ln1 = block.ln2 = (attn_nn_layer_norm){.weight = in[6], .bias = in[7], .eps = 1e-5};
    block.ln2.weight = ones;
    block.attention.w_q.weight = in[1];
    block.attention.w_k.weight = in[2];
    block.attention.w_v.weight = block.attention.w_o.weight = in[3];
    block.dense1.weight = in[4];
    block.dense2.weight = in[5];
    return attn_nn_vit_block_forward(&block, t, in[0], NULL, NULL);
}

static attn_tensor *build_patches(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_nn_patches_forward(&(attn_nn_conv){.weight = in[1], .bias = in[2]}, t, in[0]);
}

static void gradients_of_a_vision_transformer(void **state)
{
    const gradcheck_input w = {2, {4, 4}}, v = {1, {4}};
    gradcheck(2, build_vit_block, NULL, 8, IN({3, {2, 3, 4}}, w, w, w, {2, {6, 4}}, {2, {4, 6}}, v, v));
    gradcheck(2, build_patches, NULL, 3, IN({4, {2, 2, 5, 4}}, {4, {3, 2, 2, 2}}, {1, {3}}));
}

/* -------------------------------------------------------------------------------------------- behaviour */

static void patches_are_a_convolution(void **state)
{
    tape_fixture *f = *state;
    attn_nn_conv conv;
    attn_nn_patches_init(&conv, &f->builder, 3, 5, 2, 2);
    attn_tensor *x = image(f, 3, 7, 4), *y = attn_nn_patches_forward(&conv, f->tape, x);
    attn_tensor *z = attn_nn_conv_forward(&conv, f->tape, x); /* [2,5,3,2] */
    assert_non_null(y);
    assert_non_null(z);
    z = attn_reshape(f->tape, attn_permute(f->tape, z, (int[]){0, 2, 3, 1}), 3, (int64_t[]){2, 6, 5});
    assert_true(test_distance(y, z) < 1e-12);
    assert_non_null(attn_named_find(&f->parameters, "conv.weight"));
}

static void non_local_blocks_begin_as_the_identity(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *x = image(f, 5, 4, 6);
    for (int i = 0; i < 4; i++) {
        attn_nn_non_local layer;
        attn_nn_pushf(&f->builder, "%d", i);
        attn_nn_non_local_init(&layer, &f->builder, 5, 0, 2, (attn_nn_pairwise)i, i % 2 == 0, i < 2);
        attn_nn_pop(&f->builder);
        attn_tensor *map = NULL, *y = attn_nn_non_local_forward(&layer, f->tape, x, &map);
        assert_true(test_distance(y, x) == 0);
        assert_int_equal(attn_tensor_length(map, 2), i % 2 == 0 ? 6 : 24);
    }
    assert_non_null(attn_named_find(&f->parameters, "0.phi.0.weight"));
    assert_non_null(attn_named_find(&f->parameters, "0.W.1.running_var"));
    assert_non_null(attn_named_find(&f->parameters, "3.concat_project.0.weight"));
    assert_null(attn_named_find(&f->parameters, "1.theta.weight"));
}

/* The concatenation allocates no memory for pairs. Here an array of all pairs, as in the original, would take 0.5
 * GB. */
static void concatenation_builds_no_pairs(void **state)
{
    tape_fixture *f = *state;
    attn_nn_builder builder = f->builder;
    attn_nn_non_local layer;
    builder.dtype = ATTN_F32;
    attn_nn_non_local_init(&layer, &builder, 8, 4, 2, ATTN_PAIRWISE_CONCAT, false, false);
    attn_tensor *x = test_random(f->tape, ATTN_F32, 4, (int64_t[]){1, 8, 64, 64}, 1);
    assert_non_null(attn_nn_non_local_forward(&layer, f->tape, x, NULL));
    size_t peak;
    attn_context_memory(f->context, NULL, &peak, NULL);
    assert_true(peak < 16 << 20);
}

static void sines_count_what_is_not_padding(void **state)
{
    tape_fixture *f = *state;
    attn_nn_sine_positions layer = {.feats = 4, .temperature = 100, .scale = 6};
    const uint8_t pads[6] = {0, 0, 1, 1, 0, 1}; /* padding of an image of 2 rows of 3 pixels */
    attn_tensor *padding = attn_tape_tensor(f->tape, ATTN_U8, 3, (int64_t[]){1, 2, 3}, pads);
    attn_tensor *p = attn_nn_sine_positions_forward(&layer, f->tape, ATTN_F64, (int64_t[]){1, 2, 3}, padding);
    assert_non_null(p);
    /* Pixel (1,1) is the second of two in its column, and the first of one in its row. */
    const double y = 2 / (2 + 1e-6) * 6, x = 1 / (1 + 1e-6) * 6;
    const double wanted[8] = {sin(y), cos(y), sin(y / 10), cos(y / 10), sin(x), cos(x), sin(x / 10), cos(x / 10)};
    for (int c = 0; c < 8; c++)
        assert_true(fabs(test_at(p, 4 * 8 + c) - wanted[c]) < 1e-12);
    layer.scale = 0;
    p = attn_nn_sine_positions_forward(&layer, f->tape, ATTN_F64, (int64_t[]){1, 2, 3}, NULL);
    assert_true(fabs(test_at(p, 5 * 8) - sin(2)) < 1e-12); /* the channels of the row position come first */
    assert_true(fabs(test_at(p, 5 * 8 + 4) - sin(3)) < 1e-12);
    layer.feats = 3;
    assert_null(attn_nn_sine_positions_forward(&layer, f->tape, ATTN_F64, (int64_t[]){1, 2, 3}, NULL));
    expect_error(f, ATTN_ERROR_ARGUMENT, "an even number");
}

static void learned_positions_put_columns_first(void **state)
{
    tape_fixture *f = *state;
    attn_nn_learned_positions layer;
    attn_nn_learned_positions_init(&layer, &f->builder, 2, 5);
    for (int64_t i = 0; i < attn_tensor_size(layer.row); i++)
        assert_true(test_at(layer.row, i) >= 0 && test_at(layer.row, i) < 1);
    attn_tensor *p = attn_nn_learned_positions_forward(&layer, f->tape, 3, 4);
    assert_non_null(p);
    for (int c = 0; c < 2; c++) {
        assert_true(test_at(p, (2 * 4 + 1) * 4 + c) == test_at(layer.col, 1 * 2 + c));
        assert_true(test_at(p, (2 * 4 + 1) * 4 + 2 + c) == test_at(layer.row, 2 * 2 + c));
    }
    assert_null(attn_nn_learned_positions_forward(&layer, f->tape, 6, 4));
    expect_error(f, ATTN_ERROR_SHAPE, "6 x 4");
}

/* A residual convolution must give the same results with and without gradients. */
static void residual_convolutions_overwrite_the_addend_only_without_gradients(void **state)
{
    tape_fixture *f = *state;
    attn_nn_conv conv;
    attn_nn_map_norm norm;
    attn_tape *plain;
    assert_int_equal(attn_tape_create(&plain, f->context), ATTN_OK);
    attn_nn_conv_init(&conv, &f->builder,
                      &(attn_nn_conv_options){
                          .spatial = 2, .in_channels = 300, .out_channels = 5, .kernel = {3, 3}, .padding = {1, 1}});
    attn_nn_push(&f->builder, "norm");
    attn_nn_map_norm_init(&norm, &f->builder, ATTN_NN_NORM_FROZEN, 5, 1);
    attn_nn_pop(&f->builder);
    for (int i = 0; i < 5; i++) {
        test_set(norm.batch.weight, i, 1.5 - i);
        test_set(norm.batch.bias, i, 0.25 * i);
        test_set(norm.batch.running_mean, i, 0.5 * i - 1);
        test_set(norm.batch.running_var, i, 0.5 + i);
    }
    attn_tensor *x = image(f, 300, 6, 7), *addend = image(f, 5, 6, 7);
    attn_tensor *kept = attn_nn_conv_normed(&conv, &norm, f->tape, x, addend, ATTN_ACTIVATION_RELU);
    assert_true(test_distance(addend, image(f, 5, 6, 7)) == 0);
    attn_tensor *y = attn_nn_conv_normed(&conv, &norm, plain, x, addend, ATTN_ACTIVATION_RELU);
    assert_true(test_distance(y, kept) < 1e-13);
    assert_true(test_distance(addend, y) == 0);
    attn_tape_destroy(plain);
}

/* There are more planes than are pooled at a time. */
static void pooling_gives_the_same_with_and_without_gradients(void **state)
{
    tape_fixture *f = *state;
    attn_tape *plain;
    assert_int_equal(attn_tape_create(&plain, f->context), ATTN_OK);
    attn_tensor *x = image(f, 77, 5, 6);
    const int64_t window[2] = {3, 3}, stride[2] = {2, 2}, padding[2] = {1, 1};
    attn_tensor *y = attn_max_pool(plain, x, 2, window, stride, padding);
    assert_true(test_distance(y, attn_max_pool(f->tape, x, 2, window, stride, padding)) == 0);
    attn_tape_destroy(plain);
}

static void bad_sizes_are_errors(void **state)
{
    tape_fixture *f = *state;
    attn_nn_image_attention attention;
    attn_nn_image_attention_options o = {
        .in_channels = 3, .mid = 4, .out_channels = 2, .heads = 2, .window = 4, .relative = true, .project = true};
    attn_nn_image_attention_init(&attention, &f->builder, &o);
    expect_error(f, ATTN_ERROR_ARGUMENT, "odd number of taps");
    o = (attn_nn_image_attention_options){.in_channels = 3,
                                          .mid = 3,
                                          .out_channels = 2,
                                          .heads = 2,
                                          .max_positions = 4,
                                          .relative = true,
                                          .project = true};
    attn_nn_image_attention_init(&attention, &f->builder, &o);
    expect_error(f, ATTN_ERROR_ARGUMENT, "even number of channels");
    o.mid = 4;
    attn_nn_image_attention_init(&attention, &f->builder, &o);
    assert_null(attn_nn_image_attention_forward(&attention, f->tape, image(f, 3, 5, 4), NULL));
    expect_error(f, ATTN_ERROR_SHAPE, "sides of at most 4");
    attn_nn_conv conv;
    attn_nn_conv_init(&conv, &f->builder,
                      &(attn_nn_conv_options){.spatial = 2, .in_channels = 3, .out_channels = 4, .groups = 2});
    expect_error(f, ATTN_ERROR_ARGUMENT, "2 groups must divide the 3 input channels and the 4 output channels");
    attn_nn_conv_init(
        &conv, &f->builder,
        &(attn_nn_conv_options){.spatial = 2, .in_channels = 3, .out_channels = 4, .activation = (attn_activation)99});
    expect_error(f, ATTN_ERROR_ARGUMENT, "convolution: activation is 99; it must be between 0 and 8");
    attn_nn_generalized_attention general;
    attn_nn_generalized_attention_init(
        &general, &f->builder, &(attn_nn_generalized_attention_options){.dim = 8, .heads = 2, .position_dim = 6});
    expect_error(f, ATTN_ERROR_ARGUMENT, "the number of sines (position_dim) is 6; expected a positive multiple of 4");
    attn_nn_push(&f->builder, "patches");
    attn_nn_patches_init(&conv, &f->builder, 3, 5, 4, 4);
    attn_nn_pop(&f->builder);
    assert_null(attn_nn_patches_forward(&conv, f->tape, image(f, 3, 3, 8)));
    expect_error(f, ATTN_ERROR_SHAPE, "at least 4 x 4");
}

/* Each axis adds its own positions. A tensor has up to 8 axes, including batch and channels. */
static void axial_positions_of_every_number_of_axes(void **state)
{
    tape_fixture *f = *state;
    const int64_t shape[] = {2, 3, 2, 1, 3, 2, 2};
    attn_nn_axial_positions layer;
    for (int axes = 1; axes <= 6; axes++) {
        attn_nn_pushf(&f->builder, "axes%d", axes);
        attn_nn_axial_positions_init(&layer, &f->builder, 3, axes, shape, -1, ATTN_POSITIONS_EXACT);
        attn_nn_pop(&f->builder);
        int64_t whole[8] = {1}, at[8];
        memcpy(whole + 1, shape, (size_t)axes * sizeof *shape);
        whole[axes + 1] = 3;
        attn_tensor *x = test_random(f->tape, ATTN_F64, axes + 2, whole, 2);
        attn_tensor *y = attn_nn_axial_positions_forward(&layer, f->tape, x);
        assert_non_null(y);
        for (int64_t i = 0; i < attn_tensor_size(x); i++) {
            double sum = test_at(x, i);
            for (int64_t axis = axes + 1, rest = i; axis >= 0; rest /= whole[axis--])
                at[axis] = rest % whole[axis];
            for (int axis = 0; axis < axes; axis++)
                sum += test_at(layer.param[axis], at[axis + 1] * 3 + at[axes + 1]);
            assert_true(fabs(test_at(y, i) - sum) < 1e-12);
        }
    }
    for (int axes = 0; axes <= 7; axes += 7) {
        attn_nn_axial_positions_init(&layer, &f->builder, 3, axes, shape, -1, ATTN_POSITIONS_EXACT);
        expect_error(f, ATTN_ERROR_ARGUMENT, "1 to 6 are supported");
    }
}

RUN_TESTS(TEST(gradients_of_attention_over_images), TEST(gradients_of_non_local_blocks),
          TEST(gradients_of_gaussian_non_local_blocks), TEST(gradients_of_generalized_attention),
          TEST(gradients_of_a_vision_transformer), TEST_WITH_TAPE(patches_are_a_convolution),
          TEST_WITH_TAPE(non_local_blocks_begin_as_the_identity), TEST_WITH_TAPE(concatenation_builds_no_pairs),
          TEST_WITH_TAPE(sines_count_what_is_not_padding), TEST_WITH_TAPE(learned_positions_put_columns_first),
          TEST_WITH_RECORD(residual_convolutions_overwrite_the_addend_only_without_gradients),
          TEST_WITH_RECORD(pooling_gives_the_same_with_and_without_gradients),
          TEST_WITH_TAPE(axial_positions_of_every_number_of_axes), TEST_WITH_TAPE(bad_sizes_are_errors))
