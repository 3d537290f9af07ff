/* SPDX-License-Identifier: MIT
 *
 * Tests operations along an axis in place: gradients against differences, values against plain loops, and the count of
 * copied bytes.
 */
#include "support/fixture.h"
#include "support/gradcheck.h"
#include "support/tensors.h"

#include "attn/models.h"
#include "nn/layers.h"
#include "nn/msa.h"
#include "tensor/parts.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <string.h>

typedef attn_tensor *const *tensors;
#define IN(...) ((const gradcheck_input[]){__VA_ARGS__})

typedef struct axis_case {
    int axis;
    attn_norm kind;
} axis_case;

static attn_tensor *build_norm(attn_tape *t, tensors in, const void *user)
{
    const axis_case *c = user;
    return attn_channel_norm(t, in[0], c->axis, in[1], in[2], 1e-3, c->kind);
}

static attn_tensor *build_linear(attn_tape *t, tensors in, const void *user)
{
    return attn_linear_axis(t, in[0], *(const int *)user, in[1], in[2]);
}

static void gradients_along_an_axis(void **state)
{
    for (int axis = 0; axis < 3; axis++) {
        const int64_t shape[3] = {3, 4, 5};
        for (int kind = 0; kind < 2; kind++)
            gradcheck(2, build_norm, &(axis_case){axis, (attn_norm)kind}, 3,
                      IN({3, {3, 4, 5}}, {1, {shape[axis]}}, {4, {1, shape[axis], 1, 1}}));
        gradcheck(2, build_linear, &axis, 3, IN({3, {3, 4, 5}}, {2, {7, shape[axis]}}, {1, {7}}));
    }
    gradcheck(2, build_norm, &(axis_case){1, ATTN_NORM_DEVIATION}, 3, IN({4, {2, 3, 11, 13}}, {1, {3}}, {1, {3}}));
}

typedef struct axes {
    int from, to;
} axes;

static attn_tensor *build_between(attn_tape *t, tensors in, const void *user)
{
    const axes *a = user;
    return attn_linear_between(t, in[0], a->from, a->to, in[1], in[2]);
}

static const axes moves[] = {{0, 2}, {1, 2}, {1, -1}, {2, 0}, {2, 1}, {-1, 1}, {1, 1}, {2, 2}};
enum { MOVES = sizeof moves / sizeof *moves };

static void gradients_between_axes(void **state)
{
    const int64_t shape[3] = {3, 4, 5};
    for (int i = 0; i < MOVES; i++)
        gradcheck(2, build_between, &moves[i], 3,
                  IN({3, {3, 4, 5}}, {2, {7, shape[(moves[i].from + 3) % 3]}}, {1, {7}}));
}

typedef struct resize_case {
    int axis;
    int64_t n;
    attn_interpolation kind;
} resize_case;

static attn_tensor *build_resize(attn_tape *t, tensors in, const void *user)
{
    const resize_case *c = user;
    return attn_interpolate(t, in[0], c->axis, c->n, c->kind);
}

static void gradients_of_other_lengths(void **state)
{
    for (int kind = 0; kind < 2; kind++) {
        for (int axis = 0; axis < 3; axis++)
            for (int64_t n = 1; n < 10; n += 4)
                gradcheck(2, build_resize, &(resize_case){axis, n, (attn_interpolation)kind}, 1, IN({3, {2, 4, 3}}));
    }
}

typedef struct world {
    attn_context *c;
    attn_tape *t;
} world;

static world begin(bool record)
{
    world w = {.c = test_context()};
    assert_int_equal(attn_tape_create(&w.t, w.c), ATTN_OK);
    attn_tape_reset(w.t, &(attn_tape_options){.record = record});
    return w;
}

static void end(world w)
{
    attn_tape_destroy(w.t);
    end_context(w.c);
}

