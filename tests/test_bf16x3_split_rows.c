/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests splitting rows of f32 into tiles of three bf16 parts. Each number must be exact and in its place, and padding
 * must be zero. Arrays end at guard pages. The test is skipped on a machine without AMX.
 */
#include "support/cmocka.h"

#include "base/rng.h"
#include "kernels/bf16x3/bf16x3_split_rows.h"
#include "support/guard.h"

#include <math.h>
#include <string.h>

enum {
    SIDE = ATTN__BF16X3_SIDE,
    DEPTH = ATTN__BF16X3_DEPTH,
    MOST = 70,
    ALONG = ATTN__BF16X3_ALONG,
    ACROSS = ATTN__BF16X3_ACROSS,
    TURNED = ATTN__BF16X3_TRANSPOSED,
    KINDS
};

static void skip_without_unit(void)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX)) {
        print_message("this machine has no AMX\n");
        skip();
    }
}

/* Returns the index along k of the number that a tile stores at index i. */
static int64_t number_at(int64_t i)
{
    return i / 2 + i % 2 * SIDE;
}

/* Returns the index of a number's parts within a tile, for row or column `line` of the block and index `along` along
 * k. */
static int64_t within(int kind, int64_t line, int64_t along)
{
    return kind == ACROSS ? along / 2 * DEPTH + line * 2 + along % 2 : line * DEPTH + along;
}

static double whole(const uint16_t *part, int64_t next)
{
    double sum = 0;
    for (int i = 0; i < ATTN__BF16X3_F32; i++) {
        uint32_t bits = (uint32_t)part[i * next] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        sum += value;
    }
    return sum;
}

static attn__bf16x3_side side_of(int kind, int64_t rows, int64_t columns, uint16_t *data)
{
    int64_t depth = kind == TURNED ? rows : columns;
    return attn__bf16x3_packed(data, (depth + DEPTH - 1) / DEPTH, ATTN__BF16X3_F32);
}

static void check(int kind, attn__rng *rng, int64_t rows, int64_t columns)
{
    static uint16_t tiles[(MOST / SIDE + 2) * (MOST / DEPTH + 1) * ATTN__BF16X3_F32 * ATTN__BF16X3_TILE];
    size_t size = (size_t)(rows * columns) * sizeof(float);
    float *x = guard_alloc(size);
    int64_t row_at[MOST];
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] = (float)(attn__rng_normal(rng) * ldexp(1, (int)(i % 120) - 60));
    for (int64_t i = 0; i < rows; i++)
        row_at[i] = (rows - 1 - i) * columns;
    memset(tiles, 0x55, sizeof tiles);
    attn__bf16x3_side to = side_of(kind, rows, columns, tiles);
    bool listed = rows % 2;
    attn__bf16x3_rows from = {x, ATTN_F32, listed ? row_at : NULL, columns, rows, columns, 0.5f, ATTN__BF16X3_F32};
    assert_true(attn__bf16x3_split_rows((attn__bf16x3_direction)kind, &from, &to));
    int64_t lines = kind == TURNED ? columns : rows, depth = kind == TURNED ? rows : columns;
    for (int64_t i = 0; i < (lines + SIDE - 1) / SIDE * SIDE; i++) {
        for (int64_t k = 0; k < (depth + DEPTH - 1) / DEPTH * DEPTH; k++) {
            int64_t number = kind == TURNED ? k : k / DEPTH * DEPTH + number_at(k % DEPTH);
            int64_t r = kind == TURNED ? number : i, c = kind == TURNED ? i : number;
            double want = r < rows && c < columns ? 0.5 * (double)x[(listed ? rows - 1 - r : r) * columns + c] : 0;
            const uint16_t *tile = tiles + i / SIDE * to.block + k / DEPTH * to.step;
            if (whole(tile + within(kind, i % SIDE, k % DEPTH), to.part) != want)
                fail_msg("kind %d, %d x %d: number %d of line %d", kind, (int)rows, (int)columns, (int)k, (int)i);
        }
    }
    guard_free(x, size);
}

static void split_rows_are_packed_in_tile_order(void **state)
{
    skip_without_unit();
    attn__rng rng = {.seed = 6};
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 64, MOST};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < SIZES * SIZES * KINDS; i++)
        check(i % KINDS, &rng, sizes[i / KINDS % SIZES], sizes[i / KINDS / SIZES]);
}

/* Every number that is not finite must be reported, including a NaN that rounding its bits would turn into zero, and
 * numbers that round to infinity. */
static void not_finite_numbers_are_reported(void **state)
{
    skip_without_unit();
    enum { ROWS = 18, COLUMNS = 35 };
    static const uint32_t odd[] = {0x7fffffff, 0xffffffff, 0x7fff8000, 0x7fc00000, 0x7f800001,
                                   0x7f800000, 0xff800000, 0x7f7f8000, 0xff7f8000};
    static const struct {
        float x;
        bool does;
    } small[] = {{0x1p-102f, true},   {-0x1p-102f, true}, {0x1.fffffep-103f, false},
                 {-0x1p-120f, false}, {0x1p-140f, false}, {0, true},
                 {-0.0f, true}};
    static float x[ROWS * COLUMNS];
    static uint16_t tiles[4 * 2 * ATTN__BF16X3_F32 * ATTN__BF16X3_TILE];
    attn__bf16x3_rows rows = {x, ATTN_F32, NULL, COLUMNS, ROWS, COLUMNS, 1.0f, ATTN__BF16X3_F32};
    for (int kind = 0; kind < KINDS; kind++) {
        attn__bf16x3_side to = side_of(kind, ROWS, COLUMNS, tiles);
        for (int i = 0; i < ROWS * COLUMNS; i += 7) {
            memcpy(&x[i], &odd[i % 9], sizeof *x);
            assert_false(attn__bf16x3_split_rows((attn__bf16x3_direction)kind, &rows, &to));
            x[i] = i % 2 ? -3.389e38f : 3.389e38f;
            assert_true(attn__bf16x3_split_rows((attn__bf16x3_direction)kind, &rows, &to));
        }
        for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
            x[5 * i] = small[i].x;
            assert_int_equal(attn__bf16x3_split_rows((attn__bf16x3_direction)kind, &rows, &to), small[i].does);
            x[5 * i] = 0;
        }
    }
}

RUN_TESTS(TEST(split_rows_are_packed_in_tile_order), TEST(not_finite_numbers_are_reported))
