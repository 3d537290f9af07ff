/* SPDX-License-Identifier: MIT
 * Products of f32 matrices in digits: sums of digits to the last bit, whole products against double, in every division
 * into runs, beside other work.  Skipped where the machine has no matrix unit. */
#include "support/digits.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = ATTN__DIGITS_CHUNK / ATTN__DIGITS_DEPTH };

/* A [16 squares][k] times B [k][16 blocks], k at most a chunk. */
typedef struct operands {
    int64_t squares, blocks, k, steps;
    float *a, *b;
    int8_t *a_tiles, *b_tiles;
    float *row_unit, *column_unit;
    bool fine[8 * SIDE], all_fine; /* rows, and all of them: eight products */
} operands;

static int64_t rows_of(const operands *o)
{
    return o->squares * SIDE;
}

static int64_t columns_of(const operands *o)
{
    return o->blocks * SIDE;
}

static operands with_room(int64_t squares, int64_t blocks, int64_t k)
{
    operands o = {.squares = squares, .blocks = blocks, .k = k, .steps = (k + DEPTH - 1) / DEPTH};
    o.a = floats(rows_of(&o) * k);
    o.b = floats(k * columns_of(&o));
    o.a_tiles = guard_alloc((size_t)(squares * o.steps * STEP));
    o.b_tiles = guard_alloc((size_t)(blocks * o.steps * STEP));
    o.row_unit = floats(rows_of(&o));
    o.column_unit = floats(columns_of(&o));
    for (int64_t i = 0; i < squares * SIDE; i++) /* all rows of a square, none, some */
        o.fine[i] = (i / SIDE + squares + k) % 3 == 0 || ((i / SIDE + squares + k) % 3 == 1 && i % 5 == 1);
    return o;
}

static bool is_fine(const operands *o, int64_t row)
{
    return o->all_fine || o->fine[row];
}

static void free_operands(operands *o)
{
    free_floats(o->a, rows_of(o) * o->k);
    free_floats(o->b, o->k * columns_of(o));
    guard_free(o->a_tiles, (size_t)(o->squares * o->steps * STEP));
    guard_free(o->b_tiles, (size_t)(o->blocks * o->steps * STEP));
    free_floats(o->row_unit, rows_of(o));
    free_floats(o->column_unit, columns_of(o));
}

/* The digits of all numbers; A's divided by what B's are multiplied with. */
static void cut(const attn__digits_kernel *kernel, operands *o, const float *spread_a, const float *spread_b)
{
    for (int64_t r = 0; r < rows_of(o); r++) {
        attn__digits_scale scale = kernel->scale(o->a + r * o->k, spread_a, o->k);
        kernel->cut(o->a + r * o->k, spread_a, scale.cut, o->k,
                    o->a_tiles + r / SIDE * o->steps * STEP + r % SIDE * DEPTH);
        o->row_unit[r] = scale.unit;
    }
    attn__digits_scale *scales = malloc((size_t)columns_of(o) * sizeof *scales);
    attn__digits_columns all = {o->b, columns_of(o), o->k, columns_of(o), spread_b, NULL};
    kernel->scale_columns(&all, scales);
    for (int64_t block = 0; block < o->blocks; block++) {
        attn__digits_columns some = {o->b + block * SIDE, columns_of(o), o->k, SIDE, spread_b, NULL};
        kernel->cut_columns(&some, scales + block * SIDE, o->b_tiles + block * o->steps * STEP);
    }
    for (int64_t c = 0; c < columns_of(o); c++)
        o->column_unit[c] = scales[c].unit;
    free(scales);
}

/* Numbers of one size and either sign, none of which outweighs the others but for k below 3. */
static void fill(attn__rng *rng, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((attn__rng_u32(rng) & 1 ? 1 : -1) * (0.6 + 0.4 * attn__rng_uniform(rng)));
}

static operands random_operands(const attn__digits_kernel *kernel, attn__rng *rng, int64_t squares, int64_t blocks,
                                int64_t k)
{
    operands o = with_room(squares, blocks, k);
    fill(rng, o.a, rows_of(&o) * k);
    fill(rng, o.b, k * columns_of(&o));
    cut(kernel, &o, NULL, NULL);
    return o;
}

/* A whole product, and what the sums of each column block start with. */
typedef struct target {
    float *to;
    int64_t ld;
    const float *before;
    int64_t before_ld;
} target;

