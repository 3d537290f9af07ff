/* SPDX-License-Identifier: MIT
 * labels: no-isa amx no-tsan
 *
 * Tests every micro-kernel that this processor can run, including those that the dispatch does not choose. Tiles are
 * whole or partial, numbers are adjacent or strided, k runs over some steps, and there are several panels at once.
 */
#include "support/cmocka.h"

#include "base/bf16.h"
#include "base/rng.h"
#include "gemm/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_K = 200, BEHIND = 77 };

typedef struct operands {
    int64_t rows, columns, k;
    bool along_k; /* true: numbers along k are adjacent; false: numbers along the other axis */
    bool bf16;    /* true: operands of dtype BF16 are stored as bf16 */
    double *a, *b;
    void *a_data, *b_data;
} operands;

static int64_t stride(const operands *o, int64_t n, bool along_k)
{
    return o->along_k == along_k ? 1 : along_k ? n + 1 : o->k + 3;
}

/* Draws a number of the type. Stores it in `data`, and its value in *value. */
static void draw(attn__rng *rng, attn_dtype dtype, bool bf16, void *data, int64_t at, double *value)
{
    double x = attn__rng_normal(rng);
    if (dtype == ATTN_I32) {
        int8_t q = (int8_t)(attn__rng_uniform(rng) < 0.2 ? (x < 0 ? -127 : 127) : lrint(fmax(-127, fmin(127, 60 * x))));
        ((int8_t *)data)[at] = q;
        *value = q;
    } else if (dtype == ATTN_F64) {
        ((double *)data)[at] = *value = x;
    } else {
        float wide = (float)x;
        uint16_t narrow = attn__to_bf16(wide);
        *value = dtype == ATTN_BF16 ? attn__from_bf16(narrow) : wide;
        if (bf16)
            ((uint16_t *)data)[at] = narrow;
        else
            ((float *)data)[at] = wide;
    }
}

static void *matrix(attn__rng *rng, attn_dtype dtype, const operands *o, int64_t n, double *values)
{
    int64_t inner = stride(o, n, true), outer = stride(o, n, false);
    void *data = calloc((size_t)((n - 1) * outer + (o->k - 1) * inner + 1), sizeof(double));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < o->k; k++)
            draw(rng, dtype, o->bf16, data, i * outer + k * inner, &values[i * o->k + k]);
    return data;
}

static char *packed(const attn__gemm_kernel *kernel, const operands *o, bool is_b)
{
    int64_t n = is_b ? o->columns : o->rows, width = is_b ? kernel->columns : kernel->rows;
    int64_t size = is_b ? kernel->b_size : kernel->a_size;
    size_t bytes = (size_t)((n + width - 1) / width * width * ((o->k + kernel->k_step - 1) / kernel->k_step) *
                            kernel->k_step * size);
    size_t slack = is_b ? 0 : ATTN__GEMM_SLACK;
    char *to = malloc(bytes + slack + 1);
    assert_non_null(to);
    memset(to, BEHIND, bytes + slack + 1);
    attn__gemm_pack pack = {.x = is_b ? o->b_data : o->a_data,
                            .outer = stride(o, n, false),
                            .inner = stride(o, n, true),
                            .k = o->k,
                            .n = n,
                            .width = (int)width,
                            .bf16 = o->bf16,
                            .is_b = is_b,
                            .to = to};
    kernel->pack(&pack);
    assert_int_equal(to[bytes + slack], BEHIND);
    return to;
}

static double number_of(attn_dtype dtype, const void *c, int64_t at)
{
    return dtype == ATTN_I32   ? (double)((const int32_t *)c)[at]
           : dtype == ATTN_F64 ? ((const double *)c)[at]
                               : (double)((const float *)c)[at];
}

static void set(attn_dtype dtype, void *c, int64_t at, double value)
{
    if (dtype == ATTN_I32)
        ((int32_t *)c)[at] = (int32_t)value;
    else if (dtype == ATTN_F64)
        ((double *)c)[at] = value;
    else
        ((float *)c)[at] = (float)value;
}

