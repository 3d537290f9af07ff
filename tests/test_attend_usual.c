/* SPDX-License-Identifier: MIT
 *
 * Compares the problems of the usual layers with plain loops over the layouts that the headers specify.
 */
#include "support/cmocka.h"

#include "attn/attn.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

static float q[MOST], k[MOST], v[MOST], o[MOST], weights[MOST];

static void fill(float *x, unsigned salt)
{
    for (unsigned i = 0; i < MOST; i++)
        x[i] = (float)((i * 2654435761u + salt * 40503u) >> 16 & 1023) / 512 - 1;
}

static void run(attn_problem *p)
{
    attn_context *c;
    attn_plan *plan;
    fill(q, 1), fill(k, 2), fill(v, 3);
    attn_context_create(&c, &(attn_context_options){.threads = 1});
    p->flags |= ATTN_WANT_WEIGHTS;
    if (attn_plan_create(&plan, c, p, NULL) != ATTN_OK)
        fail_msg("%s", attn_context_error(c));
    attn_arrays arrays = {.q = q, .k = k, .v = v, .o = o, .weights = weights};
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    attn_context_destroy(c);
}

static void softmax(double *s, int n)
{
    double max = s[0], sum = 0;
    for (int j = 1; j < n; j++)
        max = fmax(max, s[j]);
    for (int j = 0; j < n; j++)
        sum += s[j] = exp(s[j] - max);
    for (int j = 0; j < n; j++)
        s[j] /= sum;
}

static void assert_near(float got, double want)
{
    if (!(fabs((double)got - want) <= 2e-6))
        fail_msg("%.9g is not %.9g", (double)got, want);
}

/* Checks one row of plain attention. The channels of the query are adjacent, and two neighbouring keys are `step`
 * apart. */
static void check_row(int64_t query, int64_t key, int64_t step, int keys, int dim, double scale, int64_t weight)
{
    double s[64];
    for (int j = 0; j < keys; j++) {
        s[j] = 0;
        for (int c = 0; c < dim; c++)
            s[j] += scale * (double)q[query + c] * (double)k[key + j * step + c];
    }
    softmax(s, keys);
    for (int j = 0; j < keys; j++)
        assert_near(weights[weight + j], s[j]);
    for (int c = 0; c < dim; c++) {
        double sum = 0;
        for (int j = 0; j < keys; j++)
            sum += s[j] * (double)v[key + j * step + c];
        assert_near(o[query + c], sum);
    }
}

static void grouped_heads_share_keys(void **state)
{
    (void)state;
    enum { B = 2, H = 6, G = 2, TQ = 5, TK = 7, D = 4 };
    attn_problem p;
    attn_problem_heads(&p, &(attn_heads){.batch = B, .heads = H, .kv_heads = G, .queries = TQ, .keys = TK, .dim = D});
    run(&p);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < TQ; i++)
                check_row(((b * TQ + i) * H + h) * D, (b * TK * G + h / (H / G)) * D, G * D, TK, D, 1 / sqrt(D),
                          ((b * H + h) * TQ + i) * TK);
}

static void packed_rows_are_strides(void **state)
{
    (void)state;
    enum { B = 2, H = 2, T = 6, D = 4, ROW = 3 * H * D };
    attn_problem p;
    attn_problem_heads(&p, &(attn_heads){.batch = B,
                                         .heads = H,
                                         .queries = T,
                                         .keys = T,
                                         .dim = D,
                                         .q_row = ROW,
                                         .k_row = ROW,
                                         .v_row = ROW,
                                         .o_row = ROW});
    run(&p);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < T; i++)
                check_row((b * T + i) * ROW + h * D, b * T * ROW + h * D, ROW, T, D, 1 / sqrt(D),
                          ((b * H + h) * T + i) * T);
}

static void an_axis_leaves_the_others_alone(void **state)
{
    (void)state;
    enum { N = 2, Y = 5, X = 3, H = 2, D = 4 };
    attn_problem p;
    attn_axis axis = {.rank = 4, .shape = {N, Y, X, H * D}, .axis = 1, .channel_axis = 3, .heads = H};
    assert_int_equal(attn_problem_axis(&p, &axis), ATTN_OK);
    run(&p);
    for (int n = 0; n < N; n++)
        for (int y = 0; y < Y; y++)
            for (int x = 0; x < X; x++)
                for (int h = 0; h < H; h++)
                    check_row(((n * Y + y) * X + x) * H * D + h * D, (n * Y * X + x) * H * D + h * D, X * H * D, Y, D,
                              1 / sqrt(D), (((n * X + x) * H + h) * Y + y) * Y);
}

