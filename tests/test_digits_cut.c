/* SPDX-License-Identifier: MIT
 * Rows and columns of f32 numbers become digits: what they stand for, where they stand, and the zeros around them, from
 * arrays that end at guard pages.  Skipped where the machine has no matrix unit. */
#include "support/digits.h"

#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most that the unit is of the largest number: three digits of 127 are 0.99607 * 2^23, so
 * a number just above that and a power of two has the next unit. */
static const double COARSEST = 1 / (0.996 * (1 << 22));
/* The finest unit, whose reciprocal is a float, far below anything that products of floats need. */
static const double FINEST = 0x1p-127;

static int64_t steps_of(int64_t k)
{
    return (k + DEPTH - 1) / DEPTH;
}

static size_t bytes_of(int64_t k)
{
    return (size_t)(steps_of(k) * STEP);
}

static int64_t fixed_point(const int8_t *first)
{
    return (int64_t)first[0] * 65536 + first[TILE] * 256 + first[2 * TILE];
}

static int64_t in_row(const int8_t *row, int64_t k)
{
    return fixed_point(row + k / DEPTH * STEP + k % DEPTH);
}

static int64_t in_column(const int8_t *tiles, int64_t k, int64_t column)
{
    return fixed_point(tiles + k / DEPTH * STEP + k % DEPTH / 4 * DEPTH + column * 4 + k % 4);
}

static bool is_power_of_two(double x)
{
    int exponent;
    return x > 0 && isfinite(x) && frexp(x, &exponent) == 0.5;
}

/* What the last of the digits counts. */
static double last_unit(attn__digits_scale scale)
{
    assert_true(is_power_of_two(scale.unit) && is_power_of_two(scale.cut));
    return scale.unit * 0x1p-16;
}

static void assert_same_scale(attn__digits_scale x, attn__digits_scale y)
{
    assert_true(x.cut == y.cut && x.unit == y.unit && x.fine == y.fine);
}

/* A unit no coarser than 24 bits, with the sign, of the largest number need. */
static void look_at_unit(double unit, double largest)
{
    if (!(unit <= fmax(largest * COARSEST, FINEST)))
        fail_msg("unit %a of numbers up to %a", unit, largest);
}

/* Rounded to the nearest number of units. */
static void look_at_number(double x, double unit, int64_t fixed)
{
    if (!(fabs(x - (double)fixed * unit) <= unit / 2))
        fail_msg("%a became %lld units of %a", x, (long long)fixed, unit);
}

/* Numbers of very different sizes; every size that `kind` asks for. */
static void fill(attn__rng *rng, float *x, int64_t n, int kind)
{
    for (int64_t i = 0; i < n; i++) {
        double normal = attn__rng_normal(rng);
        x[i] = (float)(kind == 0 ? normal : normal * exp2(-30 * attn__rng_uniform(rng)));
        if (kind == 2 && i % 5 == 0)
            x[i] = 0;
    }
}

static void fill_spread(attn__rng *rng, float *spread, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        spread[i] = ldexpf(1, (int)attn__rng_below(rng, 21) - 10);
}

static double largest_of(const float *x, const float *spread, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i] * (spread ? spread[i] : 1)));
    return largest;
}

/* All numbers twice: in a row of few numbers, then, none is too far above the others. */
static attn__digits_scale scale_of_twice(const attn__digits_kernel *kernel, const float *x, const float *spread,
                                         int64_t n)
{
    float *y = floats(2 * n), *spread_y = floats(2 * n);
    for (int64_t i = 0; i < 2 * n; i++) {
        y[i] = x[i % n];
        spread_y[i] = spread ? spread[i % n] : 1;
    }
    attn__digits_scale scale = kernel->scale(y, spread ? spread_y : NULL, 2 * n);
    free_floats(y, 2 * n);
    free_floats(spread_y, 2 * n);
    return scale;
}

