/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares the sums of a channel with sums in double, on every instruction set of the machine. The kernel may read only
 * numbers of the channel.
 */
#include "support/cmocka.h"

#include "base/rng.h"
#include "kernels/channel_norm/channel_norm.h"
#include "support/guard.h"

#include <math.h>

/* The kernel adds up to 32 numbers of a lane in f32, and these sums in double. */
static void sums_are_those_of_double(const attn__channel_norm_kernel *kernel, int64_t n)
{
    attn__rng rng = {.seed = (uint64_t)n};
    size_t size = (size_t)n * sizeof(float);
    float *x = guard_alloc(size);
    double want = 0, sizes = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(attn__rng_normal(&rng) * exp(2 * attn__rng_normal(&rng)));
        want += (double)x[i];
        sizes += fabs((double)x[i]);
    }
    double off = fabs(kernel->sum(x, n) - want);
    if (!(off <= 36 * 0x1p-24 * sizes))
        fail_msg("%s: %lld numbers, off by %g of %g", attn__isa_text(kernel->isa), (long long)n, off, sizes);
    if (n > 0) {
        x[n / 2] = NAN;
        assert_true(isnan(kernel->sum(x, n)));
        x[n / 2] = -INFINITY;
        assert_true(kernel->sum(x, n) == -(double)INFINITY);
    }
    guard_free(x, size);
}

/* Checks the sums over one channel's gradients. The numbers of the channel end at a guard page. */
static void slopes_are_those_of_double(const attn__channel_norm_kernel *kernel, int64_t n)
{
    enum { X, DY, FIRST, MEAN, SCALE, ARRAYS };
    attn__rng rng = {.seed = (uint64_t)n};
    float *a[ARRAYS];
    double gain = 1, bias = 2, want_gain = 1, want_bias = 2, gains = 1, biases = 2;
    for (int i = 0; i < ARRAYS; i++) {
        a[i] = guard_alloc((size_t)n * sizeof(float));
        for (int64_t j = 0; j < n; j++)
            a[i][j] = (float)attn__rng_normal(&rng);
    }
    for (int64_t j = 0; j < n; j++) {
        double x = (double)a[X][j], first = (double)a[FIRST][j], mean = (double)a[MEAN][j];
        double factor = (double)a[DY][j] * (double)a[SCALE][j];
        want_gain += factor * (x - first - mean), gains += fabs(factor) * (fabs(x) + fabs(first) + fabs(mean));
        want_bias += (double)a[DY][j], biases += fabs((double)a[DY][j]);
    }
    const attn__channel_norm_args args = {
        .x = a[X], .dy = a[DY], .first = a[FIRST], .mean = a[MEAN], .scale = a[SCALE], .n = n};
    kernel->slopes(&args, &gain, &bias);
    if (!(fabs(gain - want_gain) <= 40 * 0x1p-24 * gains && fabs(bias - want_bias) <= 36 * 0x1p-24 * biases))
        fail_msg("%s: %lld numbers, off by %g of %g and %g of %g", attn__isa_text(kernel->isa), (long long)n,
                 gain - want_gain, gains, bias - want_bias, biases);
    for (int i = 0; i < ARRAYS; i++)
        guard_free(a[i], (size_t)n * sizeof(float));
}

static void sums_match_double_for_all_lengths(void **state)
{
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        if (!attn__isa_runs_here((attn__isa)isa))
            continue;
        const attn__channel_norm_kernel *kernel = attn__channel_norm_for((attn__isa)isa);
        for (int64_t n = 0; n <= 1100; n++) {
            sums_are_those_of_double(kernel, n);
            slopes_are_those_of_double(kernel, n);
        }
    }
}

/* The sum of integers in each run is below 2^24, so nothing is rounded, however many runs there are. */
static void long_sums_are_exact_in_double(void **state)
{
    enum { COUNT = 1 << 20 };
    size_t size = COUNT * sizeof(float);
    float *x = guard_alloc(size);
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = 1024 + (float)(i % 7);
    double want = 0;
    for (int64_t i = 0; i < COUNT; i++)
        want += (double)x[i];
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++)
        if (attn__isa_runs_here((attn__isa)isa))
            assert_true(attn__channel_norm_for((attn__isa)isa)->sum(x, COUNT) == want);
    guard_free(x, size);
}

RUN_TESTS(TEST(sums_match_double_for_all_lengths), TEST(long_sums_are_exact_in_double))
