/* SPDX-License-Identifier: MIT
 * A convolution with an activation has the bits of the two one after the other, gradients too. */
#include "support/cmocka.h"

#include "attn/tensor.h"
#include "base/rng.h"

#include <string.h>

/* A convolution of 64 channels, with its activation or before it, and its gradients. */
static void convolve_and_back(attn_context *context, attn_activation activation, bool together, int64_t side,
                              attn_tensor *const in[3], float *y)
{
    attn_tape *tape;
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    attn_conv conv = {.spatial = 2, .padding = {1, 1}, .activation = together ? activation : ATTN_IDENTITY};
    attn_tensor *result = attn_convolve(tape, in[0], in[1], in[2], &conv);
    if (!together)
        result = attn_activate(tape, result, activation);
    assert_non_null(result);
    memcpy(y, attn_tensor_data(result), (size_t)(64 * side * side) * sizeof *y);
    result = attn_reshape(tape, attn_mul(tape, result, result), 1, (int64_t[]){-1});
    for (int i = 0; i < 3; i++)
        attn_tensor_clear_grad(in[i]);
    assert_int_equal(attn_backward(tape, attn_mean(tape, result, 0)), ATTN_OK);
    attn_tape_destroy(tape);
}

/* In the unit and, of few places, elsewhere. */
static void activations_are_those_of_a_pass(void **state)
{
    (void)state;
    enum { MOST = 32, RESULTS = 64 * MOST * MOST };
    const attn_activation kinds[] = {ATTN_RELU, ATTN_LEAKY_RELU, ATTN_GELU_ERF, ATTN_SIGMOID};
    static float y[2][RESULTS], gradients[3][RESULTS];
    attn_context *context;
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.threads = 2}), ATTN_OK);
    attn__rng rng = {.seed = 3};
    for (int i = 0; i < 8; i++) {
        int64_t side = i % 2 ? MOST : 3;
        const int64_t shape[3][4] = {{1, 64, side, side}, {64, 64, 3, 3}, {64}};
        attn_tensor *in[3];
        for (int j = 0; j < 3; j++) {
            assert_int_equal(attn_tensor_create(&in[j], context, ATTN_F32, j < 2 ? 4 : 1, shape[j]), ATTN_OK);
            attn_tensor_set_needs_grad(in[j], true);
            for (int64_t n = 0; n < attn_tensor_size(in[j]); n++)
                ((float *)attn_tensor_data(in[j]))[n] = (float)attn__rng_normal(&rng);
        }
        convolve_and_back(context, kinds[i / 2], false, side, in, y[0]);
        for (int j = 0; j < 3; j++)
            memcpy(gradients[j], attn_tensor_data(attn_tensor_grad(in[j])),
                   (size_t)attn_tensor_size(in[j]) * sizeof(float));
        convolve_and_back(context, kinds[i / 2], true, side, in, y[1]);
        assert_memory_equal(y[0], y[1], (size_t)(64 * side * side) * sizeof(float));
        for (int j = 0; j < 3; j++) {
            assert_memory_equal(gradients[j], attn_tensor_data(attn_tensor_grad(in[j])),
                                (size_t)attn_tensor_size(in[j]) * sizeof(float));
            attn_tensor_destroy(in[j]);
        }
    }
    attn_context_destroy(context);
}

static void there_is_no_such_activation(void **state)
{
    (void)state;
    attn_context *context;
    attn_tape *tape;
    attn_tensor *x, *w;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){0});
    assert_int_equal(attn_tensor_create(&x, context, ATTN_F32, 3, (int64_t[]){1, 1, 3}), ATTN_OK);
    assert_int_equal(attn_tensor_create(&w, context, ATTN_F32, 3, (int64_t[]){1, 1, 1}), ATTN_OK);
    assert_null(attn_convolve(tape, x, w, NULL, &(attn_conv){.spatial = 1, .activation = (attn_activation)99}));
    assert_int_equal(attn_context_status(context), ATTN_ARGUMENT);
    attn_tensor_destroy(x);
    attn_tensor_destroy(w);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_those_of_a_pass),
        cmocka_unit_test(there_is_no_such_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
