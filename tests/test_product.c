/* SPDX-License-Identifier: MIT
 *
 * Tests the public products of matrices (product.h) against loops in double: every type, transposed and strided matrices,
 * batches, what comes after the sum, packed matrices and their way back, and the errors.
 */
#include "support/cmocka.h"
#include "support/faults.h"

#include "attn/product.h"
#include "base/bf16.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;

static int begin(void **state)
{
    (void)state;
    return attn_context_create(&context, &(attn_context_options){.threads = 2}) != ATTN_OK;
}

static int end(void **state)
{
    (void)state;
    attn_context_destroy(context);
    return 0;
}

static uint32_t seed = 1;

static double draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / (double)(1 << 23) - 1;
}

/* Memory of a matrix, with its layout. The numbers around the matrix are checked to be unchanged. */
typedef struct stored {
    attn_matrix x;
    int64_t rows, columns, batch, elements;
} stored;

enum { MARGIN = 5 };

static void put(const attn_matrix *x, int64_t at, double value)
{
    if (x->dtype == ATTN_F64)
        ((double *)x->data)[at] = value;
    else if (x->dtype == ATTN_F32)
        ((float *)x->data)[at] = (float)value;
    else
        ((uint16_t *)x->data)[at] = attn__to_bf16((float)value);
}

static double number(const attn_matrix *x, int64_t at)
{
    return x->dtype == ATTN_F64   ? ((const double *)x->data)[at]
           : x->dtype == ATTN_F32 ? ((const float *)x->data)[at]
                                  : attn__from_bf16(((const uint16_t *)x->data)[at]);
}

static double element(const stored *s, int64_t t, int64_t i, int64_t j)
{
    return number(&s->x, t * s->x.batch + i * s->x.row + j * s->x.column);
}

enum layout { ROWS, COLUMNS, SPREAD, LAYOUTS };

static stored make(attn_dtype dtype, int64_t batch, int64_t rows, int64_t columns, enum layout layout)
{
    int64_t ld = layout == COLUMNS ? rows + MARGIN : layout == ROWS ? columns + MARGIN : 3 * columns + MARGIN;
    int64_t lines = layout == COLUMNS ? columns : rows;
    stored s = {.rows = rows, .columns = columns, .batch = batch, .elements = batch * lines * ld + 1};
    s.x = (attn_matrix){calloc((size_t)s.elements, attn_dtype_size(dtype)), dtype, layout == COLUMNS ? 1 : ld,
                        layout == COLUMNS ? ld
                        : layout == ROWS  ? 1
                                          : 3,
                        lines * ld};
    for (int64_t i = 0; i < s.elements; i++)
        put(&s.x, i, draw());
    return s;
}

static stored copy_of(const stored *s)
{
    stored copy = *s;
    size_t bytes = (size_t)s->elements * attn_dtype_size(s->x.dtype);
    copy.x.data = malloc(bytes);
    memcpy(copy.x.data, s->x.data, bytes);
    return copy;
}

