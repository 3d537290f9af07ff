/* SPDX-License-Identifier: MIT
 * Convolutions in the matrix unit: every pass over odd sizes, borders and kernels against loops in double, the same
 * bits for any number of threads, and numbers that are not finite, which go another way. */
#include "support/cmocka.h"

#include "attn/tensor.h"
#include "base/rng.h"
#include "tensor/conv_digits.h"
#include "tensor/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int64_t batch, in, out, height, width, kernel[2], padding[2];
} shape;

/* x, w, y and the bias of a shape, in this order, and what is told of them. */
enum { X, W, Y, BIAS, ARRAYS };
enum { PASSES = 3 };

typedef struct sample {
    attn__conv_args args;
    int64_t count[ARRAYS];
    float *data[ARRAYS];
    double *exact, *size; /* of the result, and of the sum of what is summed */
} sample;

static const int result_of[] = {[ATTN__CONV_FORWARD] = Y, [ATTN__CONV_INPUT] = X, [ATTN__CONV_WEIGHTS] = W};

static float *random_numbers(attn__rng *rng, int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)attn__rng_normal(rng);
    return x;
}

static sample make(attn__rng *rng, const shape *s, attn__conv_pass pass)
{
    int64_t out[2] = {s->height + 2 * s->padding[0] - s->kernel[0] + 1,
                      s->width + 2 * s->padding[1] - s->kernel[1] + 1};
    sample made = {.args = {.pass = pass,
                            .spatial = 2,
                            .batch = s->batch,
                            .groups = 1,
                            .in = s->in,
                            .out = s->out,
                            .grid = {{1, s->height, s->width},
                                     {1, out[0], out[1]},
                                     {1, s->kernel[0], s->kernel[1]},
                                     {1, 1, 1},
                                     {0, s->padding[0], s->padding[1]}}},
                   .count = {s->batch * s->in * s->height * s->width, s->out * s->in * s->kernel[0] * s->kernel[1],
                             s->batch * s->out * out[0] * out[1], s->out}};
    for (int i = 0; i < ARRAYS; i++)
        made.data[i] = random_numbers(rng, made.count[i]);
    made.exact = calloc((size_t)made.count[result_of[pass]], sizeof(double));
    made.size = calloc((size_t)made.count[result_of[pass]], sizeof(double));
    made.args.x = made.data[X];
    made.args.w = made.data[W];
    made.args.y = made.data[Y];
    made.args.bias = pass == ATTN__CONV_FORWARD && s->batch != 2 ? made.data[BIAS] : NULL;
    return made;
}

static void drop(sample *s)
{
    for (int i = 0; i < ARRAYS; i++)
        free(s->data[i]);
    free(s->exact);
    free(s->size);
}

/* One product of the sum: at[i] is where array i has its factor, or its share. */
static void add_product(sample *s, const int64_t at[BIAS])
{
    int result = result_of[s->args.pass], a = result == X ? W : X, b = result == Y ? W : Y;
    double product = (double)s->data[a][at[a]] * (double)s->data[b][at[b]];
    s->exact[at[result]] += product;
    s->size[at[result]] += fabs(product);
}

static void solve(sample *s)
{
    const attn__conv_args *a = &s->args;
    const int64_t *in = a->grid.in, *out = a->grid.out, *kernel = a->grid.kernel, *padding = a->grid.padding;
    for (int64_t i = 0; i < s->count[Y] && a->bias; i++)
        s->size[i] = fabs(s->exact[i] = a->bias[i / (out[1] * out[2]) % a->out]);
    for (int64_t i = 0; i < s->count[W] * a->batch; i++) {
        int64_t w = i % s->count[W], image = i / s->count[W], v = w % kernel[2], u = w / kernel[2] % kernel[1];
        int64_t from = w / (kernel[1] * kernel[2]) % a->in, to = w / (kernel[1] * kernel[2]) / a->in;
        for (int64_t p = 0; p < out[1] * out[2]; p++) {
            int64_t row = p / out[2] + u - padding[1], column = p % out[2] + v - padding[2];
            if (row < 0 || row >= in[1] || column < 0 || column >= in[2])
                continue;
            add_product(s, (int64_t[]){((image * a->in + from) * in[1] + row) * in[2] + column, w,
                                       (image * a->out + to) * out[1] * out[2] + p});
        }
    }
}

static attn_tape *tape_of(attn_context **context, int threads)
{
    attn_tape *tape;
    assert_int_equal(attn_context_create(context, &(attn_context_options){.threads = threads}), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, *context), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){0});
    return tape;
}

