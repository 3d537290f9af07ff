/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares products on AMX with sums in double, for every small size, both packings of each operand, and one or three
 * parts. Arrays end at guard pages. The test is skipped on a machine without AMX.
 */
#include "support/cmocka.h"

#include "base/rng.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/bf16x3/bf16x3_backward.h"
#include "support/guard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A product of an m x k matrix and a k x n matrix, before packing. */
typedef struct sample {
    int64_t m, n, k;
    int parts;
    attn_dtype dtype;
    void *a, *b; /* a is [m][k], and b is [k][n] */
    size_t a_size, b_size;
    double *exact, *bound; /* results [m][n] */
} sample;

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double number(const void *x, attn_dtype dtype, int64_t i)
{
    if (dtype == ATTN_F32)
        return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void *random_numbers(attn__rng *rng, attn_dtype dtype, int64_t count, size_t *size)
{
    *size = (size_t)count * (dtype == ATTN_F32 ? sizeof(float) : sizeof(uint16_t));
    void *x = guard_alloc(*size);
    for (int64_t i = 0; i < count; i++) {
        float value = (float)attn__rng_normal(rng);
        if (dtype == ATTN_F32)
            ((float *)x)[i] = value;
        else
            ((uint16_t *)x)[i] = to_bf16(value);
    }
    return x;
}

/* Computes the product in double, and a bound on its error: one rounding for every second term, and the terms that
 * three parts omit. With f32 in one part, each factor may also be rounded. */
static void solve(sample *s)
{
    double unit = ldexp(1, -24);
    double each = s->parts == 1 && s->dtype == ATTN_F32 ? ldexp(1, -7) : 2 * unit;
    for (int64_t i = 0; i < s->m * s->n; i++) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < s->k; k++) {
            double product = number(s->a, s->dtype, i / s->n * s->k + k) * number(s->b, s->dtype, k * s->n + i % s->n);
            sum += product;
            size += fabs(product);
        }
        s->exact[i] = sum;
        s->bound[i] = size * (each + (double)(s->k + 32) * unit);
    }
}

static int64_t tiles(int64_t n, int64_t side)
{
    return (n + side - 1) / side;
}

static attn__bf16x3_side packed(int64_t blocks, int64_t steps, int parts)
{
    attn__bf16x3_side side = {.block = steps * parts * ATTN__BF16X3_TILE,
                              .step = (int64_t)parts * ATTN__BF16X3_TILE,
                              .part = ATTN__BF16X3_TILE,
                              .row = ATTN__BF16X3_DEPTH};
    side.data = guard_alloc((size_t)(blocks * side.block) * sizeof *side.data);
    return side;
}

/* Transposes a matrix of the sample. Its other packing must then give the same tiles. */
static void *transposed(const void *x, attn_dtype dtype, int64_t rows, int64_t columns)
{
    size_t element = dtype == ATTN_F32 ? sizeof(float) : sizeof(uint16_t);
    char *y = malloc((size_t)(rows * columns) * element + 1);
    for (int64_t i = 0; i < rows * columns; i++)
        memcpy(y + (size_t)(i % columns * rows + i / columns) * element, (const char *)x + (size_t)i * element,
               element);
    return y;
}

static attn__bf16x3_side pack_a(const attn__bf16x3_kernel *kernel, const sample *s, bool turned)
{
    attn__bf16x3_side side = packed(tiles(s->m, 16), tiles(s->k, 32), s->parts);
    attn__bf16x3_rows rows = {s->a, s->dtype, NULL, s->k, s->m, s->k, 1.0f, s->parts};
    if (!turned) {
        assert_true(kernel->split_rows(&rows, &side));
        return side;
    }
    void *across = transposed(s->a, s->dtype, s->m, s->k);
    rows = (attn__bf16x3_rows){across, s->dtype, NULL, s->m, s->k, s->m, 1.0f, s->parts};
    assert_true(kernel->split_pairs(&rows, &side));
    kernel->transpose(side.data, tiles(s->m, 16) * side.block / ATTN__BF16X3_TILE);
    free(across);
    return side;
}

