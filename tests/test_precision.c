/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the precisions of products: their names, their choice, and the products that int8 refuses. bf16 is compared
 * with float64 sums of rounded numbers, forward and backward.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "attn/models.h"
#include "nn/layers.h"
#include "io/tensors/quantized.h"
#include "tensor/packed_weights.h"
#include "tensor/tensor.h"
#include "models/kind.h"
#include "tensor/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------- choice */

static attn_precision context_has(const char *variable, attn_precision option, attn_status status)
{
    attn_context *context;
    if (variable)
        setenv("ATTN_PRECISION", variable, 1);
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.precision = option}), status);
    unsetenv("ATTN_PRECISION");
    attn_precision precision = context ? attn_context_precision(context) : ATTN_PRECISION_DEFAULT;
    if (precision == ATTN_PRECISION_FMA)
        assert_string_not_equal(attn_context_isa(context), "amx");
    attn_context_destroy(context);
    return precision;
}

static void option_then_variable_then_f32(void **state)
{
    assert_int_equal(context_has(NULL, 0, ATTN_OK), ATTN_PRECISION_F32);
    assert_int_equal(context_has("", 0, ATTN_OK), ATTN_PRECISION_F32);
    assert_int_equal(context_has("fma", 0, ATTN_OK), ATTN_PRECISION_FMA);
    assert_int_equal(context_has("int8", ATTN_PRECISION_BF16, ATTN_OK), ATTN_PRECISION_BF16);
    context_has("f23", 0, ATTN_ERROR_ARGUMENT);
    context_has("default", 0, ATTN_ERROR_ARGUMENT);
    context_has(NULL, (attn_precision)(ATTN_PRECISION_INT8 + 1), ATTN_ERROR_ARGUMENT);
    attn_precision found = ATTN_PRECISION_DEFAULT;
    for (int p = ATTN_PRECISION_F32; p <= ATTN_PRECISION_INT8; p++)
        assert_true(attn_precision_find(&found, attn_precision_name((attn_precision)p)) && (int)found == p);
    assert_false(attn_precision_find(&found, "f64") || attn_precision_find(&found, "default") ||
                 attn_precision_find(&found, "") || attn_precision_find(&found, NULL));
    assert_int_equal(found, ATTN_PRECISION_INT8);
    assert_string_equal(attn_precision_name((attn_precision)77), "unknown");
}

/* ------------------------------------------------------------------------------- against sums in float64 */

/* Rounds to 8 bits of mantissa, ties to even, by arithmetic only. */
static double rounded(double x)
{
    int exponent;
    double fraction = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

/* A sum of products of rounded numbers: one row of A times one column of B. */
typedef struct sum {
    double value, magnitude;
} sum;

static void add_product(sum *s, double a, double b)
{
    s->value += rounded(a) * rounded(b);
    s->magnitude += fabs(rounded(a) * rounded(b));
}

static void near(double found, sum s, int64_t k)
{
    double bound = (double)(k + 2) * ldexp(s.magnitude + fabs(s.value), -24);
    if (!(fabs(found - s.value) <= bound))
        fail_msg("%.9g is not %.9g within %.3g", found, s.value, bound);
}

enum { ROWS = 23, IN = 37, OUT = 19 };

static void linear_is_that_of_rounded_numbers(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *x = test_random(f->tape, ATTN_F32, 2, (int64_t[]){ROWS, IN}, 1);
    attn_tensor *w = test_random(f->tape, ATTN_F32, 2, (int64_t[]){OUT, IN}, 2);
    attn_tensor *dy = test_random(f->tape, ATTN_F32, 2, (int64_t[]){ROWS, OUT}, 3);
    attn_tensor_set_requires_grad(x, true);
    attn_tensor_set_requires_grad(w, true);
    f->tape->precision = ATTN_PRECISION_BF16;
    attn_tensor *y = attn_linear(f->tape, x, w, NULL, ATTN_ACTIVATION_IDENTITY);
    /* gradients use the precision in which their operation was recorded */
    f->tape->precision = ATTN_PRECISION_DEFAULT;
    assert_int_equal(attn_backward_from(f->tape, y, dy), ATTN_OK);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < OUT; j++) {
            sum s = {0};
            for (int k = 0; k < IN; k++)
                add_product(&s, test_at(x, i * IN + k), test_at(w, j * IN + k));
            near(test_at(y, i * OUT + j), s, IN);
        }
        for (int k = 0; k < IN; k++) {
            sum s = {0};
            for (int j = 0; j < OUT; j++)
                add_product(&s, test_at(dy, i * OUT + j), test_at(w, j * IN + k));
            near(test_at(attn_tensor_grad(x), i * IN + k), s, OUT);
        }
    }
    for (int j = 0; j < OUT; j++) {
        for (int k = 0; k < IN; k++) {
            sum s = {0};
            for (int i = 0; i < ROWS; i++)
                add_product(&s, test_at(dy, i * OUT + j), test_at(x, i * IN + k));
            near(test_at(attn_tensor_grad(w), j * IN + k), s, ROWS);
        }
    }
}