static void multiply(const attn__gemm_kernel *kernel, const operands *o, const char *a, const char *b, void *c,
                     int64_t ldc, int64_t size, bool add)
{
    int64_t k = (o->k + kernel->k_step - 1) / kernel->k_step * kernel->k_step;
    if (kernel->begin)
        kernel->begin();
    for (int64_t i = 0; i < o->rows; i += kernel->rows) {
        for (int64_t j = 0; j < o->columns; j += kernel->columns) {
            attn__gemm_tile tile = {.k = o->k,
                                    .rows = (int)(o->rows - i < kernel->rows ? o->rows - i : kernel->rows),
                                    .columns =
                                        (int)(o->columns - j < kernel->columns ? o->columns - j : kernel->columns),
                                    .a = a + i * k * kernel->a_size,
                                    .b = b + j * k * kernel->b_size,
                                    .ldb = kernel->columns,
                                    .c = (char *)c + (i * ldc + j) * size,
                                    .ldc = ldc,
                                    .add = add};
            kernel->run(&tile);
        }
    }
    if (kernel->end)
        kernel->end();
}

static void try_kernel(const attn__gemm_kernel *kernel, attn_dtype dtype, attn__rng *rng, operands o, bool add)
{
    int64_t ldc = o.columns + 2, size = dtype == ATTN_F64 ? 8 : 4;
    o.a = malloc((size_t)(o.rows * o.k) * sizeof *o.a);
    o.b = malloc((size_t)(o.columns * o.k) * sizeof *o.b);
    void *c = malloc((size_t)(o.rows * ldc * size));
    assert_true(o.a && o.b && c);
    for (int64_t i = 0; i < o.rows * ldc; i++)
        set(dtype, c, i, BEHIND);
    o.a_data = matrix(rng, dtype, &o, o.rows, o.a);
    o.b_data = matrix(rng, dtype, &o, o.columns, o.b);
    char *a = packed(kernel, &o, false), *b = packed(kernel, &o, true);
    multiply(kernel, &o, a, b, c, ldc, size, add);
    for (int64_t i = 0; i < o.rows * ldc; i++) {
        bool inside = i % ldc < o.columns;
        double wanted = add || !inside ? BEHIND : 0, magnitude = wanted;
        for (int64_t k = 0; k < o.k && inside; k++) {
            double product = o.a[i / ldc * o.k + k] * o.b[i % ldc * o.k + k];
            wanted += product;
            magnitude += fabs(product);
        }
        double bound =
            dtype == ATTN_I32 || !inside ? 0 : magnitude * (double)(o.k + 1) * (size == 8 ? 0x1p-53 : 0x1p-24);
        if (!(fabs(number_of(dtype, c, i) - wanted) <= bound))
            fail_msg("%s, extra %d, dtype %d, %lld x %lld x %lld: element %lld is %g, not %g",
                     attn__isa_text(kernel->isa), (int)kernel->needs, (int)dtype, (long long)o.rows,
                     (long long)o.columns, (long long)o.k, (long long)i, number_of(dtype, c, i), wanted);
    }
    free(o.a);
    free(o.b);
    free(o.a_data);
    free(o.b_data);
    free(a);
    free(b);
    free(c);
}

static void try_size(const attn__gemm_kernel *kernel, attn_dtype dtype, attn__rng *rng, int i, int64_t k)
{
    operands o = {.rows = i + 1,
                  .columns = 1 + (i * 7 + k * 5) % (2 * kernel->columns + 1),
                  .k = k,
                  .along_k = k % 3 != 0,
                  .bf16 = dtype == ATTN_BF16 && i % 2};
    try_kernel(kernel, dtype, rng, o, (i + k) % 2);
}

static int try_all(attn_dtype dtype)
{
    attn__rng rng = {.seed = 11};
    attn__isa best = attn__isa_best();
    const attn__gemm_kernel *kernel;
    int count = 0;
    for (; (kernel = attn__gemm_kernel_at(dtype, best, count)); count++) {
        print_message("dtype %d: %s, extra %d\n", (int)dtype, attn__isa_text(kernel->isa), (int)kernel->needs);
        for (int i = 0; i < 2 * kernel->rows + 2; i++) {
            for (int64_t k = 1; k < MOST_K; k += k < 70 ? 1 : 43)
                try_size(kernel, dtype, &rng, i, k);
            try_size(kernel, dtype, &rng, i, kernel->k_block - i % 2);
        }
    }
    return count;
}

static void int8_kernels(void **state)
{
    assert_true(try_all(ATTN_I32) > 0);
}

static void bf16_kernels(void **state)
{
    assert_true(try_all(ATTN_BF16) > 0);
}

static void float_kernels(void **state)
{
    assert_true(try_all(ATTN_F32) > 0);
    assert_true(try_all(ATTN_F64) > 0);
}

RUN_TESTS(TEST(int8_kernels), TEST(bf16_kernels), TEST(float_kernels))
