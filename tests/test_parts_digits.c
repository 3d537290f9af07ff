/* SPDX-License-Identifier: MIT
 * Rows of f32 numbers become tiles of digits, and these scores: every digit in the place that the contract names, rows
 * for which digits will not do refused, scores beside sums in double and beside those of three parts, the largest of
 * each lane, from arrays that end at guard pages.  Skipped where the machine has no matrix unit. */
#include "support/cmocka.h"

#include "base/rng.h"
#include "kernels/parts/parts_digits.h"
#include "support/guard.h"

#include <math.h>
#include <string.h>

enum { SIDE = ATTN__DIGITS_SIDE, DEPTH = ATTN__DIGITS_DEPTH, TILE = ATTN__DIGITS_TILE, STEP = ATTN__DIGITS_STEP };
enum { MOST_ROWS = 70, MOST_COLUMNS = 256, MOST_BLOCKS = (MOST_ROWS + SIDE - 1) / SIDE };
enum { MOST_STEPS = (MOST_COLUMNS + DEPTH - 1) / DEPTH };

typedef struct packed {
    int8_t _Alignas(64) tiles[MOST_BLOCKS * MOST_STEPS * STEP];
    float _Alignas(64) unit[MOST_BLOCKS * SIDE];
} packed;

static void skip_without_unit(void)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX)) {
        print_message("this machine has no matrix unit\n");
        skip();
    }
}

static int64_t steps_of(int64_t columns)
{
    return (columns + DEPTH - 1) / DEPTH;
}

static float *normal_rows(attn__rng *rng, int64_t rows, int64_t columns)
{
    float *x = guard_alloc((size_t)(rows * columns) * sizeof(float));
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] = (float)(attn__rng_normal(rng) * ldexp(1, (int)(i / columns % 80) - 40));
    return x;
}

static attn__parts_rows rows_of(const float *x, int64_t rows, int64_t columns, float factor)
{
    return (attn__parts_rows){x, ATTN_F32, NULL, columns, rows, columns, factor, ATTN__PARTS_F32};
}

/* The number at place k of line r, in units of 1 / 2^8 of the unit of its row. */
static double number_of(const packed *p, bool across, int64_t r, int64_t k, int64_t steps)
{
    const int8_t *tile = p->tiles + (r / SIDE * steps + k / DEPTH) * STEP;
    int64_t place = k % DEPTH % SIDE * 4 + k % DEPTH / SIDE;
    int64_t at = across ? place / 4 * DEPTH + r % SIDE * 4 + place % 4 : r % SIDE * DEPTH + place;
    return tile[at] * 65536.0 + tile[TILE + at] * 256.0 + tile[2 * TILE + at];
}

/* Half a unit is what a number may be off by, or 2^-9 more where it is rounded to 32 bits first; the unit is 2^-23 to 2^-22 of the largest, but for its margin. */
static void check_digits(bool across, attn__rng *rng, int64_t rows, int64_t columns, float factor)
{
    static packed p;
    float *x = normal_rows(rng, rows, columns);
    attn__parts_rows from = rows_of(x, rows, columns, factor);
    memset(&p, 0x55, sizeof p);
    assert_true(attn__parts_digits(across ? ATTN__PARTS_ACROSS : ATTN__PARTS_ALONG, &from, p.tiles, p.unit));
    int64_t steps = steps_of(columns), whole = (rows + SIDE - 1) / SIDE * SIDE;
    for (int64_t r = 0; r < whole; r++) {
        double largest = 0, unit = p.unit[r] / 256.0 / factor;
        assert_int_equal(isnan(p.unit[r]) != 0, r >= rows);
        for (int64_t k = 0; k < steps * DEPTH; k++) {
            double digits = number_of(&p, across, r, k, steps);
            double want = r < rows && k < columns ? x[r * columns + k] : 0;
            largest = fmax(largest, fabs(want));
            if (r < rows)
                assert_true(fabs(digits * unit - want) <= (0.5 + 0x1p-9) * unit);
            else
                assert_true(digits == 0);
        }
        if (r < rows)
            assert_true(unit <= ldexp(largest, -21) && unit >= ldexp(largest, -23));
    }
    guard_free(x, (size_t)(rows * columns) * sizeof(float));
}

static void rows_become_digits(void **state)
{
    (void)state;
    skip_without_unit();
    attn__rng rng = {.seed = 11};
    static const int64_t rows[] = {1, 2, 15, 16, 17, 33, 70}, columns[] = {33, 48, 63, 64, 65, 100, 128, 200};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
            check_digits(false, &rng, rows[i], columns[j], 1);
            check_digits(true, &rng, rows[i], columns[j], 0.25f);
        }
    }
}

/* One number of one row of 20 is set to each of these. */
static void rows_that_will_not_do_are_refused(void **state)
{
    (void)state;
    skip_without_unit();
    enum { ROWS = 20, COLUMNS = 64, AT = 17 * COLUMNS + 33 };
    static const float bad[] = {INFINITY, -INFINITY, NAN, 40, -40, 1e30f, 3.4e38f}, good[] = {0, 3, -3, 1e-30f, 1e-45f};
    static packed p;
    float x[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = i % 2 ? 1.0f : -0.5f;
    attn__parts_rows from = rows_of(x, ROWS, COLUMNS, 1);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        x[AT] = good[i];
        assert_true(attn__parts_digits(ATTN__PARTS_ALONG, &from, p.tiles, p.unit));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        x[AT] = bad[i];
        assert_false(attn__parts_digits(ATTN__PARTS_ALONG, &from, p.tiles, p.unit));
        assert_false(attn__parts_digits(ATTN__PARTS_ACROSS, &from, p.tiles, p.unit));
    }
}

