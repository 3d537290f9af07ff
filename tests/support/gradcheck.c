/* SPDX-License-Identifier: MIT */
#include "support/gradcheck.h"

#include "base/rng.h"
#include "support/cmocka.h"
#include "attn/tensor.h"
#include "tensor/tensor.h"
#include "tensor/parts.h"

#include <math.h>

void gradcheck_fill(attn_tensor *tensor, uint64_t seed)
{
    attn__rng rng = {.seed = seed};
    double *x = attn_tensor_data(tensor);
    for (int64_t i = 0; i < attn_tensor_size(tensor); i++) {
        double u = 2 * attn__rng_uniform(&rng) - 1;
        x[i] = u + (u < 0 ? -0.02 : 0.02);
    }
}

typedef struct check {
    attn_context *context;
    attn_tape *tape;
    gradcheck_build build;
    const void *user;
    int n;
    attn_tensor *in[GRADCHECK_INPUTS];
    attn_tensor *c;
} check;

static attn_tensor *run(check *k, bool record)
{
    attn_tape_reset(k->tape, &(attn_tape_options){.record = record, .train = true, .seed = 5});
    attn_tensor *y = k->build(k->tape, k->in, k->user);
    if (!y)
        fail_msg("%s", attn_context_error(k->context));
    return y;
}

static double objective(check *k)
{
    const double *y = attn_tensor_data(run(k, false)), *c = attn_tensor_data(k->c);
    double sum = 0;
    for (int64_t i = 0; i < attn_tensor_size(k->c); i++)
        sum += c[i] * y[i];
    return sum;
}

static void compare(check *k, int which)
{
    const double step = 1e-5;
    attn_tensor *grad = attn_tensor_grad(k->in[which]);
    assert_non_null(grad);
    double *x = attn_tensor_data(k->in[which]), *g = attn_tensor_data(grad), largest = 1e-3;
    int64_t n = attn_tensor_size(grad);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(g[i]));
    for (int64_t i = 0; i < n; i++) {
        double kept = x[i];
        x[i] = kept + step;
        double up = objective(k);
        x[i] = kept - step;
        double down = objective(k);
        x[i] = kept;
        double expected = (up - down) / (2 * step);
        if (!(fabs(expected - g[i]) <= 1e-6 * largest))
            fail_msg("input %d, element %lld: %.10g, differences say %.10g", which, (long long)i, g[i], expected);
    }
}

static void start(check *k, const gradcheck_input *inputs)
{
    for (int i = 0; i < k->n; i++) {
        assert_int_equal(attn_tensor_create(&k->in[i], k->context, ATTN_F64, inputs[i].rank, inputs[i].shape), ATTN_OK);
        gradcheck_fill(k->in[i], (uint64_t)i + 1);
        attn_tensor_set_requires_grad(k->in[i], true);
    }
    attn_tensor *y = run(k, false);
    assert_int_equal(attn_tensor_create(&k->c, k->context, ATTN_F64, attn_tensor_rank(y), attn_tensor_shape(y)),
                     ATTN_OK);
    gradcheck_fill(k->c, 99);
}

void gradcheck(int threads, gradcheck_build build, const void *user, int n, const gradcheck_input *inputs)
{
    check k = {.build = build, .user = user, .n = n};
    assert_int_equal(attn_context_create(&k.context, &(attn_context_options){.threads = threads}), ATTN_OK);
    assert_int_equal(attn_tape_create(&k.tape, k.context), ATTN_OK);
    start(&k, inputs);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++)
            attn_tensor_zero_grad(k.in[i]);
        if (attn_backward_from(k.tape, run(&k, true), k.c) != ATTN_OK)
            fail_msg("%s", attn_context_error(k.context));
    }
    for (int i = 0; i < n; i++)
        compare(&k, i);
    attn_tape_destroy(k.tape);
    for (int i = 0; i < n; i++)
        attn_tensor_destroy(k.in[i]);
    attn_tensor_destroy(k.c);
    size_t held;
    attn_context_memory(k.context, &held, NULL, NULL);
    assert_int_equal(held, 0);
    attn_context_destroy(k.context);
}
