/* SPDX-License-Identifier: MIT
 * How far products in digits are off, for numbers as networks have them: compared with f32 multiply-adds one after the
 * other.  Chunks added to each other, and the spread.  Skipped where the machine has no matrix unit. */
#include "support/digits.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = ATTN__DIGITS_CHUNK,
    CHUNKS = 3,
    LENGTH = CHUNKS * CHUNK,
    TILES = CHUNK / ATTN__DIGITS_DEPTH * ATTN__DIGITS_STEP
};

static void rest(attn__digits_beside *beside)
{
    (void)beside;
}

/* A square: rows of A, and of B's transpose; and the digits of their chunks. */
typedef struct square {
    int64_t k;
    float a[SIDE][LENGTH], b[SIDE][LENGTH];
    float _Alignas(64) row_unit[CHUNKS][SIDE], column_unit[CHUNKS][SIDE];
    bool fine[CHUNKS], row_fine[CHUNKS][SIDE]; /* some column, or the row, has a number far above the others */
    int8_t _Alignas(64) a_tiles[CHUNKS][TILES], b_tiles[CHUNKS][TILES];
    float _Alignas(64) to[SIDE][SIDE];
} square;

static int64_t steps_of(const square *s, int64_t chunk)
{
    int64_t left = s->k - chunk * CHUNK, some = left < CHUNK ? left : CHUNK;
    return (some + ATTN__DIGITS_DEPTH - 1) / ATTN__DIGITS_DEPTH;
}

/* One chunk of both operands, B's as columns. */
static void cut(const attn__digits_kernel *kernel, square *s, const float *divide, const float *multiply, int64_t chunk)
{
    static float across[CHUNK][SIDE];
    attn__digits_scale scales[SIDE];
    s->fine[chunk] = false;
    int64_t from = chunk * CHUNK, n = s->k - from < CHUNK ? s->k - from : CHUNK;
    for (int64_t i = 0; i < SIDE; i++) {
        const float *x = s->a[i] + from;
        attn__digits_scale scale = kernel->scale(x, divide ? divide + from : NULL, n);
        kernel->cut(x, divide ? divide + from : NULL, scale.cut, n, s->a_tiles[chunk] + i * ATTN__DIGITS_DEPTH);
        s->row_unit[chunk][i] = scale.unit;
        s->row_fine[chunk][i] = scale.fine;
        for (int64_t j = 0; j < n; j++)
            across[j][i] = s->b[i][from + j];
    }
    attn__digits_columns columns = {&across[0][0], SIDE, n, SIDE, multiply ? multiply + from : NULL, NULL};
    kernel->scale_columns(&columns, scales);
    kernel->cut_columns(&columns, scales, s->b_tiles[chunk]);
    for (int64_t i = 0; i < SIDE; i++) {
        s->column_unit[chunk][i] = scales[i].unit;
        s->fine[chunk] |= scales[i].fine;
    }
}

/* All chunks, each added to what is there, as runs of one square: the one before is not yet floats when one begins. */
static void multiply(const attn__digits_kernel *kernel, square *s, attn__digits_state *state)
{
    int64_t chunks = (s->k + CHUNK - 1) / CHUNK;
    attn__digits_beside nothing = {rest};
    kernel->begin();
    for (int64_t i = 0; i < chunks; i++)
        kernel->run(&(attn__digits_args){.m = 1,
                                         .steps = steps_of(s, i),
                                         .a = s->a_tiles[i],
                                         .b = s->b_tiles[i],
                                         .block = TILES,
                                         .next_a = i + 1 < chunks ? s->a_tiles[i + 1] : NULL,
                                         .next_b = i + 1 < chunks ? s->b_tiles[i + 1] : NULL,
                                         .row_unit = s->row_unit[i],
                                         .column_unit = s->column_unit[i],
                                         .fine = s->row_fine[i],
                                         .all_fine = s->fine[i],
                                         .before = i > 0 ? &s->to[0][0] : NULL,
                                         .before_ld = SIDE,
                                         .to = &s->to[0][0],
                                         .ld = SIDE},
                    state, &nothing);
    kernel->finish(state);
    kernel->end();
}

