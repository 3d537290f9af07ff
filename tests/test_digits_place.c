/* SPDX-License-Identifier: MIT
 * What convolutions have of kernels/digits: numbers of images and kernels as digits where they belong, one unit for a
 * block, squares turned on their way out, and lists of squares, against plain loops.  Skipped without a matrix unit. */
#include "support/digits.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 160, PITCH = 192, PLANE = SIDE * PITCH + DEPTH };

static float *random_floats(attn__rng *rng, int64_t n)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)attn__rng_normal(rng);
    return x;
}

/* The integer of 24 bits that three digits are. */
static double number_of(const int8_t *digits, int64_t plane)
{
    return 65536.0 * digits[0] + 256.0 * digits[plane] + digits[2 * plane];
}

static void assert_cut(float x, float cut, const int8_t *digits, int64_t plane)
{
    assert_true(number_of(digits, plane) == nearbyint((double)x * (double)cut));
}

static void places_have_rows_of_digits(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    static int8_t _Alignas(64) out[3 * PLANE];
    attn__rng rng = {.seed = 3};
    for (int64_t k = 1; k <= MOST; k = 2 * k + 3) {
        for (int64_t n = 1; n <= SIDE; n += 5) {
            int64_t ld = n + 3, count = (k - 1) * ld + n;
            float *x = random_floats(&rng, count), spread[MOST];
            for (int64_t i = 0; i < k; i++)
                spread[i] = i % 3 ? 1.0f : 16.0f;
            float copy[MOST * SIDE];
            attn__digits_columns from = {
                .x = x, .ld = ld, .k = k, .n = n, .spread = n % 2 ? spread : NULL, .copy = copy};
            attn__digits_scale all = kernel->scale_block(&from);
            for (int64_t i = 0; i < k * SIDE; i++)
                assert_true(copy[i] ==
                            (i % SIDE < n ? x[i / SIDE * ld + i % SIDE] * (n % 2 ? spread[i / SIDE] : 1) : 0));
            float largest = 0;
            for (int64_t i = 0; i < k * n; i++)
                largest = fmaxf(largest, fabsf(x[i / n * ld + i % n] * (n % 2 ? spread[i / n] : 1)));
            assert_true(largest * all.cut < 0x1p23f && (largest * all.cut >= 0x1p21f || all.cut == 0));
            memset(out, 0x55, sizeof out);
            kernel->cut_across(&from, all.cut, PITCH, PLANE, out);
            for (int64_t i = 0; i < k * n; i++)
                assert_cut(x[i / n * ld + i % n] * (n % 2 ? spread[i / n] : 1), all.cut, out + i % n * PITCH + i / n,
                           PLANE);
            for (int64_t c = k; c < (k + 31) / 32 * 32; c++)
                assert_true(number_of(out + c, PLANE) == 0);
            if (n < SIDE)
                assert_int_equal(out[n * PITCH], 0x55);
            free_floats(x, count);
        }
        float *line = random_floats(&rng, k);
        memset(out, 0x55, sizeof out);
        kernel->cut_line(line, 0x1p18f, k, PLANE, out);
        for (int64_t i = 0; i < k; i++)
            assert_cut(line[i], 0x1p18f, out + i, PLANE);
        for (int64_t i = k; i < (k + 63) / 64 * 64; i++)
            assert_true(number_of(out + i, PLANE) == 0);
        assert_int_equal(out[(k + 63) / 64 * 64], 0x55);
        free_floats(line, k);
    }
}

/* A block of any width has the scale of its numbers in one row, and is copied without gaps. */
static void blocks_of_any_width_have_one_scale(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    enum { ROWS = 5, WIDEST = 150 };
    attn__rng rng = {.seed = 7};
    for (int64_t n = 1; n <= WIDEST; n += 7) {
        int64_t pitch = (n + SIDE - 1) / SIDE * SIDE;
        float *x = random_floats(&rng, ROWS * n), copy[ROWS * (WIDEST + SIDE)];
        x[ROWS * n - 1] = n % 3 ? 1 : 300;
        attn__digits_columns from = {.x = x, .ld = n, .k = ROWS, .n = n};
        attn__digits_scale without = kernel->scale_block(&from), row = kernel->scale(x, NULL, ROWS * n);
        from.copy = copy;
        attn__digits_scale with = kernel->scale_block(&from);
        assert_true(with.cut == row.cut && with.unit == row.unit && with.fine == row.fine);
        assert_true(without.cut == row.cut && without.unit == row.unit && without.fine == row.fine);
        for (int64_t i = 0; i < ROWS * pitch; i++)
            assert_true(copy[i] == (i % pitch < n ? x[i / pitch * n + i % pitch] : 0));
        free_floats(x, ROWS * n);
    }
}