/* Whole rows of one size: zeros do, what is subnormal, tiny or huge does not, nor does a row of a unit matrix. */
static void sizes_of_rows(void **state)
{
    (void)state;
    skip_without_unit();
    enum { COLUMNS = 72 };
    static const struct {
        float size;
        bool does;
    } of[] = {{0, true}, {1e-42f, false}, {0x1p-61f, false}, {0x1p-59f, true}, {0x1p59f, true}, {0x1p61f, false}};
    static packed p;
    float x[COLUMNS];
    attn__parts_rows from = rows_of(x, 1, COLUMNS, 1);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        for (int c = 0; c < COLUMNS; c++)
            x[c] = of[i].size;
        assert_int_equal(attn__parts_digits(ATTN__PARTS_ALONG, &from, p.tiles, p.unit), of[i].does);
    }
    memset(x, 0, sizeof x);
    x[40] = 1;
    assert_false(attn__parts_digits(ATTN__PARTS_ALONG, &from, p.tiles, p.unit));
}

/* S^T of `keys` by up to 32 queries.  For each channel half of the last place of either operand times the other one, and
 * what the three products left out may be, 2^7 units of both; then rounding to f32. */
static void check_scores(float *kx, int64_t keys, float *qx, int64_t queries, int64_t columns)
{
    static packed k, q;
    static float _Alignas(64) s[MOST_BLOCKS * SIDE * 2 * SIDE], top[2 * SIDE];
    attn__parts_rows from_k = rows_of(kx, keys, columns, 1), from_q = rows_of(qx, queries, columns, 0.125f);
    assert_true(attn__parts_digits(ATTN__PARTS_ALONG, &from_k, k.tiles, k.unit));
    assert_true(attn__parts_digits(ATTN__PARTS_ACROSS, &from_q, q.tiles, q.unit));
    int64_t n = (queries + SIDE - 1) / SIDE, ld = n * SIDE;
    attn__parts_scores args = {.m = (keys + SIDE - 1) / SIDE,
                               .n = n,
                               .steps = steps_of(columns),
                               .keys = k.tiles,
                               .queries = q.tiles,
                               .unit = k.unit,
                               .s = s,
                               .ld = ld,
                               .top = top};
    const attn__parts_kernel *kernel = attn__parts_for(ATTN_ISA_AMX);
    kernel->begin();
    kernel->weigh(NULL, NULL, 0, &args, (attn__aside){NULL, NULL});
    kernel->end();
    for (int64_t j = 0; j < queries; j++) {
        float most = -INFINITY;
        for (int64_t i = 0; i < keys; i++) {
            double exact = 0, sizes = 0, unit_k = k.unit[i], unit_q = q.unit[j];
            for (int64_t c = 0; c < columns; c++) {
                double a = kx[i * columns + c], b = qx[j * columns + c] * 0.125;
                exact += a * b;
                sizes += fabs(a) * unit_q * 0x1p-9 + fabs(b) * unit_k * 0x1p-9 + unit_k * unit_q * 0x1.02p7;
            }
            double is = (double)s[i * ld + j] * unit_q;
            assert_true(fabs(is - exact) <= sizes + fabs(exact) * 0x1p-22);
            most = fmaxf(most, s[i * ld + j]);
        }
        assert_true(top[j] == most);
    }
    guard_free(kx, (size_t)(keys * columns) * sizeof(float));
    guard_free(qx, (size_t)(queries * columns) * sizeof(float));
}

/* The largest sums there are: all digits as large as they become. */
static void largest_scores(void **state)
{
    (void)state;
    skip_without_unit();
    enum { ROWS = 16, COLUMNS = ATTN__PARTS_DIGITS_MOST };
    static const float of[] = {0x7f7f00, -0x7f7f00, 0x7e7f7f, 0x7f8000, -0x7e8080};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        size_t size = ROWS * COLUMNS * sizeof(float);
        float *k = guard_alloc(size), *q = guard_alloc(size);
        for (int j = 0; j < ROWS * COLUMNS; j++) {
            k[j] = of[i];
            q[j] = 0x7f7f00;
        }
        check_scores(k, ROWS, q, ROWS, COLUMNS);
    }
}

static void scores_of_digits(void **state)
{
    (void)state;
    skip_without_unit();
    attn__rng rng = {.seed = 12};
    static const int64_t keys[] = {1, 5, 16, 17, 40, 50, 70}, queries[] = {1, 16, 17, 32},
                         columns[] = {40, 64, 130, 256};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t j = 0; j < sizeof queries / sizeof *queries; j++)
            for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
                check_scores(normal_rows(&rng, keys[i], columns[c]), keys[i], normal_rows(&rng, queries[j], columns[c]),
                             queries[j], columns[c]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_digits), cmocka_unit_test(rows_that_will_not_do_are_refused),
        cmocka_unit_test(sizes_of_rows),      cmocka_unit_test(scores_of_digits),
        cmocka_unit_test(largest_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