enum { CHANNELS = 3, SIDE = 6, TAPS = 3 };

static double pixel(const attn_tensor *x, int channel, int row, int column)
{
    bool inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
    return inside ? test_at(x, (channel * SIDE + row) * SIDE + column) : 0;
}

/* Checks the result of a convolution at one position, and dw at one tap. */
static void convolution_is_that_of_rounded_numbers(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *x = test_random(f->tape, ATTN_F32, 4, (int64_t[]){1, CHANNELS, SIDE, SIDE}, 1);
    attn_tensor *w = test_random(f->tape, ATTN_F32, 4, (int64_t[]){2, CHANNELS, TAPS, TAPS}, 2);
    attn_tensor *dy = test_random(f->tape, ATTN_F32, 4, (int64_t[]){1, 2, SIDE, SIDE}, 3);
    attn_tensor_set_requires_grad(w, true);
    f->tape->precision = ATTN_PRECISION_BF16;
    attn_conv how = {.spatial = 2, .padding = {1, 1}};
    attn_tensor *y = attn_convolve(f->tape, x, w, NULL, &how);
    assert_int_equal(attn_backward_from(f->tape, y, dy), ATTN_OK);
    for (int at = 0; at < 2 * SIDE * SIDE; at++) {
        sum s = {0};
        for (int c = 0; c < CHANNELS; c++) {
            for (int t = 0; t < TAPS * TAPS; t++)
                add_product(&s, pixel(x, c, at / SIDE % SIDE + t / TAPS - 1, at % SIDE + t % TAPS - 1),
                            test_at(w, (at / (SIDE * SIDE) * CHANNELS + c) * TAPS * TAPS + t));
        }
        near(test_at(y, at), s, CHANNELS * TAPS * TAPS);
    }
    for (int t = 0; t < 2 * CHANNELS * TAPS * TAPS; t++) {
        sum s = {0};
        int tap = t % (TAPS * TAPS), c = t / (TAPS * TAPS) % CHANNELS, out = t / (CHANNELS * TAPS * TAPS);
        for (int at = 0; at < SIDE * SIDE; at++)
            add_product(&s, test_at(dy, out * SIDE * SIDE + at),
                        pixel(x, c, at / SIDE + tap / TAPS - 1, at % SIDE + tap % TAPS - 1));
        near(test_at(attn_tensor_grad(w), t), s, SIDE * SIDE);
    }
}

/* ------------------------------------------------------------------------------------------------- int8 */

enum { LONG = 601 };

/* Quantizes a row to integers. Returns the scale. */
static float quantized(const attn_tensor *x, int row, int n, int *q)
{
    const float *from = (const float *)attn_tensor_data(x) + (size_t)row * (size_t)n;
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf(from[i]));
    for (int i = 0; i < n; i++)
        q[i] = most > 0 ? (int)nearbyintf(from[i] * (127 / most)) : 0;
    return most / 127;
}