/* The expected numbers are computed by hand from the positions (i + 1/2) in/out - 1/2. */
static void lengths_are_interpolated_between_pixels(void **state)
{
    world w = begin(false);
    const double line[4] = {0, 1, 4, 9};
    attn_tensor *x = attn_tape_tensor(w.t, ATTN_F64, 1, (int64_t[]){4}, line);
    attn_tensor *half = attn_interpolate(w.t, x, 0, 2, ATTN_INTERPOLATE_LINEAR),
                *twice = attn_interpolate(w.t, x, -1, 8, ATTN_INTERPOLATE_LINEAR);
    assert_true(test_at(half, 0) == 0.5 && test_at(half, 1) == 6.5);
    const double expected[8] = {0, 0.25, 0.75, 1.75, 3.25, 5.25, 7.75, 9};
    for (int i = 0; i < 8; i++)
        assert_true(fabs(test_at(twice, i) - expected[i]) < 1e-15);
    /* With a = -0.75, the cubic weights at 1/2 are -3/32, 19/32, 19/32 and -3/32. Positions past an end repeat the
     * end. */
    attn_tensor *cubic = attn_interpolate(w.t, x, 0, 2, ATTN_INTERPOLATE_CUBIC);
    assert_true(fabs(test_at(cubic, 0) - (-3 * 0 + 19 * 0 + 19 * 1 - 3 * 4) / 32.0) < 1e-15);
    assert_true(fabs(test_at(cubic, 1) - (-3 * 1 + 19 * 4 + 19 * 9 - 3 * 9) / 32.0) < 1e-15);
    assert_ptr_equal(attn_interpolate(w.t, x, 0, 4, ATTN_INTERPOLATE_CUBIC), x);
    end(w);
}

/* A layer that moves its axis must give the same as the layer along this axis and then the move. */
static void channels_move_between_axes(void **state)
{
    world w = begin(false);
    const int64_t shape[3] = {3, 4, 5};
    attn_tensor *x = test_random(w.t, ATTN_F32, 3, shape, 1), *b = test_random(w.t, ATTN_F32, 1, (int64_t[]){7}, 2);
    for (int i = 0; i < MOVES; i++) {
        int from = (moves[i].from + 3) % 3, to = (moves[i].to + 3) % 3, order[3], n = 0;
        attn_tensor *v = test_random(w.t, ATTN_F32, 2, (int64_t[]){7, shape[from]}, 3);
        attn_tensor *there = attn_linear_axis(w.t, x, from, v, b), *y = attn_linear_between(w.t, x, from, to, v, b);
        for (int j = 0; j < 3; j++) {
            n += n == from;
            order[j] = j == to ? from : n++;
        }
        there = attn_permute(w.t, there, order);
        assert_int_equal(attn_tensor_size(y), attn_tensor_size(there));
        for (int j = 0; j < 3; j++)
            assert_int_equal(attn_tensor_length(y, j), attn_tensor_length(there, j));
        for (int64_t j = 0; j < attn_tensor_size(y); j++)
            assert_true(fabs(test_at(y, j) - test_at(there, j)) <= 1e-6);
    }
    end(w);
}

/* If all channels are equal, the deviation is 0 and the original's gradient is NaN. Here the term with the deviation
 * is left out. */
static void equal_channels_have_finite_gradients(void **state)
{
    for (int i = 0; i < 2; i++) {
        world w = begin(true);
        attn_dtype dtype = i ? ATTN_F64 : ATTN_F32;
        attn_tensor *x = attn_tape_tensor(w.t, dtype, 3, (int64_t[]){1, 4, 3}, NULL);
        attn_tensor *g = attn_tape_tensor(w.t, dtype, 1, (int64_t[]){4}, NULL);
        for (int64_t j = 0; j < 12; j++)
            test_set(x, j, 2);
        for (int64_t j = 0; j < 4; j++)
            test_set(g, j, 1 + (double)j);
        attn_tensor_set_requires_grad(x, true);
        attn_tensor *y = attn_channel_norm(w.t, x, 1, g, g, 1e-5, ATTN_NORM_DEVIATION);
        for (int64_t j = 0; j < 12; j++)
            assert_true(test_at(y, j) == 1 + (double)(j / 3));
        attn_tensor *c = test_random(w.t, dtype, 3, (int64_t[]){1, 4, 3}, 5);
        assert_int_equal(attn_backward_from(w.t, y, c), ATTN_OK);
        for (int64_t p = 0; p < 3; p++) { /* the gradient is (h - mean h) / eps, where h = c * g */
            double mean = 0;
            for (int64_t j = 0; j < 4; j++)
                mean += test_at(c, j * 3 + p) * (1 + (double)j) / 4;
            for (int64_t j = 0; j < 4; j++) {
                double expected = (test_at(c, j * 3 + p) * (1 + (double)j) - mean) / 1e-5;
                assert_true(fabs(test_at(attn_tensor_grad(x), j * 3 + p) - expected) <= 1e-6 * fabs(expected) + 0.5);
            }
        }
        end(w);
    }
}