static double activated(double x, attn_activation kind)
{
    switch (kind) {
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

typedef struct trial {
    attn_product p;
    stored a, b, c, factor, residual;
    bool has_factor, has_residual;
    double *bias;
    float *bias_f32;
    double rounding; /* relative error of an operand, and of the result */
} trial;

static double rounded(const trial *t, double x)
{
    return t->p.precision == ATTN_PRECISION_BF16 ? attn__from_bf16(attn__to_bf16((float)x)) : x;
}

/* Computes element (i, j) of matrix `at` in double, and the sum of the absolute values of its terms. */
static double expected(const trial *t, const stored *before, int64_t at, int64_t i, int64_t j, double *size)
{
    double sum = 0;
    *size = 1e-30;
    for (int64_t l = 0; l < t->p.k; l++) {
        double term = rounded(t, element(&t->a, at, i, l)) * rounded(t, element(&t->b, at, l, j));
        sum += term;
        *size += fabs(term);
    }
    if (t->p.add) {
        *size += fabs(element(before, at, i, j));
        return sum + element(before, at, i, j);
    }
    sum += t->bias ? t->bias[j] : 0;
    *size += t->bias ? fabs(t->bias[j]) : 0;
    sum = activated(sum, t->p.activation);
    if (t->has_factor) {
        sum *= element(&t->factor, at, i, j);
        *size *= fmax(1, fabs(element(&t->factor, at, i, j)));
    }
    if (t->has_residual) {
        sum += element(&t->residual, at, i, j);
        *size += fabs(element(&t->residual, at, i, j));
    }
    return sum;
}

static bool untouched(const stored *now, const stored *before)
{
    char *inside = calloc((size_t)now->elements, 1);
    bool same = true;
    for (int64_t t = 0; t < now->batch; t++)
        for (int64_t i = 0; i < now->rows; i++)
            for (int64_t j = 0; j < now->columns; j++)
                inside[t * now->x.batch + i * now->x.row + j * now->x.column] = 1;
    for (int64_t i = 0; i < now->elements; i++)
        same = same && (inside[i] || number(&now->x, i) == number(&before->x, i));
    free(inside);
    return same;
}

static void check_result(const trial *t, const stored *before)
{
    double result = t->c.x.dtype == ATTN_BF16 ? ldexp(1, -8) : t->c.x.dtype == ATTN_F32 ? ldexp(1, -22) : 1e-14;
    double sums = t->c.x.dtype == ATTN_F64 ? 1e-15 : ldexp(1, -24);
    for (int64_t at = 0; at < t->c.batch; at++)
        for (int64_t i = 0; i < t->p.m; i++)
            for (int64_t j = 0; j < t->p.n; j++) {
                double size, wanted = expected(t, before, at, i, j, &size);
                double bound =
                    result * fabs(wanted) + (sums * ((double)t->p.k + 8) + t->rounding) * size + result * 1e-6;
                double error = fabs(element(&t->c, at, i, j) - wanted);
                if (!(error <= bound * 1.5))
                    fail_msg("m %lld n %lld k %lld batch %lld: c[%lld,%lld] is %g, wanted %g (bound %g)",
                             (long long)t->p.m, (long long)t->p.n, (long long)t->p.k, (long long)t->c.batch,
                             (long long)i, (long long)j, element(&t->c, at, i, j), wanted, bound);
            }
    assert_true(untouched(&t->c, before));
}

static trial make_trial(int64_t m, int64_t n, int64_t k, int64_t batch, attn_dtype ab, attn_dtype c,
                        enum layout a_layout, enum layout b_layout, enum layout c_layout)
{
    trial t = {.p = {.m = m, .n = n, .k = k, .batch = batch}};
    t.a = make(ab, batch ? batch : 1, m, k, a_layout);
    t.b = make(ab, batch ? batch : 1, k, n, b_layout);
    t.c = make(c, batch ? batch : 1, m, n, c_layout);
    t.p.a = t.a.x, t.p.b = t.b.x, t.p.c = t.c.x;
    return t;
}

static void add_after(trial *t, bool factor, bool residual, attn_activation activation)
{
    int64_t batch = t->c.batch;
    t->p.activation = activation;
    t->bias = calloc((size_t)t->p.n + 1, sizeof *t->bias);
    t->bias_f32 = calloc((size_t)t->p.n + 1, sizeof *t->bias_f32);
    for (int64_t i = 0; i < t->p.n; i++)
        t->bias[i] = t->bias_f32[i] = (float)draw();
    t->p.bias = t->c.x.dtype == ATTN_F64 ? (const void *)t->bias : t->bias_f32;
    t->has_factor = factor, t->has_residual = residual;
    t->factor = make(t->c.x.dtype, batch, t->p.m, t->p.n, ROWS);
    t->residual = make(t->c.x.dtype, batch, t->p.m, t->p.n, ROWS);
    if (factor)
        t->p.factor = t->factor.x;
    if (residual)
        t->p.residual = t->residual.x;
}

static void run_trial(trial *t)
{
    stored before = copy_of(&t->c);
    attn_status status = attn_multiply(context, &t->p);
    if (status != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    check_result(t, &before);
    free(before.x.data);
}

static void free_trial(trial *t)
{
    void *all[] = {t->a.x.data, t->b.x.data, t->c.x.data, t->factor.x.data, t->residual.x.data, t->bias, t->bias_f32};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static const int64_t sizes[][3] = {{1, 1, 1},   {1, 33, 7},   {3, 5, 64},     {2, 70, 300}, {17, 16, 129},
                                   {40, 3, 31}, {65, 97, 33}, {13, 40, 1100}, {5, 9, 0},    {70, 35, 520}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* ------------------------------------------------------------------------------------------------ products */

static void products_of_any_layout_equal_loops(void **state)
{
    const attn_dtype types[][2] = {{ATTN_F32, ATTN_F32},
                                   {ATTN_BF16, ATTN_F32},
                                   {ATTN_BF16, ATTN_BF16},
                                   {ATTN_F32, ATTN_BF16},
                                   {ATTN_F64, ATTN_F64}};
    for (size_t s = 0; s < SIZES; s++)
        for (size_t y = 0; y < sizeof types / sizeof *types; y++)
            for (int layouts = 0; layouts < LAYOUTS * LAYOUTS * LAYOUTS; layouts += 1 + (int)((s + y) % 3))
                for (int add = 0; add < 2; add++) {
                    if (types[y][1] == ATTN_F64 && layouts / LAYOUTS / LAYOUTS != ROWS)
                        continue;
                    trial t = make_trial(sizes[s][0], sizes[s][1], sizes[s][2], 0, types[y][0], types[y][1],
                                         (enum layout)(layouts % LAYOUTS), (enum layout)(layouts / LAYOUTS % LAYOUTS),
                                         (enum layout)(layouts / LAYOUTS / LAYOUTS));
                    t.p.add = add;
                    run_trial(&t);
                    free_trial(&t);
                }
}

static void bias_activation_factor_and_residual_follow_the_sum(void **state)
{
    const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F64};
    for (size_t s = 0; s < SIZES; s++)
        for (int kind = 0; kind <= ATTN_ACTIVATION_SILU; kind++) {
            trial t = make_trial(
                sizes[s][0], sizes[s][1], sizes[s][2], 0, types[(s + (size_t)kind) % 3], types[(s + (size_t)kind) % 3],
                ROWS, COLUMNS,
                types[(s + (size_t)kind) % 3] == ATTN_F64 ? ROWS : (enum layout)((s + (size_t)kind) % LAYOUTS));
            add_after(&t, kind % 2, kind % 3 != 0, (attn_activation)kind);
            t.rounding = types[(s + (size_t)kind) % 3] == ATTN_F64 ? 1e-15 : ldexp(1, -21);
            run_trial(&t);
            free_trial(&t);
        }
}

static void a_bias_in_bf16_has_the_effect_of_its_numbers(void **state)
{
    uint16_t narrow[97];
    for (int precision = ATTN_PRECISION_F32; precision <= ATTN_PRECISION_BF16; precision++) {
        trial t = make_trial(17, 97, 33, 0, ATTN_F32, precision == ATTN_PRECISION_BF16 ? ATTN_BF16 : ATTN_F32, ROWS,
                             COLUMNS, ROWS),
              wide = t;
        add_after(&t, true, true, ATTN_ACTIVATION_GELU_TANH);
        for (int i = 0; i < 97; i++) {
            narrow[i] = attn__to_bf16(t.bias_f32[i]);
            t.bias_f32[i] = attn__from_bf16(narrow[i]);
        }
        t.p.precision = (attn_precision)precision;
        assert_int_equal(attn_multiply(context, &t.p), ATTN_OK);
        stored wanted = copy_of(&t.c);
        t.p.bias = narrow, t.p.bias_dtype = ATTN_BF16;
        assert_int_equal(attn_multiply(context, &t.p), ATTN_OK);
        assert_memory_equal(wanted.x.data, t.c.x.data, (size_t)(17 * 97) * attn_dtype_size(wide.c.x.dtype));
        free(wanted.x.data);
        free_trial(&t);
    }
}

static void batches_may_share_matrices(void **state)
{
    for (int64_t batch = 2; batch < 6; batch++)
        for (int layouts = 0; layouts < LAYOUTS * LAYOUTS; layouts++)
            for (int shared = 0; shared < 3; shared++) {
                trial t = make_trial(9, 20, 33, batch, ATTN_F32, ATTN_F32, (enum layout)(layouts % LAYOUTS),
                                     (enum layout)(layouts / LAYOUTS), (enum layout)(shared));
                if (shared == 1)
                    t.p.a.batch = t.a.x.batch = 0;
                if (shared == 2)
                    t.p.b.batch = t.b.x.batch = 0;
                if (layouts % 2)
                    add_after(&t, layouts % 4 == 1, true, ATTN_ACTIVATION_SILU);
                t.rounding = ldexp(1, -21);
                run_trial(&t);
                free_trial(&t);
            }
}

static void bf16_rounds_operands_and_sums_in_f32(void **state)
{
    const attn_dtype types[][2] = {{ATTN_F32, ATTN_F32}, {ATTN_BF16, ATTN_BF16}, {ATTN_F32, ATTN_BF16}};
    for (size_t s = 0; s < SIZES; s++)
        for (int y = 0; y < 3; y++) {
            trial t =
                make_trial(sizes[s][0], sizes[s][1], sizes[s][2], 0, types[y][0], types[y][1], ROWS, COLUMNS, ROWS);
            t.p.precision = ATTN_PRECISION_BF16;
            add_after(&t, false, y == 1, ATTN_ACTIVATION_RELU);
            run_trial(&t);
            free_trial(&t);
        }
}

/* ------------------------------------------------------------------------------------------ packed matrices */

static void *pack(const trial *t, attn_precision precision, size_t *bytes)
{
    assert_int_equal(attn_product_packed_size(bytes, context, precision, t->p.b.dtype, t->p.k, t->p.n), ATTN_OK);
    void *packed = aligned_alloc(64, (*bytes + 63) / 64 * 64);
    assert_int_equal(attn_product_pack(context, precision, &t->p.b, t->p.k, t->p.n, packed), ATTN_OK);
    return packed;
}

static void packed_matrices_give_the_bits_of_unpacked_ones(void **state)
{
    for (size_t s = 0; s < SIZES; s++)
        for (int layouts = 0; layouts < LAYOUTS; layouts++)
            for (int y = 0; y < 4; y++) {
                attn_dtype type = y == 3 ? ATTN_F64 : y == 2 ? ATTN_BF16 : ATTN_F32;
                attn_precision precision = y == 1 || y == 2 ? ATTN_PRECISION_BF16
                                           : y == 0         ? ATTN_PRECISION_FMA
                                                            : ATTN_PRECISION_F32;
                if (sizes[s][2] == 0)
                    continue;
                trial t =
                    make_trial(sizes[s][0], sizes[s][1], sizes[s][2], 0, type, type, ROWS, (enum layout)layouts, ROWS);
                t.p.precision = precision;
                add_after(&t, false, true, ATTN_ACTIVATION_GELU_ERF);
                t.rounding = type == ATTN_F64 ? 1e-15 : ldexp(1, -21);
                run_trial(&t);
                stored first = copy_of(&t.c);
                for (int other = 0; other <= (y == 0); other++) { /* what is packed for f32 can be read for fma */
                    size_t bytes;
                    void *packed = pack(&t, other ? ATTN_PRECISION_F32 : precision, &bytes);
                    t.p.packed = packed;
                    assert_int_equal(attn_multiply(context, &t.p), ATTN_OK);
                    assert_memory_equal(first.x.data, t.c.x.data, (size_t)t.c.elements * attn_dtype_size(type));
                    free(packed);
                }
                free(first.x.data);
                free_trial(&t);
            }
}

/* Numbers of which AMX computes some rows and columns by slices, and others by multiply-adds. */
static void vary(stored *x, bool columns)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++) {
            int64_t kind = (columns ? j : i) % 7, at = i * x->x.row + j * x->x.column;
            double scale = kind == 1 ? exp(6 * draw()) : kind == 2 ? 0 : kind == 3 ? ldexp(1, -60) : 1;
            put(&x->x, at, scale * number(&x->x, at) + (kind == 4 && (i + j) % 50 == 0 ? 300 : 0));
        }
}

static void packed_f32_matrices_have_the_error_of_multiply_adds(void **state)
{
    static const int64_t of[][3] = {{1, 40, 64}, {3, 200, 800}, {40, 65, 385}, {130, 300, 96}, {33, 1, 700}};
    for (size_t s = 0; s < sizeof of / sizeof *of; s++)
        for (int kind = 0; kind < 6; kind++) {
            attn_dtype type = kind == 3 ? ATTN_BF16 : ATTN_F32;
            trial t = make_trial(of[s][0], of[s][1], of[s][2], 0, type, type, kind == 4 ? COLUMNS : ROWS,
                                 kind == 1 ? ROWS : COLUMNS, kind == 5 ? SPREAD : ROWS);
            if (kind == 2) {
                vary(&t.a, false);
                vary(&t.b, true);
            }
            if (kind == 0)
                t.p.add = true;
            else
                add_after(&t, true, true, ATTN_ACTIVATION_SILU);
            t.rounding = type == ATTN_BF16 ? ldexp(1, -8) : 0;
            size_t bytes;
            void *packed = pack(&t, ATTN_PRECISION_F32, &bytes);
            t.p.packed = packed;
            t.p.b = (attn_matrix){0}; /* is not read */
            run_trial(&t);
            free(packed);
            free_trial(&t);
        }
}

static void take(stored *to, const stored *from)
{
    for (int64_t i = 0; i < to->rows; i++)
        for (int64_t j = 0; j < to->columns; j++)
            put(&to->x, i * to->x.row + j * to->x.column, element(from, 0, i, j));
}

static void assert_equal_elements(const stored *found, const stored *wanted)
{
    for (int64_t i = 0; i < found->rows; i++)
        for (int64_t j = 0; j < found->columns; j++)
            assert_true(element(found, 0, i, j) == element(wanted, 0, i, j));
}

static void strides_and_types_of_equal_numbers_do_not_change_the_bits(void **state)
{
    for (int kind = 0; kind < 8; kind++) {
        bool packs = kind & 1, add = kind & 2;
        trial first = make_trial(20, 70, 700, 0, ATTN_BF16, kind & 4 ? ATTN_BF16 : ATTN_F32, ROWS, COLUMNS, ROWS);
        stored before = copy_of(&first.c);
        size_t bytes;
        void *packed = packs ? pack(&first, ATTN_PRECISION_F32, &bytes) : NULL;
        first.p.packed = packed, first.p.add = add;
        assert_int_equal(attn_multiply(context, &first.p), ATTN_OK);
        for (int layouts = 0; layouts < LAYOUTS * LAYOUTS; layouts++) {
            trial t = make_trial(20, 70, 700, 0, ATTN_F32, first.c.x.dtype, (enum layout)(layouts % LAYOUTS), COLUMNS,
                                 (enum layout)(layouts / LAYOUTS));
            take(&t.a, &first.a), take(&t.b, &first.b), take(&t.c, &before);
            t.p.packed = packed, t.p.add = add;
            assert_int_equal(attn_multiply(context, &t.p), ATTN_OK);
            assert_equal_elements(&t.c, &first.c);
            free_trial(&t);
        }
        free(packed);
        free(before.x.data);
        free_trial(&first);
    }
}

static void a_failed_packing_leaves_the_matrix_that_was_there(void **state)
{
    faults f = {0};
    attn_context *poor = faults_context(&f);
    trial t = make_trial(3, 40, 50, 0, ATTN_F32, ATTN_F32, ROWS, ROWS, ROWS);
    size_t bytes;
    void *packed = pack(&t, ATTN_PRECISION_F32, &bytes);
    t.p.packed = packed;
    f.fail_at = f.calls + 1;
    assert_int_equal(attn_product_pack(poor, ATTN_PRECISION_INT8, &t.p.b, t.p.k, t.p.n, packed), ATTN_ERROR_MEMORY);
    run_trial(&t);
    free(packed);
    free_trial(&t);
    attn_context_destroy(poor);
}

static void a_number_that_is_not_finite_stays_in_its_row_or_column(void **state)
{
    trial t = make_trial(40, 70, 200, 0, ATTN_F32, ATTN_F32, ROWS, COLUMNS, ROWS);
    put(&t.a.x, 17 * t.a.x.row + 5, NAN);
    put(&t.b.x, 33 * t.b.x.column + 9, INFINITY);
    size_t bytes;
    void *packed = pack(&t, ATTN_PRECISION_F32, &bytes);
    t.p.packed = packed;
    assert_int_equal(attn_multiply(context, &t.p), ATTN_OK);
    for (int64_t i = 0; i < t.p.m; i++)
        for (int64_t j = 0; j < t.p.n; j++)
            assert_int_equal(isfinite(element(&t.c, 0, i, j)) != 0, i != 17 && j != 33);
    free(packed);
    free_trial(&t);
}

static void check_unpacked(const trial *t, const void *packed, attn_dtype type, const int64_t *columns, int64_t count,
                           double relative, const double *largest)
{
    for (int layout = 0; layout < LAYOUTS; layout++) {
        stored to = make(type, 1, t->p.k, count, (enum layout)layout), before = copy_of(&to);
        assert_int_equal(attn_product_unpack(context, packed, columns, count, &to.x), ATTN_OK);
        for (int64_t l = 0; l < t->p.k; l++)
            for (int64_t j = 0; j < count; j++) {
                int64_t from = columns ? columns[j] : j;
                double wanted = rounded(t, element(&t->b, 0, l, from));
                double bound = relative * (largest ? largest[from] : fabs(wanted));
                assert_true(fabs(element(&to, 0, l, j) - wanted) <= bound);
            }
        assert_true(untouched(&to, &before));
        free(to.x.data);
        free(before.x.data);
    }
}

static void packed_matrices_unpack_to_their_numbers(void **state)
{
    for (size_t s = 0; s < SIZES; s++)
        for (int y = 0; y < 4; y++) {
            attn_dtype type = y == 3 ? ATTN_F64 : y == 2 ? ATTN_BF16 : ATTN_F32;
            attn_precision precision = y == 1 || y == 2 ? ATTN_PRECISION_BF16 : ATTN_PRECISION_F32;
            if (sizes[s][2] == 0)
                continue;
            trial t = make_trial(1, sizes[s][1], sizes[s][2], 0, type, type, ROWS, (enum layout)(s % LAYOUTS), ROWS);
            t.p.precision = precision;
            size_t bytes;
            void *packed = pack(&t, precision, &bytes);
            const int64_t some[] = {t.p.n - 1, 0, t.p.n / 2, 0};
            check_unpacked(&t, packed, type, NULL, t.p.n, 0, NULL);
            check_unpacked(&t, packed, type, some, 4, 0, NULL);
            if (type == ATTN_F32)
                check_unpacked(&t, packed, ATTN_BF16, some, 4, ldexp(1, -8), NULL);
            free(packed);
            free_trial(&t);
        }
}

static double *largest_of_columns(const trial *t)
{
    double *largest = calloc((size_t)t->p.n, sizeof *largest);
    for (int64_t l = 0; l < t->p.k; l++)
        for (int64_t j = 0; j < t->p.n; j++)
            largest[j] = fmax(largest[j], fabs(element(&t->b, 0, l, j)));
    return largest;
}

static void int8_products_are_near(void **state)
{
    for (size_t s = 0; s < SIZES; s++)
        for (int layouts = 0; layouts < LAYOUTS; layouts++) {
            if (sizes[s][2] == 0)
                continue;
            attn_dtype type = layouts == 1 ? ATTN_BF16 : ATTN_F32;
            trial t = make_trial(sizes[s][0], sizes[s][1], sizes[s][2], 0, type, type, (enum layout)layouts,
                                 (enum layout)((layouts + 1) % LAYOUTS), ROWS);
            size_t bytes;
            void *packed = pack(&t, ATTN_PRECISION_INT8, &bytes);
            double *largest = largest_of_columns(&t);
            check_unpacked(&t, packed, ATTN_F32, NULL, t.p.n, 0.51 / 127, largest);
            t.p.precision = ATTN_PRECISION_INT8;
            t.p.packed = packed;
            add_after(&t, false, true, ATTN_ACTIVATION_IDENTITY);
            t.rounding = 0.1;
            run_trial(&t);
            free(largest);
            free(packed);
            free_trial(&t);
        }
}

/* ----------------------------------------------------------------------------------------------------- norms */

/* Computes the mean of row i, which is 0 for the root mean square, and what the row is divided by, in double. */
static void moments(const attn_row_norm *t, const attn_matrix *x, int64_t i, double *mean, double *divisor)
{
    double squares = 0;
    *mean = 0;
    for (int64_t l = 0; l < t->n && !t->root_mean_square; l++)
        *mean += number(x, i * x->row + l) / (double)t->n;
    for (int64_t l = 0; l < t->n; l++)
        squares += pow(number(x, i * x->row + l) - *mean, 2) / (double)t->n;
    *divisor = sqrt(squares + t->eps);
}

static void check_norm(attn_dtype x_type, attn_dtype y_type, attn_dtype of_parameters, bool root_mean_square,
                       bool parameters, int64_t rows, int64_t n)
{
    stored x = make(x_type, 1, rows, n, ROWS), y = make(y_type, 1, rows, n, ROWS);
    double *gain = calloc((size_t)n, sizeof *gain), *bias = calloc((size_t)n, sizeof *bias);
    attn_matrix gain_x = {calloc((size_t)n, sizeof(float)), of_parameters, 0, 1, 0};
    attn_matrix bias_x = {calloc((size_t)n, sizeof(float)), of_parameters, 0, 1, 0};
    for (int64_t j = 0; j < n; j++) {
        put(&gain_x, j, parameters ? draw() : 1);
        put(&bias_x, j, parameters ? draw() : 0);
        gain[j] = number(&gain_x, j), bias[j] = number(&bias_x, j);
    }
    attn_row_norm t = {.rows = rows,
                       .n = n,
                       .x = x.x,
                       .y = y.x,
                       .gain = parameters ? gain_x.data : NULL,
                       .bias = parameters ? bias_x.data : NULL,
                       .dtype = of_parameters,
                       .root_mean_square = root_mean_square,
                       .eps = 1e-5};
    for (int in_place = 0; in_place < (x_type == y_type ? 2 : 1); in_place++) {
        stored before = copy_of(&x);
        if (in_place)
            t.y = x.x;
        if (attn_normalize_rows(context, &t) != ATTN_OK)
            fail_msg("%s", attn_context_error(context));
        for (int64_t i = 0; i < rows; i++) {
            double mean, divisor;
            moments(&t, &before.x, i, &mean, &divisor);
            for (int64_t j = 0; j < n; j++) {
                double wanted = (number(&before.x, i * before.x.row + j) - mean) / divisor * gain[j] + bias[j];
                double found = number(&t.y, i * t.y.row + j);
                double bound = (y_type == ATTN_BF16 ? ldexp(1, -8) : 3e-6) * (1 + fabs(wanted));
                if (!(fabs(found - wanted) <= bound))
                    fail_msg("%g instead of %g at (%d,%d)", found, wanted, (int)i, (int)j);
            }
        }
        free(before.x.data);
    }
    void *all[] = {x.x.data, y.x.data, gain, bias, gain_x.data, bias_x.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void rows_are_normalized_as_by_loops(void **state)
{
    const attn_dtype types[] = {ATTN_F32, ATTN_BF16};
    const int64_t shapes[][2] = {{1, 1}, {3, 7}, {2, 64}, {70, 300}, {1, 20000}, {40, 513}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < 32; kind++)
            check_norm(types[kind & 1], types[kind >> 1 & 1], types[kind >> 2 & 1], kind >> 3 & 1, kind >> 4 & 1,
                       shapes[s][0], shapes[s][1]);
}

/* -------------------------------------------------------------------------------------------------- errors */

static void expect(attn_status status, attn_status wanted, const char *words)
{
    assert_int_equal(status, wanted);
    if (!strstr(attn_context_error(context), words))
        fail_msg("\"%s\" does not say \"%s\"", attn_context_error(context), words);
}

static void bad_products_are_refused_in_words(void **state)
{
    trial t = make_trial(4, 6, 8, 0, ATTN_F32, ATTN_F32, ROWS, ROWS, ROWS);
    float bias[6] = {0};
#define REFUSED(change, status, words)                                                                                 \
    do {                                                                                                               \
        attn_product p = t.p;                                                                                          \
        change;                                                                                                        \
        expect(attn_multiply(context, &p), status, words);                                                             \
    } while (0)
    REFUSED(p.m = -1, ATTN_ERROR_SHAPE, "m is -1");
    REFUSED(p.k = (int64_t)1 << 41, ATTN_ERROR_SHAPE, "k is");
    REFUSED(p.a.data = NULL, ATTN_ERROR_ARGUMENT, "a has no data");
    REFUSED(p.b.data = NULL, ATTN_ERROR_ARGUMENT, "b has no data");
    REFUSED(p.c.data = NULL, ATTN_ERROR_ARGUMENT, "c has no data");
    REFUSED(p.a.dtype = ATTN_F16, ATTN_ERROR_UNSUPPORTED, "a is of the type f16");
    REFUSED(p.b.dtype = ATTN_F64, ATTN_ERROR_UNSUPPORTED, "b is f64 and c is f32");
    REFUSED(p.c.row = 0, ATTN_ERROR_ARGUMENT, "stride of 0");
    REFUSED(p.batch = 2; p.c.batch = 0, ATTN_ERROR_ARGUMENT, "stride of 0");
    REFUSED(p.activation = (attn_activation)77, ATTN_ERROR_ARGUMENT, "activation is 77; it must be between 0 and 8");
    REFUSED(p.precision = (attn_precision)77, ATTN_ERROR_ARGUMENT, "precision");
    REFUSED(p.add = true; p.bias = bias, ATTN_ERROR_ARGUMENT, "add cannot be used together with bias");
    REFUSED(p.residual = p.c; p.residual.column = 2, ATTN_ERROR_ARGUMENT, "residual are 2 apart");
    REFUSED(p.factor = p.c; p.factor.dtype = ATTN_BF16, ATTN_ERROR_UNSUPPORTED, "factor is bf16 and c is f32");
    REFUSED(p.precision = ATTN_PRECISION_INT8, ATTN_ERROR_ARGUMENT, "needs a packed matrix");
    REFUSED(p.a.dtype = p.b.dtype = p.c.dtype = ATTN_F64; p.c.column = 2, ATTN_ERROR_UNSUPPORTED, "must be adjacent");
    REFUSED(p.bias = bias; p.bias_dtype = ATTN_F16, ATTN_ERROR_UNSUPPORTED, "bias is of the type f16");
    REFUSED(p.reserved[3] = 1, ATTN_ERROR_ARGUMENT, "reserved");
    free_trial(&t);
}

static void bad_packed_matrices_are_refused_in_words(void **state)
{
    trial t = make_trial(4, 6, 8, 0, ATTN_F32, ATTN_F32, ROWS, ROWS, ROWS);
    size_t bytes;
    char *packed = pack(&t, ATTN_PRECISION_F32, &bytes), *other = aligned_alloc(64, (bytes + 127) / 64 * 64);
    t.p.packed = packed;
    REFUSED(p.packed = packed + 4, ATTN_ERROR_ARGUMENT, "not aligned");
    REFUSED(p.n = 5, ATTN_ERROR_ARGUMENT, "k x n is 8 x 5, but the packed matrix is 8 x 6");
    REFUSED(p.precision = ATTN_PRECISION_BF16, ATTN_ERROR_ARGUMENT, "packed as f32, but the precision is bf16");
    REFUSED(p.batch = 3, ATTN_ERROR_UNSUPPORTED, "a batch of 3");
    memset(other, 0, bytes);
    REFUSED(p.packed = other, ATTN_ERROR_ARGUMENT, "no packed matrix");
    memcpy(other, packed, bytes);
    other[9] ^= 1; /* in the head's number of the layout */
    REFUSED(p.packed = other, ATTN_ERROR_UNSUPPORTED, "pack it again");
    int64_t column = 6;
    attn_matrix to = t.c.x;
    expect(attn_product_unpack(context, packed, &column, 1, &to), ATTN_ERROR_ARGUMENT, "columns[0] is 6");
    expect(attn_product_unpack(context, packed, NULL, 7, &to), ATTN_ERROR_ARGUMENT, "7 columns");
    to.dtype = ATTN_F64;
    expect(attn_product_unpack(context, packed, NULL, 1, &to), ATTN_ERROR_UNSUPPORTED, "f64");
    size_t size;
    expect(attn_product_packed_size(&size, context, ATTN_PRECISION_F32, ATTN_F32, 0, 4), ATTN_ERROR_SHAPE, "0 x 4");
    expect(attn_product_packed_size(&size, context, ATTN_PRECISION_DEFAULT, ATTN_F32, 4, 4), ATTN_ERROR_ARGUMENT,
           "default");
    expect(attn_product_packed_size(&size, context, ATTN_PRECISION_BF16, ATTN_F64, 4, 4), ATTN_ERROR_UNSUPPORTED,
           "a matrix of f64 cannot be packed for the precision bf16");
    expect(attn_product_packed_size(&size, context, ATTN_PRECISION_INT8, ATTN_F32, 200000, 4), ATTN_ERROR_UNSUPPORTED,
           "200000");
    expect(attn_product_packed_size(&size, context, ATTN_PRECISION_F32, ATTN_F32, (int64_t)1 << 40, (int64_t)1 << 40),
           ATTN_ERROR_SHAPE, "too large");
    free(packed);
    free(other);
    free_trial(&t);
}

static void only_contexts_with_amx_read_slices(void **state)
{
    attn_context *other;
    if (strcmp(attn_context_isa(context), "amx") != 0)
        skip();
    assert_int_equal(attn_context_create(&other, &(attn_context_options){.isa = "avx512"}), ATTN_OK);
    trial t = make_trial(20, 70, 200, 0, ATTN_F32, ATTN_F32, ROWS, COLUMNS, ROWS);
    size_t bytes;
    void *packed = pack(&t, ATTN_PRECISION_F32, &bytes);
    t.p.packed = packed;
    assert_int_equal(attn_multiply(other, &t.p), ATTN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(attn_context_error(other), "pack it again"));
    assert_int_equal(attn_product_pack(other, ATTN_PRECISION_F32, &t.p.b, t.p.k, t.p.n, packed), ATTN_OK);
    run_trial(&t);
    free(packed);
    free_trial(&t);
    attn_context_destroy(other);
}

static void bad_norms_are_refused_in_words(void **state)
{
    float x[12] = {0};
    const attn_row_norm good = {.rows = 3, .n = 4, .x = {x, ATTN_F32, 4, 1, 0}, .y = {x, ATTN_F32, 4, 1, 0}};
#define REFUSED_NORM(change, status, words)                                                                            \
    do {                                                                                                               \
        attn_row_norm t = good;                                                                                        \
        change;                                                                                                        \
        expect(attn_normalize_rows(context, &t), status, words);                                                       \
    } while (0)
    REFUSED_NORM(t.rows = -1, ATTN_ERROR_SHAPE, "-1 rows of 4");
    REFUSED_NORM(t.x.data = NULL, ATTN_ERROR_ARGUMENT, "x has no data");
    REFUSED_NORM(t.y.dtype = ATTN_F64, ATTN_ERROR_UNSUPPORTED, "y is of the type f64");
    REFUSED_NORM(t.dtype = ATTN_I32, ATTN_ERROR_UNSUPPORTED, "gain and bias are of the type i32");
    REFUSED_NORM(t.x.column = 2, ATTN_ERROR_ARGUMENT, "a row of x are 2 apart");
    REFUSED_NORM(t.y.row = 3, ATTN_ERROR_ARGUMENT, "rows of y have 4 elements but are 3 apart");
    REFUSED_NORM(t.reserved[0] = 1, ATTN_ERROR_ARGUMENT, "reserved");
    attn_row_norm empty = {.rows = 0, .n = 4};
    assert_int_equal(attn_normalize_rows(context, &empty), ATTN_OK);
}

RUN_TESTS_IN(begin, end, TEST(products_of_any_layout_equal_loops),
             TEST(bias_activation_factor_and_residual_follow_the_sum), TEST(batches_may_share_matrices),
             TEST(a_bias_in_bf16_has_the_effect_of_its_numbers), TEST(rows_are_normalized_as_by_loops),
             TEST(bad_norms_are_refused_in_words), TEST(bf16_rounds_operands_and_sums_in_f32),
             TEST(packed_matrices_give_the_bits_of_unpacked_ones),
             TEST(packed_f32_matrices_have_the_error_of_multiply_adds),
             TEST(strides_and_types_of_equal_numbers_do_not_change_the_bits),
             TEST(a_failed_packing_leaves_the_matrix_that_was_there),
             TEST(a_number_that_is_not_finite_stays_in_its_row_or_column),
             TEST(packed_matrices_unpack_to_their_numbers), TEST(int8_products_are_near),
             TEST(bad_products_are_refused_in_words), TEST(bad_packed_matrices_are_refused_in_words),
             TEST(only_contexts_with_amx_read_slices))
