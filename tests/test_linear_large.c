/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests linear layers of some hundred rows and channels through tensor.h. Results and gradients are compared with sums
 * in double. Three instruction sets run: the set that ATTN_ISA names, or the machine's best set, and the next two sets
 * below it. The bits of a row must not depend on other rows, on the number of threads, or on AMX, as docs/numerics.md
 * promises.
 */
#include "support/fixture.h"

#include "attn/tensor.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "support/attend_ref.h"
#include "tensor/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    int64_t rows, in, out;
    attn_activation activation;
    bool bias;
} layer;

/* Sizes near multiples of block sizes, and odd sizes. */
static const layer layers[] = {
    {192, 192, 192, ATTN_ACTIVATION_IDENTITY, true},  {193, 193, 193, ATTN_ACTIVATION_GELU_ERF, true},
    {191, 191, 191, ATTN_ACTIVATION_IDENTITY, true},  {300, 197, 257, ATTN_ACTIVATION_IDENTITY, false},
    {509, 128, 251, ATTN_ACTIVATION_GELU_ERF, true},  {1031, 401, 97, ATTN_ACTIVATION_IDENTITY, true},
    {97, 1021, 515, ATTN_ACTIVATION_GELU_ERF, false}, {577, 768, 131, ATTN_ACTIVATION_IDENTITY, true},
    {130, 259, 1033, ATTN_ACTIVATION_IDENTITY, true}};
enum { LAYERS = sizeof layers / sizeof *layers };

typedef enum operand { X, W, B, G, OPERANDS } operand;
typedef enum result { Y, DX, DW, DB, RESULTS } result;

typedef struct sample {
    layer shape;
    float *in[OPERANDS];
    double *value[RESULTS], *bound[RESULTS];
} sample;

static int64_t size_of_result(const layer *l, int64_t rows, result r)
{
    return r == Y ? rows * l->out : r == DX ? rows * l->in : r == DW ? l->out * l->in : l->out;
}

static float *normal_numbers(attn__rng *rng, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)attn__rng_normal(rng);
    return x;
}

/* ------------------------------------------------------------------------------------- in double precision */

/* Returns the error unit of attend_ref.h: the allowed error of a sum of products, divided by the sum of their
 * absolute values. */
static double unit(void)
{
    return attend_ref_units_of(ATTN_F32).weight;
}

/* Computes y and its bound from `sum`, and the gradient of `sum` and its bound from g, the gradient of y. The slope
 * of x Phi(x) is at most 1.13, and the slope of this slope is at most 0.8. */
static void activate(const layer *l, double sum, double sum_err, double g, double y[2], double back[2])
{
    double phi = exp(-sum * sum / 2) / sqrt(2 * acos(-1.0)), below = erfc(-sum / sqrt(2)) / 2;
    if (l->activation == ATTN_ACTIVATION_IDENTITY) {
        y[0] = sum, y[1] = sum_err;
        back[0] = g, back[1] = 0;
        return;
    }
    y[0] = sum * below;
    y[1] = 1.13 * sum_err + unit() * fabs(sum);
    back[0] = g * (below + sum * phi);
    back[1] = fabs(g) * (0.8 * sum_err + unit() * (1 + fabs(sum * phi)));
}

static void add_gradients(sample *s, int64_t row, int64_t out, const double back[2])
{
    const layer *l = &s->shape;
    double size = back[1] + unit() * fabs(back[0]);
    for (int64_t k = 0; k < l->in; k++) {
        double w = (double)s->in[W][out * l->in + k], x = (double)s->in[X][row * l->in + k];
        s->value[DX][row * l->in + k] += back[0] * w;
        s->bound[DX][row * l->in + k] += size * fabs(w);
        s->value[DW][out * l->in + k] += back[0] * x;
        s->bound[DW][out * l->in + k] += size * fabs(x);
    }
    s->value[DB][out] += back[0];
    s->bound[DB][out] += size;
}

static void evaluate(sample *s)
{
    const layer *l = &s->shape;
    for (int64_t at = 0; at < l->rows * l->out; at++) {
        int64_t row = at / l->out, out = at % l->out;
        double sum = l->bias ? (double)s->in[B][out] : 0, size = fabs(sum), y[2], back[2];
        for (int64_t k = 0; k < l->in; k++) {
            double term = (double)s->in[X][row * l->in + k] * (double)s->in[W][out * l->in + k];
            sum += term;
            size += fabs(term);
        }
        activate(l, sum, unit() * size, (double)s->in[G][at], y, back);
        s->value[Y][at] = y[0];
        s->bound[Y][at] = y[1];
        add_gradients(s, row, out, back);
    }
}

