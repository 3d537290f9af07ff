/* SPDX-License-Identifier: MIT
 *
 * Tests values of the operations, against plain loops in double. Then compares f32 with double on every instruction
 * set, with gradients, at odd sizes.
 */
#include "support/cmocka.h"
#include "support/gradcheck.h"
#include "support/tensors.h"

#include "attn/tensor.h"
#include "base/rng.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/parts.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef attn_tensor *const *tensors;

typedef struct world {
    attn_context *c;
    attn_tape *t;
} world;

static world make_world(const char *isa, int threads)
{
    world w;
    assert_int_equal(attn_context_create(&w.c, &(attn_context_options){.threads = threads, .isa = isa}), ATTN_OK);
    assert_int_equal(attn_tape_create(&w.t, w.c), ATTN_OK);
    return w;
}

static void end_world(world w)
{
    attn_tape_destroy(w.t);
    attn_context_destroy(w.c);
}

static attn_tensor *random_tensor(world w, int rank, const int64_t *shape, uint64_t seed)
{
    attn_tensor *x = attn_tape_tensor(w.t, ATTN_F64, rank, shape, NULL);
    gradcheck_fill(x, seed);
    return x;
}

#define TENSOR(seed, ...) random_tensor(w, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__}, seed)
#define NUMBERS(tensor)   ((double *)attn_tensor_data(tensor))

static void assert_near(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-12 * (1 + fabs(expected))))
        fail_msg("%.17g instead of %.17g", got, expected);
}

/* ---------------------------------------------------------------------------- double against plain loops */

