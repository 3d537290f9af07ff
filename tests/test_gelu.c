/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares f32 GELU, x * Phi(x), and its slope with double, on every instruction set of the machine. Numbers are dense
 * where the function bends, and include huge, tiny, infinite and NaN numbers.
 */
#include "support/cmocka.h"

#include "kernels/elementwise/elementwise.h"
#include "support/guard.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { PER_UNIT = 1 << 16, EDGE = 8, DENSE = 2 * EDGE * PER_UNIT + 1 };

/* Error bounds relative to max(|x|, 1). Rounding Phi, which is between 1/2 and 1, and the product costs 9e-8 in any
 * method in f32. The rest is the error of Phi itself: 1.7e-8 if it is looked up, and otherwise half of erf's error
 * and the rounding of erf's argument. */
static const double LOOKED_UP = 1.07e-7, BY_ERF = 1.4e-7;
static const double SLOPE_BOUND = 3e-7;

static double phi(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}

static double value_of(double x)
{
    return x * phi(x);
}

static double slope_of(double x)
{
    return phi(x) + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1));
}

/* Values and slopes for some numbers, and the error bound of the values. */
typedef struct results {
    const float *x, *value, *slope;
    int64_t n;
    double bound;
    const char *isa;
} results;

typedef void check(const results *of);

/* Computes values and slopes of n numbers on each instruction set of the machine, and passes them to `see`. */
static void with_each_isa(const float *x, int64_t n, check *see)
{
    size_t size = (size_t)n * sizeof(float);
    float *value = guard_alloc(size), *slope = guard_alloc(size), *one = guard_alloc(size);
    for (int64_t i = 0; i < n; i++)
        one[i] = 1;
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        if (!attn__isa_runs_here((attn__isa)isa))
            continue;
        const attn__elementwise_table *table = attn__elementwise_for(false, (attn__isa)isa);
        attn__elementwise_args args = {.x = x, .y = value, .kind = ATTN__ACT_GELU_ERF};
        table->run[ATTN__ELEMENTWISE_ACTIVATE](&args, 0, n);
        args = (attn__elementwise_args){.x = one, .x2 = x, .y = slope, .kind = ATTN__ACT_GELU_ERF};
        table->run[ATTN__ELEMENTWISE_ACTIVATE_BACKWARD](&args, 0, n);
        see(&(results){x, value, slope, n, table->isa >= ATTN_ISA_AVX2 ? LOOKED_UP : BY_ERF,
                       attn__isa_text((attn__isa)isa)});
    }
    guard_free(value, size);
    guard_free(slope, size);
    guard_free(one, size);
}

static void within_bounds(const results *of)
{
    for (int64_t i = 0; i < of->n; i++) {
        double x = of->x[i], value = of->value[i], slope = of->slope[i], off = fabs(value - value_of(x));
        if (!(off <= of->bound * fmax(1, fabs(x))))
            fail_msg("%s: GELU(%.9g) is %.9g, off by %g", of->isa, x, value, off);
        off = fabs(slope - slope_of(x));
        if (!(off <= SLOPE_BOUND))
            fail_msg("%s: GELU'(%.9g) is %.9g, off by %g", of->isa, x, slope, off);
    }
}

static void gelu_is_within_its_bounds_from_minus_8_to_8(void **state)
{
    size_t size = DENSE * sizeof(float);
    float *x = guard_alloc(size);
    for (int i = 0; i < DENSE; i++)
        x[i] = (float)(i - EDGE * PER_UNIT) / PER_UNIT;
    with_each_isa(x, DENSE, within_bounds);
    for (int i = 0; i < DENSE; i++)
        x[i] = nextafterf(x[i] * 1.0000123f, i % 2 ? 9.0f : -9.0f);
    with_each_isa(x, DENSE, within_bounds);
    guard_free(x, size);
}

/* Tests every power of two and its neighbours, from the smallest subnormal number to the largest number. */
static void all_sizes_are_exact(void **state)
{
    enum { FIRST = -149, COUNT = 6 * (128 - FIRST) };
    size_t size = (COUNT + 3) * sizeof(float);
    float *x = guard_alloc(size);
    for (int i = 0; i < COUNT; i++) {
        float power = ldexpf(i % 2 ? -1.0f : 1.0f, i / 6 + FIRST);
        x[i] = i % 6 < 2 ? power : nextafterf(power, i % 6 < 4 ? 0.0f : power * 2);
    }
    x[COUNT] = FLT_MAX;
    x[COUNT + 1] = -FLT_MAX;
    x[COUNT + 2] = 0;
    with_each_isa(x, COUNT + 3, within_bounds);
    guard_free(x, size);
}

/* Checks that the value is between 0 and x, even where Phi is almost 0 or 1. */
static void signs_are_kept(const results *of)
{
    for (int64_t i = 0; i < of->n; i++) {
        float x = of->x[i], value = of->value[i];
        if (!(x < 0 ? value <= 0 : value >= 0) || fabsf(value) > fabsf(x))
            fail_msg("%s: GELU(%.9g) is %.9g", of->isa, (double)x, (double)value);
    }
}

static void gelu_has_the_sign_of_x_and_is_no_larger(void **state)
{
    enum { COUNT = 40 * 4096 };
    size_t size = COUNT * sizeof(float);
    float *x = guard_alloc(size);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i - COUNT / 2) / 4096;
    with_each_isa(x, COUNT, signs_are_kept);
    guard_free(x, size);
}

static void not_finite_is_passed_on(const results *of)
{
    for (int64_t i = 0; i < of->n; i++) {
        float x = of->x[i], value = of->value[i];
        if (isnan(x))
            assert_true(isnan(value) && isnan(of->slope[i]));
        else if (x == INFINITY)
            assert_true(value == INFINITY);
        else if (x == -INFINITY) /* The formula gives -inf * 0 = NaN, but the limit is 0. */
            assert_true(isnan(value) || value == 0);
        else
            assert_true(fabs((double)value - value_of((double)x)) <= of->bound);
    }
}

/* Puts infinity or NaN into each lane of whole and partial vectors, between ordinary numbers. */
static void infinity_and_nan_follow_the_reference(void **state)
{
    for (int64_t n = 1; n <= 35; n++) {
        size_t size = (size_t)n * sizeof(float);
        float *x = guard_alloc(size);
        for (int64_t i = 0; i < n; i++)
            x[i] = (const float[]){0.7f, INFINITY, -0.3f, NAN, 1.0f, -INFINITY, -1.0f}[(i + n) % 7];
        with_each_isa(x, n, not_finite_is_passed_on);
        guard_free(x, size);
    }
}

RUN_TESTS(TEST(gelu_is_within_its_bounds_from_minus_8_to_8), TEST(all_sizes_are_exact),
          TEST(gelu_has_the_sign_of_x_and_is_no_larger), TEST(infinity_and_nan_follow_the_reference))
