/* SPDX-License-Identifier: MIT
 *
 * Races single matrix products on five kinds of input numbers.
 */
#include "product.h"
#include "race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of numbers that occur in models. NORMAL: normal numbers; RELU: outputs of ReLU; MASKED: gradients with zero
 * rows for padding and zeros from dropout; LOGNORMAL: numbers with heavy tails; ONE_HOT: rows with a single 1. */
enum { NORMAL, RELU, MASKED, LOGNORMAL, ONE_HOT, KINDS };
static const char *const kinds[KINDS] = {"normal", "ReLU'd", "masked and dropped", "lognormal", "one-hot"};

static const attn_precision precisions[] = {ATTN_PRECISION_F32, ATTN_PRECISION_BF16, ATTN_PRECISION_INT8,
                                            ATTN_PRECISION_FMA};

typedef struct subject {
    bench_product_shape shape;
    attn_precision precision;
    float *a[KINDS], *b[KINDS]; /* operands A and B; if B holds weights, all kinds share one array */
} subject;

typedef struct state {
    bench_product product;
    const subject *subject;
    int kind;
} state;

/* ------------------------------------------------------------------------------------------------ numbers */

/* Returns the sum of four uniform numbers, which is approximately a normal number with variance 1. */
static double normal(uint64_t bits)
{
    const double mean = 131070, scale = 1.7320508075688772 / 65536;
    double sum = (double)(bits & 0xffff) + (double)(bits >> 16 & 0xffff) + (double)(bits >> 32 & 0xffff);
    return (sum + (double)(bits >> 48) - mean) * scale;
}

static double number(int kind, uint64_t array, int64_t row, int64_t column, int64_t columns)
{
    /* in MASKED, one row in MASKED_ROWS is zero, and so is one number in DROPPED of the other rows */
    enum { ROWS = 1000, MASKED_ROWS = 4, DROPPED = 10 };
    double x = normal(cli_arrays_scatter(array, (uint64_t)(row * columns + column)));
    switch (kind) {
    case RELU:
        return fmax(x, 0);
    case MASKED:
        if (cli_arrays_scatter(ROWS, (uint64_t)row) % MASKED_ROWS == 0 ||
            cli_arrays_scatter(array + ROWS, (uint64_t)(row * columns + column)) % DROPPED == 0)
            return 0;
        return x / (1 - 1.0 / DROPPED);
    case LOGNORMAL:
        return copysign(exp(2 * x), (double)(cli_arrays_scatter(array + ROWS, (uint64_t)(row + column)) % 2) - 0.5);
    case ONE_HOT:
        return (int64_t)(cli_arrays_scatter(array, (uint64_t)row) % (uint64_t)columns) == column;
    default:
        return x;
    }
}