/* Squares first to first + m of a column block. */
static attn__digits_args part_of(const operands *o, const target *t, int64_t block, int64_t first, int64_t m)
{
    return (attn__digits_args){.m = m,
                               .steps = o->steps,
                               .a = o->a_tiles + first * o->steps * STEP,
                               .b = o->b_tiles + block * o->steps * STEP,
                               .block = o->steps * STEP,
                               .row_unit = o->row_unit + first * SIDE,
                               .column_unit = o->column_unit + block * SIDE,
                               .fine = o->all_fine && block % 2 ? NULL : o->fine + first * SIDE,
                               .all_fine = o->all_fine,
                               .before = t->before ? t->before + first * SIDE * t->before_ld + block * SIDE : NULL,
                               .before_ld = t->before_ld,
                               .to = t->to + first * SIDE * t->ld + block * SIDE,
                               .ld = t->ld};
}

/* How a product is divided into runs: up to `most` squares each; the next one known to some, to none, or to all. */
typedef struct division {
    int64_t most;
    enum next { NEXT_NEVER, NEXT_SOMETIMES, NEXT_ALWAYS } next;
    attn__digits_beside *beside;
} division;

static attn__digits_args nth_run(const operands *o, const target *t, int64_t most, int64_t n)
{
    int64_t runs = (o->squares + most - 1) / most, first = n % runs * most;
    return part_of(o, t, n / runs, first, first + most < o->squares ? most : o->squares - first);
}

static void rest(attn__digits_beside *beside)
{
    (void)beside;
}

static attn__digits_beside nothing = {rest};

static void multiply(const attn__digits_kernel *kernel, const operands *o, const target *t, const division *d)
{
    static attn__digits_state state;
    memset(&state, 0, sizeof state);
    int64_t runs = (o->squares + d->most - 1) / d->most * o->blocks;
    static attn__digits_args args[2]; /* the last square reads nothing of a run that is over */
    kernel->begin();
    for (int64_t i = 0; i < runs; i++) {
        attn__digits_args *now = &args[i % 2];
        *now = nth_run(o, t, d->most, i);
        if (i + 1 < runs && (d->next == NEXT_ALWAYS || (d->next == NEXT_SOMETIMES && i % 3 != 1))) {
            attn__digits_args next = nth_run(o, t, d->most, i + 1);
            now->next_a = next.a;
            now->next_b = next.b;
        }
        kernel->run(now, &state, d->beside ? d->beside : &nothing);
        memset(now, 0x7f, sizeof *now);
    }
    kernel->finish(&state);
    kernel->end();
}

typedef struct counting {
    attn__digits_beside beside;
    int64_t calls;
    float sums[64];
} counting;

/* Vectors, so that what the products keep in registers would be lost. */
static void count_portion(attn__digits_beside *beside)
{
    counting *c = (counting *)beside;
    c->calls++;
    for (int i = 0; i < 64; i++)
        c->sums[i] = c->sums[i] * 0.5f + (float)i;
}

static void look_at_count(const counting *c, int64_t calls)
{
    assert_int_equal(c->calls, calls);
    float sum = 0;
    for (int64_t i = 0; i < calls; i++)
        sum = sum * 0.5f + 63.0f;
    assert_true(c->sums[63] == sum);
}

/* Sums of products of digits by their weights: 1, 2^-8, 2^-16 and, of the finer ones, 2^-24. */
typedef struct sums {
    int64_t of[4];
} sums;

static sums sums_of(const operands *o, int64_t row, int64_t column)
{
    static const int left[] = {0, 0, 1, 0, 2, 1, 1, 2}, right[] = {0, 1, 0, 2, 0, 1, 2, 1};
    sums s = {{0}};
    for (int64_t k = 0; k < o->steps * DEPTH; k++) {
        int64_t step = k / DEPTH * STEP, in = k % DEPTH;
        const int8_t *a = o->a_tiles + row / SIDE * o->steps * STEP + step + row % SIDE * DEPTH + in;
        const int8_t *b = o->b_tiles + column / SIDE * o->steps * STEP + step + in / 4 * DEPTH + column % SIDE * 4;
        for (int i = 0; i < (is_fine(o, row) ? 8 : 6); i++)
            s.of[left[i] + right[i]] += a[left[i] * TILE] * b[right[i] * TILE + in % 4];
    }
    return s;
}

