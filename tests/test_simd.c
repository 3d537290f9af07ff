/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the vector operations of every instruction set of the machine, by small functions that are compiled for each:
 * the error of the exponential over all magnitudes, conversions, transposes, and selection of lanes.
 */
#include "support/cmocka.h"

#include "support/simd_probe.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOUND 2 /* the bound that simd/exp.h states, in ulps */

static const simd_probe *next_probe(int *i)
{
    while (simd_probes[*i] && !attn__isa_runs_here(simd_probes[*i]->isa))
        ++*i;
    return simd_probes[*i] ? simd_probes[(*i)++] : NULL;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns the distance of `got` from the exact value, in units in the last place. `got` must be exactly 0 if the
 * exact value is below 2^-126. */
static double ulps(float got, float x)
{
    double want = x < -126 ? 0 : exp2((double)x);
    float rounded = (float)want;
    if (got == rounded || (isnan(got) && isnan(rounded)))
        return 0;
    if (!isfinite(got) || !isfinite(rounded))
        return INFINITY;
    int exponent;
    frexp((double)rounded, &exponent);
    return fabs((double)got - want) / ldexp(1, exponent - 24);
}

/* Tests every 997th float of either sign. They include all exponents with many fractions, NaN and infinities. */
static void exp2_is_within_its_bound(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        double worst = 0;
        for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 997 * 64) {
            float x[64], y[64];
            for (int j = 0; j < 64; j++)
                x[j] = float_of((uint32_t)(bits + 997 * (uint64_t)j));
            probe->exp2(x, y, 64);
            for (int j = 0; j < 64; j++) {
                double error = ulps(y[j], x[j]);
                if (!(error <= BOUND))
                    fail_msg("%s: 2^%a is %a, %g ulps off", attn__isa_text(probe->isa), (double)x[j], (double)y[j],
                             error);
                worst = error > worst ? error : worst;
            }
        }
        /* Tests the range of softmax, -40 to 0, densely. */
        for (int j = 0; j < 1 << 20; j += 64) {
            float x[64], y[64];
            for (int k = 0; k < 64; k++)
                x[k] = -40.0f * (float)(j + k) / (float)(1 << 20);
            probe->exp2(x, y, 64);
            for (int k = 0; k < 64; k++)
                worst = fmax(worst, ulps(y[k], x[k]));
        }
        print_message("  %s: worst %.3f ulps\n", attn__isa_text(probe->isa), worst);
        assert_true(worst <= BOUND);
    }
}

static void exp2_is_right_at_the_edges(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        const float below = nextafterf(-126, -INFINITY);
        float x[16] = {0,    -INFINITY, INFINITY, NAN,    1,     -1,    127,    128,
                       -126, below,     -149,     -1e30f, 1e30f, -0.0f, 1e-30f, -3};
        float y[16];
        const float want[16] = {1,         0, INFINITY, NAN, 2,        0.5f, 0x1p127f, INFINITY,
                                0x1p-126f, 0, 0,        0,   INFINITY, 1,    1,        0.125f};
        probe->exp2(x, y, 16);
        for (int j = 0; j < 16; j++)
            if (!(y[j] == want[j] || (isnan(y[j]) && isnan(want[j]))))
                fail_msg("%s: 2^%g is %g", attn__isa_text(probe->isa), (double)x[j], (double)y[j]);
    }
}

/* Powers must not underflow, because this takes many cycles, on some processors hundreds. */
static void powers_of_small_scores_do_not_underflow(void **state)
{
    const float small[8] = {-INFINITY, -1e6f, -126.5f, -127, -140.25f, -149, -150, -200};
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        float x[16], y[16], power[16], any[16];
        for (int j = 0; j < 16; j++)
            x[j] = j % 2 ? small[j / 2] : -(float)j;
        feclearexcept(FE_ALL_EXCEPT);
        probe->exp2(x, y, 16);
        if (fetestexcept(FE_UNDERFLOW | FE_INVALID))
            fail_msg("%s: the power of a small score underflows", attn__isa_text(probe->isa));
        probe->power(x, 0, power, any, 16);
        for (int j = 0; j < 16; j++)
            assert_true(y[j] == (j % 2 ? 0 : ldexpf(1, -j)) && any[j] == y[j]);
    }
}