static void tied_rows_share_one_map(void **state)
{
    (void)state;
    enum { R = 3, C = 6, B = 2, H = 2, D = 4 };
    attn_problem p;
    assert_int_equal(attn_problem_tied_rows(&p, R, C, B, H, D), ATTN_OK);
    run(&p);
#define AT(r, c, b, h, d) (((((r)*C + (c)) * B + (b)) * H + (h)) * D + (d))
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < C; i++) {
                double s[C] = {0};
                for (int j = 0; j < C; j++)
                    for (int r = 0; r < R; r++)
                        for (int d = 0; d < D; d++)
                            s[j] += (double)q[AT(r, i, b, h, d)] * (double)k[AT(r, j, b, h, d)] / sqrt(D * R);
                softmax(s, C);
                for (int j = 0; j < C; j++)
                    assert_near(weights[((h * B + b) * C + i) * C + j], s[j]);
                for (int r = 0; r < R; r++)
                    for (int d = 0; d < D; d++) {
                        double sum = 0;
                        for (int j = 0; j < C; j++)
                            sum += s[j] * (double)v[AT(r, j, b, h, d)];
                        assert_near(o[AT(r, i, b, h, d)], sum);
                    }
            }
#undef AT
}

enum { HEIGHT = 7, WIDTH = 6, CHANNELS = 4, TAPS = 3 };

/* Returns the position of tap t of query i along an axis, or -1 if it is outside. */
static int tap(attn_border border, int i, int t, int step, int dilation, int size)
{
    int first = i * step - TAPS / 2 * dilation;
    if (border == ATTN_BORDER_SHIFT) {
        while (first < 0)
            first += dilation;
        while (first + (TAPS - 1) * dilation >= size)
            first -= dilation;
    }
    int at = first + t * dilation;
    return at >= 0 && at < size ? at : -1;
}

static void check_pixel(attn_border border, int y, int x, int step, int dilation, int columns)
{
    double s[TAPS * TAPS], sum[CHANNELS] = {0};
    int key[TAPS * TAPS], n = 0, query = (y * columns + x) * CHANNELS;
    for (int t = 0; t < TAPS * TAPS; t++) {
        int ky = tap(border, y, t / TAPS, step, dilation, HEIGHT), kx = tap(border, x, t % TAPS, step, dilation, WIDTH);
        bool outside = ky < 0 || kx < 0;
        if (outside && border == ATTN_BORDER_MASK)
            continue;
        key[n] = outside ? -1 : (ky * WIDTH + kx) * CHANNELS;
        s[n] = 0;
        for (int c = 0; c < CHANNELS && !outside; c++)
            s[n] += (double)q[query + c] * (double)k[key[n] + c] / 2;
        n++;
    }
    softmax(s, n);
    for (int j = 0; j < n; j++)
        for (int c = 0; c < CHANNELS && key[j] >= 0; c++)
            sum[c] += s[j] * (double)v[key[j] + c];
    for (int c = 0; c < CHANNELS; c++)
        assert_near(o[query + c], sum[c]);
}

static void windows_slide_over_images(void **state)
{
    (void)state;
    for (int border = 0; border < 3; border++)
        for (int step = 1; step < 3; step++)
            for (int dilation = 1; dilation < 3; dilation++) {
                attn_problem p;
                attn_window2d w = {.batch = 1,
                                   .height = HEIGHT,
                                   .width = WIDTH,
                                   .heads = 1,
                                   .dim = CHANNELS,
                                   .window_y = TAPS,
                                   .window_x = TAPS,
                                   .step = step,
                                   .dilation = dilation,
                                   .border = (attn_border)border};
                assert_int_equal(attn_problem_window2d(&p, &w), ATTN_OK);
                run(&p);
                int rows = (HEIGHT + step - 1) / step, columns = (WIDTH + step - 1) / step;
                for (int y = 0; y < rows; y++)
                    for (int x = 0; x < columns; x++)
                        check_pixel((attn_border)border, y, x, step, dilation, columns);
            }
}

/* Checks that an array is contiguous over the dims of some roles: each stride is the product of the lengths of the
 * dims inside of it. */
static void assert_contiguous(const attn_problem *p, size_t stride, int roles)
{
    int64_t count = 1;
    for (int pass = 0; pass < p->ndims; pass++) {
        for (int d = 0; d < p->ndims; d++) {
            int64_t n = p->dims[d].n, step = *(const int64_t *)(const void *)((const char *)&p->dims[d] + stride);
            if ((roles >> p->dims[d].role & 1) && n > 1 && step == count) {
                count *= n;
                break;
            }
        }
    }
    for (int d = 0; d < p->ndims; d++)
        count /= roles >> p->dims[d].role & 1 ? p->dims[d].n : 1;
    assert_int_equal(count, 1);
}