/* The sum of equal numbers is rounded, so that their mean differs from them. This difference must not count as a
 * deviation. */
static void equal_numbers_normalize_to_zero(void **state)
{
    const float numbers[] = {0.1F, 1000.1F, 12345.678F, 1e6F + 0.25F, 1e30F};
    for (int isa = 0; attn_isa_name(isa); isa++) {
        attn_context *c;
        attn_tape *t;
        assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = attn_isa_name(isa)}), ATTN_OK);
        assert_int_equal(attn_tape_create(&t, c), ATTN_OK);
        for (int64_t i = 0, n = 3; n < 1100; n = n * 3 + i++ % 2) {
            for (int k = 0; k < 15; k++) {
                attn_tensor *x = attn_tape_tensor(t, k < 10 ? ATTN_F32 : ATTN_F64, 2, (int64_t[]){n, n}, NULL);
                attn_tensor *g = attn_tape_tensor(t, attn_tensor_dtype(x), 1, &n, NULL);
                attn_tensor *b = attn_tape_tensor(t, attn_tensor_dtype(x), 1, &n, NULL);
                for (int64_t j = 0; j < n * n; j++)
                    test_set(x, j, (double)numbers[k % 5]);
                for (int64_t j = 0; j < n; j++)
                    test_set(g, j, 1);
                attn_norm kind = k < 5 ? ATTN_NORM_VARIANCE : ATTN_NORM_DEVIATION;
                attn_tensor *y = attn_channel_norm(t, x, 0, g, b, 1e-5, kind), *z = attn_layer_norm(t, x, g, b, 1e-5);
                for (int64_t j = 0; j < n * n; j++)
                    assert_true(fabs(test_at(y, j)) < 1e-6 && fabs(test_at(z, j)) < 1e-6);
                attn_tape_reset(t, NULL);
            }
        }
        attn_tape_destroy(t);
        end_context(c);
    }
}

/* Compares the norm in f32 with double, forward and backward, for all remainders of positions. */
static void single_precision_is_that_of_double(void **state)
{
    for (int64_t inner = 1; inner < 300; inner = 2 * inner + 5) {
        attn_tensor *y[2], *x[2], *gain[2];
        world w[2] = {begin(true), begin(true)};
        attn_norm kind = inner % 3 ? ATTN_NORM_VARIANCE : ATTN_NORM_DEVIATION;
        for (int i = 0; i < 2; i++) {
            attn_dtype dtype = i ? ATTN_F64 : ATTN_F32;
            x[i] = test_random(w[i].t, dtype, 3, (int64_t[]){2, 13, inner}, 1);
            gain[i] = test_random(w[i].t, dtype, 1, (int64_t[]){13}, 2);
            attn_tensor_set_requires_grad(x[i], true);
            attn_tensor_set_requires_grad(gain[i], true);
            y[i] = attn_channel_norm(w[i].t, x[i], 1, gain[i], gain[i], 1e-5, kind);
            attn_tensor *again = attn_channel_norm(w[i].t, x[i], 1, gain[i], gain[i], 1e-3, kind);
            attn_tensor *weighted = attn_mul(w[i].t, attn_add(w[i].t, y[i], again), y[i]);
            assert_int_equal(
                attn_backward_from(w[i].t, weighted, test_random(w[i].t, dtype, 3, (int64_t[]){2, 13, inner}, 3)),
                ATTN_OK);
        }
        for (int64_t j = 0; j < 26 * inner; j++) {
            assert_true(fabs(test_at(y[0], j) - test_at(y[1], j)) <= 1e-5);
            assert_true(fabs(test_at(attn_tensor_grad(x[0]), j) - test_at(attn_tensor_grad(x[1]), j)) <= 2e-4);
        }
        for (int64_t j = 0; j < 13; j++)
            assert_true(fabs(test_at(attn_tensor_grad(gain[0]), j) - test_at(attn_tensor_grad(gain[1]), j)) <=
                        1e-4 * (double)inner + 1e-4);
        end(w[0]);
        end(w[1]);
    }
}