static double before_of(const target *t, int64_t row, int64_t column)
{
    return t->before ? t->before[row * t->before_ld + column] : 0;
}

/* The products of digits are summed exactly: the result is off by the roundings of its own sum only.  Those of one
 * weight are up to 384 * 3 * 2^14 > 2^24, so to make floats of them may round the third, which can be in two parts, and
 * the fourth; then the four of them and `before` are added, four roundings, of no more than what is in the partial sums
 * each: 2^-24 of it.  Units are powers of two. */
static void look_at_digits(const operands *o, const target *t, int64_t row, int64_t column)
{
    sums s = sums_of(o, row, column);
    double unit = (double)o->row_unit[row] * o->column_unit[column], before = before_of(t, row, column);
    double sum = 0, small = 0, bound;
    for (int i = 3; i >= 0; i--) {
        sum = sum * 0x1p-8 + (double)s.of[i];
        small = i > 0 ? (small + fabs((double)s.of[i])) * 0x1p-8 : small;
    }
    double want = sum * unit + before, got = t->to[row * t->ld + column];
    bound = 0x1p-24 * (unit * (3 * small + fabs(sum)) + fabs(want)) * (1 + 0x1p-20);
    if (!(fabs(got - want) <= bound))
        fail_msg("k %d: (%d,%d) is %a, not %a, off by %g of %g", (int)o->k, (int)row, (int)column, got, want,
                 fabs(got - want), bound);
}

/* A number is off by at most half a unit u, its row's or column's, hence a product by u_a |b| / 2 + u_b |a| / 2 +
 * u_a u_b / 4; and of the products of digits that of d2 and d2, 2^14, is left out, in units u_a u_b, and those of d1
 * and d2, 2 * 2^14 * 2^8, if the square is not fine.  The units of the result are 2^16 of these.  All that for each k;
 * then the roundings above, here of no more than the sum of all |a b|. */
static void look_at_product(const operands *o, const target *t, int64_t row, int64_t column)
{
    double unit_a = ldexp(o->row_unit[row], -16), unit_b = ldexp(o->column_unit[column], -16);
    double want = before_of(t, row, column), bound = 0, size = 0, got = t->to[row * t->ld + column];
    for (int64_t k = 0; k < o->k; k++) {
        double a = o->a[row * o->k + k], b = o->b[k * columns_of(o) + column];
        want += a * b;
        size += fabs(a * b);
        bound += unit_a * fabs(b) / 2 + unit_b * fabs(a) / 2;
        bound += unit_a * unit_b * (0.25 + 0x1p14 + (is_fine(o, row) ? 0 : 0x1p23));
    }
    bound += 0x1p-24 * (5 * size + fabs(want));
    if (!(fabs(got - want) <= bound))
        fail_msg("k %d: (%d,%d) is %.9g, not %.9g", (int)o->k, (int)row, (int)column, got, want);
}

static void look_at_all(const operands *o, const target *t)
{
    for (int64_t r = 0; r < rows_of(o); r++)
        for (int64_t c = 0; c < columns_of(o); c++) {
            look_at_digits(o, t, r, c);
            look_at_product(o, t, r, c);
        }
}

static void products_are_exact(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 21};
    static const int64_t ks[] = {3, 17, 63, 64, 65, 128, 130, 191, 256, 300, 383, 384};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
        for (int64_t m = 1; m <= 5; m++) {
            operands o = random_operands(kernel, &rng, m, 2, ks[i]);
            o.all_fine = (m + (int)i) % 4 == 0;
            float *to = floats(rows_of(&o) * columns_of(&o));
            target t = {.to = to, .ld = columns_of(&o)};
            multiply(kernel, &o, &t, &(division){.most = m, .next = (enum next)(i % 3)});
            look_at_all(&o, &t);
            free_floats(to, rows_of(&o) * columns_of(&o));
            free_operands(&o);
        }
}

