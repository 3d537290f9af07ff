/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests that a convolution with an activation gives the same bits, in results and gradients, as a convolution and then
 * the activation.
 */
#include "support/fixture.h"

#include "attn/tensor.h"
#include "base/rng.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

/* MOST: longest side; LARGEST: bytes of the largest tensor */
enum { MOST = 32, LARGEST = 64 * MOST * MOST * sizeof(float) };

static size_t bytes_of(const attn_tensor *x)
{
    return (size_t)attn_tensor_size(x) * attn_dtype_size(attn_tensor_dtype(x));
}

/* Runs a convolution and its activation, fused if `together` is true, and computes the gradients. Writes all results
 * to y and returns their size in bytes. */
static size_t convolve_and_back(attn_context *context, attn_conv conv, bool together, attn_tensor *const in[3], void *y)
{
    attn_tape *tape;
    attn_activation activation = conv.activation;
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    conv.activation = together ? activation : ATTN_ACTIVATION_IDENTITY;
    attn_tensor *result = attn_convolve(tape, in[0], in[1], in[2], &conv);
    if (!together)
        result = attn_activate(tape, result, activation);
    assert_non_null(result);
    size_t bytes = bytes_of(result);
    assert_true(bytes <= LARGEST);
    memcpy(y, attn_tensor_data(result), bytes);
    result = attn_reshape(tape, attn_mul(tape, result, result), 1, (int64_t[]){-1});
    for (int i = 0; i < 3; i++)
        attn_tensor_zero_grad(in[i]);
    assert_int_equal(attn_backward(tape, attn_mean(tape, result, 0)), ATTN_OK);
    attn_tape_destroy(tape);
    return bytes;
}

/* Checks that both forms give the same bits. `shape` has the shapes of x and w, and the bias's length. */
static void assert_same_bits(attn_context *context, attn_dtype dtype, const attn_conv *conv, const int64_t shape[3][5])
{
    static char y[2][LARGEST], gradients[3][LARGEST];
    attn__rng rng = {.seed = 3};
    attn_tensor *in[3];
    for (int j = 0; j < 3; j++) {
        assert_int_equal(attn_tensor_create(&in[j], context, dtype, j < 2 ? 2 + conv->spatial : 1, shape[j]), ATTN_OK);
        assert_true(bytes_of(in[j]) <= LARGEST);
        attn_tensor_set_requires_grad(in[j], true);
        for (int64_t n = 0; n < attn_tensor_size(in[j]); n++) {
            double x = attn__rng_normal(&rng);
            if (dtype == ATTN_F64)
                ((double *)attn_tensor_data(in[j]))[n] = x;
            else
                ((float *)attn_tensor_data(in[j]))[n] = (float)x;
        }
    }
    size_t bytes = convolve_and_back(context, *conv, false, in, y[0]);
    for (int j = 0; j < 3; j++)
        memcpy(gradients[j], attn_tensor_data(attn_tensor_grad(in[j])), bytes_of(in[j]));
    assert_int_equal(convolve_and_back(context, *conv, true, in, y[1]), bytes);
    assert_memory_equal(y[0], y[1], bytes);
    for (int j = 0; j < 3; j++) {
        assert_memory_equal(gradients[j], attn_tensor_data(attn_tensor_grad(in[j])), bytes_of(in[j]));
        attn_tensor_destroy(in[j]);
    }
}

/* A small and a large image use different code. */
static void fused_activation_matches_separate_pass(void **state)
{
    attn_context *context = *state;
    for (int kind = ATTN_ACTIVATION_RELU; kind <= ATTN_ACTIVATION_SILU; kind++) {
        for (int64_t side = 3; side <= MOST; side += MOST - 3) {
            attn_conv conv = {.spatial = 2, .padding = {1, 1}, .activation = (attn_activation)kind};
            assert_same_bits(context, ATTN_F32, &conv,
                             (const int64_t[3][5]){{1, 64, side, side}, {64, 64, 3, 3}, {64}});
        }
    }
}