/* The last row of tiles, that ends at the guard page; the others stay as they are. */
static void cut_one_row(const attn__digits_kernel *kernel, const float *x, const float *spread, int64_t n)
{
    attn__digits_scale scale = scale_of_twice(kernel, x, spread, n), alone = kernel->scale(x, spread, n);
    double unit = last_unit(scale);
    look_at_unit(unit, largest_of(x, spread, n));
    if (!isnan(alone.unit))
        assert_true(alone.cut == scale.cut && alone.unit == scale.unit);
    int8_t *tiles = guard_alloc(bytes_of(n)), *row = tiles + (SIDE - 1) * DEPTH;
    memset(tiles, 0x55, bytes_of(n));
    kernel->cut(x, spread, scale.cut, n, row);
    for (int64_t i = 0; i < steps_of(n) * DEPTH; i++) {
        if (i < n)
            look_at_number((double)x[i] * (spread ? spread[i] : 1), unit, in_row(row, i));
        else
            assert_true(in_row(row, i) == 0);
    }
    for (int64_t i = 0; i < (int64_t)bytes_of(n); i++)
        if (i % TILE < (SIDE - 1) * DEPTH)
            assert_true(tiles[i] == 0x55);
    guard_free(tiles, bytes_of(n));
}

static void rows_become_digits(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 11};
    for (int64_t n = 1; n <= 130; n++)
        for (int kind = 0; kind < 3; kind++) {
            float *x = floats(n), *spread = floats(n);
            fill(&rng, x, n, kind);
            fill_spread(&rng, spread, n);
            cut_one_row(kernel, x, NULL, n);
            cut_one_row(kernel, x, spread, n);
            free_floats(x, n);
            free_floats(spread, n);
        }
}

/* Just below and above the powers of two and the largest digits, of either sign, in every octave that floats have. */
static void extremes_have_digits(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    static const float sizes[] = {1.0f,     1.0f - 0x1p-24f, 1.0f + 0x1p-23f, 0.99609f,
                                  0.99611f, 0.99607f,        0.9960937f,      0.9960938f,
                                  0.5f,     0.75f,           1.0f - 0x1p-22f, 0.9960785f};
    for (int exponent = -126; exponent <= 127; exponent++)
        for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            float *x = floats(5), size = ldexpf(i % 2 ? -sizes[i / 2] : sizes[i / 2], exponent);
            memcpy(x, (float[]){size, size / 2, size * 0.9999f, -size / 3, size / 1000}, 5 * sizeof *x);
            cut_one_row(kernel, x, NULL, 5);
            x[2] = -size;
            cut_one_row(kernel, x, NULL, 5);
            free_floats(x, 5);
        }
}

static void tiny_numbers_have_digits(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 12};
    for (int exponent = -149; exponent < -90; exponent++) {
        float *x = floats(20), *spread = floats(20);
        for (int i = 0; i < 20; i++) {
            x[i] = ldexpf((float)attn__rng_normal(&rng), exponent);
            spread[i] = i % 2 ? 0.25f : 4.0f;
        }
        cut_one_row(kernel, x, NULL, 20);
        for (int i = 0; i < 20; i++) /* all bits stay, also of subnormal numbers */
            x[i] = x[i] / 4 * 4;
        cut_one_row(kernel, x, spread, 20);
        free_floats(x, 20);
        free_floats(spread, 20);
    }
}

static void zeros_are_zeros(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    for (int64_t n = 1; n <= 70; n++) {
        float *x = floats(n);
        for (int64_t i = 0; i < n; i += 3)
            x[i] = -0.0f;
        attn__digits_scale scale = kernel->scale(x, NULL, n);
        assert_true(isfinite(scale.unit) && isfinite(scale.cut));
        int8_t *tiles = guard_alloc(bytes_of(n));
        memset(tiles, 0x55, bytes_of(n));
        kernel->cut(x, NULL, scale.cut, n, tiles + (SIDE - 1) * DEPTH);
        for (int64_t i = 0; i < steps_of(n) * DEPTH; i++)
            assert_true(in_row(tiles + (SIDE - 1) * DEPTH, i) == 0);
        guard_free(tiles, bytes_of(n));
        free_floats(x, n);
    }
}