static double activated(double x, attn_activation a)
{
    switch (a) {
    case ATTN_ACTIVATION_RELU:
        return x > 0 ? x : 0;
    case ATTN_ACTIVATION_LEAKY_RELU:
        return x > 0 ? x : 0.01 * x;
    case ATTN_ACTIVATION_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ATTN_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case ATTN_ACTIVATION_GELU_SIGMOID:
        return x / (1 + exp(-1.702 * x));
    case ATTN_ACTIVATION_TANH:
        return tanh(x);
    case ATTN_ACTIVATION_SIGMOID:
        return 1 / (1 + exp(-x));
    case ATTN_ACTIVATION_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

static void linear_and_activations(void **state)
{
    world w = make_world(NULL, 2);
    attn_tensor *x = TENSOR(1, 3, 5), *m = TENSOR(2, 7, 5), *b = TENSOR(3, 7);
    for (attn_activation a = ATTN_ACTIVATION_IDENTITY; a <= ATTN_ACTIVATION_SILU; a++) {
        attn_tensor *y = attn_linear(w.t, x, m, b, a);
        for (int i = 0; i < 21; i++) {
            double sum = NUMBERS(b)[i % 7];
            for (int k = 0; k < 5; k++)
                sum += NUMBERS(x)[i / 7 * 5 + k] * NUMBERS(m)[i % 7 * 5 + k];
            assert_near(NUMBERS(y)[i], activated(sum, a));
        }
    }
    end_world(w);
}

static void layer_norm_and_softmax(void **state)
{
    world w = make_world(NULL, 2);
    enum { N = 6 };
    attn_tensor *x = TENSOR(1, 2, N), *y = TENSOR(2, 2, N), *g = TENSOR(3, N), *b = TENSOR(4, N);
    attn_tensor *lens = attn_tape_tensor(w.t, ATTN_I32, 1, (int64_t[]){2}, (int32_t[]){4, 0});
    attn_tensor *norm = attn_add_layer_norm(w.t, x, y, 0.5, g, b, 1e-3);
    attn_tensor *soft = attn_softmax(w.t, x, lens, 0), *filled = attn_softmax(w.t, x, lens, -2);
    for (int r = 0; r < 2; r++) {
        double mean = 0, var = 0, sum = 0, sum_filled = 0;
        for (int i = 0; i < N; i++) {
            double t = NUMBERS(x)[r * N + i] + NUMBERS(y)[r * N + i];
            mean += t / N;
            var += t * t / N;
            sum += i < 4 ? exp(NUMBERS(x)[r * N + i]) : 0;
            sum_filled += exp(i < (r ? 0 : 4) ? NUMBERS(x)[r * N + i] : -2);
        }
        for (int i = 0; i < N; i++) {
            double t = NUMBERS(x)[r * N + i] + NUMBERS(y)[r * N + i], e = exp(NUMBERS(x)[r * N + i]);
            assert_near(NUMBERS(norm)[r * N + i],
                        (t - mean) / sqrt(var - mean * mean + 1e-3) * NUMBERS(g)[i] + NUMBERS(b)[i]);
            assert_near(NUMBERS(soft)[r * N + i], r == 0 && i < 4 ? e / sum : 0);
            assert_near(NUMBERS(filled)[r * N + i], (i < (r ? 0 : 4) ? e : exp(-2)) / sum_filled);
        }
    }
    end_world(w);
}

static void softmax_of_an_empty_axis(void **state)
{
    enum { N = 19 };
    for (int isa = 0; attn_isa_name(isa); isa++) {
        for (int i = 0; i < 2; i++) {
            world w = make_world(attn_isa_name(isa), 1);
            attn_tensor *x = TENSOR(1, 4, N);
            attn_tensor *lens = attn_tape_tensor(w.t, ATTN_I32, 1, (int64_t[]){4}, (int32_t[]){N, N, N, 0});
            for (int j = 0; j < 4 * N; j++)
                NUMBERS(x)[j] = j == N + 3 || j / N % 2 == 0 ? (double)NAN : (double)-INFINITY;
            attn_tensor *y = attn_softmax(w.t, attn_cast(w.t, x, i ? ATTN_F64 : ATTN_F32), lens, 0);
            y = attn_cast(w.t, y, ATTN_F64);
            for (int j = 0; j < 4 * N; j++)
                assert_true(j < 3 * N ? isnan(NUMBERS(y)[j]) : NUMBERS(y)[j] == 0);
            for (int j = N; j < 2 * N; j++)
                NUMBERS(x)[j] = (double)-INFINITY;
            y = attn_cast(w.t, attn_softmax(w.t, attn_cast(w.t, x, i ? ATTN_F64 : ATTN_F32), lens, 0), ATTN_F64);
            for (int j = N; j < 2 * N; j++)
                assert_true(NUMBERS(y)[j] == 0);
            end_world(w);
        }
    }
}

/* Checks that subnormal results are replaced by 0, and that some are. */
static void assert_no_subnormals(const attn_tensor *t, const char *isa, const char *what)
{
    const float *x = attn_tensor_data(t);
    int64_t zeros = 0;
    for (int64_t i = 0; i < attn_tensor_size(t); i++) {
        zeros += x[i] == 0;
        if (x[i] != 0 && !(fabsf(x[i]) >= FLT_MIN))
            fail_msg("%s: %s has %a at %lld", isa, what, (double)x[i], (long long)i);
    }
    if (zeros == 0 || zeros == attn_tensor_size(t))
        fail_msg("%s: %s has %lld zeros", isa, what, (long long)zeros);
}

/* Inputs range from 0 to -104, and e^x is subnormal below -87.4. The gradients are 1e-6. */
static void results_are_not_subnormal(void **state)
{
    enum { N = 1041, ROWS = 3 };
    static const attn_activation tails[] = {ATTN_ACTIVATION_SIGMOID, ATTN_ACTIVATION_SILU};
    static float numbers[ROWS * N], gradients[ROWS * N];
    for (int i = 0; i < ROWS * N; i++) {
        numbers[i] = -0.1f * (float)(i % N);
        gradients[i] = i % 2 ? 1e-6f : -2e-6f;
    }
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (!attn__isa_runs_here((attn__isa)isa))
            continue;
        const char *name = attn_isa_name(isa);
        world w = make_world(name, 1);
        attn_tensor *x;
        assert_int_equal(attn_tensor_create(&x, w.c, ATTN_F32, 2, (int64_t[]){ROWS, N}), ATTN_OK);
        memcpy(attn_tensor_data(x), numbers, sizeof numbers);
        attn_tensor_set_requires_grad(x, true);
        for (int i = 0; i < 4; i++) {
            attn_tape_reset(w.t, &(attn_tape_options){.record = true});
            attn_tensor *d = attn_tape_tensor(w.t, ATTN_F32, 2, (int64_t[]){ROWS, N}, gradients);
            attn_tensor *ids = attn_tape_tensor(w.t, ATTN_I32, 1, (int64_t[]){ROWS}, (int32_t[]){0, 1, 2}), *y = NULL;
            if (i < 2)
                y = attn_activate(w.t, x, tails[i]);
            else if (i == 2)
                y = attn_softmax(w.t, x, NULL, 0);
            if (i == 0 || i == 2)
                assert_no_subnormals(y, name, i ? "the softmax" : "the sigmoid");
            assert_int_equal(
                y ? attn_backward_from(w.t, y, d) : attn_backward(w.t, attn_cross_entropy(w.t, x, ids, NULL)), ATTN_OK);
            assert_no_subnormals(attn_tensor_grad(x), name, "a gradient");
            attn_tensor_drop_grad(x);
        }
        attn_tensor_destroy(x);
        end_world(w);
    }
}

static void cross_entropy_and_lookups(void **state)
{
    world w = make_world(NULL, 2);
    attn_tensor *x = TENSOR(1, 3, 4), *table = TENSOR(2, 5, 3), *position = TENSOR(3, 4, 3);
    attn_tensor *ids = attn_tape_tensor(w.t, ATTN_I32, 1, (int64_t[]){3}, (int32_t[]){2, 0, 3});
    attn_tensor *loss = attn_cross_entropy(
        w.t, x, ids,
        &(attn_cross_entropy_options){.use_ignore_index = true, .ignore_index = 0, .label_smoothing = 0.2});
    double expected = 0;
    for (int r = 0; r < 3; r += 2) {
        double sum = 0, mean = 0;
        for (int i = 0; i < 4; i++) {
            sum += exp(NUMBERS(x)[r * 4 + i]);
            mean += NUMBERS(x)[r * 4 + i] / 4;
        }
        expected += (log(sum) - 0.8 * NUMBERS(x)[r * 4 + (r ? 3 : 2)] - 0.2 * mean) / 2;
    }
    assert_near(*NUMBERS(loss), expected);
    attn_tensor *y = attn_embedding(w.t, table, ids, 3, position, 1);
    for (int i = 0; i < 9; i++)
        assert_near(NUMBERS(y)[i], 3 * NUMBERS(table)[(int[]){2, 0, 3}[i / 3] * 3 + i % 3] + NUMBERS(position)[3 + i]);
    end_world(w);
}

/* The largest logit of a row may be at any place, for rows of any length. It has all the probability. */
static void one_large_logit_has_all_the_probability(void **state)
{
    enum { LONGEST = 35 };
    for (int isa = 0; attn_isa_name(isa); isa++) {
        world w = make_world(attn_isa_name(isa), 1);
        for (int i = 2; i < 2 * LONGEST; i++) {
            attn_tape_reset(w.t, NULL);
            int32_t places[LONGEST];
            int64_t n = i / 2 + 1;
            attn_tensor *x = attn_tape_tensor(w.t, ATTN_F64, 2, (int64_t[]){n, n}, NULL);
            for (int64_t j = 0; j < n; j++) {
                NUMBERS(x)[j * n + j] = i % 2 ? 1000 : 200; /* exp overflows */
                places[j] = (int32_t)j;
            }
            x = attn_cast(w.t, x, i % 2 ? ATTN_F64 : ATTN_F32);
            attn_tensor *labels = attn_tape_tensor(w.t, ATTN_I32, 1, &n, places);
            assert_true(test_at(attn_cross_entropy(w.t, x, labels, NULL), 0) == 0);
            attn_tensor *p = attn_softmax(w.t, x, NULL, 0);
            for (int64_t j = 0; j < n * n; j++)
                assert_true(fabs(test_at(p, j) - (j % (n + 1) == 0)) < 1e-30);
        }
        end_world(w);
    }
}

/* Large logits have few digits, but their differences are exact. */
static void cross_entropy_of_large_logits(void **state)
{
    enum { N = 3 };
    for (int isa = 0; attn_isa_name(isa); isa++) {
        for (int i = 0; i < 6; i++) {
            world w = make_world(attn_isa_name(isa), 1);
            double large = (double[]){1e4, 1e8, -1e30}[i / 2], loss = 0;
            attn_tape_reset(w.t, &(attn_tape_options){.record = true});
            attn_tensor *x = TENSOR(1, 2, N);
            for (int j = 0; j < 2 * N; j++)
                NUMBERS(x)[j] = large;
            x = attn_cast(w.t, x, i % 2 ? ATTN_F64 : ATTN_F32);
            attn_tensor_set_requires_grad(x, true);
            attn_tensor *labels = attn_tape_tensor(w.t, ATTN_I32, 1, (int64_t[]){2}, (int32_t[]){2, 0});
            attn_tensor *y = attn_cast(w.t, attn_cross_entropy(w.t, x, labels, NULL), ATTN_F64);
            loss = *NUMBERS(y);
            assert_int_equal(attn_backward(w.t, y), ATTN_OK);
            attn_tensor *dx = attn_cast(w.t, attn_tensor_grad(x), ATTN_F64);
            assert_true(fabs(loss - log(N)) < 1e-6);
            for (int j = 0; j < 2 * N; j++)
                assert_true(fabs(NUMBERS(dx)[j] - (1.0 / N - (j == 2 || j == N)) / 2) < 1e-6);
            end_world(w);
        }
    }
}

static void one_recurrent_step(void **state)
{
    world w = make_world(NULL, 1);
    enum { B = 2, I = 3, H = 2 };
    attn_tensor *x = TENSOR(1, 1, B, I), *h = TENSOR(2, B, H), *wi = TENSOR(3, 3 * H, I), *wh = TENSOR(4, 3 * H, H);
    attn_tensor *bi = TENSOR(5, 3 * H), *bh = TENSOR(6, 3 * H), *y = attn_gru(w.t, x, h, wi, wh, bi, bh);
    for (int i = 0; i < B * H; i++) {
        double in[3], rec[3];
        for (int gate = 0; gate < 3; gate++) {
            int row = gate * H + i % H;
            in[gate] = NUMBERS(bi)[row];
            rec[gate] = NUMBERS(bh)[row];
            for (int k = 0; k < I; k++)
                in[gate] += NUMBERS(wi)[row * I + k] * NUMBERS(x)[i / H * I + k];
            for (int k = 0; k < H; k++)
                rec[gate] += NUMBERS(wh)[row * H + k] * NUMBERS(h)[i / H * H + k];
        }
        double r = activated(in[0] + rec[0], ATTN_ACTIVATION_SIGMOID),
               z = activated(in[1] + rec[1], ATTN_ACTIVATION_SIGMOID);
        assert_near(NUMBERS(y)[i], (1 - z) * tanh(in[2] + r * rec[2]) + z * NUMBERS(h)[i]);
    }
    end_world(w);
}

/* ------------------------------------------------------------------------------ single against double */

enum { INPUTS = 6, ODD = 37 };

static attn_tensor *build_mixture(attn_tape *t, tensors in, attn_activation activation)
{
    attn_tensor *x = attn_linear(t, in[0], in[1], in[2], activation);
    x = attn_add_layer_norm(t, x, attn_dropout(t, in[0], 0.2), 0.1, in[3], in[4], 1e-5);
    x = attn_add(t, attn_mul(t, x, in[3]), attn_activate(t, x, activation));
    attn_tensor *y = attn_softmax(t, attn_matmul(t, x, x, false, true), NULL, 0);
    y = attn_concat(t, (attn_tensor *[]){y, attn_affine(t, x, 0.5, 1)}, 2, 1);
    return attn_sub(t, attn_permute(t, y, (int[]){1, 0}), attn_reshape(t, attn_mean(t, y, 1), 1, (int64_t[]){-1}));
}

static attn_tensor *build_recurrence(attn_tape *t, tensors in, attn_activation activation)
{
    (void)activation;
    attn_tensor *gates = attn_concat(t, (attn_tensor *[]){in[1], in[1], in[1]}, 3, 0);
    attn_tensor *bias = attn_concat(t, (attn_tensor *[]){in[2], in[3], in[4]}, 3, 0);
    attn_tensor *x = attn_reshape(t, in[0], 3, (int64_t[]){1, -1, ODD});
    x = attn_concat(t, (attn_tensor *[]){x, attn_affine(t, x, -1, 0), x}, 3, 0);
    attn_tensor *y = attn_gru(t, x, NULL, gates, gates, bias, bias);
    int32_t labels[] = {0, 36, 5, 5, 7};
    attn_tensor *loss =
        attn_cross_entropy(t, attn_slice(t, y, 0, 2, 3), attn_tape_tensor(t, ATTN_I32, 1, (int64_t[]){5}, labels),
                           &(attn_cross_entropy_options){.label_smoothing = 0.1});
    return attn_add(t, y, loss);
}

typedef attn_tensor *(*mixture)(attn_tape *, tensors, attn_activation);

/* Stores the result and the gradients of the inputs as doubles. Returns the number of doubles. */
static int64_t run_mixture(world w, attn_dtype dtype, mixture build, attn_activation activation, double *out)
{
    static const int64_t shapes[INPUTS][2] = {{5, ODD}, {ODD, ODD}, {ODD, 0}, {ODD, 0}, {ODD, 0}, {1, 0}};
    attn_tape_reset(w.t, &(attn_tape_options){.record = true, .train = true, .seed = 11});
    attn_tensor *in[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        attn_tensor *x = random_tensor(w, shapes[i][1] ? 2 : 1, shapes[i], (uint64_t)i + 1);
        for (int64_t j = 0; i == 1 && j < attn_tensor_size(x); j++)
            NUMBERS(x)[j] /= 4;
        in[i] = attn_cast(w.t, x, dtype);
        attn_tensor_set_requires_grad(in[i], true);
    }
    attn_tensor *y = build(w.t, in, activation);
    if (!y)
        fail_msg("%s", attn_context_error(w.c));
    attn_tensor *c = attn_cast(w.t, random_tensor(w, attn_tensor_rank(y), attn_tensor_shape(y), 77), dtype);
    attn_tensor *wide = attn_cast(w.t, y, ATTN_F64);
    int64_t n = attn_tensor_size(y);
    memcpy(out, NUMBERS(wide), (size_t)n * sizeof *out);
    assert_int_equal(attn_backward_from(w.t, y, c), ATTN_OK);
    for (int i = 0; i < INPUTS; i++) {
        if (!attn_tensor_grad(in[i]))
            continue;
        wide = attn_cast(w.t, attn_tensor_grad(in[i]), ATTN_F64);
        memcpy(out + n, NUMBERS(wide), (size_t)attn_tensor_size(wide) * sizeof *out);
        n += attn_tensor_size(wide);
    }
    return n;
}

static void single_agrees_with_double(void **state)
{
    enum { ROOM = 10000 };
    static double exact[ROOM], single[ROOM];
    const mixture mixtures[] = {build_mixture, build_recurrence};
    for (int isa = 0; attn_isa_name(isa); isa++) {
        for (attn_activation a = ATTN_ACTIVATION_IDENTITY; a <= ATTN_ACTIVATION_SILU; a++) {
            for (int m = 0; m < 2; m++) {
                world w = make_world(attn_isa_name(isa), 1 + isa % 2 * 2);
                int64_t n = run_mixture(w, ATTN_F64, mixtures[m], a, exact);
                assert_int_equal(run_mixture(w, ATTN_F32, mixtures[m], a, single), n);
                assert_true(n <= ROOM);
                for (int64_t i = 0; i < n; i++) {
                    if (!(fabs(single[i] - exact[i]) <= 4e-5 * (1 + fabs(exact[i]))))
                        fail_msg("%s, activation %d, mixture %d, %lld of %lld: %.9g instead of %.9g",
                                 attn_isa_name(isa), (int)a, m, (long long)i, (long long)n, single[i], exact[i]);
                }
                end_world(w);
            }
        }
    }
}

static void running_statistics_of_an_empty_batch_are_kept(void **state)
{
    world w = make_world(NULL, 1);
    attn_tape_reset(w.t, &(attn_tape_options){.record = true, .train = true});
    attn_tensor *x = TENSOR(1, 0, 2, 3), *g = TENSOR(2, 2), *mean = TENSOR(3, 2), *var = TENSOR(4, 2);
    double before[] = {NUMBERS(mean)[0], NUMBERS(mean)[1], NUMBERS(var)[0], NUMBERS(var)[1]};
    assert_non_null(attn_batch_norm(w.t, x, g, g, mean, var, 0.1, 1e-5));
    for (int i = 0; i < 4; i++)
        assert_true(NUMBERS(i < 2 ? mean : var)[i % 2] == before[i]);
    end_world(w);
}

/* In each step, running statistics move by a tenth towards the means and unbiased variances of the columns. Results
 * use the biased variance. */
static void running_statistics_follow_a_batch(void **state)
{
    static const double numbers[] = {1, 5, 2, 5, 3, 1, 6, 1}, mean[] = {3, 3}, variance[] = {14.0 / 4, 4};
    for (int training = 0; training < 2; training++) {
        world w = make_world(NULL, 1);
        attn_tape_reset(w.t, &(attn_tape_options){.record = true, .train = training});
        attn_tensor *x = TENSOR(1, 4, 2), *g = TENSOR(2, 2), *b = TENSOR(3, 2), *m = TENSOR(4, 2), *v = TENSOR(5, 2);
        memcpy(NUMBERS(x), numbers, sizeof numbers);
        for (int c = 0; c < 2; c++)
            NUMBERS(m)[c] = 10, NUMBERS(v)[c] = 20, NUMBERS(g)[c] = 2, NUMBERS(b)[c] = 1;
        attn_tensor *y = attn_batch_norm(w.t, x, g, b, m, v, 0.1, 0.25);
        for (int i = 0; i < 8; i++) {
            double center = training ? mean[i % 2] : 10, width = sqrt((training ? variance[i % 2] : 20) + 0.25);
            assert_near(NUMBERS(y)[i], 1 + 2 * (numbers[i] - center) / width);
        }
        for (int c = 0; c < 2; c++) {
            assert_near(NUMBERS(m)[c], training ? 9 + 0.1 * mean[c] : 10);
            assert_near(NUMBERS(v)[c], training ? 18 + 0.1 * variance[c] * 4 / 3 : 20);
        }
        end_world(w);
    }
}

/* In a single f32 sum, so many equal numbers would have an error of one percent. */
static void long_sums_keep_their_digits(void **state)
{
    enum { ROWS = 1 << 20 };
    for (int isa = 0; attn_isa_name(isa); isa++) {
        world w = make_world(attn_isa_name(isa), 2);
        attn_tape_reset(w.t, &(attn_tape_options){.record = true});
        attn_tensor *x = attn_tape_tensor(w.t, ATTN_F32, 2, (int64_t[]){ROWS, 2}, NULL);
        attn_tensor *g = attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){2}, (float[]){1, 1});
        attn_tensor *b = attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){2}, NULL);
        for (int i = 0; i < 2 * ROWS; i++)
            ((float *)attn_tensor_data(x))[i] = 0.1F;
        attn_tensor_set_requires_grad(b, true);
        attn_tensor *y = attn_layer_norm(w.t, x, g, b, 1e-5), *flat = attn_reshape(w.t, x, 1, (int64_t[]){-1});
        assert_int_equal(attn_backward_from(w.t, y, x), ATTN_OK);
        attn_tensor *table = attn_tape_tensor(w.t, ATTN_F32, 2, (int64_t[]){3, 2}, NULL);
        attn_tensor *position = attn_tape_tensor(w.t, ATTN_F32, 2, (int64_t[]){1, 2}, NULL);
        attn_tensor *ids = attn_tape_tensor(w.t, ATTN_I32, 2, (int64_t[]){ROWS, 1}, NULL);
        attn_tensor_set_requires_grad(table, true);
        attn_tensor_set_requires_grad(position, true);
        y = attn_embedding(w.t, table, ids, 1, position, 0);
        assert_int_equal(attn_backward_from(w.t, y, attn_reshape(w.t, x, 3, (int64_t[]){ROWS, 1, 2})), ATTN_OK);
        float sums[] = {
            *(float *)attn_tensor_data(attn_tensor_grad(table)), *(float *)attn_tensor_data(attn_tensor_grad(position)),
            *(float *)attn_tensor_data(attn_sum(w.t, x, 0)), *(float *)attn_tensor_data(attn_tensor_grad(b)),
            *(float *)attn_tensor_data(attn_sum(w.t, flat, 0)) / 2};
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
            if (!(fabs((double)sums[i] / (ROWS * (double)0.1F) - 1) < 2e-5))
                fail_msg("%s, sum %zu: %.9g", attn_isa_name(isa), i, (double)sums[i]);
        end_world(w);
    }
}