/* Computes a linear layer in int8 on an instruction set, always with the same operands. */
static void linear_int8(const char *isa, int rows, int in, float *y, attn_tensor **operands, attn_tape *own)
{
    attn_context *context;
    attn_tape *tape;
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.isa = isa}), ATTN_OK);
    attn_tape_create(&tape, context);
    for (int i = 0; i < 3; i++)
        operands[i] = test_random(own, ATTN_F32, i < 2 ? 2 : 1, (int64_t[]){i == 0 ? rows : OUT, in}, (uint64_t)i + 7);
    memset(attn_tensor_data(operands[0]), 0, (size_t)in * sizeof(float)); /* a row of zeros */
    tape->precision = ATTN_PRECISION_INT8;
    attn_tensor *result = attn_linear(tape, operands[0], operands[1], operands[2], ATTN_ACTIVATION_IDENTITY);
    assert_non_null(result);
    memcpy(y, attn_tensor_data(result), (size_t)(rows * OUT) * sizeof(float));
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* Weights kept as integers must give the same bits as weights that each call quantizes. */
static void int8_weights_may_be_kept(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *x = test_random(f->tape, ATTN_F32, 2, (int64_t[]){ROWS, IN}, 1);
    attn_tensor *w = test_random(f->tape, ATTN_F32, 2, (int64_t[]){OUT, IN}, 2);
    f->tape->precision = ATTN_PRECISION_INT8;
    const attn_tensor *y[3];
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            assert_int_equal(attn__packed_weights_begin(f->tape), ATTN_OK);
        y[i] = attn_linear(f->tape, x, w, NULL, ATTN_ACTIVATION_IDENTITY);
        assert_non_null(y[i]);
        assert_memory_equal(attn_tensor_data((attn_tensor *)(uintptr_t)y[i]),
                            attn_tensor_data((attn_tensor *)(uintptr_t)y[0]), (size_t)(ROWS * OUT) * sizeof(float));
    }
    attn__packed_weights_end(f->tape);
    f->tape->precision = ATTN_PRECISION_DEFAULT;
}

/* The product of both scales overflows, but the result does not. */
static void int8_of_large_numbers_is_finite(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *x = attn_tape_tensor(f->tape, ATTN_F32, 2, (int64_t[]){1, 2}, (const float[]){3e38f, 0});
    attn_tensor *w = attn_tape_tensor(f->tape, ATTN_F32, 2, (int64_t[]){1, 2}, (const float[]){0, 1e5f});
    f->tape->precision = ATTN_PRECISION_INT8;
    attn_tensor *y = attn_linear(f->tape, x, w, NULL, ATTN_ACTIVATION_IDENTITY);
    f->tape->precision = ATTN_PRECISION_DEFAULT;
    assert_non_null(y);
    assert_true(test_at(y, 0) == 0);
}

static void int8_is_the_same_on_all_sets(void **state)
{
    tape_fixture *f = *state;
    static const int sizes[][2] = {{ROWS, IN}, {1, LONG}, {2, IN}, {ROWS, LONG}, {ROWS, 1}};
    static float y[ROWS * OUT];
    static int qx[LONG], qw[LONG];
    attn_tensor *o[3];
    for (int i = 0; attn_isa_name(i); i++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int rows = sizes[s][0], in = sizes[s][1];
            linear_int8(attn_isa_name(i), rows, in, y, o, f->tape);
            for (int at = 0; at < rows * OUT; at++) {
                double row = quantized(o[0], at / OUT, in, qx), column = quantized(o[1], at % OUT, in, qw);
                int32_t total = 0;
                for (int k = 0; k < in; k++)
                    total += qx[k] * qw[k];
                float expected = (float)(total * row * column) + (float)test_at(o[2], at % OUT);
                if (y[at] != expected)
                    fail_msg("%s, %d x %d: %.9g is not %.9g", attn_isa_name(i), rows, in, (double)y[at],
                             (double)expected);
            }
        }
    }
}

/* The results of a row with infinity or NaN are not finite. All other results are finite. */
static void int8_passes_infinity_and_nan(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *x = test_random(f->tape, ATTN_F32, 2, (int64_t[]){4, IN}, 1);
    attn_tensor *w = test_random(f->tape, ATTN_F32, 2, (int64_t[]){OUT, IN}, 2);
    test_set(x, 1 * IN + 5, NAN);
    test_set(x, 2 * IN + 5, -INFINITY);
    f->tape->precision = ATTN_PRECISION_INT8;
    attn_tensor *y = attn_linear(f->tape, x, w, NULL, ATTN_ACTIVATION_IDENTITY);
    for (int i = 0; i < 4 * OUT; i++)
        assert_int_equal(isfinite(test_at(y, i)) != 0, i / OUT == 0 || i / OUT == 3);
}