/* Any digits at all, the extremes among them. */
static void extreme_digits_are_summed(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 22};
    for (int kind = 0; kind < 8; kind++) {
        operands o = with_room(2, 2, ATTN__DIGITS_CHUNK);
        for (int64_t i = 0; i < o.squares * o.steps * STEP; i++)
            o.a_tiles[i] = kind < 4 ? (int8_t)(kind & 1 ? -128 : 127) : (int8_t)(attn__rng_u32(&rng) >> 24);
        for (int64_t i = 0; i < o.blocks * o.steps * STEP; i++)
            o.b_tiles[i] = kind < 4 ? (int8_t)(kind & 2 ? -128 : 127) : (int8_t)(attn__rng_u32(&rng) >> 24);
        for (int i = 0; i < 2 * SIDE; i++) {
            o.row_unit[i] = ldexpf(1, i % 9 - 20);
            o.column_unit[i] = ldexpf(1, i % 7);
        }
        o.all_fine = kind % 2;
        float *to = floats(rows_of(&o) * columns_of(&o));
        target t = {.to = to, .ld = columns_of(&o)};
        multiply(kernel, &o, &t, &(division){.most = 2, .next = NEXT_ALWAYS});
        for (int64_t i = 0; i < rows_of(&o) * columns_of(&o); i++)
            look_at_digits(&o, &t, i / columns_of(&o), i % columns_of(&o));
        free_floats(to, rows_of(&o) * columns_of(&o));
        free_operands(&o);
    }
}

/* Up to 200 in size and up to 384 of them: all sums below 2^24.  Numbers of 8 bits have two digits, of which the second
 * is 0 or -128, so nothing is left out or rounded. */
static void small_integers_are_exact(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 23};
    for (int64_t k = 3; k <= ATTN__DIGITS_CHUNK; k += 29) {
        operands o = with_room(3, 1, k);
        int64_t count = rows_of(&o) * SIDE;
        float *to = floats(count), *before = floats(count);
        for (int64_t i = 0; i < rows_of(&o) * k; i++)
            o.a[i] = i % k < 2 ? 200.0f : (float)((int64_t)attn__rng_below(&rng, 401) - 200);
        for (int64_t i = 0; i < k * SIDE; i++)
            o.b[i] = i / SIDE < 2 ? -199.0f : (float)((int64_t)attn__rng_below(&rng, 401) - 200);
        for (int64_t i = 0; i < count; i++)
            before[i] = (float)((int64_t)attn__rng_below(&rng, 2001) - 1000);
        cut(kernel, &o, NULL, NULL);
        target t = {.to = to, .ld = SIDE, .before = before, .before_ld = SIDE};
        multiply(kernel, &o, &t, &(division){.most = 3});
        for (int64_t i = 0; i < count; i++) {
            double want = before[i];
            for (int64_t j = 0; j < k; j++)
                want += (double)o.a[i / SIDE * k + j] * o.b[j * SIDE + i % SIDE];
            assert_true(to[i] == want);
        }
        free_floats(to, count);
        free_floats(before, count);
        free_operands(&o);
    }
}

/* The bits of one square a run, of which none knows another, are those of every division. */
static void all_divisions_agree(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 24};
    for (int64_t steps = 1; steps <= MOST_STEPS; steps++) {
        operands o = random_operands(kernel, &rng, 7, 3, steps * DEPTH);
        int64_t count = rows_of(&o) * columns_of(&o);
        float *one = floats(count), *two = floats(count);
        multiply(kernel, &o, &(target){.to = one, .ld = columns_of(&o)}, &(division){.most = 1});
        for (int64_t i = 0; i < 5 * 3 * 2; i++) {
            counting some = {{count_portion}, 0, {0}};
            division d = {.most = i % 5 + 1, .next = (enum next)(i / 5 % 3), .beside = i / 15 ? &some.beside : NULL};
            memset(two, 0x55, (size_t)count * sizeof *two);
            multiply(kernel, &o, &(target){.to = two, .ld = columns_of(&o)}, &d);
            assert_memory_equal(one, two, (size_t)count * sizeof *two);
            if (d.beside)
                look_at_count(&some, o.squares * o.blocks * steps);
        }
        free_floats(one, count);
        free_floats(two, count);
        free_operands(&o);
    }
}