static attn__bf16x3_side pack_b(const attn__bf16x3_kernel *kernel, const sample *s, bool turned)
{
    attn__bf16x3_side side = packed(tiles(s->n, 16), tiles(s->k, 32), s->parts);
    attn__bf16x3_rows rows = {s->b, s->dtype, NULL, s->n, s->k, s->n, 1.0f, s->parts};
    if (!turned) {
        assert_true(kernel->split_pairs(&rows, &side));
        return side;
    }
    void *across = transposed(s->b, s->dtype, s->k, s->n);
    rows = (attn__bf16x3_rows){across, s->dtype, NULL, s->k, s->n, s->k, 1.0f, s->parts};
    assert_true(kernel->split_rows(&rows, &side));
    kernel->transpose(side.data, tiles(s->n, 16) * side.block / ATTN__BF16X3_TILE);
    free(across);
    return side;
}

typedef struct counting {
    attn__interleaved interleaved;
    int64_t calls;
} counting;

static void count(attn__interleaved *interleaved)
{
    ((counting *)interleaved)->calls++;
}

/* Computes 2 C with two kernels, one of which interleaves other work. Both must give the same bits. */
static void beside_agrees(const attn__bf16x3_kernel *kernel, const attn__bf16x3_args *product)
{
    size_t size = (size_t)(product->m * 16 * product->ldc) * sizeof(float);
    float *one = guard_alloc(size), *two = guard_alloc(size);
    counting some = {{count}, 0};
    attn__bf16x3_args args = *product;
    kernel->begin();
    for (int i = 0; i < 2; i++) {
        args.accumulate = i > 0;
        args.c = one;
        kernel->run(&args);
        args.c = two;
        kernel->run_interleaved(&args, i > 0 ? &some.interleaved : NULL);
    }
    kernel->end();
    assert_memory_equal(one, two, size);
    assert_true(args.parts == 1 || some.calls >= args.k);
    guard_free(one, size);
    guard_free(two, size);
}

static void compare(const attn__bf16x3_kernel *kernel, const sample *s, int turned, bool accumulate)
{
    attn__bf16x3_side a = pack_a(kernel, s, turned & 1), b = pack_b(kernel, s, turned & 2);
    int64_t m = tiles(s->m, 16), n = tiles(s->n, 16), ld = n * 16;
    size_t size = (size_t)(m * 16 * ld) * sizeof(float);
    float *c = guard_alloc(size);
    for (int64_t i = 0; i < m * 16 * ld; i++)
        c[i] = 8.0f;
    kernel->begin();
    kernel->run(&(attn__bf16x3_args){.m = m,
                                     .n = n,
                                     .k = tiles(s->k, 32),
                                     .parts = s->parts,
                                     .a = a,
                                     .b = b,
                                     .c = c,
                                     .ldc = ld,
                                     .accumulate = accumulate});
    kernel->end();
    beside_agrees(kernel,
                  &(attn__bf16x3_args){
                      .m = m, .n = n, .k = tiles(s->k, 32), .parts = s->parts, .a = a, .b = b, .c = c, .ldc = ld});
    for (int64_t i = 0; i < s->m * s->n; i++) {
        double got = c[i / s->n * ld + i % s->n] - (accumulate ? 8.0 : 0.0),
               extra = accumulate ? ldexp((double)s->k + 8, -21) : 0;
        if (!(fabs(got - s->exact[i]) <= s->bound[i] + extra))
            fail_msg("m=%d n=%d k=%d parts %d turned %d: (%d,%d) is %g, not %g", (int)s->m, (int)s->n, (int)s->k,
                     s->parts, turned, (int)(i / s->n), (int)(i % s->n), got, s->exact[i]);
    }
    guard_free(c, size);
    guard_free(a.data, (size_t)(m * a.block) * sizeof *a.data);
    guard_free(b.data, (size_t)(n * b.block) * sizeof *b.data);
}

static void check(const attn__bf16x3_kernel *kernel, attn__rng *rng, sample s)
{
    s.a = random_numbers(rng, s.dtype, s.m * s.k, &s.a_size);
    s.b = random_numbers(rng, s.dtype, s.k * s.n, &s.b_size);
    s.exact = malloc((size_t)(s.m * s.n) * sizeof(double));
    s.bound = malloc((size_t)(s.m * s.n) * sizeof(double));
    solve(&s);
    for (int turned = 0; turned < 4; turned++)
        compare(kernel, &s, turned, turned == 2);
    free(s.exact);
    free(s.bound);
    guard_free(s.a, s.a_size);
    guard_free(s.b, s.b_size);
}

static const attn__bf16x3_kernel *kernel_or_skip(void)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX)) {
        print_message("this machine has no AMX\n");
        skip();
    }
    return attn__bf16x3_for(ATTN_ISA_AMX);
}