/* Near 2^-126, a product is 0 or the rounded exact product. */
static void small_products_are_zero(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        feclearexcept(FE_ALL_EXCEPT);
        for (int bits = 0; bits < 1 << 16; bits += 16) {
            float a[16], b[16], y[16];
            for (int j = 0; j < 16; j++) { /* all pairs of 7-bit fractions, with products from 2^-129 to 2^-122 */
                int n = bits + j, e = n >> 14;
                a[j] = ldexpf(1 + (float)(n & 127) / 128, -126 + 40 * e);
                b[j] = ldexpf(1 + (float)(n >> 7 & 127) / 128, -40 * e + j % 5 - 2) * (j % 2 ? 1.0f : -1.0f);
            }
            probe->mul_normal(a, b, y, 16);
            for (int j = 0; j < 16; j++) {
                double exact = (double)a[j] * (double)b[j];
                if (y[j] == 0 ? fabs(exact) >= 0x1.2p-126 : y[j] != (float)exact || fabs(exact) < 0x1p-126)
                    fail_msg("%s: %a times %a is %a", attn__isa_text(probe->isa), (double)a[j], (double)b[j],
                             (double)y[j]);
            }
        }
        assert_false(fetestexcept(FE_UNDERFLOW));
    }
}

static void products_keep_infinity_and_nan(void **state)
{
    const float nan = -NAN, big = 0x1p127f;
    const float a[16] = {1, 1, nan, nan, NAN, 0, 0, 0x1p-126f, 0x1p-126f, 1, 2, 2, 0, 0x1p-126f, 0, 1};
    const float b[16] = {INFINITY, nan, 1,    1e-30f, 0,    INFINITY, nan, -INFINITY,
                         big,      big, -big, NAN,    -big, NAN,      0,   0x1p-126f};
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        float y[16];
        probe->mul_normal(a, b, y, 16);
        for (int j = 0; j < 16; j++)
            assert_true(y[j] == a[j] * b[j] || (isnan(y[j]) && isnan(a[j] * b[j])));
    }
}

static float power_error(const simd_probe *probe, float low, float m)
{
    double worst = 0;
    for (int j = 0; j < 1 << 16; j += 64) {
        float x[64], y[64], any[64];
        for (int k = 0; k < 64; k++)
            x[k] = m + low * (float)(j + k) / (float)(1 << 16);
        probe->power(x, m, y, any, 64);
        for (int k = 0; k < 64; k++) {
            double want = exp2((double)x[k] - (double)m);
            int exponent;
            frexp(want, &exponent);
            worst = fmax(worst, fabs((double)y[k] - want) / ldexp(1, exponent - 24));
            assert_true(y[k] == any[k]);
        }
    }
    return (float)worst;
}

/* Tests powers below a reference whose results are normal numbers. References are small or large, of either sign. */
static void powers_below_a_reference_are_within_their_bound(void **state)
{
    const float references[] = {0, 1, 7, 24, 50, -3, -40, 1000, -1000, 30000};
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        float worst = 0;
        for (size_t r = 0; r < sizeof references / sizeof *references; r++)
            worst = fmaxf(worst, power_error(probe, -118, references[r]));
        print_message("  %s: worst %.3f ulps\n", attn__isa_text(probe->isa), (double)worst);
        assert_true(worst <= BOUND);
    }
}

static void powers_of_anything_are_right_at_the_edges(void **state)
{
    const float x[16] = {5, 4, -INFINITY, NAN, -121, -121.25f, -160, -1e30f, 0, 1, 2, 3, -1, -2, -3, -4};
    const float below[16] = {1,       0.5f,    0,       NAN,     0x1p-126f, 0,       0,       0,
                             0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-6f,   0x1p-7f, 0x1p-8f, 0x1p-9f};
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        float y[16], any[16], huge[16], far[16];
        probe->power(x, 5, y, any, 16);
        for (int j = 0; j < 16; j++) {
            assert_true(any[j] == below[j] || (isnan(any[j]) && isnan(below[j])));
            huge[j] = 1e8f - 8.0f * (float)j;
        }
        probe->power(huge, 1e8f, y, far, 16);
        for (int j = 0; j < 16; j++)
            assert_true(far[j] == ldexpf(1, -8 * j));
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 16 * 4099) {
            float x[16], back[16];
            uint16_t y[16];
            for (int j = 0; j < 16; j++)
                x[j] = float_of((uint32_t)(bits + 4099 * (uint64_t)j));
            probe->to_bf16(x, y, 16);
            probe->from_bf16(y, back, 16);
            for (int j = 0; j < 16; j++) {
                uint32_t b;
                memcpy(&b, &x[j], sizeof b);
                uint32_t want = isnan(x[j]) ? (b | 0x400000) >> 16 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
                assert_int_equal(y[j], want & 0xffff);
                assert_true(back[j] == float_of(want << 16) || isnan(back[j]));
            }
        }
    }
}