static void solve(const attn__digits_kernel *kernel, square *s, const float *divide, const float *by)
{
    static attn__digits_state state;
    for (int64_t i = 0; i * CHUNK < s->k; i++)
        cut(kernel, s, divide, by, i);
    multiply(kernel, s, &state); /* one state for all, as a thread has it */
}

/* The last two: numbers as far above the others as those of a square that is not fine can be, and one so far above
 * them that digits hardly do. */
typedef enum distribution {
    NORMAL,
    POSITIVE,
    GELU,
    RELU,
    LOGNORMAL,
    OUTLIERS,
    BELOW_FAR,
    ONE,
    DISTRIBUTIONS
} distribution;

static const char *const names[] = {"normal",    "uniform, positive",     "GELU of normal",           "ReLU of normal",
                                    "lognormal", "with outlier channels", "some not quite far above", "one huge"};

static float draw(attn__rng *rng, distribution of, int64_t k)
{
    double x = attn__rng_normal(rng);
    switch (of) {
    case POSITIVE:
        return (float)attn__rng_uniform(rng);
    case LOGNORMAL:
        return (float)exp(x);
    case GELU:
        return (float)(x * 0.5 * erfc(-x * sqrt(0.5)));
    case OUTLIERS:
        return (float)(k % 97 == 5 ? 30 * x : x);
    case BELOW_FAR:
        return (float)(k % 97 == 5 ? (x < 0 ? -9.5 : 9.5) : x);
    case ONE:
        return (float)(k == 200 ? 700 : x);
    case RELU:
        return (float)fmax(x, 0);
    default:
        return (float)x;
    }
}

/* The largest error and the root of their mean square, of the product of both norms, of either way; and how many rows
 * or columns there were that digits will not do. */
typedef struct figures {
    double digits, adds, digits_squares, adds_squares;
    int64_t count, left_out, fine;
} figures;

/* What the product of a row and a column is and how large. */
typedef struct exact {
    double sum, size, norm_a, norm_b, most_a, most_b;
} exact;

static exact solve_exactly(const float *a, const float *b, int64_t n)
{
    exact e = {0};
    for (int64_t k = 0; k < n; k++) {
        e.sum += (double)a[k] * b[k];
        e.size += fabs((double)a[k] * b[k]);
        e.norm_a += (double)a[k] * a[k];
        e.norm_b += (double)b[k] * b[k];
        e.most_a = fmax(e.most_a, fabs((double)a[k]));
        e.most_b = fmax(e.most_b, fabs((double)b[k]));
    }
    return e;
}

static float one_by_one(const float *a, const float *b, int64_t n)
{
    float sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum = fmaf(a[k], b[k], sum);
    return sum;
}

/* A unit is at most 2^-22 of the largest number, and rounding to one off by 12^-1/2 of it on average, times the other
 * number: for both at most 2^-23.3 of most_a * most_b.  Digits left out if not `fine`, d1 by d2 and d2 by d1, are of 74
 * each on average: 2^8 * 2^0.5 * 74^2 of both units, 2^-23.08 of most_a * most_b; together 2^-22.6.  The root of k
 * times that for k independent terms, and five times of this in one of a million.  The sum's own roundings come to
 * it. */
static double likely_bound(const exact *e, int64_t k, bool fine)
{
    return 5 * sqrt((double)k) * (fine ? 0x1p-23 : 0x1p-22) * e->most_a * e->most_b + 5 * 0x1p-24 * e->size;
}

static void compare(const square *s, figures *f)
{
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        const float *a = s->a[i / SIDE], *b = s->b[i % SIDE];
        exact e = solve_exactly(a, b, s->k);
        double norms = sqrt(e.norm_a * e.norm_b), got = s->to[i / SIDE][i % SIDE];
        bool fine = s->fine[0] || s->row_fine[0][i / SIDE];
        if (isnan(got)) {
            f->left_out++;
            continue;
        }
        double off = fabs(got - e.sum), off_adds = fabs(one_by_one(a, b, s->k) - e.sum) / norms;
        assert_true(off <= likely_bound(&e, s->k, fine));
        f->digits = fmax(f->digits, off / norms);
        f->adds = fmax(f->adds, off_adds);
        f->digits_squares += off * off / (norms * norms);
        f->adds_squares += off_adds * off_adds;
        f->count++;
        f->fine += fine;
    }
}