static void statistics_and_weights_are_contiguous(void **state)
{
    (void)state;
    const int rows = 1 << ATTN_ROLE_BATCH | 1 << ATTN_ROLE_QUERY;
    for (int step = 1; step < 3; step++) {
        attn_problem p[3];
        attn_window2d w = {.batch = 2, .height = 10, .width = 14, .heads = 3, .dim = 4, .window_y = 5, .window_x = 3};
        w.step = step;
        assert_int_equal(attn_problem_window2d(&p[0], &w), ATTN_OK);
        assert_int_equal(attn_problem_tied_rows(&p[1], 3, 6, 2, 5, 4), ATTN_OK);
        assert_int_equal(
            attn_problem_heads(&p[2], &(attn_heads){.batch = 2, .heads = 3, .queries = 5, .keys = 7, .dim = 4}),
            ATTN_OK);
        for (int i = 0; i < 3; i++) {
            assert_contiguous(&p[i], offsetof(attn_dim, lse), rows);
            assert_contiguous(&p[i], offsetof(attn_dim, weights), rows | 1 << ATTN_ROLE_KEY);
        }
    }
}

/* The forms of attn_problem_parse have the dims and windows of the functions that they stand for. */
static void texts_describe_the_problems_of_the_functions(void **state)
{
    enum { FORMS = 8 };
    static const char *const texts[FORMS] = {
        "b2h4q5k6d8g2v3:bhtd",        "axis5x7c6h2",           "axis5x7c6h2:col", "axis3x4x5c4h1:axis=1",
        "axis3x4x5c4h2:first,axis=1", "axis5x7c6h2:row,first", "tied3x7h2d4b2",   "window6x9w3x5h2d4b2s2l1:zero"};
    attn_problem p[FORMS], parsed;
    attn_context *c;
    attn_problem_heads(&p[0], &(attn_heads){.batch = 2,
                                            .heads = 4,
                                            .queries = 5,
                                            .keys = 6,
                                            .dim = 8,
                                            .kv_heads = 2,
                                            .dim_value = 3,
                                            .layout = ATTN_LAYOUT_BHTD});
    attn_problem_axis(&p[1], &(attn_axis){.rank = 3, .shape = {5, 7, 6}, .axis = 1, .channel_axis = 2, .heads = 2});
    attn_problem_axis(&p[2], &(attn_axis){.rank = 3, .shape = {5, 7, 6}, .axis = 0, .channel_axis = 2, .heads = 2});
    attn_problem_axis(&p[3], &(attn_axis){.rank = 4, .shape = {3, 4, 5, 4}, .axis = 1, .channel_axis = 3, .heads = 1});
    attn_problem_axis(&p[4], &(attn_axis){.rank = 4, .shape = {4, 3, 4, 5}, .axis = 2, .channel_axis = 0, .heads = 2});
    attn_problem_axis(&p[5], &(attn_axis){.rank = 3, .shape = {6, 5, 7}, .axis = 2, .channel_axis = 0, .heads = 2});
    attn_problem_tied_rows(&p[6], 3, 7, 2, 2, 4);
    attn_problem_window2d(&p[7], &(attn_window2d){.batch = 2,
                                                  .height = 6,
                                                  .width = 9,
                                                  .heads = 2,
                                                  .dim = 4,
                                                  .window_y = 3,
                                                  .window_x = 5,
                                                  .step = 2,
                                                  .dilation = 1,
                                                  .border = ATTN_BORDER_ZERO});
    attn_context_create(&c, &(attn_context_options){.threads = 1});
    for (int i = 0; i < FORMS; i++) {
        if (attn_problem_parse(&parsed, c, texts[i], ATTN_DIRECTION_FORWARD) != ATTN_OK)
            fail_msg("%s: %s", texts[i], attn_context_error(c));
        if (parsed.ndims != p[i].ndims || memcmp(parsed.dims, p[i].dims, sizeof parsed.dims) != 0 ||
            parsed.nwindows != p[i].nwindows || memcmp(parsed.windows, p[i].windows, sizeof parsed.windows) != 0)
            fail_msg("%s is another problem than that of the function", texts[i]);
    }
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped_heads_share_keys),
        cmocka_unit_test(packed_rows_are_strides),
        cmocka_unit_test(an_axis_leaves_the_others_alone),
        cmocka_unit_test(tied_rows_share_one_map),
        cmocka_unit_test(windows_slide_over_images),
        cmocka_unit_test(statistics_and_weights_are_contiguous),
        cmocka_unit_test(texts_describe_the_problems_of_the_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