static void transposes_and_parts(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        int n = probe->lanes;
        float x[256], y[256], part[16];
        for (int j = 0; j < n * n; j++)
            x[j] = (float)j;
        probe->transpose(x, y);
        for (int r = 0; r < n; r++)
            for (int c = 0; c < n; c++)
                assert_true(y[r * n + c] == x[c * n + r]);
        for (int k = 0; k <= n; k++) {
            memset(part, 0x7f, sizeof part);
            probe->copy_part(x + 1, part, k);
            for (int j = 0; j < n; j++) {
                float untouched;
                memset(&untouched, 0x7f, sizeof untouched);
                assert_true(part[j] == (j < k ? x[1 + j] : untouched));
            }
        }
    }
}

/* The order of the additions is the same on every instruction set with as many lanes. */
static void sums_of_several_vectors_add_halves_to_halves(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        int n = probe->lanes;
        float x[256], y[16], lane[16];
        for (int j = 0; j < n * n; j++)
            x[j] = ldexpf((float)((j * 37) % 101) - 50, j * 5 % 29);
        probe->sums(x, y);
        for (int r = 0; r < n; r++) {
            memcpy(lane, x + r * n, sizeof *lane * (size_t)n);
            for (int half = n / 2; half > 0; half /= 2)
                for (int c = 0; c < half; c++)
                    lane[c] += lane[c + half];
            assert_true(y[r] == lane[0]);
        }
    }
}

static void folds_and_choices(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        float x[16], y[16], sum, most;
        for (int j = 0; j < 16; j++)
            x[j] = (float)((j * 7) % 16) - 3.5f;
        probe->fold(x, &sum, &most);
        float want_sum = 0, want_most = -100;
        for (int j = 0; j < probe->lanes; j++) {
            want_sum += x[j];
            want_most = x[j] > want_most ? x[j] : want_most;
        }
        assert_true(sum == want_sum && most == want_most);
        probe->choose(x, y); /* choose() computes floor(x) for negative x, and otherwise |x - 2|. */
        for (int j = 0; j < probe->lanes; j++)
            assert_true(y[j] == (x[j] < 0 ? floorf(x[j]) : fabsf(x[j] - 2)));
    }
}

static void integers_wrap_and_compare(void **state)
{
    const simd_probe *probe;
    for (int i = 0; (probe = next_probe(&i));) {
        uint32_t x[16], y[16];
        for (uint32_t j = 0; j < 16; j++)
            x[j] = j * 0x9e3779b9u + 5;
        probe->hash(x, y);
        for (int j = 0; j < probe->lanes; j++) {
            uint32_t h = (x[j] ^ x[j] >> 16) * 0x7feb352du;
            h = (h << 3) + (h & 0xff) - 7;
            assert_int_equal(y[j], h < 0x80000001u ? h : 0);
        }
    }
}

RUN_TESTS(TEST(exp2_is_within_its_bound), TEST(exp2_is_right_at_the_edges),
          TEST(powers_of_small_scores_do_not_underflow), TEST(small_products_are_zero),
          TEST(products_keep_infinity_and_nan), TEST(powers_below_a_reference_are_within_their_bound),
          TEST(powers_of_anything_are_right_at_the_edges), TEST(bf16_rounds_to_nearest_even),
          TEST(transposes_and_parts), TEST(sums_of_several_vectors_add_halves_to_halves), TEST(folds_and_choices),
          TEST(integers_wrap_and_compare))
