/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 * Tests the error bound of f32 products on the instruction set that ATTN_ISA names: the error of an element that sums k
 * terms a b is at most k 2^-24 sum |a| |b|. Infinity and NaN spread as in the exact sum. The products are matrix
 * products, convolutions, and linear layers with and without packed weights. Their gradients are tested too. The named
 * cases broke an implementation that rescaled or sampled its operands. The other cases are drawn at random.
 *
 *     ATTN_HOSTILE=CASE           runs one case, in the form that a failure prints
 *     ATTN_HOSTILE_SEED=N         selects other random cases
 *     ATTN_HOSTILE_PERCENT=P      scales the number of random cases; the default is 100
 */
#include "support/cmocka.h"
#include "support/hostile.h"
#include "support/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMALL_CASES = 3000, LARGE_CASES = 120, MOST_LINES = 10 };

typedef struct run {
    attn_context *context;
    attn_tape *tape;
    int failures, cases;
    double share; /* largest error, divided by its bound */
} run;

static void try_case(run *r, const hostile_case *c)
{
    hostile_report report;
    r->cases++;
    if (!hostile_run(r->tape, c, &report) && r->failures++ < MOST_LINES) {
        char text[HOSTILE_TEXT];
        hostile_print(c, text);
        print_error("ATTN_ISA=%s ATTN_HOSTILE=%s  %lld elements, %s\n", attn_context_isa(r->context), text,
                    (long long)report.broken, report.first);
    }
    r->share = report.share > r->share ? report.share : r->share;
}

