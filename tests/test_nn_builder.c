/* SPDX-License-Identifier: MIT
 *
 * Tests the names and initial values of parameters.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "nn/layers.h"
#include "nn/spatial.h"

#include <math.h>
#include <string.h>

typedef struct fixture {
    attn_context *context;
    attn_named_list parameters, constants;
    attn_nn_builder builder;
} fixture;

static void begin(fixture *f, uint64_t seed)
{
    *f = (fixture){.context = test_context()};
    f->parameters = f->constants = (attn_named_list){.context = f->context, .owns = true};
    f->builder = (attn_nn_builder){
        .context = f->context, .parameters = &f->parameters, .constants = &f->constants, .seed = seed};
}

static void end(fixture *f)
{
    attn_named_clear(&f->parameters);
    attn_named_clear(&f->constants);
    end_context(f->context);
}

static void linear_at(fixture *f, const char *name, int64_t in, int64_t out)
{
    attn_nn_linear layer;
    attn_nn_push(&f->builder, name);
    attn_nn_linear_init(&layer, &f->builder, in, out, true);
    attn_nn_pop(&f->builder);
}

static void values_depend_on_seed_and_name_alone(void **state)
{
    fixture a, b, c;
    begin(&a, 5);
    begin(&b, 5);
    begin(&c, 6);
    linear_at(&a, "x.one", 7, 3);
    linear_at(&a, "x.two", 7, 3);
    linear_at(&b, "x.two", 7, 3);
    linear_at(&b, "x.one", 7, 3);
    linear_at(&c, "x.one", 7, 3);
    const attn_tensor *one = attn_named_find(&a.parameters, "x.one.weight");
    assert_non_null(one);
    assert_true(test_distance(one, attn_named_find(&b.parameters, "x.one.weight")) == 0);
    assert_true(test_distance(one, attn_named_find(&a.parameters, "x.two.weight")) > 0.1);
    assert_true(test_distance(one, attn_named_find(&c.parameters, "x.one.weight")) > 0.1);
    assert_true(attn_tensor_requires_grad(one));
    end(&a);
    end(&b);
    end(&c);
}

static double spread(const attn_tensor *x, double *most)
{
    double sum = 0;
    *most = 0;
    for (int64_t i = 0; i < attn_tensor_size(x); i++) {
        sum += test_at(x, i) * test_at(x, i);
        *most = fmax(*most, fabs(test_at(x, i)));
    }
    return sqrt(sum / (double)attn_tensor_size(x));
}

static double filled(fixture *f, const char *name, attn_nn_initializer fill, double *most)
{
    return spread(attn_nn_parameter(&f->builder, name, 3, (int64_t[]){60, 50, 3}, fill), most);
}

static void initializers_have_their_deviation(void **state)
{
    fixture f;
    double most;
    int64_t shape[3] = {60, 50, 3};
    begin(&f, 1);
    double bound = sqrt(6.0 / (150 + 180));
    double deviation = filled(&f, "a", (attn_nn_initializer){.start = ATTN_INIT_XAVIER_UNIFORM, .scale = 0}, &most);
    assert_true(most <= bound && most > 0.99 * bound && fabs(deviation * sqrt(3) / bound - 1) < 0.03);
    bound = 1 / sqrt(150);
    deviation = filled(&f, "b", (attn_nn_initializer){.start = ATTN_INIT_KAIMING_UNIFORM, .scale = 0}, &most);
    assert_true(most <= bound && most > 0.99 * bound && fabs(deviation * sqrt(3) / bound - 1) < 0.03);
    deviation = filled(&f, "c", (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = 0.5}, &most);
    assert_true(fabs(deviation / 0.5 - 1) < 0.03 && most > 1.5);
    deviation =
        spread(attn_nn_buffer(&f.builder, "d", 3, shape, (attn_nn_initializer){.start = ATTN_INIT_ONES}), &most);
    assert_true(deviation == 1 && most == 1);
    assert_false(attn_tensor_requires_grad(attn_named_find(&f.parameters, "d")));
    end(&f);
}

/* The weights of a convolution are uniform below 1 / sqrt(fan_in) with PyTorch's policy, otherwise Xavier's. */
static void convolutions_follow_the_policy(void **state)
{
    const attn_nn_conv_options options = {.spatial = 2, .in_channels = 16, .out_channels = 64, .kernel = {3, 3}};
    for (int torch = 0; torch < 2; torch++) {
        fixture f;
        attn_nn_conv layer;
        double most, bound = torch ? 1 / sqrt(16 * 9) : sqrt(6.0 / (16 * 9 + 64 * 9));
        begin(&f, 1);
        f.builder.policy = torch ? ATTN_POLICY_TORCH : f.builder.policy;
        attn_nn_conv_init(&layer, &f.builder, &options);
        spread(layer.weight, &most);
        assert_true(most <= bound && most > 0.99 * bound);
        end(&f);
    }
}

static void bad_names_are_errors(void **state)
{
    fixture f;
    begin(&f, 1);
    linear_at(&f, "same", 2, 2);
    linear_at(&f, "same", 2, 2);
    assert_refused(f.context, attn_context_status(f.context), ATTN_ERROR_ARGUMENT, "same.weight");
    end(&f);
    begin(&f, 1);
    for (int i = 0; i < 20; i++)
        attn_nn_pushf(&f.builder, "part%d", i);
    assert_int_equal(attn_context_status(f.context), ATTN_ERROR_ARGUMENT);
    for (int i = 0; i < 20; i++)
        attn_nn_pop(&f.builder);
    assert_string_equal(f.builder.prefix, "");
    end(&f);
}

RUN_TESTS(TEST(values_depend_on_seed_and_name_alone), TEST(initializers_have_their_deviation),
          TEST(convolutions_follow_the_policy), TEST(bad_names_are_errors))