static sample make_sample(const layer *l, uint64_t number)
{
    attn__rng rng = {.seed = 5, .stream = number};
    sample s = {.shape = *l};
    s.in[X] = normal_numbers(&rng, l->rows * l->in);
    s.in[W] = normal_numbers(&rng, l->out * l->in);
    s.in[B] = normal_numbers(&rng, l->out);
    s.in[G] = normal_numbers(&rng, l->rows * l->out);
    for (int64_t i = 0; i < l->out * l->in; i++) /* keeps sums small, where GELU bends */
        s.in[W][i] /= sqrtf((float)l->in);
    for (int r = 0; r < RESULTS; r++) {
        size_t n = (size_t)size_of_result(l, l->rows, (result)r);
        s.value[r] = calloc(n, sizeof(double));
        s.bound[r] = calloc(n, sizeof(double));
        assert_non_null(s.value[r]);
        assert_non_null(s.bound[r]);
    }
    return s;
}

static void free_sample(sample *s)
{
    for (int i = 0; i < OPERANDS; i++)
        free(s->in[i]);
    for (int r = 0; r < RESULTS; r++) {
        free(s->value[r]);
        free(s->bound[r]);
    }
}

/* --------------------------------------------------------------------------------------------- the library */

static attn_tensor *parameter(attn_context *c, int rank, const int64_t *shape, const float *data)
{
    attn_tensor *x = NULL;
    assert_int_equal(attn_tensor_create(&x, c, ATTN_F32, rank, shape), ATTN_OK);
    memcpy(attn_tensor_data(x), data, (size_t)attn_tensor_size(x) * sizeof *data);
    attn_tensor_set_requires_grad(x, true);
    return x;
}

static float *copy_of(const attn_tensor *x)
{
    size_t bytes = (size_t)attn_tensor_size(x) * sizeof(float);
    float *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, attn_tensor_data(x), bytes);
}

/* Runs the layer on rows [first, first + rows) and computes their gradients. got[DB] is NULL if there is no bias. */
static void run(const sample *s, const char *isa, int threads, int64_t first, int64_t rows, float *got[RESULTS])
{
    const layer *l = &s->shape;
    attn_context *c;
    attn_tape *tape;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.isa = isa, .threads = threads}), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    attn_tensor *x = parameter(c, 2, (int64_t[]){rows, l->in}, s->in[X] + first * l->in);
    attn_tensor *w = parameter(c, 2, (int64_t[]){l->out, l->in}, s->in[W]);
    attn_tensor *b = l->bias ? parameter(c, 1, &l->out, s->in[B]) : NULL;
    attn_tensor *y = attn_linear(tape, x, w, b, l->activation);
    assert_non_null(y);
    got[Y] = copy_of(y);
    attn_tensor *g = attn_tape_tensor(tape, ATTN_F32, 2, (int64_t[]){rows, l->out}, s->in[G] + first * l->out);
    assert_int_equal(attn_backward_from(tape, y, g), ATTN_OK);
    got[DX] = copy_of(attn_tensor_grad(x));
    got[DW] = copy_of(attn_tensor_grad(w));
    got[DB] = b ? copy_of(attn_tensor_grad(b)) : NULL;
    attn_tape_destroy(tape);
    attn_tensor_destroy(x);
    attn_tensor_destroy(w);
    attn_tensor_destroy(b);
    end_context(c);
}

static void free_results(float *got[RESULTS])
{
    for (int r = 0; r < RESULTS; r++)
        free(got[r]);
}

/* ------------------------------------------------------------------------------------------------- checks */

static const char *const names[] = {"y", "dx", "dw", "db"};

static void fail_at(const layer *l, const char *isa, int r, const char *what, long long element)
{
    fail_msg("%s, %lld rows, %lld to %lld channels, activation %d: %s[%lld] %s", isa ? isa : "default",
             (long long)l->rows, (long long)l->in, (long long)l->out, (int)l->activation, names[r], element, what);
}