static void end_run(const run *r, const char *what)
{
    print_message("%s: %d cases on %s, at worst %.3g of the bound\n", what, r->cases, attn_context_isa(r->context),
                  r->share);
    if (r->failures)
        fail_msg("%d of %d cases break the promise", r->failures, r->cases);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static int set_up(void **state)
{
    static run r;
    r = (run){.context = test_context()};
    *state = &r;
    return attn_tape_create(&r.tape, r.context) == ATTN_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    run *r = *state;
    attn_tape_destroy(r->tape);
    attn_context_destroy(r->context);
    return 0;
}

/* -------------------------------------------------------------------------------------------- by name */

/* Each case runs with four seeds, which change factors (1e-2 to 1e-8), sizes of outliers, and indices. A case ends with
 * numbers. For a product, they are batch, m, n, k, bias, transpose of a, transpose of b, shared b, twice. For a
 * convolution, they are the number of axes, batch, channels, outputs, groups, three numbers each for size, kernel,
 * stride and padding, and bias. */
static const char *const named[] = {
    /* every fourth output has small numbers at the k from which a solver that rescales rows computes its scale */
    "linear:interleaved:forward:0:%d:1,197,256,384,0,0,0,0,0",
    "linear:interleaved:forward:0:%d:1,512,257,384,1,0,0,0,0",
    "matmul:interleaved:forward:0:%d:1,256,256,384,0,0,0,1,0",
    "linear:sampled:forward:0:%d:1,256,768,768,0,0,0,0,0",
    "linear:sampled:dx:0:%d:1,256,256,512,0,0,0,0,0",
    "linear:sampled:dw:0:%d:1,512,256,256,0,0,0,0,0",
    /* like products of grouped heads or of block-sparse weights */
    "linear:groups:forward:0:%d:1,256,256,384,0,0,0,0,0",
    "linear:groups:dx:0:%d:1,256,256,384,0,0,0,0,0",
    /* for the gradient dw, 16 of 64 channels of x are small in every second row */
    "linear:even:dw:0:%d:1,384,256,256,0,0,0,0,0",
    "matmul:even:dw:0:%d:1,384,256,256,0,1,1,0,0",
    "convolution:even:dw:0:%d:2,2,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,0",
    /* convolutions in which every fourth output has small numbers */
    "convolution:interleaved:forward:0:%d:2,2,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,1",
    "convolution:groups:forward:0:%d:2,1,64,64,1,1,20,20,1,3,3,1,1,1,0,1,1,1",
    /* half of the outputs ignore the first channels, as after a concatenation in a U-Net */
    "convolution:concatenation:dx:0:%d:2,2,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,0",
    "linear:concatenation:dx:0:%d:1,256,256,256,0,0,0,0,0",
    /* two outliers, which a comparison of the largest number with the mean does not detect */
    "linear:two_outliers:forward:0:%d:1,256,256,768,0,0,0,0,0",
    "linear:many_outliers:forward:0:%d:1,256,256,768,0,0,0,0,0",
    "convolution:two_outliers:forward:0:%d:2,1,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,1",
    /* the scale comes from one k on which no output depends */
    "linear:dead_k:forward:0:%d:1,256,256,384,0,0,0,0,0",
    "convolution:dead_k:forward:0:%d:2,1,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,1",
    /* powers of two along k, which are too far apart for a 32-bit scale */
    "linear:span:forward:0:%d:1,256,256,384,0,0,0,0,0",
    "linear:channels_opposite:forward:0:%d:1,256,256,384,0,0,0,0,0",
    /* small normal numbers */
    "linear:tiny_huge:forward:0:%d:1,256,256,384,0,0,0,0,0",
    "linear:small_normal:forward:0:%d:1,256,256,384,0,0,0,0,0",
    "linear:subnormal:forward:0:%d:1,256,256,384,0,0,0,0,0",
    "convolution:tiny_huge:forward:0:%d:2,1,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,0",
    /* half of an image, or one spot of it, is brighter */
    "convolution:bright_half:forward:0:%d:2,1,64,64,1,1,24,24,1,3,3,1,1,1,0,1,1,1",
    "convolution:bright_spot:forward:0:%d:2,1,64,64,1,1,24,24,1,3,3,1,1,1,0,1,1,1",
    "convolution:bright_half:dx:0:%d:2,1,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,1",
    "convolution:channels:forward:0:%d:2,1,64,64,1,1,16,16,1,3,3,1,1,1,0,1,1,1",
    "linear:bright_half:forward:0:%d:1,256,256,384,0,0,0,0,0",
    /* matrices for which all terms of some sums are 0, graded matrices, and circular shifts */
    "linear:complement:forward:0:%d:1,256,256,384,0,0,0,0,0",
    "linear:shifts:forward:0:%d:1,128,128,128,0,0,0,0,0",
    "linear:shifts:forward:0:%d:1,384,384,384,0,0,0,0,0",
    "matmul:shifts_repeated:forward:0:%d:1,256,256,256,0,0,0,0,0",
    "linear:exponents:forward:0:%d:1,256,256,1024,0,0,0,0,0",
    /* k is 1 or 2, or sizes are just above multiples of block sizes */
    "linear:digit_edge:forward:0:%d:1,300,300,1,0,0,0,0,0",
    "linear:digit_edge:forward:0:%d:1,130,131,2,0,0,0,0,0",
    "linear:normal:forward:0:%d:1,160,131,1025,1,0,0,0,1",
    "linear:gelu:forward:0:%d:1,197,256,3072,1,0,0,0,0",
    "matmul:lognormal_each:dw:0:%d:3,257,129,65,0,1,0,1,0",
    "linear:huge_entry:forward:0:%d:1,256,256,256,0,0,0,0,0",
    /* infinity and NaN change only their own row */
    "linear:infinite:forward:0:%d:1,256,256,384,1,0,0,0,0",
    "linear:not_a_number:forward:0:%d:1,256,256,384,1,0,0,0,0",
    "linear:infinite:dx:0:%d:1,256,256,384,1,0,0,0,0",
    "linear:infinite:dw:0:%d:1,256,256,384,1,0,0,0,0",
    "matmul:not_a_number:forward:0:%d:3,130,130,130,0,1,1,0,0",
    "convolution:infinite:forward:0:%d:2,2,64,64,1,1,16,16,1,3,3,1,1,1,0,0,0,1",
    "convolution:not_a_number:dx:0:%d:2,2,64,64,1,1,16,16,1,3,3,1,1,1,0,0,0,1",
    "convolution:infinite:dw:0:%d:2,2,64,64,1,1,16,16,1,3,3,1,1,1,0,0,0,1",
    /* as many groups as channels; strides or paddings larger than the kernel */
    "convolution:normal:forward:0:%d:2,3,7,7,7,1,9,13,1,3,3,1,1,1,0,1,1,1",
    "convolution:normal:dx:0:%d:2,3,7,7,7,1,9,13,1,3,3,1,1,1,0,1,1,1",
    "convolution:normal:dw:0:%d:2,3,7,7,7,1,9,13,1,3,3,1,1,1,0,1,1,1",
    "convolution:lognormal_each:forward:0:%d:2,2,6,18,6,1,33,70,1,5,4,1,2,3,0,2,0,1",
    "convolution:lognormal_each:dx:0:%d:2,2,6,18,6,1,33,70,1,5,4,1,2,3,0,2,0,1",
    "convolution:lognormal_each:dw:0:%d:2,2,6,18,6,1,33,70,1,5,4,1,2,3,0,2,0,1",
    "convolution:normal:forward:0:%d:3,2,5,10,5,6,5,7,3,2,1,2,1,3,1,1,2,1",
    "convolution:normal:dx:0:%d:3,2,5,10,5,6,5,7,3,2,1,2,1,3,1,1,2,1",
    "convolution:normal:dw:0:%d:3,2,5,10,5,6,5,7,3,2,1,2,1,3,1,1,2,1",
    "convolution:normal:forward:0:%d:1,2,4,4,4,1,1,9001,1,1,31,1,1,1,0,0,15,1",
    "convolution:normal:dx:0:%d:1,2,4,4,4,1,1,9001,1,1,31,1,1,1,0,0,15,1",
    "convolution:normal:dw:0:%d:1,2,4,4,4,1,1,9001,1,1,31,1,1,1,0,0,15,1",
    "convolution:infinite:forward:0:%d:2,2,8,8,8,1,16,16,1,3,3,1,1,1,0,0,0,1",
    "convolution:not_a_number:dx:0:%d:2,2,8,8,8,1,16,16,1,3,3,1,1,1,0,0,0,1",
    "convolution:infinite:dw:0:%d:2,2,8,8,8,1,16,16,1,3,3,1,1,1,0,0,0,1",
};

static void named_cases_stay_within_bound(void **state)
{
    run *r = *state;
    const int seeds = number_of("ATTN_HOSTILE_PERCENT", 100) < 100 ? 1 : 4;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        for (int seed = 0; seed < seeds; seed++) {
            char text[HOSTILE_TEXT];
            hostile_case c;
            snprintf(text, sizeof text, named[i], seed);
            assert_true(hostile_parse(&c, text));
            try_case(r, &c);
        }
    }
    end_run(r, "by name");
}