/* -------------------------------------------------------------------------- functions, over their range */

static void functions_are_accurate(void **state)
{
    enum { N = 4001 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) / 100;
    for (int isa = 0; attn_isa_name(isa); isa++) {
        world w = make_world(attn_isa_name(isa), 1);
        for (attn_activation a = ATTN_ACTIVATION_RELU; a <= ATTN_ACTIVATION_SILU; a++) {
            attn_tensor *t = attn_activate(w.t, attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){N}, x), a);
            memcpy(y, attn_tensor_data(t), sizeof y);
            for (int i = 0; i < N; i++) {
                double expected = activated((double)x[i], a),
                       scale = a >= ATTN_ACTIVATION_TANH ? fabs(expected) : fabs((double)x[i]);
                if (!(fabs((double)y[i] - expected) <= 4e-7 * scale + 1e-37))
                    fail_msg("%s, activation %d of %g: %.9g instead of %.9g", attn_isa_name(isa), (int)a, (double)x[i],
                             (double)y[i], expected);
            }
        }
        float special[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f};
        attn_tensor *t = attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){5}, special);
        for (attn_activation a = ATTN_ACTIVATION_RELU; a <= ATTN_ACTIVATION_SILU; a++)
            assert_true(isnan(((float *)attn_tensor_data(attn_activate(w.t, t, a)))[0]));
        float *s = attn_tensor_data(attn_activate(w.t, t, ATTN_ACTIVATION_SIGMOID)),
              *h = attn_tensor_data(attn_activate(w.t, t, ATTN_ACTIVATION_TANH));
        assert_true(s[1] == 1 && s[2] == 0 && s[3] == 1 && s[4] == 0);
        assert_true(h[1] == 1 && h[2] == -1 && h[3] == 1 && h[4] == -1);
        end_world(w);
    }
}