/* Layers with more inputs are computed in bf16, even if int8 is selected. So their weights must not be stored as
 * integers. */
static void int8_stores_only_layers_that_int8_computes(void **state)
{
    enum { MOST = 130000 };
    tape_fixture *f = *state;
    for (int64_t k = MOST; k <= MOST + 1; k++) {
        attn_tensor *w = test_random(f->tape, ATTN_F32, 2, (int64_t[]){1, k}, 3);
        int8_t *q = malloc((size_t)k);
        float scale;
        bool exact;
        assert_int_equal(attn__int8_of_weights(f->context, w, q, &scale, &exact), ATTN_OK);
        assert_int_equal(exact, k == MOST);
        free(q);
    }
}

/* -------------------------------------------------------------------------------------------- attention */

enum { TOKENS = 21, WIDTH = 16 };

/* Computes o and the gradient of the packed queries, keys and values. If `before` is true, the operands are rounded
 * first. */
static void attend(tape_fixture *f, bool before, float *o, float *gradient)
{
    attn_tape_reset(f->tape, &(attn_tape_options){.record = true});
    attn_tensor *x = test_random(f->tape, ATTN_F32, 3, (int64_t[]){1, TOKENS, 3 * WIDTH}, 5);
    attn_tensor_set_requires_grad(x, true);
    for (int i = 0; i < TOKENS * 3 * WIDTH && before; i++)
        test_set(x, i, rounded(test_at(x, i)));
    f->tape->precision = before ? ATTN_PRECISION_F32 : ATTN_PRECISION_BF16;
    attn_attention a = {.q = {x, 0}, .k = {x, WIDTH}, .v = {x, 2 * WIDTH}};
    a.rank = 3;
    memcpy(a.shape, (int64_t[]){1, TOKENS, WIDTH}, 3 * sizeof(int64_t));
    attn_dim dims[] = {{.role = ATTN_ROLE_QUERY, .n = TOKENS, .q = 3 * WIDTH, .o = WIDTH, .lse = 1},
                       {.role = ATTN_ROLE_KEY, .n = TOKENS, .k = 3 * WIDTH, .v = 3 * WIDTH},
                       {.role = ATTN_ROLE_CONTRACT, .n = WIDTH, .q = 1, .k = 1},
                       {.role = ATTN_ROLE_VALUE, .n = WIDTH, .v = 1, .o = 1}};
    memcpy(a.problem.dims, dims, sizeof dims);
    a.problem.ndims = 4;
    attn_tensor *y = attn_attend(f->tape, &a);
    assert_string_equal(attn_context_error(f->context), "");
    attn_tensor *dy = test_random(f->tape, ATTN_F32, 3, (int64_t[]){1, TOKENS, WIDTH}, 6);
    assert_int_equal(attn_backward_from(f->tape, y, dy), ATTN_OK);
    memcpy(o, attn_tensor_data(y), TOKENS * WIDTH * sizeof(float));
    memcpy(gradient, attn_tensor_data(attn_tensor_grad(x)), TOKENS * 3 * WIDTH * sizeof(float));
}

static void attention_is_that_of_rounded_numbers(void **state)
{
    tape_fixture *f = *state;
    static float o[2][TOKENS * WIDTH], gradient[2][TOKENS * 3 * WIDTH];
    for (int i = 0; i < 2; i++)
        attend(f, i, o[i], gradient[i]);
    assert_memory_equal(o[0], o[1], sizeof o[0]);
    assert_memory_equal(gradient[0], gradient[1], sizeof gradient[0]);
}

enum { ALONE = 70, ALONE_D = 24 };