static void fill(attn__rng *rng, square *s, int64_t k, distribution a, distribution b)
{
    s->k = k;
    for (int64_t i = 0; i < SIDE * k; i++) {
        s->a[i / k][i % k] = draw(rng, a, i % k);
        s->b[i / k][i % k] = draw(rng, b, i % k);
    }
}

static figures measure(const attn__digits_kernel *kernel, attn__rng *rng, distribution a, distribution b)
{
    enum { TIMES = 12 };
    static square s;
    figures f = {0};
    for (int i = 0; i < TIMES; i++) {
        fill(rng, &s, CHUNK, a, b);
        solve(kernel, &s, NULL, NULL);
        compare(&s, &f);
    }
    if (getenv("ATTN_TEST_FIGURES"))
        print_message("%s by %s: most %.3g, multiply-adds %.3g; on average %.3g, %.3g; %d of %d fine\n", names[a],
                      names[b], f.digits, f.adds, sqrt(f.digits_squares / (double)f.count),
                      sqrt(f.adds_squares / (double)f.count), (int)f.fine, (int)f.count);
    assert_int_equal(f.left_out, 0);
    return f;
}

/* Numbers just not far enough above the others for eight products come near this bound, too near to ask for it: theirs
 * is the one that `compare` looks at. */
static void errors_are_near_those_of_f32(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 31};
    for (int i = 0; i < DISTRIBUTIONS * DISTRIBUTIONS; i++) {
        distribution a = (distribution)(i % DISTRIBUTIONS), b = (distribution)(i / DISTRIBUTIONS);
        figures f = measure(kernel, &rng, a, b);
        if (a != BELOW_FAR && b != BELOW_FAR && !(f.digits <= 2 * f.adds + 0x1p-22))
            fail_msg("%s by %s: off by %g, multiply-adds by %g", names[a], names[b], f.digits, f.adds);
    }
}

/* Three chunks and all shorter lengths, in integers, so to the last bit. */
static void chunks_are_added(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 32};
    static square s;
    for (s.k = 3; s.k <= LENGTH; s.k += 37) { /* no chunk is of one or two, of which one would outweigh all others */
        for (int64_t i = 0; i < SIDE * s.k; i++) {
            s.a[i / s.k][i % s.k] = (float)(100 + (int)attn__rng_below(&rng, 21)) * (i % 3 ? 1 : -1);
            s.b[i / s.k][i % s.k] = (float)(100 + (int)attn__rng_below(&rng, 21)) * (i % 5 ? 1 : -1);
        }
        solve(kernel, &s, NULL, NULL);
        for (int64_t i = 0; i < SIDE * SIDE; i++) {
            double want = 0;
            for (int64_t k = 0; k < s.k; k++)
                want += (double)s.a[i / SIDE][k] * s.b[i % SIDE][k];
            assert_true(s.to[i / SIDE][i % SIDE] == want);
        }
    }
}

/* Powers of two by which A is divided and B multiplied: where both are uneven along k the other way round, the product
 * is that of the even ones, to the bit. */
static void spread_evens_out(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 33};
    static square s;
    static float divide[CHUNK], by[CHUNK], even[SIDE][SIDE];
    fill(&rng, &s, CHUNK, NORMAL, NORMAL);
    solve(kernel, &s, NULL, NULL);
    memcpy(even, s.to, sizeof even);
    for (int64_t k = 0; k < CHUNK; k++) {
        int power = (int)attn__rng_below(&rng, 31) - 15;
        divide[k] = ldexpf(1, -power);
        by[k] = ldexpf(1, power);
        for (int64_t i = 0; i < SIDE; i++) {
            s.a[i][k] *= by[k];
            s.b[i][k] *= divide[k];
        }
    }
    solve(kernel, &s, divide, by);
    assert_memory_equal(even, s.to, sizeof even);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_near_those_of_f32),
        cmocka_unit_test(chunks_are_added),
        cmocka_unit_test(spread_evens_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
