/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests work that is interleaved with products on AMX. Sums over tiles that are made in portions must agree with
 * double, for every number of rows up to three tiles. Dot products, drained rows, and numbers that bf16 parts cannot
 * represent are tested, too. Arrays end at guard pages. The test is skipped on a machine without AMX.
 */
#include "support/cmocka.h"

#include "base/rng.h"
#include "kernels/bf16x3/bf16x3_feed.h"
#include "support/guard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = ATTN__BF16X3_SIDE,
    DEPTH = ATTN__BF16X3_DEPTH,
    MOST = 80,
    TILES = 6 * 6 * ATTN__BF16X3_F32 * ATTN__BF16X3_TILE
};

static const attn__bf16x3_kernel *kernel;
static uint16_t _Alignas(64) tiles_a[TILES], tiles_b[TILES];
static float _Alignas(64) sums[6 * SIDE * 6 * SIDE];

static void need_the_unit(void)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX)) {
        print_message("this machine has no AMX\n");
        skip();
    }
    kernel = attn__bf16x3_for(ATTN_ISA_AMX);
}

/* A matrix with rows of 64 columns, which are stored from the last row to the first. */
typedef struct rows {
    float *data;
    size_t size;
    int64_t n, columns, at[MOST];
} rows;

static rows make_rows(attn__rng *rng, int64_t n, int64_t columns)
{
    rows r = {.size = (size_t)(n * columns) * sizeof(float), .n = n, .columns = columns};
    r.data = guard_alloc(r.size);
    for (int64_t i = 0; i < n * columns; i++)
        r.data[i] = (float)attn__rng_normal(rng);
    for (int64_t i = 0; i < n; i++)
        r.at[i] = (n - 1 - i) * columns;
    return r;
}

static float number(const rows *r, int64_t row, int64_t column)
{
    return r->data[r->at[row] + column];
}

static attn__feed_side side_of(const rows *r, attn__feed_kind kind, uint16_t *to)
{
    attn__feed_side s = {.kind = kind, .row_at = r->at, .rows = r->n, .steps = r->columns / DEPTH, .factor = 1.0f};
    for (int64_t i = 0; i < s.steps; i++)
        s.at[i] = r->data + i * DEPTH;
    int64_t steps = kind == ATTN__FEED_PAIRS ? (r->n + DEPTH - 1) / DEPTH : s.steps;
    s.to = attn__bf16x3_packed(to, steps, ATTN__BF16X3_F32);
    return s;
}

/* Makes half of the portions one by one, as during a product. feed_end makes the rest. */
static bool feed_all(attn__bf16x3_feed *f, int64_t portions)
{
    attn__bf16x3_feed_begin(f, portions);
    for (int64_t i = 0; i < portions / 2; i++)
        f->interleaved.portion(&f->interleaved);
    return attn__bf16x3_feed_end(f);
}

static void multiply(int64_t m, int64_t n, int64_t k)
{
    attn__bf16x3_args args = {.m = (m + SIDE - 1) / SIDE,
                              .n = (n + SIDE - 1) / SIDE,
                              .k = (k + DEPTH - 1) / DEPTH,
                              .parts = ATTN__BF16X3_F32,
                              .c = sums,
                              .ldc = 6 * SIDE};
    args.a = attn__bf16x3_packed(tiles_a, args.k, ATTN__BF16X3_F32);
    args.b = attn__bf16x3_packed(tiles_b, args.k, ATTN__BF16X3_F32);
    kernel->begin();
    kernel->run(&args);
    kernel->end();
}

/* The bound allows one rounding for every second term, and the terms that three parts omit. */
static void expect(double got, double want, double size, int64_t terms)
{
    if (!(fabs(got - want) <= size * (double)(terms + 34) * 0x1p-24))
        fail_msg("%.9g is not %.9g", got, want);
}

static void score_products_match_reference(void **state)
{
    need_the_unit();
    attn__rng rng = {.seed = 5};
    static const int64_t sizes[][3] = {{1, 1, 32}, {16, 17, 64}, {33, 31, 32}, {48, 80, 64}, {77, 5, 64}, {80, 64, 32}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        rows a = make_rows(&rng, sizes[i][0], sizes[i][2]), b = make_rows(&rng, sizes[i][1], sizes[i][2]);
        rows with = make_rows(&rng, a.n, a.columns);
        static float _Alignas(64) dots[MOST * SIDE];
        static attn__bf16x3_feed f;
        f = (attn__bf16x3_feed){.sides = 2, .nexts = 1};
        f.side[0] = side_of(&a, ATTN__FEED_ROWS, tiles_a);
        f.side[1] = side_of(&b, ATTN__FEED_TRANSPOSED, tiles_b);
        f.side[1].factor = 0.5f;
        f.next[0] = side_of(&b, ATTN__FEED_ROWS, NULL);
        memset(dots, 0, sizeof dots);
        f.side[0].dots = dots;
        f.side[0].with_at = with.at;
        for (int64_t s = 0; s < f.side[0].steps; s++)
            f.side[0].with[s] = with.data + s * DEPTH;
        assert_true(feed_all(&f, (int64_t)i * 7));
        multiply(a.n, b.n, a.columns);
        for (int64_t r = 0; r < a.n; r++) {
            double dot = 0, want = 0, large = 0;
            for (int64_t c = 0; c < a.columns; c++) {
                want += (double)number(&a, r, c) * (double)number(&with, r, c);
                large += fabs((double)number(&a, r, c) * (double)number(&with, r, c));
                dot += c < SIDE ? (double)dots[r * SIDE + c] : 0;
            }
            expect(dot, want, large, a.columns);
            for (int64_t j = 0; j < b.n; j++) {
                double sum = 0, size = 0;
                for (int64_t c = 0; c < a.columns; c++) {
                    double product = (double)number(&a, r, c) * (double)number(&b, j, c) / 2;
                    sum += product;
                    size += fabs(product);
                }
                expect((double)sums[r * 6 * SIDE + j], sum, size, a.columns);
            }
        }
        guard_free(a.data, a.size);
        guard_free(b.data, b.size);
        guard_free(with.data, with.size);
    }
}