static attn_tensor *random_from(world w, attn_dtype dtype, int rank, const int64_t *shape, uint64_t seed, double from)
{
    attn_tensor *x = test_random(w.t, dtype, rank, shape, seed);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        test_set(x, i, (double)(float)(from + test_at(x, i)));
    attn_tensor_set_requires_grad(x, true);
    return x;
}

/* Errors of gradients and results depend on the spread of the channels, not on their mean. */
static void gradients_far_from_zero_keep_their_digits(void **state)
{
    for (int64_t inner = 1; inner < 300; inner = 2 * inner + 5) {
        const int64_t shape[3] = {2, 13, inner};
        attn_tensor *in[2][3];
        world w[2] = {begin(true), begin(true)};
        attn_norm kind = inner % 3 ? ATTN_NORM_VARIANCE : ATTN_NORM_DEVIATION;
        for (int i = 0; i < 2; i++) {
            attn_dtype dtype = i ? ATTN_F64 : ATTN_F32;
            in[i][0] = random_from(w[i], dtype, 3, shape, 1, 1e4);
            in[i][1] = random_from(w[i], dtype, 1, shape + 1, 2, 0);
            in[i][2] = random_from(w[i], dtype, 1, shape + 1, 3, 0);
            attn_tensor *y = attn_channel_norm(w[i].t, in[i][0], 1, in[i][1], in[i][2], 1e-5, kind);
            assert_int_equal(attn_backward_from(w[i].t, y, random_from(w[i], dtype, 3, shape, 4, 0)), ATTN_OK);
        }
        for (int k = 0; k < 3; k++)
            assert_true(test_distance(attn_tensor_grad(in[0][k]), attn_tensor_grad(in[1][k])) <= 1e-5);
        end(w[0]);
        end(w[1]);
    }
}

static void wrong_shapes_are_refused(void **state)
{
    world w = begin(false);
    attn_tensor *x = test_random(w.t, ATTN_F32, 3, (int64_t[]){2, 3, 4}, 1);
    attn_tensor *v = test_random(w.t, ATTN_F32, 1, (int64_t[]){4}, 2);
    const struct {
        attn_tensor *result;
        const char *said;
    } cases[] = {
        {attn_channel_norm(w.t, x, 1, v, v, 0, ATTN_NORM_VARIANCE), "channel_norm: axis 1 of x [2,3,4] has 3 channels"},
        {(attn_context_clear_error(w.c), attn_linear_axis(w.t, x, 1, v, NULL)),
         "linear_axis: axis 1 of x [2,3,4], w [4]"},
        {(attn_context_clear_error(w.c), attn_linear_between(w.t, x, 0, 1, v, NULL)), "linear_axis: from axis 0 to 1"},
        {(attn_context_clear_error(w.c), attn_interpolate(w.t, x, 1, 0, ATTN_INTERPOLATE_LINEAR)),
         "resize: axis 1 cannot get the length"},
        {(attn_context_clear_error(w.c), attn_interpolate(w.t, x, 3, 2, ATTN_INTERPOLATE_LINEAR)),
         "resize: axis 3 does not exist in a tensor of rank 3"},
    };
    assert_says(w.c, cases[4].said);
    for (int i = 0; i < 5; i++)
        assert_null(cases[i].result);
    end(w);
}

/* -------------------------------------------------------------------------------------- nothing is moved */

typedef struct layers {
    world w;
    attn_named_list parameters, constants;
    attn_nn_builder builder;
} layers;

static void layers_begin(layers *l)
{
    *l = (layers){.w = begin(true)};
    l->parameters = l->constants = (attn_named_list){.context = l->w.c, .owns = true};
    l->builder = (attn_nn_builder){
        .context = l->w.c, .parameters = &l->parameters, .constants = &l->constants, .dtype = ATTN_F32, .seed = 3};
}