/* Results of finite numbers are finite, whatever their sizes. */
static void slopes_are_finite(void **state)
{
    const float x[] = {1e15F, 1e20F, 1e30F, 3e38F, -1e15F, -1e20F, -1e30F, -3e38F};
    for (int isa = 0; attn_isa_name(isa); isa++) {
        for (attn_activation a = ATTN_ACTIVATION_RELU; a <= ATTN_ACTIVATION_SIGMOID; a++) {
            world w = make_world(attn_isa_name(isa), 1);
            attn_tape_reset(w.t, &(attn_tape_options){.record = true});
            attn_tensor *in = attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){8}, x);
            attn_tensor_set_requires_grad(in, true);
            assert_int_equal(attn_backward(w.t, attn_sum(w.t, attn_activate(w.t, in, a), 0)), ATTN_OK);
            const float *slope = attn_tensor_data(attn_tensor_grad(in));
            float below = a == ATTN_ACTIVATION_LEAKY_RELU ? 0.01F : 0;
            for (int i = 0; i < 8; i++)
                assert_true(slope[i] == (i >= 4 ? below : a < ATTN_ACTIVATION_TANH ? 1 : 0));
            end_world(w);
        }
    }
}

static void one_pass_of_adam(void **state)
{
    enum { N = 37 };
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        if (!attn__isa_runs_here((attn__isa)isa))
            continue;
        float p[N], m[N], v[N], g[N];
        for (int i = 0; i < N; i++) {
            p[i] = (float)i / 7, m[i] = 0.1f * (float)(i % 5), v[i] = 0.01f * (float)(i % 3),
            g[i] = (float)(i % 4) - 1.5f;
        }
        attn__elementwise_args args = {.x = g,
                                       .x2 = p,
                                       .x3 = m,
                                       .x4 = v,
                                       .y = p,
                                       .y2 = m,
                                       .y3 = v,
                                       .s = {0.01, 0.9, 0.99, 1e-8, 0.5, 0.001, 2, 0.1}};
        attn__elementwise_for(false, (attn__isa)isa)->run[ATTN__ELEMENTWISE_ADAM](&args, 0, N);
        for (int i = 0; i < N; i++) {
            double old = (double)((float)i / 7), grad = 0.5 * ((double)(i % 4) - 1.5) + 0.1 * old;
            double mean = 0.9 * 0.1 * (i % 5) + 0.1 * grad, square = 0.99 * 0.01 * (i % 3) + 0.01 * grad * grad;
            double expected = old * 0.999 - 0.01 * mean / (sqrt(2 * square) + 1e-8);
            assert_true(fabs((double)p[i] - expected) < 1e-6 * (1 + fabs(expected)));
        }
    }
}