/* Describes self-attention on x [1, ALONE, 3 * ALONE_D]. Each row of x has a query, a key and a value. */
static attn_attention attention_alone(attn_tensor *x)
{
    enum { D = ALONE_D };
    attn_attention a = {.q = {x, 0}, .k = {x, D}, .v = {x, 2 * D}, .rank = 3, .shape = {1, ALONE, D}};
    attn_dim dims[] = {{.role = ATTN_ROLE_QUERY, .n = ALONE, .q = 3 * D, .o = D},
                       {.role = ATTN_ROLE_KEY, .n = ALONE, .k = 3 * D, .v = 3 * D},
                       {.role = ATTN_ROLE_CONTRACT, .n = D, .q = 1, .k = 1},
                       {.role = ATTN_ROLE_VALUE, .n = D, .v = 1, .o = 1}};
    memcpy(a.problem.dims, dims, sizeof dims);
    a.problem.ndims = 4;
    return a;
}

/* Without recording, attention may use bf16 products. Its weights and results are then rounded to bf16. */
static void attention_without_gradients(void **state)
{
    enum { MANY = ALONE, D = ALONE_D };
    tape_fixture *f = *state;
    attn_tape_reset(f->tape, &(attn_tape_options){0});
    attn_tensor *x = test_random(f->tape, ATTN_F32, 3, (int64_t[]){1, MANY, 3 * D}, 8);
    attn_attention a = attention_alone(x);
    f->tape->precision = ATTN_PRECISION_BF16;
    attn_tensor *y = attn_attend(f->tape, &a);
    assert_string_equal(attn_context_error(f->context), "");
    assert_int_equal(attn_tensor_dtype(y), ATTN_F32);
    const float *data = attn_tensor_data(x), *o = attn_tensor_data(y);
    for (int i = 0; i < MANY; i++) {
        double total = 0, exact[D] = {0};
        for (int j = 0; j < MANY; j++) {
            double score = 0;
            for (int c = 0; c < D; c++)
                score += rounded(data[3 * D * i + c]) * rounded(data[3 * D * j + D + c]);
            double weight = exp(score / sqrt(D));
            total += weight;
            for (int c = 0; c < D; c++)
                exact[c] += weight * rounded(data[3 * D * j + 2 * D + c]);
        }
        for (int c = 0; c < D; c++)
            assert_true(fabs(o[D * i + c] - exact[c] / total) < 0x1p-8 * 4);
    }
}

/* Only softmax has bf16 products. The results of other normalizations are not rounded. */
static void attention_by_the_mean_is_not_rounded(void **state)
{
    tape_fixture *f = *state;
    attn_tape_reset(f->tape, &(attn_tape_options){0});
    attn_tensor *x = test_random(f->tape, ATTN_F32, 3, (int64_t[]){1, ALONE, 3 * ALONE_D}, 8);
    attn_attention a = attention_alone(x);
    a.problem.normalization = ATTN_NORMALIZATION_MEAN;
    f->tape->precision = ATTN_PRECISION_BF16;
    attn_tensor *y = attn_attend(f->tape, &a);
    assert_string_equal(attn_context_error(f->context), "");
    const float *o = attn_tensor_data(y);
    int other = 0;
    for (int i = 0; i < ALONE * ALONE_D; i++)
        other += (double)o[i] != rounded(o[i]);
    assert_true(other > ALONE * ALONE_D / 2);
}

/* Each scope must free all memory of attention, including that of its handles, however often attention is called. */
static void attention_in_scopes_holds_nothing(void **state)
{
    enum { OFTEN = 3000 };
    tape_fixture *f = *state;
    size_t first = 0, held = 0;
    attn_tape_reset(f->tape, &(attn_tape_options){0});
    attn_tensor *x = test_random(f->tape, ATTN_F32, 3, (int64_t[]){1, ALONE, 3 * ALONE_D}, 8);
    attn_attention a = attention_alone(x);
    f->tape->precision = ATTN_PRECISION_BF16;
    for (int i = 0; i < OFTEN; i++) {
        attn_scope_begin(f->tape);
        assert_non_null(attn_attend(f->tape, &a));
        attn_scope_end(f->tape, NULL);
        attn_context_memory(f->context, &held, NULL, NULL);
        first = i ? first : held;
    }
    assert_int_equal(held, first);
}

enum { SENTENCES = 3, LENGTH = 7, BEGUN = 4, D = 48 };

/* Computes the attention of the last token to all tokens. If `kept_as` is F64, a single call computes it. Otherwise
 * the first tokens are computed in precision `first` and stored in a KV cache of type `kept_as`. */