static void products_are_as_exact_as_f32(void **state)
{
    const attn__bf16x3_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 3};
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 65};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < SIZES * SIZES * SIZES; i += 3) {
        sample s = {.m = sizes[i % SIZES], .n = sizes[i / SIZES % SIZES], .k = sizes[i / SIZES / SIZES], .parts = 3};
        s.dtype = ATTN_F32;
        check(kernel, &rng, s);
        s.parts = 1;
        check(kernel, &rng, s);
        s.dtype = ATTN_BF16;
        check(kernel, &rng, s);
    }
}

/* The three parts of a number must sum to exactly this number, in both kinds of tiles. */
static void three_parts_hold_all_of_a_number(void **state)
{
    const attn__bf16x3_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 4};
    enum { ROWS = 32, COLUMNS = 32 };
    static float x[ROWS][COLUMNS];
    static _Alignas(64) uint16_t tile[2][3][ATTN__BF16X3_TILE];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i / COLUMNS][i % COLUMNS] = (float)(attn__rng_normal(&rng) * ldexp(1, i % 120 - 60));
    attn__bf16x3_rows rows = {x, ATTN_F32, NULL, COLUMNS, ROWS, COLUMNS, 1.0f, 3};
    for (int pairs = 0; pairs < 2; pairs++) {
        attn__bf16x3_side side = {&tile[0][0][0], (int64_t)3 * ATTN__BF16X3_TILE, 0, ATTN__BF16X3_TILE, 32};
        assert_true((pairs ? kernel->split_pairs : kernel->split_rows)(&rows, &side));
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            int r = i / COLUMNS, c = i % COLUMNS, block = pairs ? c / 16 : r / 16;
            int at = pairs ? r / 2 * 32 + c % 16 * 2 + r % 2 : r % 16 * 32 + c;
            double sum = 0;
            for (int part = 0; part < 3; part++)
                sum += number(tile[block][part], ATTN_BF16, at);
            assert_true(sum == (double)x[r][c]);
        }
    }
}

/* Returns the sum of a number's parts, which are at index `at` of the tile. */
static double sum_of_parts(const uint16_t *tile, int parts, int64_t at)
{
    double sum = 0;
    for (int part = 0; part < parts; part++)
        sum += number(tile + part * ATTN__BF16X3_TILE, ATTN_BF16, at);
    return sum;
}

/* Checks both kinds of packed tiles: each number is exact, and padding is zero. */
static void look_at_packed(const attn__bf16x3_pack *t)
{
    for (int64_t r = 0; r < tiles(t->rows, 32) * 32; r++)
        for (int64_t c = 0; c < tiles(t->columns, 32) * 32; c++) {
            bool there = r < t->rows && c < t->columns;
            double want = there ? number(t->data, t->dtype, t->row_at[r] + c) : 0;
            int64_t place = c % 16 * 2 + c % 32 / 16, half = r % 32;
            const uint16_t *along = t->along.data + r / 16 * t->along.block + c / 32 * t->along.step;
            assert_true(sum_of_parts(along, t->parts, r % 16 * 32 + place) == want);
            if (c >= tiles(t->columns, 16) * 16)
                continue;
            const uint16_t *across = t->across.data + c / 16 * t->across.block + r / 32 * t->across.step;
            int64_t at = t->keyed ? half % 16 * 32 + c % 16 * 2 + half / 16 : half / 2 * 32 + c % 16 * 2 + half % 2;
            assert_true(sum_of_parts(across, t->parts, at) == want);
        }
}

static void pack_some(attn__rng *rng, int64_t n, int64_t columns, attn_dtype dtype, bool keyed)
{
    int parts = dtype == ATTN_F32 ? 3 : 1;
    size_t size;
    int64_t at[80];
    void *x = random_numbers(rng, dtype, n * columns, &size);
    attn__bf16x3_side along = packed(tiles(n, 32) * 2, tiles(columns, 32), parts);
    attn__bf16x3_side across = packed(tiles(columns, 16), tiles(n, 32), parts);
    for (int64_t r = 0; r < n; r++)
        at[r] = (n - 1 - r) * columns;
    attn__bf16x3_pack t = {.data = x,
                           .dtype = dtype,
                           .parts = parts,
                           .row_at = at,
                           .rows = n,
                           .columns = columns,
                           .keyed = keyed,
                           .along = along,
                           .across = across};
    assert_true(attn__bf16x3_pack_rows(&t, 0, tiles(n, 32) * 32));
    look_at_packed(&t);
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fffffff, 0xffffffff, 0x7f7fffff};
    for (int64_t i = 0; i < n * columns && dtype == ATTN_F32; i += 7) {
        memcpy((float *)x + i, &odd[i % 5], sizeof(float));
        assert_false(attn__bf16x3_pack_rows(&t, 0, tiles(n, 32) * 32));
        ((float *)x)[i] = 1;
    }
    guard_free(x, size);
    guard_free(along.data, (size_t)(tiles(n, 32) * 2 * along.block) * sizeof *along.data);
    guard_free(across.data, (size_t)(tiles(columns, 16) * across.block) * sizeof *across.data);
}

