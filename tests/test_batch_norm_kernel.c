/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares the loops of batch normalization with double, on every instruction set of the machine. Arrays end at guard
 * pages. The results of a channel must not depend on how the channels are divided into calls.
 */
#include "support/cmocka.h"

#include "base/rng.h"
#include "kernels/batch_norm/batch_norm.h"
#include "support/guard.h"

#include <math.h>
#include <string.h>

/* UNITS is the number of roundings that a sum may have: 16 for the numbers of a lane, and the rest for the terms and
 * the sum over lanes. */
enum { CHANNELS = 19, UNITS = 40 };
static const double unit = 0x1p-24;

typedef struct arrays {
    int64_t batch, plane, size;
    float *x, *dy, *y;
    float gain[CHANNELS], bias[CHANNELS], mean[CHANNELS], inverse[CHANNELS], dgain[CHANNELS], dbias[CHANNELS];
    double sums[2 * CHANNELS];
} arrays;

static float *random_numbers(int64_t n, double middle, uint64_t seed)
{
    attn__rng rng = {.seed = seed};
    float *x = guard_alloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        double u = 3 * attn__rng_uniform(&rng) - 1.5;
        x[i] = (float)(middle + u * u * u);
    }
    return x;
}

static arrays make(int64_t batch, int64_t plane, double middle)
{
    arrays a = {.batch = batch, .plane = plane, .size = batch * CHANNELS * plane};
    a.x = random_numbers(a.size, middle, 1);
    a.dy = random_numbers(a.size, 0.5, 2);
    a.y = random_numbers(a.size, 0, 3);
    for (int c = 0; c < CHANNELS; c++) {
        a.gain[c] = 0.5F + (float)c / 8, a.bias[c] = (float)c / 4 - 2;
        a.mean[c] = (float)middle + (float)c / 16, a.inverse[c] = 1 / (1 + (float)c / 4);
        a.dgain[c] = (float)c, a.dbias[c] = -(float)c;
    }
    return a;
}

static void release(arrays *a)
{
    guard_free(a->x, (size_t)a->size * sizeof(float));
    guard_free(a->dy, (size_t)a->size * sizeof(float));
    guard_free(a->y, (size_t)a->size * sizeof(float));
}

static attn__batch_norm_args args_of(arrays *a)
{
    return (attn__batch_norm_args){.batch = a->batch,
                                   .channels = CHANNELS,
                                   .plane = a->plane,
                                   .x = a->x,
                                   .dy = a->dy,
                                   .y = a->y,
                                   .gain = a->gain,
                                   .bias = a->bias,
                                   .mean = a->mean,
                                   .inverse = a->inverse,
                                   .dgain = a->dgain,
                                   .dbias = a->dbias,
                                   .sums = a->sums,
                                   .whole = 3 * (double)(a->batch * a->plane) + 1};
}

static int64_t place(const arrays *a, int64_t c, int64_t i)
{
    return (i / a->plane * CHANNELS + c) * a->plane + i % a->plane;
}

static void near(const attn__batch_norm_kernel *kernel, const arrays *a, const char *what, double got, double want,
                 double off)
{
    if (!(fabs(got - want) <= off))
        fail_msg("%s: %s of %lld planes of %lld numbers is %.9g, wanted %.9g within %.3g", attn__isa_text(kernel->isa),
                 what, (long long)a->batch, (long long)a->plane, got, want, off);
}

static void statistics_are_right(const attn__batch_norm_kernel *kernel, arrays *a)
{
    attn__batch_norm_args args = args_of(a);
    kernel->statistics(&args, 0, CHANNELS);
    int64_t n = a->batch * a->plane;
    double per = n ? 1 / (double)n : 0;
    for (int64_t c = 0; c < CHANNELS; c++) {
        double mean = 0, variance = 0, distance = 0;
        for (int64_t i = 0; i < n; i++)
            mean += (double)a->x[place(a, c, i)] * per;
        for (int64_t i = 0; i < n; i++) {
            double d = (double)a->x[place(a, c, i)] - mean;
            variance += d * d * per;
            distance += fabs(d) * per;
        }
        near(kernel, a, "the mean", (double)a->mean[c], mean, unit * (2 * fabs(mean) + UNITS * distance));
        near(kernel, a, "the variance", (double)a->inverse[c], variance, unit * UNITS * variance);
    }
}