static void fused_activation_of_other_convolutions_matches(void **state)
{
    const struct {
        attn_conv conv;
        int64_t shape[3][5];
    } cases[] = {
        {{.spatial = 1, .stride = {2}, .padding = {2}}, {{2, 3, 33}, {5, 3, 4}, {5}}},
        {{.spatial = 2, .stride = {1, 2}, .padding = {0, 1}, .groups = 3}, {{2, 6, 9, 8}, {9, 2, 3, 2}, {9}}},
        {{.spatial = 2, .stride = {1, 2}, .padding = {0, 1}, .groups = 6}, {{2, 6, 9, 8}, {12, 1, 3, 2}, {12}}},
        {{.spatial = 3, .padding = {1, 0, 1}}, {{1, 17, 3, 5, 4}, {16, 17, 3, 1, 2}, {16}}},
    };
    attn_context *context = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int kind = ATTN_ACTIVATION_RELU; kind <= ATTN_ACTIVATION_SILU; kind++) {
            attn_conv conv = cases[i].conv;
            conv.activation = (attn_activation)kind;
            assert_same_bits(context, ATTN_F32, &conv, cases[i].shape);
            assert_same_bits(context, ATTN_F64, &conv, cases[i].shape);
        }
    }
}

static void dilated_kernels_are_kernels_with_zeros(void **state)
{
    enum { SIDE = 3, REACH = 7, STEP = 3 };
    attn_context *context = *state;
    attn_tape *tape;
    attn__rng rng = {.seed = 8};
    float x[2 * 4 * 11 * 13], w[5 * 4 * SIDE * SIDE], wide[5 * 4 * REACH * REACH] = {0};
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)attn__rng_normal(&rng);
    for (int i = 0; i < 5 * 4 * SIDE * SIDE; i++) {
        w[i] = (float)attn__rng_normal(&rng);
        wide[(i / 9 * REACH + i / SIDE % SIDE * STEP) * REACH + i % SIDE * STEP] = w[i];
    }
    for (int64_t padding = 0; padding <= 4; padding++) {
        for (int64_t stride = 1; stride <= 2; stride++) {
            attn_conv conv = {.spatial = 2, .stride = {stride, stride}, .padding = {padding, padding}};
            attn_tensor *image = attn_tape_tensor(tape, ATTN_F32, 4, (int64_t[]){2, 4, 11, 13}, x);
            attn_tensor *b = attn_convolve(
                tape, image, attn_tape_tensor(tape, ATTN_F32, 4, (int64_t[]){5, 4, REACH, REACH}, wide), NULL, &conv);
            conv.dilation[0] = conv.dilation[1] = STEP;
            attn_tensor *a = attn_convolve(
                tape, image, attn_tape_tensor(tape, ATTN_F32, 4, (int64_t[]){5, 4, SIDE, SIDE}, w), NULL, &conv);
            assert_non_null(a);
            assert_int_equal(attn_tensor_size(a), attn_tensor_size(b));
            for (int64_t i = 0; i < attn_tensor_size(a); i++)
                assert_true(fabsf(((float *)attn_tensor_data(a))[i] - ((float *)attn_tensor_data(b))[i]) < 1e-4F);
        }
    }
    assert_null(attn_convolve(tape, attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){1, 1, 6}, NULL),
                              attn_tape_tensor(tape, ATTN_F32, 3, (int64_t[]){1, 1, 3}, NULL), NULL,
                              &(attn_conv){.spatial = 1, .dilation = {3}}));
    assert_int_equal(attn_context_status(context), ATTN_ERROR_SHAPE);
    attn_context_clear_error(context);
    attn_tape_destroy(tape);
}

static void unknown_activation_is_refused(void **state)
{
    attn_context *context = *state;
    attn_tape *tape;
    attn_tensor *x, *w;
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){0});
    assert_int_equal(attn_tensor_create(&x, context, ATTN_F32, 3, (int64_t[]){1, 1, 3}), ATTN_OK);
    assert_int_equal(attn_tensor_create(&w, context, ATTN_F32, 3, (int64_t[]){1, 1, 1}), ATTN_OK);
    assert_null(attn_convolve(tape, x, w, NULL, &(attn_conv){.spatial = 1, .activation = (attn_activation)99}));
    assert_int_equal(attn_context_status(context), ATTN_ERROR_ARGUMENT);
    attn_tensor_destroy(x);
    attn_tensor_destroy(w);
    attn_tape_destroy(tape);
}

RUN_TESTS(TEST_WITH_CONTEXT(fused_activation_matches_separate_pass),
          TEST_WITH_CONTEXT(fused_activation_of_other_convolutions_matches),
          TEST_WITH_CONTEXT(dilated_kernels_are_kernels_with_zeros), TEST_WITH_CONTEXT(unknown_activation_is_refused))