static void rows_become_tiles_in_both_directions(void **state)
{
    (void)kernel_or_skip();
    attn__rng rng = {.seed = 9};
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 65};
    for (int i = 0; i < 100; i++)
        for (int keyed = 0; keyed < 2; keyed++) {
            pack_some(&rng, sizes[i % 10], sizes[i / 10], ATTN_F32, keyed);
            pack_some(&rng, sizes[i % 10], sizes[i / 10], ATTN_BF16, keyed);
        }
}

static void not_finite_numbers_are_reported(void **state)
{
    const attn__bf16x3_kernel *kernel = kernel_or_skip();
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3.4e38f};
    static float x[18][35];
    static uint16_t tiles_of[8 * 3 * ATTN__BF16X3_TILE];
    attn__bf16x3_side side = {tiles_of, (int64_t)6 * ATTN__BF16X3_TILE, (int64_t)3 * ATTN__BF16X3_TILE,
                              ATTN__BF16X3_TILE, 32};
    attn__bf16x3_rows rows = {x, ATTN_F32, NULL, 35, 18, 35, 1.0f, 3};
    for (int i = 0; i < 18 * 35; i += 11) {
        x[i / 35][i % 35] = odd[i % 4];
        assert_false(kernel->split_rows(&rows, &side));
        assert_false(kernel->split_pairs(&rows, &side));
        x[i / 35][i % 35] = 1e30f;
        assert_true(kernel->split_rows(&rows, &side));
        assert_true(kernel->split_pairs(&rows, &side));
    }
}

static void depth_0_gives_zero(void **state)
{
    const attn__bf16x3_kernel *kernel = kernel_or_skip();
    float c[32][16];
    memset(c, 0x55, sizeof c);
    kernel->begin();
    kernel->run(&(attn__bf16x3_args){.m = 2, .n = 1, .k = 0, .parts = 3, .c = &c[0][0], .ldc = 16});
    kernel->end();
    for (int i = 0; i < 32 * 16; i++)
        assert_true(c[i / 16][i % 16] == 0.0f);
}

/* Computes one block of weights from scores with both kernels. Weights in three parts must have the same bits.
 * Weights in one part must be the rounded weights. */
static void weigh_beside_lanes(const attn__bf16x3_kernel *kernel, attn__rng *rng, int64_t rows, int parts)
{
    enum { WIDTH = 48, MOST = 130, STEPS = 5 };
    static _Alignas(64) float s[MOST * WIDTH], p[MOST * WIDTH], m[2][WIDTH], l[2][WIDTH], shrink[2][WIDTH];
    static _Alignas(64) uint16_t tiles_of[WIDTH / 16 * STEPS * 3 * ATTN__BF16X3_TILE];
    for (int64_t i = 0; i < rows * WIDTH; i++)
        p[i] = s[i] = i % 7 == 0 ? -INFINITY : (float)attn__rng_normal(rng) * 12;
    for (int i = 0; i < 2 * WIDTH; i++) {
        m[i / WIDTH][i % WIDTH] = i % WIDTH < 16 ? -INFINITY : (float)(i % WIDTH - 30);
        l[i / WIDTH][i % WIDTH] = i % WIDTH < 16 ? 0 : 1;
    }
    memset(tiles_of, 0x55, sizeof tiles_of);
    bool changed;
    attn__online_softmax_args plain = {p, rows, WIDTH, NULL, m[0], l[0], shrink[0], &changed};
    attn__online_softmax_for(ATTN_ISA_AMX)->softmax(&plain);
    attn__bf16x3_side to = {tiles_of, (int64_t)STEPS * parts * ATTN__BF16X3_TILE, (int64_t)parts * ATTN__BF16X3_TILE,
                            ATTN__BF16X3_TILE, ATTN__BF16X3_DEPTH};
    attn__bf16x3_softmax args = {s, rows, WIDTH, 1.0f, parts, m[1], l[1], shrink[1], to};
    assert_int_equal(kernel->refer(&args), changed);
    kernel->weigh(&args, NULL, 0, (attn__tile_hook){NULL, NULL});
    assert_memory_equal(m[0], m[1], sizeof m[0]);
    assert_memory_equal(shrink[0], shrink[1], sizeof shrink[0]);
    for (int64_t i = 0; i < tiles(rows, 32) * 32 * WIDTH; i++) {
        int64_t r = i / WIDTH, c = i % WIDTH, at = c / 16 * to.block + r / 32 * to.step + r % 32 / 2 * 32 + c % 16 * 2;
        double sum = 0, want = r < rows ? p[i] : 0;
        for (int part = 0; part < parts; part++)
            sum += number(tiles_of + part * to.part, ATTN_BF16, at + r % 2);
        assert_true(fabs(sum - want) <= (parts == 3 ? ldexp(1, -126) : ldexp(want, -8) + ldexp(1, -126)));
    }
    for (int c = 0; c < WIDTH; c++)
        assert_true(fabs(l[0][c] - l[1][c]) <= l[0][c] * ldexp(1, -20));
}