static void last_token(tape_fixture *f, attn_dtype kept_as, attn_precision first, float *o)
{
    attn_named_list parameters = {.context = f->context, .owns = true};
    attn_nn_builder builder = {.context = f->context, .parameters = &parameters, .seed = 3};
    attn_nn_multi_head layer;
    attn_nn_kv_cache cache;
    attn_nn_multi_head_init(&layer, &builder, &(attn_nn_multi_head_options){.hidden = D, .heads = 2});
    attn_tape_reset(f->tape, &(attn_tape_options){0});
    attn_tensor *x = test_random(f->tape, ATTN_F32, 3, (int64_t[]){SENTENCES, LENGTH, D}, 5), *part[3], *y;
    const int64_t ends[] = {0, BEGUN, LENGTH - 1, LENGTH};
    for (int i = 0; i < 3; i++)
        part[i] = attn_slice(f->tape, x, 1, ends[i], ends[i + 1]);
    f->tape->precision = ATTN_PRECISION_BF16;
    if (kept_as != ATTN_F64) {
        const int64_t rows[] = {0, 1, 2};
        assert_int_equal(attn_nn_kv_cache_init(&cache, f->context, kept_as, SENTENCES, LENGTH, D), ATTN_OK);
        f->tape->precision = first;
        assert_int_equal(attn_nn_multi_head_append(&layer, f->tape, part[0], &cache), ATTN_OK);
        f->tape->precision = ATTN_PRECISION_BF16;
        assert_int_equal(attn_nn_multi_head_append(&layer, f->tape, part[1], &cache), ATTN_OK);
        assert_int_equal(attn_nn_kv_cache_select(&cache, f->context, rows, SENTENCES, LENGTH + 2), ATTN_OK);
        assert_int_equal(attn_nn_multi_head_append(&layer, f->tape, part[2], &cache), ATTN_OK);
        assert_int_equal(cache.k->rounded, first == ATTN_PRECISION_BF16 && kept_as == ATTN_F32);
        y = attn_nn_multi_head_cached(&layer, f->tape, part[2], &cache, NULL);
        attn_nn_kv_cache_free(&cache);
    } else {
        y = attn_nn_multi_head_forward(&layer, f->tape, part[2], x, x, NULL, NULL);
    }
    assert_string_equal(attn_context_error(f->context), "");
    memcpy(o, attn_tensor_data(y), SENTENCES * D * sizeof(float));
    attn_named_clear(&parameters);
}

static void keys_that_are_kept_are_rounded_once(void **state)
{
    tape_fixture *f = *state;
    static float whole[SENTENCES * D], kept[SENTENCES * D], half[SENTENCES * D], mixed[SENTENCES * D];
    last_token(f, ATTN_F64, ATTN_PRECISION_BF16, whole);
    last_token(f, ATTN_F32, ATTN_PRECISION_BF16, kept);
    last_token(f, ATTN_BF16, ATTN_PRECISION_BF16, half);
    last_token(f, ATTN_F32, ATTN_PRECISION_F32, mixed);
    assert_memory_equal(whole, kept, sizeof whole);
    assert_memory_equal(whole, half, sizeof whole);
    /* The first keys were projected and stored without rounding, which makes a small difference. */
    for (int i = 0; i < SENTENCES * D; i++)
        assert_true(fabsf(mixed[i] - whole[i]) < 0.02F);
}

/* ----------------------------------------------------------------------------------------------- models */

static attn_model *model_of(tape_fixture *f, attn_dtype dtype, attn_precision precision)
{
    attn_model *model;
    attn_config *config;
    attn_config_create(&config, f->context);
    attn_config_set_int(config, "num_hiddens", 16);
    attn_config_set_int(config, "num_heads", 2);
    attn_model_options options = {.seed = 3, .dtype = dtype, .precision = precision};
    attn_model_create(&model, f->context, "multi-head-attention", config, &options);
    attn_config_destroy(config);
    return model;
}