/* Weights [results][channels][taps], or [channels][results][taps]; some taps, or all of them: these adjoin. */
static void assert_gathered(attn__rng *rng, int64_t results, int64_t channels, int64_t each, int64_t taps, bool turned)
{
    const attn__digits_kernel *kernel = kernel_or_skip();
    enum { PADDED = 32 };
    int64_t count = results * channels * each, first = each - taps;
    float *w = random_floats(rng, count), spread[PADDED], to[32 * PADDED][SIDE];
    attn__digits_taps from = {.w = w + first,
                              .result_stride = turned ? each : channels * each,
                              .channel_stride = turned ? results * each : each,
                              .results = results,
                              .taps = taps,
                              .channels = channels,
                              .padded = PADDED,
                              .flipped = turned,
                              .spread = each % 2 ? spread : NULL};
    for (int i = 0; i < PADDED; i++)
        spread[i] = i % 2 ? 0.5f : 1.0f;
    memset(to, 0x55, sizeof to);
    kernel->gather(&from, &to[0][0]);
    for (int64_t i = 0; i < taps * PADDED * SIDE; i++) {
        int64_t r = i % SIDE, c = i / SIDE % PADDED, tap = i / SIDE / PADDED;
        float wanted = 0;
        if (r < results && c < channels)
            wanted = w[r * from.result_stride + c * from.channel_stride + first + (turned ? taps - 1 - tap : tap)] *
                     (from.spread ? spread[c] : 1);
        assert_true(to[tap * PADDED + c][r] == wanted);
    }
    free_floats(w, count);
}

static void weights_are_gathered(void **state)
{
    (void)state;
    attn__rng rng = {.seed = 4};
    for (int64_t each = 1; each <= 30; each = 2 * each + (each > 3))
        for (int64_t taps = each; taps >= 1; taps /= 3)
            for (int64_t results = 1; results <= SIDE; results += 5)
                for (int64_t channels = 1; channels <= 31; channels += 10)
                    for (int turned = 0; turned < 2; turned++)
                        assert_gathered(&rng, results, channels, each, taps, turned);
}

static void sixteen_columns_are_cut_as_any(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    static int8_t _Alignas(64) got[STEP * 3], wanted[STEP * 3];
    attn__rng rng = {.seed = 8};
    for (int64_t k = 1; k <= 3 * DEPTH; k += 13) {
        float *rows = random_floats(&rng, k * SIDE);
        rows[k / 2 * SIDE + 3] = 200;
        attn__digits_scale scale[SIDE], same[SIDE];
        attn__digits_columns columns = {.x = rows, .ld = SIDE, .k = k, .n = SIDE};
        memset(got, 0x55, sizeof got);
        memset(wanted, 0x55, sizeof wanted);
        kernel->cut_sixteen(rows, k, scale, got);
        kernel->scale_columns(&columns, same);
        kernel->cut_columns(&columns, same, wanted);
        assert_memory_equal(got, wanted, sizeof got);
        for (int i = 0; i < SIDE; i++)
            assert_true(scale[i].cut == same[i].cut && scale[i].unit == same[i].unit && scale[i].fine == same[i].fine);
        free_floats(rows, k * SIDE);
    }
}

static void rows_of_bytes_are_moved(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    enum { ROWS = 7, WIDEST = 150 };
    int8_t to[ROWS * WIDEST + 1];
    for (int64_t width = 1; width <= WIDEST; width += width < 70 ? 3 : 40) {
        for (int64_t ld = width; ld < width + 4; ld += 3) {
            for (int64_t begin = 0; begin <= width; begin += (width + 2) / 3) {
                int64_t end = width - begin / 2 > begin ? width - begin / 2 : begin, count = (ROWS - 1) * ld + end;
                int8_t *x = guard_alloc((size_t)count);
                for (int64_t i = 0; i < count; i++)
                    x[i] = (int8_t)(i % 100 + 1);
                memset(to, 0x55, sizeof to);
                kernel->move(&(attn__digits_rows){x, ld, ROWS, begin, end}, width, to);
                for (int64_t i = 0; i < ROWS * width; i++)
                    assert_int_equal(to[i], i % width >= begin && i % width < end ? x[i / width * ld + i % width] : 0);
                assert_int_equal(to[ROWS * width], 0x55);
                guard_free(x, (size_t)count);
            }
        }
    }
}