/* Scales of one line, taken as a row and as a column between others. */
static void both_units(const attn__digits_kernel *kernel, const float *x, const float *spread, int64_t n, bool some)
{
    enum { COLUMNS = 19, AT = 17 };
    float *matrix = floats(n * COLUMNS);
    for (int64_t i = 0; i < n * COLUMNS; i++)
        matrix[i] = i % COLUMNS == AT ? x[i / COLUMNS] : 1.0f;
    attn__digits_scale scales[COLUMNS], scale = kernel->scale(x, spread, n);
    kernel->scale_columns(&(attn__digits_columns){matrix, COLUMNS, n, COLUMNS, spread, NULL}, scales);
    free_floats(matrix, n * COLUMNS);
    if (isnan(scale.unit) == some || isnan(scales[AT].unit) == some)
        fail_msg("%d numbers: units %g and %g", (int)n, (double)scale.unit, (double)scales[AT].unit);
    if (some)
        assert_same_scale(scale, scales[AT]);
}

/* Numbers of one size and either sign; some are 0, but not number `at`, which is for the caller, nor its neighbour. */
static void fill_evenly(float *x, int64_t n, int64_t at, float size)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (i + n) % 4 == 0 && i != (at + 1) % n ? 0 : i % 2 ? -size : size;
    x[at] = size;
}

static int64_t not_zero(const float *x, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += x[i] != 0;
    return count;
}

static void rows_that_digits_will_not_do(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    static const float none[] = {INFINITY, -INFINITY, NAN, -NAN, FLT_MAX, -FLT_MAX, 3.395e38f};
    for (int64_t n = 2; n <= 70; n++)
        for (int64_t at = 0; at < n; at++) {
            float *x = floats(n);
            fill_evenly(x, n, at, 3);
            both_units(kernel, x, NULL, n, true);
            x[at] = 3 * 1025.0f;
            both_units(kernel, x, NULL, n, not_zero(x, n) < 32);
            x[at] = -3 * 1023.0f;
            both_units(kernel, x, NULL, n, true);
            fill_evenly(x, n, at, 3.37e38f);
            both_units(kernel, x, NULL, n, true);
            x[at] = none[(n + at) % 7];
            both_units(kernel, x, NULL, n, false);
            memset(x, 0, (size_t)n * sizeof *x);
            x[at] = -7; /* there are no others */
            both_units(kernel, x, NULL, n, true);
            free_floats(x, n);
        }
}

static void spread_counts_for_the_unit(void **state)
{
    (void)state;
    enum { N = 40 };
    const attn__digits_kernel *kernel = kernel_or_skip();
    float x[N], spread[N];
    for (int i = 0; i < N; i++)
        x[i] = spread[i] = 1;
    x[3] = 4096;
    both_units(kernel, x, spread, N, false);
    spread[3] = 0x1p-12f;
    both_units(kernel, x, spread, N, true);
    x[3] = 1;
    both_units(kernel, x, spread, N, true);
    spread[0] = 0x1p12f;
    both_units(kernel, x, spread, N, false);
}

/* Twelve times the mean of the others that are not zero. */
static void numbers_far_above_others_are_told(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    static const float times[] = {1, 11.9f, -12.1f, 1000};
    for (int64_t n = 2; n <= 70; n++)
        for (int64_t at = 0; at < n; at++)
            for (int kind = 0; kind < 4; kind++) {
                float *x = floats(n);
                attn__digits_scale column;
                fill_evenly(x, n, at, 0.3f);
                x[at] = 0.3f * times[kind];
                kernel->scale_columns(&(attn__digits_columns){x, 1, n, 1, NULL, NULL}, &column);
                assert_same_scale(kernel->scale(x, NULL, n), column);
                assert_true(column.fine == (kind >= 2));
                free_floats(x, n);
            }
}