/* What is added: nothing, one row to all, a matrix of another width, or what is there; nothing beside C is touched. */
static void sums_start_with_what_is_before(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 25};
    enum { OTHER = 37 };
    for (int64_t steps = 1; steps <= MOST_STEPS; steps++)
        for (int kind = 0; kind < 4; kind++) {
            operands o = random_operands(kernel, &rng, 3, 2, steps * DEPTH - 5);
            int64_t ld = columns_of(&o) + 3, count = (rows_of(&o) - 1) * ld + columns_of(&o);
            int64_t others = kind == 1 ? columns_of(&o) : (rows_of(&o) - 1) * OTHER + columns_of(&o);
            float *to = floats(count), *was = malloc((size_t)count * sizeof *was), *other = floats(others);
            fill(&rng, to, count);
            fill(&rng, other, others);
            memcpy(was, to, (size_t)count * sizeof *was);
            target t = {.to = to, .ld = ld, .before = kind == 0 ? NULL : kind == 3 ? to : other};
            t.before_ld = kind == 2 ? OTHER : kind == 3 ? ld : 0;
            multiply(kernel, &o, &t, &(division){.most = steps % 3 + 1, .next = NEXT_SOMETIMES});
            if (kind == 3)
                t.before = was;
            look_at_all(&o, &t);
            for (int64_t i = 0; i < count; i++)
                assert_true(i % ld < columns_of(&o) || to[i] == was[i]);
            free_floats(to, count);
            free_floats(other, others);
            free(was);
            free_operands(&o);
        }
}

/* One row, column, or number before that makes some square odd, and what the flags then say. */
static void look_at_flags(const attn__digits_kernel *kernel, operands *o, const target *t, int64_t step,
                          int64_t odd_square)
{
    static attn__digits_state state;
    memset(&state, 0, sizeof state);
    int64_t size = (o->squares - 1) * step + 1;
    bool *odd = guard_alloc((size_t)size);
    for (int64_t i = 0; i < size; i++)
        odd[i] = i % step || i / step % 2;
    attn__digits_args args = part_of(o, t, 0, 0, o->squares);
    args.odd = odd;
    args.odd_step = step;
    kernel->begin();
    kernel->run(&args, &state, &nothing);
    kernel->finish(&state);
    kernel->end();
    for (int64_t i = 0; i < size; i++) {
        bool some = false;
        for (int64_t j = 0; j < SIDE * SIDE && i % step == 0; j++)
            some |= !isfinite(t->to[(i / step * SIDE + j / SIDE) * t->ld + j % SIDE]);
        assert_true(odd[i] == (i % step ? true : some));
        if (i % step == 0)
            assert_true(some == (odd_square == -1 || odd_square == i / step));
    }
    guard_free(odd, (size_t)size);
}

static void squares_that_are_odd_are_told(void **state)
{
    (void)state;
    const attn__digits_kernel *kernel = kernel_or_skip();
    attn__rng rng = {.seed = 26};
    enum { NONE = -2, ALL = -1 };
    for (int64_t squares = 1; squares <= 5; squares++)
        for (int64_t i = 0; i < squares * SIDE; i++) {
            operands o = random_operands(kernel, &rng, squares, 1, 100);
            int64_t count = rows_of(&o) * SIDE, step = i % 3 + 1;
            float *to = floats(count), *before = floats(count), unit = o.row_unit[i];
            target t = {.to = to, .ld = SIDE, .before = before, .before_ld = SIDE};
            look_at_flags(kernel, &o, &t, step, NONE);
            o.row_unit[i] = NAN;
            look_at_flags(kernel, &o, &t, step, i / SIDE);
            for (int64_t j = 0; j < count; j++)
                assert_true(!isnan(to[j]) == (j / SIDE != i));
            o.row_unit[i] = 0x1p127f; /* too large, not NaN: -inf or inf but for sums that are 0 */
            o.column_unit[3] = 0x1p20f;
            look_at_flags(kernel, &o, &t, step, i / SIDE);
            o.row_unit[i] = unit;
            before[i * SIDE + i % 16] = i % 2 ? INFINITY : NAN;
            look_at_flags(kernel, &o, &t, step, i / SIDE);
            o.column_unit[i % SIDE] = NAN;
            look_at_flags(kernel, &o, &t, step, ALL);
            free_floats(to, count);
            free_floats(before, count);
            free_operands(&o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_exact),
        cmocka_unit_test(extreme_digits_are_summed),
        cmocka_unit_test(small_integers_are_exact),
        cmocka_unit_test(all_divisions_agree),
        cmocka_unit_test(sums_start_with_what_is_before),
        cmocka_unit_test(squares_that_are_odd_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