static attn_status answer(tape_fixture *f, attn_precision precision, bool record, float *result)
{
    static const char *const names[] = {"queries", "keys", "values"};
    attn_model *model = model_of(f, ATTN_F32, precision);
    attn_named_list inputs = {.context = f->context}, outputs = {.context = f->context};
    assert_non_null(model);
    assert_int_equal(attn_model_precision(model), precision);
    attn_tape_reset(f->tape, &(attn_tape_options){.record = record});
    for (uint64_t i = 0; i < 3; i++)
        attn_named_add(&inputs, names[i], test_random(f->tape, ATTN_F32, 3, (int64_t[]){2, 9, 16}, 10 + i));
    attn_status status = attn_model_forward(model, f->tape, &inputs, &outputs);
    assert_int_equal(f->tape->precision, ATTN_PRECISION_DEFAULT);
    if (status == ATTN_OK)
        memcpy(result, attn_tensor_data(outputs.items[0].tensor), 2 * 9 * 16 * sizeof(float));
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    attn_model_destroy(model);
    return status;
}

static double apart(const float *a, const float *b)
{
    double most = 0, size = 0;
    for (int i = 0; i < 2 * 9 * 16; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    return most / size;
}

/* Computes the result in precision fma, in a context without AMX. A model in a context with AMX cannot select fma. */
static void answer_in_fma(tape_fixture *f, float *result)
{
    tape_fixture other;
    attn_context_create(&other.context, &(attn_context_options){.precision = ATTN_PRECISION_FMA});
    attn_tape_create(&other.tape, other.context);
    assert_int_equal(answer(&other, ATTN_PRECISION_FMA, false, result), ATTN_OK);
    attn_tape_destroy(other.tape);
    attn_context_destroy(other.context);
    attn_model *model = model_of(f, ATTN_F32, ATTN_PRECISION_FMA);
    bool amx = strcmp(attn_context_isa(f->context), "amx") == 0;
    assert_int_equal(model == NULL, amx);
    assert_true(!amx || strstr(attn_context_error(f->context), "the precision fma needs a context without AMX"));
    attn_context_clear_error(f->context);
    attn_model_destroy(model);
}

static void models_have_a_precision(void **state)
{
    tape_fixture *f = *state;
    static float f32[288], fma[288], bf16[288], int8[288];
    assert_int_equal(answer(f, ATTN_PRECISION_F32, false, f32), ATTN_OK);
    answer_in_fma(f, fma);
    assert_int_equal(answer(f, ATTN_PRECISION_BF16, true, bf16), ATTN_OK);
    assert_int_equal(answer(f, ATTN_PRECISION_INT8, false, int8), ATTN_OK);
    assert_true(apart(fma, f32) < 1e-6);
    assert_true(apart(bf16, f32) > 1e-4 && apart(bf16, f32) < 0.03);
    assert_true(apart(int8, f32) > 1e-4 && apart(int8, f32) < 0.06);
    assert_true(apart(int8, bf16) > 1e-4);
    assert_refused(f->context, answer(f, ATTN_PRECISION_INT8, true, int8), ATTN_ERROR_UNSUPPORTED,
                   "int8 has no gradients");
    assert_null(model_of(f, ATTN_F64, ATTN_PRECISION_BF16));
    assert_says(f->context, "bf16");
}

RUN_TESTS(TEST(option_then_variable_then_f32), TEST_WITH_RECORD(linear_is_that_of_rounded_numbers),
          TEST_WITH_RECORD(convolution_is_that_of_rounded_numbers), TEST_WITH_RECORD(int8_is_the_same_on_all_sets),
          TEST_WITH_RECORD(int8_of_large_numbers_is_finite), TEST_WITH_RECORD(int8_weights_may_be_kept),
          TEST_WITH_RECORD(int8_passes_infinity_and_nan), TEST_WITH_RECORD(int8_stores_only_layers_that_int8_computes),
          TEST_WITH_RECORD(attention_is_that_of_rounded_numbers), TEST_WITH_RECORD(attention_without_gradients),
          TEST_WITH_RECORD(attention_by_the_mean_is_not_rounded), TEST_WITH_RECORD(attention_in_scopes_holds_nothing),
          TEST_WITH_RECORD(keys_that_are_kept_are_rounded_once), TEST_WITH_RECORD(models_have_a_precision))