static double check_values(const sample *s, const char *isa)
{
    float *got[RESULTS];
    double worst = 0;
    run(s, isa, 2, 0, s->shape.rows, got);
    for (int r = 0; r < RESULTS; r++) {
        for (int64_t i = 0; got[r] && i < size_of_result(&s->shape, s->shape.rows, (result)r); i++) {
            double share = fabs((double)got[r][i] - s->value[r][i]) / (s->bound[r][i] + 1e-36);
            if (!(share <= 1))
                fail_at(&s->shape, isa, r, "is out of its bound", i);
            worst = fmax(worst, share);
        }
    }
    free_results(got);
    return worst;
}

static void values_and_gradients_are_sums(void **state)
{
    attn_context *c = *state;
    const char *own = attn_context_isa(c);
    int first = 0;
    double worst[3] = {0};
    while (strcmp(attn_isa_name(first), own) != 0)
        first++;
    for (int i = 0; i < LAYERS; i++) {
        sample s = make_sample(&layers[i], (uint64_t)i);
        evaluate(&s);
        for (int level = 0; level < 3 && attn_isa_name(first + level); level++)
            worst[level] = fmax(worst[level], check_values(&s, attn_isa_name(first + level)));
        free_sample(&s);
    }
    for (int level = 0; level < 3 && attn_isa_name(first + level); level++)
        print_message("  %-12s worst %.2f of the bound\n", attn_isa_name(first + level), worst[level]);
}

static void compare_rows(const sample *s, float *const whole[RESULTS], int64_t first, int64_t rows)
{
    const layer *l = &s->shape;
    float *part[RESULTS];
    run(s, NULL, 2, first, rows, part);
    for (int r = Y; r <= DX; r++) {
        int64_t n = r == Y ? l->out : l->in;
        for (int64_t i = 0; i < rows * n; i++)
            if (memcmp(&part[r][i], &whole[r][first * n + i], sizeof(float)) != 0)
                fail_at(l, NULL, r, "has other bits with fewer rows beside it", (long long)(first * n + i));
    }
    free_results(part);
}

static void bits_do_not_depend_on_other_rows(void **state)
{
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        sample s = make_sample(l, (uint64_t)i);
        float *whole[RESULTS];
        run(&s, NULL, 2, 0, l->rows, whole);
        for (int64_t first = 0; first < l->rows; first += 1 + l->rows / 3)
            compare_rows(&s, whole, first, 1 + (l->rows - first) / 2);
        compare_rows(&s, whole, l->rows - 1, 1);
        free_results(whole);
        free_sample(&s);
    }
}

static void compare_results(const sample *s, float *const one[RESULTS], float *const more[RESULTS], const char *what)
{
    for (int r = Y; r <= DW; r++)
        for (int64_t e = 0; e < size_of_result(&s->shape, s->shape.rows, (result)r); e++)
            if (memcmp(&one[r][e], &more[r][e], sizeof(float)) != 0)
                fail_at(&s->shape, NULL, r, what, e);
}

/* Checks the bits of all results. The gradient of the bias is not a product, so only its value is checked. */
static void bits_do_not_depend_on_threads(void **state)
{
    static const int threads[] = {2, 3, 7};
    for (int i = 0; i < LAYERS; i++) {
        sample s = make_sample(&layers[i], (uint64_t)i);
        float *one[RESULTS], *more[RESULTS];
        run(&s, NULL, 1, 0, s.shape.rows, one);
        for (int t = 0; t < 3; t++) {
            run(&s, NULL, threads[t], 0, s.shape.rows, more);
            compare_results(&s, one, more, "has other bits with more threads");
            free_results(more);
        }
        free_results(one);
        free_sample(&s);
    }
}

/* With weights that are not packed, as in training, products are the same multiply-adds with and without AMX. */
static void bits_do_not_depend_on_amx(void **state)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    for (int i = 0; i < LAYERS; i++) {
        sample s = make_sample(&layers[i], (uint64_t)i);
        float *with[RESULTS], *without[RESULTS];
        run(&s, "amx", 2, 0, s.shape.rows, with);
        run(&s, attn__isa_text(attn__isa_without_amx(ATTN_ISA_AMX)), 2, 0, s.shape.rows, without);
        compare_results(&s, with, without, "has other bits with AMX");
        free_results(with);
        free_results(without);
        free_sample(&s);
    }
}

RUN_TESTS(TEST_WITH_CONTEXT(values_and_gradients_are_sums), TEST(bits_do_not_depend_on_other_rows),
          TEST(bits_do_not_depend_on_threads), TEST(bits_do_not_depend_on_amx))