/* ------------------------------------------------------------------------------------------ at random */

static void drawn(run *r, int usual, bool large)
{
    const uint64_t first = number_of("ATTN_HOSTILE_SEED", 0) * 1000003;
    const uint64_t n = (uint64_t)usual * number_of("ATTN_HOSTILE_PERCENT", 100) / 100;
    for (uint64_t i = 0; i < n; i++) {
        const hostile_case c = hostile_draw(first + i + (large ? 500000 : 0), large);
        try_case(r, &c);
    }
}

static void small_random_cases_stay_within_bound(void **state)
{
    drawn(*state, SMALL_CASES, false);
    end_run(*state, "small");
}

static void large_random_cases_stay_within_bound(void **state)
{
    drawn(*state, LARGE_CASES, true);
    end_run(*state, "large");
}

static void case_of_the_environment_stays_within_bound(void **state)
{
    hostile_case c;
    const char *text = getenv("ATTN_HOSTILE");
    if (!hostile_parse(&c, text))
        fail_msg("ATTN_HOSTILE is no case: %s", text);
    try_case(*state, &c);
    end_run(*state, text);
}

/* ------------------------------------------------------------------------- that the check detects anything */

enum { CHECK_N = 16, CHECK_K = 256 };

/* Rounds a row to fixed-point numbers of 23 bits below its largest number, as a product of integers would. */
static void fix(float *x)
{
    double largest = 0;
    for (int k = 0; k < CHECK_K; k++)
        largest = fmax(largest, fabs((double)x[k]));
    const double scale = ldexp(1, 22 - (largest > 0 ? ilogb(largest) : 0));
    for (int k = 0; k < CHECK_K; k++)
        x[k] = (float)(rint((double)x[k] * scale) / scale);
}

/* Returns the largest error, divided by its bound, of a product whose operands are rounded to fixed point. */
static double share_of_fixed_point(const char *structure, uint64_t seed)
{
    static float a[2][CHECK_N][CHECK_K], b[2][CHECK_N][CHECK_K];
    const hostile h = {hostile_structure_find(structure), seed, false, {CHECK_N, CHECK_N}, CHECK_K};
    double most = 0;
    for (int i = 0; i < CHECK_N; i++) {
        for (int k = 0; k < CHECK_K; k++) {
            a[0][i][k] = a[1][i][k] = hostile_value(&h, HOSTILE_A, i, k, 0);
            b[0][i][k] = b[1][i][k] = hostile_value(&h, HOSTILE_B, i, k, 0);
        }
        fix(a[1][i]);
        fix(b[1][i]);
    }
    for (int at = 0; at < CHECK_N * CHECK_N; at++) {
        const int i = at / CHECK_N, j = at % CHECK_N;
        double value = 0, size = 0, got = 0;
        for (int k = 0; k < CHECK_K; k++) {
            value += (double)a[0][i][k] * (double)b[0][j][k];
            size += fabs((double)a[0][i][k] * (double)b[0][j][k]);
            got += (double)a[1][i][k] * (double)b[1][j][k];
        }
        most = fmax(most, product_ref_share(got, value, size, CHECK_K));
    }
    return most;
}

/* Operands rounded to fixed point keep the bound for normal numbers. They must break it for structures that are made
 * for this purpose. */
static void fixed_point_is_seen(void **state)
{
    static const char *const hard[] = {"span",         "exponents", "channels_opposite",
                                       "complement",   "blocks",    "dead_k",
                                       "two_outliers", "shifts",    "bright_spot"};
    assert_true(share_of_fixed_point("normal", 1) < 1);
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        double most = 0;
        for (uint64_t seed = 0; seed < 8; seed++)
            most = fmax(most, share_of_fixed_point(hard[i], seed));
        if (!(most > 1))
            fail_msg("%s lets fixed point pass: %.3g of the bound", hard[i], most);
    }
}

int main(void)
{
    const struct CMUnitTest one[] = {
        cmocka_unit_test_setup_teardown(case_of_the_environment_stays_within_bound, set_up, tear_down)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_point_is_seen),
        cmocka_unit_test_setup_teardown(named_cases_stay_within_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(small_random_cases_stay_within_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_random_cases_stay_within_bound, set_up, tear_down),
    };
    return getenv("ATTN_HOSTILE") ? cmocka_run_group_tests(one, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