static void weights_become_tiles(void **state)
{
    const attn__bf16x3_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 5};
    static const int64_t sizes[] = {1, 2, 3, 4, 31, 32, 33, 63, 130};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        weigh_beside_lanes(kernel, &rng, sizes[i], 3);
        weigh_beside_lanes(kernel, &rng, sizes[i], 1);
    }
}

static bool weigh_backward(const attn__bf16x3_weights *args)
{
    attn__bf16x3_softmax_backward w;
    if (args->parts == 1)
        return attn__bf16x3_weigh(args);
    attn__bf16x3_begin_p(&w, args);
    bool finite = attn__bf16x3_finish(&w);
    attn__bf16x3_begin_ds(&w, args);
    return attn__bf16x3_finish(&w) && finite;
}

/* Every NaN and infinity in weights or gradients must be reported, including a NaN that rounding its bits would turn
 * into zero. */
static void not_finite_weights_are_reported(void **state)
{
    (void)kernel_or_skip();
    enum { ROWS = 32, KEYS = 32 };
    static const uint32_t odd[] = {0x7fffffff, 0xffffffff, 0x7fff8000, 0x7fc00000, 0x7f800001, 0x7f800000, 0xff800000};
    static _Alignas(64) float x[2][ROWS * KEYS];
    static _Alignas(64) uint16_t tiles_of[3][2 * 3 * ATTN__BF16X3_TILE];
    for (int parts = 1; parts <= 3; parts += 2) {
        attn__bf16x3_side side = {NULL, (int64_t)parts * ATTN__BF16X3_TILE, 0, ATTN__BF16X3_TILE, ATTN__BF16X3_DEPTH};
        attn__bf16x3_weights args = {.rows = ROWS,
                                     .keys = KEYS,
                                     .ld = KEYS,
                                     .s = x[0],
                                     .dp = x[1],
                                     .factor = 1,
                                     .parts = parts,
                                     .p = side,
                                     .across = side,
                                     .along = side};
        args.p.data = tiles_of[0];
        args.across.data = tiles_of[1];
        args.along.data = tiles_of[2];
        assert_true(weigh_backward(&args));
        for (int i = 0; i < 2 * ROWS * KEYS; i += 37) {
            float *at = &x[i / ROWS / KEYS][i % (ROWS * KEYS)];
            memcpy(at, &odd[i % 7], sizeof *at);
            assert_false(weigh_backward(&args));
            *at = 1;
        }
    }
}

/* Returns the sum of the parts of element (r, c) in the tiles of B. */
static double whole_number(const attn__bf16x3_side *side, int parts, int64_t r, int64_t c)
{
    int64_t at = c / 16 * side->block + r / 32 * side->step + r % 32 / 2 * side->row + c % 16 * 2 + r % 2;
    double sum = 0;
    for (int part = 0; part < parts; part++)
        sum += number(side->data + part * side->part, ATTN_BF16, at);
    return sum;
}