static void squares_are_turned(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 5};
    enum { LD = 19 };
    for (int64_t rows = 1; rows <= SIDE; rows += 3) {
        for (int64_t columns = 1; columns <= SIDE; columns += 5) {
            float *x[SIDE] = {0}, to[SIDE][LD];
            for (int64_t i = 0; i < columns; i++)
                x[i] = random_floats(&rng, SIDE);
            memset(to, 0, sizeof to);
            kernel->put_turned((const float *const *)x, rows, columns, &to[0][0], LD, false);
            for (int64_t i = 0; i < SIDE * LD; i++)
                assert_true(to[i / LD][i % LD] == (i / LD < rows && i % LD < columns ? x[i % LD][i / LD] : 0));
            kernel->put_turned((const float *const *)x, rows, columns, &to[0][0], LD, true);
            for (int64_t i = 0; i < SIDE * LD; i++)
                assert_true(to[i / LD][i % LD] == (i / LD < rows && i % LD < columns ? 2 * x[i % LD][i / LD] : 0));
            for (int64_t i = 0; i < columns; i++)
                free_floats(x[i], SIDE);
        }
    }
}

static void rest(attn__digits_beside *beside)
{
    (void)beside;
}

/* Two squares whose rows of A overlap, as those of two taps do, the second added to the first; small integers, whose
 * sums are exact. */
static void lists_of_squares_are_sums(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    static int8_t _Alignas(64) a[3 * PLANE], b[STEP];
    static attn__digits_state unit;
    float row_unit[SIDE], column_unit[SIDE], to[SIDE][SIDE];
    bool odd[2] = {true, true};
    attn__digits_beside beside = {rest};
    for (int64_t i = 0; i < (int64_t)sizeof a; i++)
        a[i] = (int8_t)(i * 7 % 11 - 5);
    for (int64_t i = 0; i < STEP; i++)
        b[i] = i < TILE ? (int8_t)(i * 5 % 7 - 3) : 0;
    for (int i = 0; i < SIDE; i++)
        row_unit[i] = column_unit[i] = (float)(1 + i % 2);
    attn__digits_square square = {
        .a = a, .b = b, .row_unit = row_unit, .column_unit = column_unit, .to = &to[0][0], .odd = &odd[0]};
    attn__digits_square squares[2] = {square, square};
    squares[1].a = a + 64;
    squares[1].before = &to[0][0];
    squares[1].before_ld = SIDE;
    squares[1].odd = &odd[1];
    kernel->begin();
    kernel->run_list(&(attn__digits_list){squares, 2, 1, 64, PLANE, DEPTH, SIDE}, &unit, &beside);
    kernel->finish(&unit);
    kernel->end();
    for (int64_t r = 0; r < SIDE; r++) {
        for (int64_t c = 0; c < SIDE; c++) {
            double sum = 0;
            for (int64_t k = 0; k < 2 * DEPTH; k++) {
                const int8_t *from = a + r * 64 + k;
                double number = from[0] + from[PLANE] / 256.0 + from[2 * PLANE] / 65536.0;
                sum += number * b[k % DEPTH / 4 * 64 + c * 4 + k % 4];
            }
            assert_true(fabs((double)to[r][c] - sum * (double)row_unit[r] * (double)column_unit[c]) <= 1e-3);
        }
    }
    assert_true(!odd[0] && !odd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_have_rows_of_digits), cmocka_unit_test(blocks_of_any_width_have_one_scale),
        cmocka_unit_test(weights_are_gathered),       cmocka_unit_test(sixteen_columns_are_cut_as_any),
        cmocka_unit_test(rows_of_bytes_are_moved),    cmocka_unit_test(squares_are_turned),
        cmocka_unit_test(lists_of_squares_are_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