static void layers_end(layers *l)
{
    attn_tape_reset(l->w.t, NULL);
    attn_named_clear(&l->parameters);
    attn_named_clear(&l->constants);
    end(l->w);
}

static void check_still(layers *l, attn_tensor *y)
{
    assert_non_null(y);
    assert_int_equal(attn_tape_copied(l->w.t), 0);
    assert_int_equal(attn_backward_from(l->w.t, y, y), ATTN_OK);
    assert_int_equal(attn_tape_copied(l->w.t), 0);
}

static void attention_along_any_axis_moves_nothing(void **state)
{
    for (int channel = 1; channel < 5; channel++) {
        for (int axis = 1; axis < 5; axis++) {
            layers l;
            attn_nn_self_attention layer;
            int64_t shape[5] = {2, 3, 4, 5, 6};
            if (axis == channel)
                continue;
            shape[channel] = 8;
            layers_begin(&l);
            attn_nn_self_attention_init(&layer, &l.builder, 8, 2, 3);
            attn_tensor *x = test_random(l.w.t, ATTN_F32, 5, shape, 1);
            attn_tensor_set_requires_grad(x, true);
            check_still(&l, attn_nn_self_attention_axis(&layer, l.w.t, x, axis, channel, NULL));
            layers_end(&l);
        }
    }
}

/* Attention needs two axes, which are counted from the front. */
static void attention_along_no_axis_is_refused(void **state)
{
    static const axes none[] = {{1, -1}, {2, -1}, {-1, 1}, {-2, 2}, {2, 2}, {1, 1}, {3, 1}, {3, 2}, {4, 2}};
    layers l;
    attn_nn_self_attention layer;
    layers_begin(&l);
    attn_nn_self_attention_init(&layer, &l.builder, 8, 2, 0);
    attn_tensor *x = test_random(l.w.t, ATTN_F32, 3, (int64_t[]){2, 8, 8}, 1);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(attn_nn_self_attention_axis(&layer, l.w.t, x, none[i].from, none[i].to, NULL));
        assert_int_equal(attn_context_status(l.w.c), ATTN_ERROR_SHAPE);
        attn_context_clear_error(l.w.c);
    }
    layers_end(&l);
}

static void rows_and_columns_of_alignments_move_nothing(void **state)
{
    for (int columns = 0; columns < 2; columns++) {
        layers l;
        attn_nn_msa_attention layer;
        layers_begin(&l);
        attn_nn_msa_attention_init(&layer, &l.builder, 8, 2, 0, -10000);
        attn_tensor *x = test_random(l.w.t, ATTN_F32, 4, (int64_t[]){5, 7, 2, 8}, 1);
        attn_tensor_set_requires_grad(x, true);
        attn_tensor *y = columns ? attn_nn_msa_attention_columns(&layer, l.w.t, x, NULL, NULL)
                                 : attn_nn_msa_attention_rows(&layer, l.w.t, x, NULL, NULL);
        check_still(&l, y);
        layers_end(&l);
    }
}

static void copied_bytes_are_counted(void **state)
{
    world w = begin(true);
    attn_tensor *x = test_random(w.t, ATTN_F32, 2, (int64_t[]){3, 4}, 1);
    attn_tensor_set_requires_grad(x, true);
    attn_tensor *y = attn_permute(w.t, x, (int[]){1, 0});
    assert_int_equal(attn_tape_copied(w.t), 48);
    y = attn_slice(w.t, y, 0, 1, 3);
    assert_int_equal(attn_tape_copied(w.t), 48 + 24);
    assert_int_equal(attn_backward_from(w.t, y, y), ATTN_OK);
    assert_int_equal(attn_tape_copied(w.t), 2 * (48 + 24));
    end(w);
}

/* ------------------------------------------------------------------------------------------- whole layers */

typedef struct wrong {
    const char *architecture, *key;
    int64_t value;
    int nshape;
    int64_t shape[3];
    int64_t input[4]; /* the shape of x; 0: the layer cannot be built */
    const char *said;
} wrong;