/* Weights and gradients of columns past the number of keys must be zero, whatever the scores. */
static void padded_key_columns_give_zero(void **state)
{
    (void)kernel_or_skip();
    enum { ROWS = 37, LD = 64 };
    attn__rng rng = {.seed = 12};
    static _Alignas(64) float s[ROWS * LD], p[ROWS * LD], dp[ROWS * LD], lse[ROWS], delta[ROWS];
    static _Alignas(64) uint16_t tiles_of[3][4 * 2 * 3 * ATTN__BF16X3_TILE];
    for (int i = 0; i < ROWS; i++)
        lse[i] = 6 + (float)attn__rng_normal(&rng), delta[i] = (float)attn__rng_normal(&rng);
    for (int64_t keys = 1; keys <= LD; keys += keys < 30 ? 4 : 3)
        for (int parts = 1; parts <= 3; parts += 2) {
            for (int i = 0; i < ROWS * LD; i++) {
                s[i] = p[i] = i % LD < keys ? (float)attn__rng_normal(&rng) : 60;
                dp[i] = i % LD < keys ? (float)attn__rng_normal(&rng) : 60;
            }
            int64_t step = (int64_t)parts * ATTN__BF16X3_TILE;
            attn__bf16x3_side by_row = {tiles_of[0], 2 * step, step, ATTN__BF16X3_TILE, ATTN__BF16X3_DEPTH};
            attn__bf16x3_weights args = {ROWS, keys, LD, p, dp, lse, delta, 0.5f, parts, by_row, by_row, by_row};
            args.across.data = tiles_of[1];
            args.along.data = tiles_of[2];
            memset(tiles_of, 0x55, sizeof tiles_of);
            assert_true(weigh_backward(&args));
            for (int64_t i = 0; i < 64 * tiles(keys, 32) * 32; i++) {
                int64_t r = i / (tiles(keys, 32) * 32), c = i % (tiles(keys, 32) * 32), at = r * LD + c;
                bool there = r < ROWS && c < keys;
                double weight = there ? exp2(0.5 * s[at] - lse[r]) : 0, ds = there ? weight * (dp[at] - delta[r]) : 0;
                double slack = parts == 3 ? ldexp(1, -21) : ldexp(1, -7);
                assert_true(fabs(whole_number(&args.p, parts, r, c) - weight) <= slack * weight);
                assert_true(fabs(whole_number(&args.across, parts, r, c) - ds) <= slack * (fabs(ds) + weight));
            }
        }
}

/* Counts calls of interleaved work, which must leave the products as they are. */
typedef struct counter {
    attn__interleaved interleaved;
    int64_t calls;
} counter;

static void count_call(attn__interleaved *interleaved)
{
    ((counter *)interleaved)->calls++;
}

static void product_runs_interleaved_work(void **state)
{
    const attn__bf16x3_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 8};
    for (int size = 16; size <= 80; size += 16) {
        sample s = {.m = size, .n = 96 - size, .k = 2 * size, .parts = 3, .dtype = ATTN_F32};
        s.a = random_numbers(&rng, s.dtype, s.m * s.k, &s.a_size);
        s.b = random_numbers(&rng, s.dtype, s.k * s.n, &s.b_size);
        attn__bf16x3_side a = pack_a(kernel, &s, false), b = pack_b(kernel, &s, false);
        static _Alignas(64) float c[2][80 * 80];
        memset(c, 0, sizeof c);
        attn__bf16x3_args args = {
            .m = s.m / 16, .n = s.n / 16, .k = tiles(s.k, 32), .parts = 3, .a = a, .b = b, .c = c[0], .ldc = 80};
        counter count = {.interleaved.portion = count_call};
        kernel->begin();
        kernel->run(&args);
        args.c = c[1];
        kernel->run_interleaved(&args, &count.interleaved);
        assert_int_equal(count.calls, 6 * args.k * tiles(s.m, 32) * tiles(s.n, 32));
        assert_memory_equal(c[0], c[1], sizeof c[0]);
        kernel->end();
        guard_free(a.data, (size_t)(args.m * a.block) * sizeof *a.data);
        guard_free(b.data, (size_t)(args.n * b.block) * sizeof *b.data);
        guard_free(s.a, s.a_size);
        guard_free(s.b, s.b_size);
    }
}

RUN_TESTS(TEST(not_finite_weights_are_reported), TEST(padded_key_columns_give_zero),
          TEST(product_runs_interleaved_work), TEST(products_are_as_exact_as_f32),
          TEST(rows_become_tiles_in_both_directions), TEST(three_parts_hold_all_of_a_number),
          TEST(not_finite_numbers_are_reported), TEST(depth_0_gives_zero), TEST(weights_become_tiles))