/* B's tiles of columns, and the same from A's tiles of the transpose. */
static void cut_some_columns(const attn__digits_kernel *kernel, const attn__digits_columns *from)
{
    attn__digits_scale *scales = malloc((size_t)from->n * sizeof *scales);
    int8_t *tiles = guard_alloc(bytes_of(from->k)), *turned = guard_alloc(bytes_of(from->k));
    float *column = floats(from->k);
    kernel->scale_columns(from, scales);
    memset(tiles, 0x55, bytes_of(from->k));
    for (int64_t c = 0; c < from->n; c++) {
        for (int64_t i = 0; i < from->k; i++)
            column[i] = from->x[i * from->ld + c];
        attn__digits_scale same = kernel->scale(column, from->spread, from->k);
        assert_true(isnan(same.unit) ? isnan(scales[c].unit) : same.unit == scales[c].unit);
        scales[c] = scale_of_twice(kernel, column, from->spread, from->k);
        kernel->cut(column, from->spread, scales[c].cut, from->k, turned + c * DEPTH);
    }
    kernel->cut_columns(from, scales, tiles);
    for (int64_t i = 0; i < steps_of(from->k) * DEPTH; i++)
        for (int64_t c = 0; c < SIDE; c++) {
            int64_t fixed = in_column(tiles, i, c);
            if (i >= from->k || c >= from->n)
                assert_true(fixed == 0);
            else
                look_at_number((double)from->x[i * from->ld + c] * (from->spread ? from->spread[i] : 1),
                               last_unit(scales[c]), fixed);
        }
    kernel->turn(turned, steps_of(from->k) * ATTN__DIGITS);
    assert_memory_equal(tiles, turned, bytes_of(from->k));
    free_floats(column, from->k);
    guard_free(tiles, bytes_of(from->k));
    guard_free(turned, bytes_of(from->k));
    free(scales);
}

static void columns_become_digits(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 13};
    for (int64_t k = 1; k <= 130; k++)
        for (int64_t n = 1; n <= SIDE; n += 1 + k % 3) {
            int64_t ld = n + k % 4, size = (k - 1) * ld + n;
            float *x = floats(size), *spread = floats(k);
            fill(&rng, x, size, (int)(k + n) % 3);
            fill_spread(&rng, spread, k);
            cut_some_columns(kernel, &(attn__digits_columns){x, ld, k, n, NULL, NULL});
            cut_some_columns(kernel, &(attn__digits_columns){x, ld, k, n, spread, NULL});
            free_floats(x, size);
            free_floats(spread, k);
        }
}

static void scales_of_many_columns(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 14};
    for (int64_t n = 1; n <= 130; n++) {
        int64_t k = 1 + n * 7 % 40, ld = n + n % 3, size = (k - 1) * ld + n;
        float *x = floats(size), *column = floats(k);
        fill(&rng, x, size, 0);
        attn__digits_scale *scales = guard_alloc((size_t)n * sizeof *scales);
        kernel->scale_columns(&(attn__digits_columns){x, ld, k, n, NULL, NULL}, scales);
        for (int64_t c = 0; c < n; c++) {
            for (int64_t i = 0; i < k; i++)
                column[i] = x[i * ld + c];
            attn__digits_scale scale = kernel->scale(column, NULL, k);
            assert_true(isnan(scale.unit) == isnan(scales[c].unit));
            if (!isnan(scale.unit))
                assert_same_scale(scale, scales[c]);
        }
        free_floats(x, size);
        free_floats(column, k);
        guard_free(scales, (size_t)n * sizeof *scales);
    }
}

/* Up to 64 columns, spread; their scales are those of the copy. */
static void columns_that_are_looked_at_are_copied(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 16};
    for (int64_t n = 1; n <= ATTN__DIGITS_COPIED; n++) {
        int64_t k = 1 + n * 11 % 50, ld = n + n % 5, size = (k - 1) * ld + n;
        float *x = floats(size), *spread = floats(k), *copy = floats(k * ATTN__DIGITS_COPIED);
        fill(&rng, x, size, 0);
        for (int64_t i = 0; i < k; i++)
            spread[i] = ldexpf(1, (int)(i % 5) * 4);
        attn__digits_scale scales[ATTN__DIGITS_COPIED], again[ATTN__DIGITS_COPIED];
        kernel->scale_columns(&(attn__digits_columns){x, ld, k, n, spread, copy}, scales);
        for (int64_t i = 0; i < k * ATTN__DIGITS_COPIED; i++) {
            int64_t row = i / ATTN__DIGITS_COPIED, column = i % ATTN__DIGITS_COPIED;
            assert_true(copy[i] == (column < n ? x[row * ld + column] * spread[row] : 0));
        }
        kernel->scale_columns(&(attn__digits_columns){copy, ATTN__DIGITS_COPIED, k, n, NULL, NULL}, again);
        for (int64_t i = 0; i < n; i++)
            if (!isnan(scales[i].unit))
                assert_same_scale(scales[i], again[i]);
        free_floats(x, size);
        free_floats(spread, k);
        free_floats(copy, k * ATTN__DIGITS_COPIED);
    }
}