static void assert_layer_refuses(const wrong *c)
{
    world w = begin(false);
    attn_config *config;
    attn_model *model;
    const bool positions = strcmp(c->architecture, "axial-positional-embedding") == 0;
    const bool image = strcmp(c->architecture, "axial-image-transformer") == 0;
    const attn_config_value shape = {.type = ATTN_CONFIG_TYPE_INTS, .n = c->nshape, .integers = c->shape};
    assert_int_equal(attn_config_create(&config, w.c), ATTN_OK);
    attn_config_set_int(config, "dim", 8);
    if (image)
        attn_config_set_int(config, "depth", 1);
    if (c->nshape)
        attn_config_set(config, positions ? "shape" : "axial_pos_emb_shape", &shape);
    if (c->key)
        attn_config_set_int(config, c->key, c->value);
    if (attn_model_create(&model, w.c, c->architecture, config, NULL) == ATTN_OK) {
        attn_named_list inputs = {.context = w.c}, outputs = {.context = w.c};
        assert_true(c->input[0] > 0);
        attn_named_add(&inputs, "x", test_random(w.t, ATTN_F32, 4, c->input, 1));
        assert_int_not_equal(attn_model_forward(model, w.t, &inputs, &outputs), ATTN_OK);
        attn_named_clear(&inputs);
        attn_named_clear(&outputs);
    }
    if (!strstr(attn_context_error(w.c), c->said))
        fail_msg("%s", attn_context_error(w.c));
    attn_model_destroy(model);
    attn_config_destroy(config);
    end(w);
}

static void layers_refuse_wrong_shapes(void **state)
{
    static const char positions[] = "axial-positional-embedding", image[] = "axial-image-transformer",
                      axial[] = "axial-attention";
    static const wrong cases[] = {
        {positions, "emb_dim_index", 4, 2, {4, 5}, {0}, "channels at axis 4; allowed: 1 to 3, -1 to -3"},
        {positions, NULL, 0, 2, {4, 5}, {1, 8, 4, 6}, "axis 3 of the input is 6 long, but there are positions for 5"},
        {positions, NULL, 0, 2, {4, 5}, {1, 7, 4, 5}, "expected 8 channels in axis 1 (counted from 0), found 7"},
        {axial, "heads", 3, 0, {0}, {0}, "3 heads do not divide 8"},
        {axial, NULL, 0, 0, {0}, {1, 5, 4, 7}, "expected 8 channels in axis 3 (counted from 0), found 7"},
        {axial, "num_dimensions", 3, 0, {0}, {1, 5, 4, 8}, "axial-attention: expected 5 axes, found 4"},
        {image, "dim_index", 3, 0, {0}, {0}, "since convolutions need the channels at axis 1"},
        {image, "depth", 65, 0, {0}, {0}, "depth is 65; allowed: 1 to 64"},
        {image, "heads", 3, 0, {0}, {0}, "3 heads do not divide 8 channels"},
        {image, NULL, 0, 1, {4}, {0}, "axial_pos_emb_shape has 1 numbers; expected 2, height and width"},
        {image, NULL, 0, 2, {4, 4}, {1, 8, 5, 4}, "axis 2 of the input is 5 long, but there are positions for 4"},
        {image, NULL, 0, 0, {0}, {1, 6, 4, 4}, "channel_norm: axis 1 of x [1,6,4,4] has 6 channels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_layer_refuses(&cases[i]);
}

RUN_TESTS(TEST(gradients_along_an_axis), TEST(gradients_between_axes), TEST(channels_move_between_axes),
          TEST(gradients_of_other_lengths), TEST(lengths_are_interpolated_between_pixels),
          TEST(equal_channels_have_finite_gradients), TEST(equal_numbers_normalize_to_zero),
          TEST(single_precision_is_that_of_double), TEST(gradients_far_from_zero_keep_their_digits),
          TEST(wrong_shapes_are_refused), TEST(attention_along_any_axis_moves_nothing),
          TEST(attention_along_no_axis_is_refused), TEST(rows_and_columns_of_alignments_move_nothing),
          TEST(copied_bytes_are_counted), TEST(layers_refuse_wrong_shapes))