/* Stores past the caches must give the same bits, at whole vectors and at any other offset. */
static void adam_to_other_memory(void **state)
{
    enum { N = 101, VECTOR = 16, ROOM = 9 * VECTOR };
    static float _Alignas(64) in[4][N], out[2][3][ROOM];
    for (int i = 0; i < 4 * N; i++)
        in[i / N][i % N] = (float)(i * 37 % 101) / 50;
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        for (int at = 0; at <= 3 && attn__isa_runs_here((attn__isa)isa); at++) {
            memset(out, 0, sizeof out);
            for (int past = 0; past < 2; past++) {
                float *y = out[past][0] + at, *y2 = out[past][1] + at, *y3 = out[past][2] + at;
                attn__elementwise_args args = {.x = in[0],
                                               .x2 = in[1],
                                               .x3 = in[2],
                                               .x4 = in[3],
                                               .y = y,
                                               .y2 = y2,
                                               .y3 = y3,
                                               .s = {0.01, 0.9, 0.99, 1e-8, 0.5, 0.001, 2, 0.1},
                                               .past = past};
                attn__elementwise_for(false, (attn__isa)isa)->run[ATTN__ELEMENTWISE_ADAM](&args, 0, 2 * VECTOR);
                attn__elementwise_for(false, (attn__isa)isa)->run[ATTN__ELEMENTWISE_ADAM](&args, 2 * VECTOR, N);
                assert_true(y[N - 1] != 0 && y[N] == 0 && y3[N] == 0);
            }
            assert_memory_equal(out[0], out[1], sizeof out[0]);
        }
    }
}

RUN_TESTS(TEST(linear_and_activations), TEST(layer_norm_and_softmax), TEST(cross_entropy_and_lookups),
          TEST(one_recurrent_step), TEST(single_agrees_with_double), TEST(functions_are_accurate),
          TEST(long_sums_keep_their_digits), TEST(softmax_of_an_empty_axis), TEST(results_are_not_subnormal),
          TEST(running_statistics_of_an_empty_batch_are_kept), TEST(running_statistics_follow_a_batch),
          TEST(slopes_are_finite), TEST(cross_entropy_of_large_logits), TEST(one_large_logit_has_all_the_probability),
          TEST(one_pass_of_adam), TEST(adam_to_other_memory))