static void results_are_right(const attn__batch_norm_kernel *kernel, arrays *a)
{
    attn__batch_norm_args args = args_of(a);
    kernel->normalize(&args, 0, CHANNELS);
    for (int64_t c = 0; c < CHANNELS; c++) {
        for (int64_t i = 0; i < a->batch * a->plane; i++) {
            double d = ((double)a->x[place(a, c, i)] - (double)a->mean[c]) * (double)(a->inverse[c] * a->gain[c]);
            near(kernel, a, "a result", (double)a->y[place(a, c, i)], d + (double)a->bias[c],
                 unit * (4 * fabs(d) + 2 * fabs((double)a->bias[c])));
        }
    }
    float *before = random_numbers(a->size, 0, 4);
    if (a->size)
        memcpy(before, a->y, (size_t)a->size * sizeof *before);
    kernel->add_bias(&args, 0, CHANNELS);
    for (int64_t i = 0; i < a->size; i++)
        assert_true(a->y[i] == before[i] + a->bias[i / a->plane % CHANNELS]);
    guard_free(before, (size_t)a->size * sizeof *before);
}

static void slopes_are_right(const attn__batch_norm_kernel *kernel, arrays *a)
{
    attn__batch_norm_args args = args_of(a);
    args.add_gain = true;
    kernel->slopes(&args, 0, CHANNELS);
    for (int64_t c = 0; c < CHANNELS; c++) {
        double sum = 0, product = 0, size = 0, product_size = 0;
        for (int64_t i = 0; i < a->batch * a->plane; i++) {
            double dy = (double)a->dy[place(a, c, i)];
            double x = ((double)a->x[place(a, c, i)] - (double)a->mean[c]) * (double)a->inverse[c];
            sum += dy, size += fabs(dy);
            product += dy * x, product_size += fabs(dy * x);
        }
        near(kernel, a, "the sum of dy", a->sums[2 * c], sum, UNITS * unit * size);
        near(kernel, a, "the sum of dy x", a->sums[2 * c + 1], product, UNITS * unit * product_size);
        near(kernel, a, "dbias", (double)a->dbias[c], a->sums[2 * c], unit * fabs(sum) * 2);
        near(kernel, a, "dgain", (double)a->dgain[c], a->sums[2 * c + 1] + (double)c,
             2 * unit * (fabs(product) + (double)c));
    }
}

static void gradients_are_right(const attn__batch_norm_kernel *kernel, arrays *a, bool moving, bool add)
{
    attn__batch_norm_args args = args_of(a);
    args.moving = moving, args.add = add;
    float *before = random_numbers(a->size, 0, 4);
    if (a->size)
        memcpy(before, a->y, (size_t)a->size * sizeof *before);
    kernel->backward(&args, 0, CHANNELS);
    for (int64_t c = 0; c < CHANNELS; c++) {
        double scale = (double)a->inverse[c] * (double)a->gain[c];
        double level = moving ? scale * a->sums[2 * c] / args.whole : 0;
        double bend = moving ? scale * (double)a->inverse[c] * a->sums[2 * c + 1] / args.whole : 0;
        for (int64_t i = 0; i < a->batch * a->plane; i++) {
            int64_t at = place(a, c, i);
            double dy = scale * (double)a->dy[at], d = bend * ((double)a->x[at] - (double)a->mean[c]);
            double old = add ? (double)before[at] : 0;
            near(kernel, a, "a gradient", (double)a->y[at], dy - level - d + old,
                 8 * unit * (fabs(dy) + fabs(level) + fabs(d) + fabs(old)));
        }
    }
    guard_free(before, (size_t)a->size * sizeof *before);
}

