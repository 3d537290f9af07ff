/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests L1-regularized logistic regression. The result must satisfy the conditions of a minimum, and one case has a
 * known minimum.
 */
#include "support/cmocka.h"

#include "attn/train.h"
#include "train/logistic.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 400, FEATURES = 12 };

static uint64_t state = 1;
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Draws features that correlate, and labels from a model in which half of the weights are zero. */
static void draw(float *x, uint8_t *labels)
{
    for (int i = 0; i < ROWS; i++) {
        double z = -0.5, common = uniform() - 0.5;
        for (int j = 0; j < FEATURES; j++) {
            x[j * ROWS + i] = (float)(2 * (uniform() - 0.5) + common);
            z += j % 2 ? 0 : (j % 4 ? -2.0 : 3.0) * (double)x[j * ROWS + i];
        }
        labels[i] = uniform() < 1 / (1 + exp(-z));
    }
}

/* At the minimum, the gradient of the loss is -sign(w) for a weight w that is not 0, and within [-1, 1] otherwise. */
static void the_minimum_is_one(void **unused)
{
    (void)unused;
    static float x[FEATURES * ROWS];
    static uint8_t labels[ROWS];
    const double strengths[] = {0.02, 0.15, 1, 30};
    attn_context *context;
    attn_context_create(&context, NULL);
    draw(x, labels);
    int zeros_before = FEATURES + 1;
    for (int c = 0; c < 4; c++) {
        double w[FEATURES] = {0}, b = 0;
        attn_logistic p = {
            .rows = ROWS, .features = FEATURES, .x = x, .labels = labels, .c = strengths[c], .tolerance = 1e-11};
        assert_int_equal(attn_logistic_fit(context, &p, w, &b, NULL), ATTN_OK);
        int zeros = 0;
        for (int j = 0; j <= FEATURES; j++) {
            double g = 0, value = j < FEATURES ? w[j] : b;
            for (int i = 0; i < ROWS; i++) {
                double z = b;
                for (int k = 0; k < FEATURES; k++)
                    z += w[k] * (double)x[k * ROWS + i];
                g += (j < FEATURES ? (double)x[j * ROWS + i] : 1) * (1 / (1 + exp(-z)) - labels[i]);
            }
            g *= p.c;
            zeros += value == 0;
            if (value == 0)
                assert_true(fabs(g) <= 1 + 1e-6);
            else
                assert_true(fabs(g - (value > 0 ? -1 : 1)) < 1e-6);
        }
        assert_true(zeros <= zeros_before);
        zeros_before = zeros;
        if (c == 0)
            assert_true(zeros > 3);
    }
    attn_context_destroy(context);
}

/* There is one feature, which is always 1. With a large C, which is close to no penalty, w + b is the log odds. */
static void log_odds_are_found(void **unused)
{
    (void)unused;
    float x[10];
    uint8_t labels[10] = {1, 1, 1, 0, 0, 0, 0, 0, 0, 0};
    double w = 0, b = 0;
    attn_context *context;
    attn_context_create(&context, NULL);
    for (int i = 0; i < 10; i++)
        x[i] = 1;
    attn_logistic p = {.rows = 10, .features = 1, .x = x, .labels = labels, .c = 1e6, .tolerance = 1e-9};
    assert_int_equal(attn_logistic_fit(context, &p, &w, &b, NULL), ATTN_OK);
    assert_true(fabs(w + b - log(3.0 / 7)) < 1e-5);
    labels[0] = labels[1] = labels[2] = 0;
    assert_int_equal(attn_logistic_fit(context, &p, &w, &b, NULL), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(context);
    labels[0] = 2;
    assert_int_equal(attn_logistic_fit(context, &p, &w, &b, NULL), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(context);
    labels[0] = 1;
    x[3] = NAN;
    assert_int_equal(attn_logistic_fit(context, &p, &w, &b, NULL), ATTN_ERROR_ARGUMENT);
    attn_context_destroy(context);
}

static bool keep_telling(void *user, const char *things, int64_t done, int64_t total)
{
    /* told[0]: number of calls; told[1]: last value; told[2]: number of the call that stops the fit */
    int64_t *told = user;
    assert_string_equal(things, "hundredths of the regression");
    assert_true(total == 100 && done >= told[1] && done <= total);
    told[0]++;
    told[1] = done;
    return told[0] != told[2];
}

static void a_long_fit_tells_how_far_it_is(void **unused)
{
    (void)unused;
    static float x[FEATURES * ROWS];
    static uint8_t labels[ROWS];
    double w[FEATURES] = {0}, b = 0;
    int64_t sweeps, told[3] = {0};
    attn_context *context;
    attn_context_create(&context, NULL);
    draw(x, labels);
    attn_context_set_progress(context, keep_telling, told);
    attn_logistic p = {.rows = ROWS, .features = FEATURES, .x = x, .labels = labels, .c = 1, .tolerance = 1e-11};
    assert_int_equal(attn_logistic_fit(context, &p, w, &b, &sweeps), ATTN_OK);
    assert_int_equal(told[0], sweeps);
    assert_int_equal(told[1], 100);
    told[0] = told[1] = 0, told[2] = 2;
    assert_int_equal(attn_logistic_fit(context, &p, w, &b, &sweeps), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(sweeps, 2);
    attn_context_destroy(context);
}

RUN_TESTS(TEST(the_minimum_is_one), TEST(log_odds_are_found), TEST(a_long_fit_tells_how_far_it_is))