static float *make_matrix(int kind, uint64_t array, int64_t rows, int64_t columns)
{
    float *matrix = cli_arrays_take((size_t)(rows * columns) * sizeof *matrix);
    for (int64_t i = 0; matrix && i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            matrix[i * columns + j] = (float)number(kind, array, i, j, columns);
    return matrix;
}

static void free_subject(subject *s)
{
    for (int k = 0; k < KINDS; k++) {
        free(s->a[k]);
        if (k == 0 || s->b[k] != s->b[0])
            free(s->b[k]);
    }
}

/* Makes the operands. In a gradient of weights, A and B have this kind of numbers. In other products, only A has
 * this kind, and B holds weights. */
static bool make_subject(subject *s)
{
    const bench_product_shape *p = &s->shape;
    for (int k = 0; k < KINDS; k++) {
        s->a[k] = make_matrix(k, 1, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k);
        s->b[k] = k > 0 && !p->transpose_a
                      ? s->b[0]
                      : make_matrix(k, 2, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n);
        if (!s->a[k] || !s->b[k])
            return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------------------------- work */

static attn_status open_product(void *user, attn_context *context, const void *of, int kind)
{
    state *st = user;
    *st = (state){.subject = of, .kind = kind};
    return bench_product_open(&st->product, context, &st->subject->shape, st->subject->a[kind], st->subject->b[kind]);
}

static attn_status run_product(void *user)
{
    return bench_product_run(&((state *)user)->product);
}

static void close_product(void *user)
{
    bench_product_close(&((state *)user)->product);
}

static double flops_of_product(const void *user)
{
    const bench_product_shape *p = &((const state *)user)->product.shape;
    return 2 * (double)p->m * (double)p->n * (double)p->k;
}

/* Returns the error of element (i, j), divided by the error that docs/numerics.md allows. The exact value is
 * computed in float64. The error of NaN is infinite. */
static double error_of(const state *st, int64_t i, int64_t j)
{
    const bench_product_shape *p = &st->product.shape;
    const float *a = st->subject->a[st->kind], *b = st->subject->b[st->kind];
    double sum = 0, both = 0, sum_a = 0, sum_b = 0, most_a = 0, most_b = 0, depth = (double)p->k;
    for (int64_t k = 0; k < p->k; k++) {
        double x = (double)a[p->transpose_a ? k * p->m + i : i * p->k + k];
        double y = (double)b[p->transpose_b ? j * p->k + k : k * p->n + j];
        sum += x * y;
        both += fabs(x * y);
        sum_a += fabs(x);
        sum_b += fabs(y);
        most_a = fmax(most_a, fabs(x));
        most_b = fmax(most_b, fabs(y));
    }
    double bound = (depth + 1) * 0x1p-24 * both; /* one rounding for each of `depth` terms, and one for the sum */
    if (st->subject->precision == ATTN_PRECISION_BF16)
        bound += (0x1p-7 + 0x1p-16) * both; /* In bf16, each operand has a relative error of up to 2^-8. */
    /* In int8, the largest number of a row is 127 steps, and each number has an error of up to half a step. */
    if (st->subject->precision == ATTN_PRECISION_INT8) {
        double step_a = most_a / 127, step_b = most_b / 127;
        bound += (step_a * sum_b + step_b * sum_a) / 2 + depth * step_a * step_b / 4;
    }
    double error = fabs((double)((const float *)attn_tensor_data(st->product.result))[i * p->n + j] - sum);
    return isnan(error) ? INFINITY : error > 0 ? error / bound : 0;
}

/* Checks a sample of the elements, which includes the corners. Returns the largest error. */
static double error_of_product(const void *user)
{
    enum { SAMPLE = 32 };
    const state *st = user;
    const bench_product_shape *p = &st->product.shape;
    double most = fmax(error_of(st, 0, 0), error_of(st, p->m - 1, p->n - 1));
    for (uint64_t i = 0; i < SAMPLE; i++)
        most = fmax(most, error_of(st, (int64_t)(cli_arrays_scatter(3, i) % (uint64_t)p->m),
                                   (int64_t)(cli_arrays_scatter(4, i) % (uint64_t)p->n)));
    return most;
}

static const bench_work product_work = {sizeof(state), open_product,     run_product,
                                        close_product, flops_of_product, error_of_product};

/* -------------------------------------------------------------------------------------------------- rows */

static int race_types(bench_race *race, subject *s, const char *name)
{
    int code = CLI_OK;
    for (size_t t = 0; code == CLI_OK && t < sizeof precisions / sizeof *precisions; t++) {
        s->precision = precisions[t];
        bench_row row = {.part = "products",
                         .name = name,
                         .type = attn_precision_name(s->precision),
                         .work = &product_work,
                         .subject = s,
                         .precision = s->precision,
                         .kinds = kinds,
                         .nkinds = KINDS};
        /* Only weights of linear layers are multiplied in int8. */
        if (s->shape.transpose_b || s->precision != ATTN_PRECISION_INT8)
            code = bench_race_row(race, &row);
    }
    return code;
}

/* If `both` is true, a product with weights also runs with packed weights. */
static int race_shape(bench_race *race, const char *text, bool both)
{
    char name[64];
    subject s = {0};
    snprintf(name, sizeof name, "%s", text);
    if (!bench_product_parse(&s.shape, name) || !make_subject(&s)) {
        free_subject(&s);
        return cli_fail(CLI_FAILED, "%s: out of memory", text);
    }
    int code = race_types(race, &s, name);
    if (code == CLI_OK && both && s.shape.transpose_b) {
        name[strlen(name) - 1] = 'p';
        s.shape.packed = true;
        code = race_types(race, &s, name);
    }
    free_subject(&s);
    return code;
}

int bench_race_products(bench_race *race, const char *const *shapes)
{
    const char *model, *shape;
    int code = CLI_OK;
    for (int i = 0; code == CLI_OK && (shape = shapes ? shapes[i] : bench_product_at(i, &model)); i++)
        code = race_shape(race, shape, !shapes);
    return code;
}

const char *const bench_products_quick[] = {"197,768,768t", "197,768,768p", "512,2048,1024a",
                                            "1280,64,256t", "64,1024,576",  NULL};