/* Runs the kernels for channels [0, cut) and then for the rest. The results must be the same as from a single run. */
static void cuts_do_not_matter(const attn__batch_norm_kernel *kernel, int64_t batch, int64_t plane)
{
    attn__batch_norm_run *const runs[] = {kernel->statistics, kernel->normalize, kernel->slopes, kernel->backward,
                                          kernel->add_bias};
    for (int64_t cut = 1; cut < CHANNELS; cut += 9) {
        arrays a = make(batch, plane, 1), b = make(batch, plane, 1);
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
            attn__batch_norm_args whole = args_of(&a), parts = args_of(&b);
            whole.moving = parts.moving = true;
            runs[r](&whole, 0, CHANNELS);
            runs[r](&parts, 0, cut);
            runs[r](&parts, cut, CHANNELS);
            if (a.size)
                assert_memory_equal(a.y, b.y, (size_t)a.size * sizeof(float));
            assert_memory_equal(a.mean, b.mean, sizeof a.mean);
            assert_memory_equal(a.inverse, b.inverse, sizeof a.inverse);
            assert_memory_equal(a.dgain, b.dgain, sizeof a.dgain);
            assert_memory_equal(a.sums, b.sums, sizeof a.sums);
        }
        release(&a);
        release(&b);
    }
}

/* A value that is not finite changes only its own channel. */
static void what_is_no_number_goes_through(const attn__batch_norm_kernel *kernel, int64_t batch, int64_t plane)
{
    enum { BAD = 7 };
    int64_t step = batch * plane / 3 + 1;
    for (int64_t i = 0; i < batch * plane; i += step) {
        for (int is_nan = 0; is_nan < 2; is_nan++) {
            arrays a = make(batch, plane, 1);
            attn__batch_norm_args args = args_of(&a);
            a.dy[place(&a, BAD, i)] = a.x[place(&a, BAD, i)] = is_nan ? NAN : -INFINITY;
            kernel->normalize(&args, 0, CHANNELS);
            for (int64_t j = 0; j < a.size; j++)
                assert_true(isfinite(a.y[j]) == (j != place(&a, BAD, i)));
            kernel->slopes(&args, 0, CHANNELS);
            kernel->backward(&args, 0, CHANNELS);
            assert_true(isnan(a.y[place(&a, BAD, i)])); /* infinity times a slope of 0 is also NaN */
            kernel->statistics(&args, 0, CHANNELS);
            for (int c = 0; c < CHANNELS; c++) {
                assert_true(isfinite(a.mean[c]) == (c != BAD) && isfinite(a.inverse[c]) == (c != BAD));
                assert_true(isfinite(a.dgain[c]) == (c != BAD) && isfinite(a.dbias[c]) == (c != BAD));
            }
            assert_true(is_nan ? isnan(a.mean[BAD]) : a.mean[BAD] == -INFINITY);
            assert_true(isnan(a.inverse[BAD]));
            assert_true(is_nan ? isnan(a.dbias[BAD]) : a.dbias[BAD] == -INFINITY);
            assert_true(is_nan ? isnan(a.dgain[BAD]) : a.dgain[BAD] == INFINITY);
            release(&a);
        }
    }
}

static const int64_t planes[] = {0, 1, 2, 3, 4, 8, 9, 15, 16, 17, 49, 1000}, batches[] = {0, 1, 3, 37};

typedef void for_sizes(const attn__batch_norm_kernel *kernel, int64_t batch, int64_t plane);

static void for_all(for_sizes *check)
{
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        if (!attn__isa_runs_here((attn__isa)isa))
            continue;
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            for (size_t p = 0; p < sizeof planes / sizeof *planes; p++)
                if (batches[b] * planes[p] <= 2000)
                    check(attn__batch_norm_for(false, (attn__isa)isa), batches[b], planes[p]);
    }
}

static void are_right(const attn__batch_norm_kernel *kernel, int64_t batch, int64_t plane)
{
    for (double middle = 0; middle <= 1000; middle += 1000) {
        arrays a = make(batch, plane, middle);
        results_are_right(kernel, &a);
        slopes_are_right(kernel, &a);
        for (int way = 0; way < 4; way++)
            gradients_are_right(kernel, &a, way & 1, way & 2);
        statistics_are_right(kernel, &a);
        release(&a);
    }
}

static void all_sizes_are_right(void **state)
{
    for_all(are_right);
}

static void all_cuts_give_the_same_bits(void **state)
{
    for_all(cuts_do_not_matter);
}

static void infinities_and_nan_stay_in_their_channel(void **state)
{
    for_all(what_is_no_number_goes_through);
}

RUN_TESTS(TEST(all_sizes_are_right), TEST(all_cuts_give_the_same_bits), TEST(infinities_and_nan_stay_in_their_channel))