/* The weights fit into one bf16 part, so the test is only about the products of parts. */
static void value_products_match_reference(void **state)
{
    need_the_unit();
    attn__rng rng = {.seed = 6};
    static const int64_t sizes[][3] = {{1, 1, 32}, {16, 33, 64}, {21, 80, 64}, {64, 32, 32}, {79, 47, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        rows p = make_rows(&rng, sizes[i][0], sizes[i][1]), v = make_rows(&rng, sizes[i][1], sizes[i][2]);
        rows out = make_rows(&rng, p.n, v.columns), old = make_rows(&rng, p.n, v.columns);
        memcpy(old.data, out.data, out.size);
        static attn__bf16x3_feed f;
        f = (attn__bf16x3_feed){.sides = 1};
        f.side[0] = side_of(&v, ATTN__FEED_PAIRS, tiles_b);
        assert_true(feed_all(&f, 9));
        attn__bf16x3_rows weights = {.data = p.data,
                                     .row_at = p.at,
                                     .rows = p.n,
                                     .columns = p.columns,
                                     .factor = 1.0f,
                                     .parts = ATTN__BF16X3_F32};
        attn__bf16x3_side to = attn__bf16x3_packed(tiles_a, (v.n + DEPTH - 1) / DEPTH, ATTN__BF16X3_F32);
        assert_true(kernel->split_rows(&weights, &to));
        multiply(p.n, v.columns, v.n);
        float factor[MOST], was[MOST];
        for (int64_t r = 0; r < p.n; r++) {
            factor[r] = (float)(r + 1);
            was[r] = r % 3 == 0 ? -1.0f : (float)(r % 3) / 4;
        }
        f = (attn__bf16x3_feed){.drain = {.from = sums,
                                          .ld = 6 * SIDE,
                                          .row_at = out.at,
                                          .rows = p.n,
                                          .steps = v.columns / DEPTH,
                                          .factor = factor,
                                          .was = was}};
        for (int64_t s = 0; s < f.drain.steps; s++)
            f.drain.at[s] = out.data + s * DEPTH;
        assert_true(feed_all(&f, 11));
        for (int64_t r = 0; r < p.n; r++) {
            for (int64_t c = 0; c < v.columns; c++) {
                double sum = 0, size = 0, before = r % 3 == 0 ? 0 : (double)was[r] * (double)number(&old, r, c);
                for (int64_t k = 0; k < v.n; k++) {
                    sum += (double)number(&p, r, k) * (double)number(&v, k, c);
                    size += fabs((double)number(&p, r, k) * (double)number(&v, k, c));
                }
                expect((double)number(&out, r, c), sum * (double)factor[r] + before,
                       size * (double)factor[r] + fabs(before), v.n);
            }
        }
        guard_free(p.data, p.size);
        guard_free(v.data, v.size);
        guard_free(out.data, out.size);
        guard_free(old.data, old.size);
    }
}

static void not_finite_rows_are_reported(void **state)
{
    need_the_unit();
    attn__rng rng = {.seed = 7};
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x7fffffff, 0xffffffff, 0x7f7fffff};
    rows r = make_rows(&rng, 37, 64);
    for (int kind = ATTN__FEED_ROWS; kind <= ATTN__FEED_PAIRS; kind++) {
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            static attn__bf16x3_feed f;
            f = (attn__bf16x3_feed){.sides = 1};
            f.side[0] = side_of(&r, (attn__feed_kind)kind, tiles_a);
            float *place = &r.data[r.at[i * 7] + (int64_t)i * 11], kept = *place;
            memcpy(place, &odd[i], sizeof *place);
            assert_false(feed_all(&f, 5));
            *place = kept;
            assert_true(feed_all(&f, 5));
        }
    }
    guard_free(r.data, r.size);
}

RUN_TESTS(TEST(score_products_match_reference), TEST(value_products_match_reference),
          TEST(not_finite_rows_are_reported))