static void tiles_are_transposed(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 15};
    for (int64_t count = 0; count < 8; count++) {
        size_t size = (size_t)(count * TILE);
        int8_t *tiles = guard_alloc(size), *was = malloc(size + 1);
        for (size_t i = 0; i < size; i++)
            tiles[i] = was[i] = (int8_t)(attn__rng_u32(&rng) >> 24);
        kernel->turn(tiles, count);
        for (size_t i = 0; i < size; i++)
            assert_true(tiles[i] == was[i / TILE * TILE + i % DEPTH / 4 * DEPTH + i % TILE / DEPTH * 4 + i % 4]);
        kernel->turn(tiles, count);
        assert_memory_equal(tiles, was, size);
        guard_free(tiles, size);
        free(was);
    }
}

static void exponents_are_summed(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    static const float some[] = {1.0f,  -0.75f,     0.0f, INFINITY, 0x1p-149f, 3e38f,           NAN,
                                 -0.0f, -0x3p-140f, 8.0f, 7.9999f,  -INFINITY, 1.0f - 0x1p-24f, 5e-39f};
    for (int64_t n = 1; n <= 70; n++) {
        float *x = floats(n), *sum = floats(n), *count = floats(n), *most = floats(n);
        float *all = floats(1), *counted = floats(1), *top = floats(1);
        double want = *all = 100, many = *counted = 7, largest = *top = -2;
        int64_t apart = 16 + n % 3 * 8;
        for (int64_t i = 0; i < n; i++) {
            x[i] = some[(i + n) % 14];
            sum[i] = (float)i;
            count[i] = 3;
            most[i] = i % 2 ? -INFINITY : 1;
        }
        kernel->exponents(x, n, sum, count, most);
        kernel->exponents_of_row(x, n, apart, all, counted, top);
        for (int64_t i = 0; i < n; i++) {
            bool counts = isnormal(x[i]);
            double exponent = counts ? floor(log2(fabs((double)x[i]))) : 0;
            assert_true(sum[i] == (double)i + exponent && count[i] == (counts ? 4 : 3));
            double before = i % 2 ? -(double)INFINITY : 1;
            assert_true(most[i] == (counts && exponent > before ? exponent : before));
            counts = counts && i % apart < 16;
            largest = counts && exponent > largest ? exponent : largest;
            want += counts ? exponent : 0;
            many += counts;
        }
        assert_true(*all == want && *counted == many && *top == largest);
        free_floats(x, n);
        free_floats(sum, n);
        free_floats(count, n);
        free_floats(most, n);
        free_floats(all, 1);
        free_floats(counted, 1);
        free_floats(top, 1);
    }
}

static void numbers_are_put(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 16};
    for (int64_t n = 0; n <= 70; n++) {
        float *x = floats(n), *y = floats(n);
        fill(&rng, x, n, 0);
        kernel->put(x, y, n, false);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        fill(&rng, x, n, 0);
        float *was = malloc((size_t)n * sizeof *was + 1);
        memcpy(was, y, (size_t)n * sizeof *was);
        kernel->put(x, y, n, true);
        for (int64_t i = 0; i < n; i++)
            assert_true(y[i] == was[i] + x[i]);
        free(was);
        free_floats(x, n);
        free_floats(y, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_digits),
        cmocka_unit_test(extremes_have_digits),
        cmocka_unit_test(tiny_numbers_have_digits),
        cmocka_unit_test(zeros_are_zeros),
        cmocka_unit_test(rows_that_digits_will_not_do),
        cmocka_unit_test(spread_counts_for_the_unit),
        cmocka_unit_test(columns_become_digits),
        cmocka_unit_test(scales_of_many_columns),
        cmocka_unit_test(columns_that_are_looked_at_are_copied),
        cmocka_unit_test(tiles_are_transposed),
        cmocka_unit_test(exponents_are_summed),
        cmocka_unit_test(numbers_are_put),
        cmocka_unit_test(numbers_far_above_others_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