static void skip_without_the_unit(void)
{
    attn_context *context;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    bool there = attn__digits_for(context->isa) != NULL;
    attn_context_destroy(context);
    if (!there) {
        print_message("this machine has no matrix unit\n");
        skip();
    }
}

/* The result with some threads; the caller frees it.  NULL if the unit was not taken. */
static float *result_with(sample *s, int threads)
{
    attn_context *context;
    attn_tape *tape = tape_of(&context, threads);
    int result = result_of[s->args.pass];
    attn__conv_args args = s->args;
    float *data = malloc((size_t)s->count[result] * sizeof *data);
    *(result == X ? &args.x : result == W ? &args.w : &args.y) = data;
    if (!attn__conv_by_digits(tape, &args)) {
        free(data);
        data = NULL;
    }
    assert_int_equal(attn_context_status(context), ATTN_OK);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
    return data;
}

static const shape shapes[] = {
    {1, 64, 128, 16, 16, {3, 3}, {1, 1}}, {3, 32, 50, 15, 30, {3, 3}, {1, 1}},  {2, 33, 64, 13, 31, {3, 3}, {0, 2}},
    {1, 128, 48, 9, 46, {1, 1}, {0, 0}},  {5, 30, 31, 12, 14, {7, 7}, {3, 3}},  {2, 64, 64, 17, 16, {5, 2}, {4, 0}},
    {1, 31, 95, 20, 33, {2, 5}, {0, 3}},  {1, 64, 32, 40, 64, {3, 3}, {1, 1}},  {9, 64, 64, 8, 15, {3, 1}, {1, 0}},
    {1, 320, 16, 10, 16, {3, 3}, {2, 2}}, {1, 64, 17, 13, 16, {11, 9}, {5, 4}}, {5, 33, 17, 40, 64, {3, 3}, {1, 1}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void assert_near(const sample *s, const float *got, int64_t terms, int number)
{
    for (int64_t j = 0; got && j < s->count[result_of[s->args.pass]]; j++)
        if (!(fabs((double)got[j] - s->exact[j]) <= s->size[j] * ldexp((double)(terms + 34), -24)))
            fail_msg("sample %d, pass %d: %d is %g, not %g", number, (int)s->args.pass, (int)j, (double)got[j],
                     s->exact[j]);
}

/* The bound is that of sums in f32 with a rounding at every term. */
static void passes_are_those_of_loops(void **state)
{
    (void)state;
    skip_without_the_unit();
    attn__rng rng = {.seed = 5};
    int taken[3] = {0};
    for (int i = 0; i < SHAPES * PASSES; i++) {
        attn__conv_pass pass = (attn__conv_pass)(i % PASSES);
        sample s = make(&rng, &shapes[i / PASSES], pass);
        float *got = result_with(&s, 1);
        solve(&s);
        int64_t terms = s.count[W] / (pass == ATTN__CONV_INPUT ? s.args.in : s.args.out);
        if (pass == ATTN__CONV_WEIGHTS)
            terms = s.count[Y] / s.args.out;
        assert_near(&s, got, terms, i);
        taken[pass] += got != NULL;
        free(got);
        drop(&s);
    }
    for (int pass = 0; pass < PASSES; pass++)
        assert_true(taken[pass] >= SHAPES - 3);
}

/* Gradients of weights added to what is there, once their sums are whole. */
static void gradients_are_added(void **state)
{
    (void)state;
    skip_without_the_unit();
    attn__rng rng = {.seed = 21};
    for (int i = 0; i < SHAPES; i++) {
        sample s = make(&rng, &shapes[i], ATTN__CONV_WEIGHTS);
        attn_context *context;
        attn_tape *tape = tape_of(&context, 2);
        float *alone = result_with(&s, 2), *before = random_numbers(&rng, s.count[W]);
        memcpy(s.data[W], before, (size_t)s.count[W] * sizeof *before);
        s.args.add = true;
        assert_true(attn__conv_by_digits(tape, &s.args) == (alone != NULL));
        for (int64_t j = 0; j < s.count[W]; j++)
            assert_true(s.data[W][j] == (alone ? before[j] + alone[j] : before[j]));
        free(alone);
        free(before);
        attn_tape_destroy(tape);
        attn_context_destroy(context);
        drop(&s);
    }
}

/* Channels in different units, of which weights are the inverse; some numbers far above the others; one too far. */
static void sizes_that_differ_are_met(void **state)
{
    (void)state;
    skip_without_the_unit();
    enum { UNITS, SOME, ONE, KINDS };
    attn__rng rng = {.seed = 8};
    for (int i = 0; i < KINDS * PASSES; i++) {
        attn__conv_pass pass = (attn__conv_pass)(i % PASSES);
        sample s = make(&rng, &shapes[0], pass);
        int from = pass == ATTN__CONV_INPUT ? Y : X, taps = 9;
        int64_t channels = from == X ? s.args.in : s.args.out, plane = s.count[from] / channels;
        for (int64_t j = 0; j < s.count[from] && i / PASSES == UNITS; j++)
            s.data[from][j] *= j / plane % 2 ? 0x1p12f : 1;
        for (int64_t j = 0; j < s.count[W] && i / PASSES == UNITS; j++)
            s.data[W][j] *= (from == X ? j / taps % s.args.in : j / taps / s.args.in) % 2 ? 0x1p-12f : 1;
        for (int64_t j = 0; j < s.count[from] && i / PASSES == SOME; j += 1001)
            s.data[from][j] = 100;
        if (i / PASSES == ONE)
            s.data[from][s.count[from] / 2] = 0x1p20f;
        float *got = result_with(&s, 2);
        assert_int_equal(got == NULL, i / PASSES == ONE);
        solve(&s);
        assert_near(&s, got, s.count[W] / s.args.out, i);
        free(got);
        drop(&s);
    }
}

/* All digits as large as they can be: sums of a row of 500 places fit 32 bits, of 1,100 they would not. */
static void kernels_too_wide_for_integers_go_another_way(void **state)
{
    (void)state;
    skip_without_the_unit();
    attn__rng rng = {.seed = 9};
    for (int i = 0; i < 4; i++) {
        int64_t width = i < 2 ? 500 : 1100;
        sample s = make(&rng, &(shape){1, 64, 32, 1, width + 15, {1, width}, {0, 0}},
                        i % 2 ? ATTN__CONV_INPUT : ATTN__CONV_FORWARD);
        for (int array = 0; array < BIAS; array++)
            for (int64_t j = 0; j < s.count[array]; j++)
                s.data[array][j] = 1.9921f;
        float *got = result_with(&s, 1);
        assert_int_equal(got != NULL, i < 2);
        if (got)
            solve(&s);
        assert_near(&s, got, 1, i);
        free(got);
        drop(&s);
    }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    skip_without_the_unit();
    attn__rng rng = {.seed = 6};
    for (int i = 0; i < SHAPES * PASSES; i++) {
        sample s = make(&rng, &shapes[i / PASSES], (attn__conv_pass)(i % PASSES));
        float *one = result_with(&s, 1);
        for (int threads = 2; one && threads < 6; threads += 3) {
            float *more = result_with(&s, threads);
            assert_memory_equal(one, more, (size_t)s.count[result_of[s.args.pass]] * sizeof *one);
            free(more);
        }
        free(one);
        drop(&s);
    }
}

/* The unit's numbers have no infinity to speak of: such a call is refused, and the operation gives what IEEE's rules
 * give by another way. */
static void infinite_numbers_go_another_way(void **state)
{
    (void)state;
    skip_without_the_unit();
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    attn__rng rng = {.seed = 7};
    for (int i = 0; i < PASSES * 6; i++) {
        sample s = make(&rng, &shapes[0], (attn__conv_pass)(i % PASSES));
        int result = result_of[s.args.pass], array = (result + 1 + i / PASSES % 2) % BIAS;
        s.data[array][s.count[array] - 1 - i] = odd[i % 3];
        assert_null(result_with(&s, 2));
        drop(&s);
    }
    for (int i = 0; i < PASSES; i++) { /* finite factors, sums that are not */
        sample s = make(&rng, &shapes[0], (attn__conv_pass)i);
        for (int array = 0; array < BIAS; array++)
            s.data[array][s.count[array] / 2] = 1e30f;
        for (int64_t j = 0; j < s.count[W]; j++)
            s.data[W][j] = 1e30f;
        for (int64_t j = 0; j < s.count[X]; j++)
            s.data[X][j] = 1e30f;
        assert_null(result_with(&s, 2));
        drop(&s);
    }
    attn_context *context;
    attn_tape *tape = tape_of(&context, 2);
    attn_tensor *x, *w;
    assert_int_equal(attn_tensor_create(&x, context, ATTN_F32, 4, (int64_t[]){1, 64, 16, 16}), ATTN_OK);
    assert_int_equal(attn_tensor_create(&w, context, ATTN_F32, 4, (int64_t[]){64, 64, 3, 3}), ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        ((float *)attn_tensor_data(x))[i] = 1;
    for (int64_t i = 0; i < attn_tensor_size(w); i++)
        ((float *)attn_tensor_data(w))[i] = 1;
    ((float *)attn_tensor_data(x))[5 * 16 + 5] = INFINITY;
    attn_tensor *y = attn_convolve(tape, x, w, NULL, &(attn_conv){.spatial = 2, .padding = {1, 1}});
    assert_non_null(y);
    for (int64_t i = 0; i < 256; i++) {
        bool near = llabs(i / 16 - 5) <= 1 && llabs(i % 16 - 5) <= 1;
        assert_true(isinf(((const float *)attn_tensor_data(y))[i]) == near);
    }
    attn_tensor_destroy(x);
    attn_tensor_destroy(w);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* The mean of what as many convolutions by w make of x, and its gradient. */
static double mean_of_uses(attn_tape *tape, attn_tensor *x, attn_tensor *w, int uses)
{
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    attn_tensor *sum = NULL;
    for (int i = 0; i < uses; i++) {
        attn_tensor *y = attn_convolve(tape, x, w, NULL, &(attn_conv){.spatial = 2, .padding = {1, 1}});
        sum = sum ? attn_add(tape, sum, y) : y;
    }
    attn_tensor *mean = attn_mean(tape, attn_reshape(tape, sum, 1, (int64_t[]){-1}), 0);
    assert_non_null(mean);
    assert_int_equal(attn_backward(tape, mean), ATTN_OK);
    return (double)*(const float *)attn_tensor_data(mean);
}

/* The unit adds to a gradient in its place; where it does not take the numbers, another way adds to what is there, and
 * what stood there before a gradient was cleared does not count.  A sum is its weights' product with its gradient. */
static void refused_gradients_are_added_once(void **state)
{
    (void)state;
    for (int far = 0; far < 2; far++) {
        attn_context *context;
        attn_tape *tape = tape_of(&context, 2);
        attn_tensor *x, *w;
        attn__rng rng = {.seed = 23};
        assert_int_equal(attn_tensor_create(&x, context, ATTN_F32, 4, (int64_t[]){2, 64, 16, 16}), ATTN_OK);
        assert_int_equal(attn_tensor_create(&w, context, ATTN_F32, 4, (int64_t[]){64, 64, 3, 3}), ATTN_OK);
        attn_tensor_set_needs_grad(w, true);
        for (int64_t i = 0; i < attn_tensor_size(x); i++)
            ((float *)attn_tensor_data(x))[i] = (float)attn__rng_normal(&rng);
        for (int64_t i = 0; i < attn_tensor_size(w); i++)
            ((float *)attn_tensor_data(w))[i] = (float)attn__rng_normal(&rng);
        if (far) /* in the last image, when the others are summed */
            ((float *)attn_tensor_data(x))[attn_tensor_size(x) - 100] = 0x1p20f;
        double mean = mean_of_uses(tape, x, w, 1), product = 0, size = 0;
        static float once[64 * 64 * 9];
        memcpy(once, attn_tensor_data(attn_tensor_grad(w)), sizeof once);
        for (int64_t i = 0; i < attn_tensor_size(w); i++) {
            double share = (double)once[i] * (double)((const float *)attn_tensor_data(w))[i];
            product += share, size += fabs(share);
        }
        assert_true(fabs(product - mean) <= 0x1p-18 * size);
        attn_tensor_clear_grad(w);
        mean_of_uses(tape, x, w, 2);
        mean_of_uses(tape, x, w, 1);
        for (int64_t i = 0; i < attn_tensor_size(w); i++)
            assert_true(fabsf(((const float *)attn_tensor_data(attn_tensor_grad(w)))[i] - 3 * once[i]) <=
                        0x1p-22f * fabsf(once[i]));
        attn_tensor_destroy(x);
        attn_tensor_destroy(w);
        attn_tape_destroy(tape);
        attn_context_destroy(context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_those_of_loops),
        cmocka_unit_test(gradients_are_added),
        cmocka_unit_test(sizes_that_differ_are_met),
        cmocka_unit_test(kernels_too_wide_for_integers_go_another_way),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(infinite_numbers_go_another_way),
        cmocka_unit_test(refused_gradients_are_added_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
