/* SPDX-License-Identifier: MIT
 * Products by int8 slices keep the promise, |error| <= k 2^-24 sum |a||b| for every element, on hostile numbers: with
 * the kernel in plain C on every machine, and bit for bit the same with AMX where that is there. */
#include "support/cmocka.h"

#include "base/rng.h"
#include "tensor/gemm_slices.h"
#include "tensor/op.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = ATTN__SLICES_SIDE };

/* The kernel in plain C; it counts which way the rows of each panel and K block went. */
static int64_t six, eight, adds;

static void counted_run(const attn__slices_args *t, attn__slices_state *state, attn__slices_hook *hook)
{
    const attn__slices_kernel *c = attn__slices_portable();
    for (int64_t m = 0; m < t->m; m++) {
        attn__slices_choice choice = c->decide(t->rows + m, t->panel, t->limit);
        int e = __builtin_popcount(choice.eight), a = __builtin_popcount(choice.multiply_adds);
        eight += e;
        adds += a;
        six += SIDE - e - a;
    }
    c->run(t, state, hook);
}

static const attn__slices_kernel *counting(void)
{
    static attn__slices_kernel kernel;
    kernel = *attn__slices_portable();
    kernel.run = counted_run;
    return &kernel;
}

/* --------------------------------------------------------------------------------------------------- operands */

typedef enum structure {
    NORMAL,
    GELU,
    RELU,
    BLOCKS,   /* 64 of k scaled by 1e9 or 1e-9 */
    GROUPS,   /* every fourth k tiny, in some rows */
    ZEROS,    /* whole rows and ranges of k */
    OUTLIER,  /* one a row */
    OUTLIERS, /* two k of all rows */
    SPARSE,   /* 95 % zeros */
    LOGNORMAL,
    ROWS,      /* rows of very different size */
    EXPONENTS, /* a random power of two each */
    EDGES,     /* the largest slices and halves of units */
    TINY,      /* below 2^-100 */
    HUGE_ONES, /* above 1e30 */
    OPPOSED,   /* large where the other operand is small */
    STRUCTURES
} structure;

static const char *const names[STRUCTURES] = {"normal",  "gelu",     "relu",   "blocks",    "groups", "zeros",
                                              "outlier", "outliers", "sparse", "lognormal", "rows",   "exponents",
                                              "edges",   "tiny",     "huge",   "opposed"};

static double normal(attn__rng *rng)
{
    return attn__rng_normal(rng);
}

/* Number c of row r: an operand has rows along k. */
static float number(structure s, attn__rng *rng, int64_t r, int64_t c, bool second, double of_row, double by)
{
    double x = normal(rng);
    switch (s) {
    case NORMAL:
        return (float)x;
    case GELU:
        return (float)(second ? 0.02 * x : 0.5 * x * (1 + erf(x / sqrt(2))));
    case RELU:
        return (float)(second ? 0.02 * x : x > 0 ? x : 0);
    case BLOCKS:
        return (float)(x * (c / 64 % 2 ? by : 1) * (c / 128 % 2 ? 1 / by : 1));
    case GROUPS:
        return (float)(x * (c % 4 == r % 4 ? 1 : by));
    case ZEROS:
        return (float)(r % 3 == 1 || (c / 50 + r) % 4 == 0 ? 0 : x);
    case OUTLIER:
        return (float)(x * (c == r * 7 % 61 ? 1e4 / by : 1));
    case OUTLIERS:
        return (float)(x * (c == 5 || c == 55 ? 1e6 : 1) * (second && c % 2 ? 0 : 1));
    case SPARSE:
        return (float)(attn__rng_uniform(rng) < 0.95 ? 0 : x);
    case LOGNORMAL:
        return (float)copysign(exp(2 * x), normal(rng));
    case ROWS:
        return (float)(x * of_row);
    case EXPONENTS:
        return (float)ldexp(x, (int)(40 * attn__rng_uniform(rng)) - 20);
    case EDGES:
        return (float)((c % 3 ? 8355617.0 : (double)(int64_t)(x * 1e5) + 0.5) * (x < 0 ? -1 : 1) * 0x1p-23);
    case TINY:
        return (float)(second ? x * 3e37 : x * 1e-37);
    case HUGE_ONES:
        return (float)(second ? x * 1e-20 : x * 1e35);
    default:
        return (float)ldexp(x, (int)(c * 2654435761u >> 20 & 31) * (second ? -1 : 1));
    }
}

static float *operand(structure s, attn__rng *rng, int64_t rows, int64_t k, bool second, double by)
{
    float *x = malloc((size_t)(rows * k) * sizeof *x);
    assert_non_null(x);
    for (int64_t r = 0; r < rows; r++) {
        double of_row = exp(8 * normal(rng));
        for (int64_t c = 0; c < k; c++)
            x[r * k + c] = number(s, rng, r, c, second, of_row, by);
    }
    return x;
}

/* [rows][columns] to [columns][rows]. */
static float *transposed(const float *x, int64_t rows, int64_t columns)
{
    float *y = malloc((size_t)(rows * columns) * sizeof *y);
    assert_non_null(y);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            y[c * rows + r] = x[r * columns + c];
    return y;
}

/* ---------------------------------------------------------------------------------------------------- product */

static attn_tape *tape_of(attn_context **context, const char *isa)
{
    attn_context_options options = {.threads = 2, .isa = isa};
    assert_int_equal(attn_context_create(context, &options), ATTN_OK);
    attn_tape *tape;
    assert_int_equal(attn_tape_create(&tape, *context), ATTN_OK);
    return tape;
}

typedef struct matrices {
    int64_t m, n, k;
    float *a, *b, *at, *bt, *c, *other; /* a: [m][k], b: [n][k] */
} matrices;

static matrices make(structure a, structure b, attn__rng *rng, int64_t m, int64_t n, int64_t k)
{
    double by = pow(10, 9 * (2 * attn__rng_uniform(rng) - 1));
    matrices x = {.m = m, .n = n, .k = k};
    x.a = operand(a, rng, m, k, false, by);
    x.b = operand(b, rng, n, k, true, by);
    x.at = transposed(x.a, m, k);
    x.bt = transposed(x.b, n, k);
    x.c = calloc((size_t)(m * n), sizeof(float));
    x.other = calloc((size_t)(m * n), sizeof(float));
    assert_true(x.c && x.other);
    return x;
}

static void release(matrices *x)
{
    free(x->a);
    free(x->b);
    free(x->at);
    free(x->bt);
    free(x->c);
    free(x->other);
}

static attn__gemm_args args_of(const matrices *x, bool ta, bool tb)
{
    return (attn__gemm_args){.dtype = ATTN_F32,
                             .transpose_a = ta,
                             .transpose_b = tb,
                             .m = x->m,
                             .n = x->n,
                             .k = x->k,
                             .a = ta ? x->at : x->a,
                             .lda = ta ? x->m : x->k,
                             .b = tb ? x->b : x->bt,
                             .ldb = tb ? x->k : x->n,
                             .c = x->c,
                             .ldc = x->n};
}

/* The largest error as a share of k 2^-24 sum |a||b|, where that sum is neither tiny nor overflows. */
static double worst_share(const matrices *x)
{
    double worst = 0;
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < x->k; k++) {
                double p = (double)x->a[i * x->k + k] * (double)x->b[j * x->k + k];
                sum += p;
                size += fabs(p);
            }
            double off = fabs((double)x->c[i * x->n + j] - sum);
            if (size == 0)
                assert_true(x->c[i * x->n + j] == 0);
            else if (size >= 1e-30 && size < (double)FLT_MAX)
                worst = fmax(worst, isnan(off) ? INFINITY : off / ((double)x->k * 0x1p-24 * size));
        }
    return worst;
}

/* With AMX, where it is there: the same bits. */
static void same_with_amx(const matrices *x, attn__gemm_args args)
{
    const attn__slices_kernel *amx = attn__slices_for(ATTN_ISA_AMX);
    if (!amx || !attn__isa_runs_here(ATTN_ISA_AMX))
        return;
    attn_context *context;
    attn_tape *tape = tape_of(&context, "amx");
    args.c = x->other;
    assert_int_equal(attn__gemm_slices_with(tape, attn__slices_portable(), &args, NULL), ATTN_OK);
    memcpy(x->c, x->other, (size_t)(x->m * x->n) * sizeof(float));
    assert_int_equal(attn__gemm_slices_with(tape, amx, &args, NULL), ATTN_OK);
    assert_memory_equal(x->c, x->other, (size_t)(x->m * x->n) * sizeof(float));
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

static void one_product(attn_tape *tape, attn__rng *rng, structure a, structure b, int way)
{
    int64_t m = 1 + (int64_t)(attn__rng_below(rng, 40)), n = 1 + (int64_t)(attn__rng_below(rng, 40));
    int64_t k = 64 + (int64_t)(attn__rng_below(rng, way == 0 ? 900 : 400));
    matrices x = make(a, b, rng, m, n, k);
    attn__gemm_args args = args_of(&x, way & 1, !(way & 2));
    assert_int_equal(attn__gemm_slices_with(tape, counting(), &args, NULL), ATTN_OK);
    double share = worst_share(&x);
    if (!(share <= 1))
        fail_msg("%s by %s, %lld x %lld x %lld, way %d: %g of the bound", names[a], names[b], (long long)m,
                 (long long)n, (long long)k, way, share);
    same_with_amx(&x, args);
    release(&x);
}

/* SLICES_SEED and SLICES_ROUNDS: other numbers, and more of them; SLICES_EVERY: one of so many, for emulators. */
static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static void hostile_products_keep_the_promise(void **state)
{
    (void)state;
    attn_context *context;
    attn_tape *tape = tape_of(&context, NULL);
    attn__rng rng = {.seed = (uint64_t)setting("SLICES_SEED", 17)};
    int64_t every = setting("SLICES_EVERY", 1);
    six = eight = adds = 0;
    for (int64_t round = 0; round < setting("SLICES_ROUNDS", 1); round++)
        for (int a = 0; a < STRUCTURES; a++)
            for (int b = 0; b < STRUCTURES; b++)
                if ((a * STRUCTURES + b) % every == 0)
                    one_product(tape, &rng, (structure)a, (structure)b, (a + b + (int)round) & 3);
    print_message("rows by panels and K blocks: %lld six, %lld eight, %lld multiply-adds\n", (long long)six,
                  (long long)eight, (long long)adds);
    assert_true(every > 1 || (six > 1000 && eight > 100 && adds > 1000)); /* all three are met */
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* ----------------------------------------------------------------------------------------------- ordinary data */

/* Six products do for nearly all of what networks have; else there would be nothing to gain. */
static void ordinary_products_take_six(void **state)
{
    (void)state;
    static const struct {
        structure of;
        int64_t k;
        double least_six, least_slices; /* shares of rows by panels and K blocks */
    } cases[] = {{NORMAL, 256, 0.95, 1}, {NORMAL, 768, 1, 1},  {NORMAL, 1024, 1, 1},  {NORMAL, 3072, 1, 1},
                 {GELU, 256, 0, 0},      {GELU, 768, 0.98, 1}, {GELU, 1024, 0.98, 1}, {GELU, 3072, 1, 1},
                 {RELU, 256, 0, 0},      {RELU, 768, 0, 0},    {RELU, 1024, 0, 0},    {RELU, 3072, 1, 1}};
    if (setting("SLICES_EVERY", 1) > 1)
        skip();
    attn_context *context;
    attn_tape *tape = tape_of(&context, NULL);
    attn__rng rng = {.seed = 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrices x = make(cases[i].of, cases[i].of, &rng, 64, 64, cases[i].k);
        attn__gemm_args args = args_of(&x, false, true);
        six = eight = adds = 0;
        assert_int_equal(attn__gemm_slices_with(tape, counting(), &args, NULL), ATTN_OK);
        double all = (double)(six + eight + adds), share = worst_share(&x);
        print_message("%s, k %lld: six %.3f, eight %.3f, multiply-adds %.3f; worst %.4f of the bound\n",
                      names[cases[i].of], (long long)cases[i].k, (double)six / all, (double)eight / all,
                      (double)adds / all, share);
        assert_true((double)six / all >= cases[i].least_six);
        assert_true((double)(six + eight) / all >= cases[i].least_slices);
        assert_true(share <= 1);
        same_with_amx(&x, args);
        release(&x);
    }
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* A row that takes slices has the same bits alone, and whatever the others need. */
static void rows_do_not_know_each_other(void **state)
{
    (void)state;
    enum { M = 40, N = 48, K = 500, FAR = 21 };
    attn_context *context;
    attn_tape *tape = tape_of(&context, NULL);
    attn__rng rng = {.seed = 5};
    matrices x = make(NORMAL, NORMAL, &rng, M, N, K);
    attn__gemm_args args = args_of(&x, false, true);
    assert_int_equal(attn__gemm_slices_with(tape, attn__slices_portable(), &args, NULL), ATTN_OK);
    for (int64_t i = 0; i < M; i++) {
        attn__gemm_args alone = attn__gemm_rows_from(&args, i);
        alone.m = 1;
        alone.c = x.other;
        assert_int_equal(attn__gemm_slices_with(tape, attn__slices_portable(), &alone, NULL), ATTN_OK);
        assert_memory_equal(x.other, x.c + i * N, N * sizeof(float));
    }
    static const float far[] = {12, 1e4f, INFINITY};
    for (size_t f = 0; f < sizeof far / sizeof *far; f++) {
        x.a[FAR * K + 411] = far[f];
        args.c = x.other;
        six = eight = adds = 0;
        assert_int_equal(attn__gemm_slices_with(tape, counting(), &args, NULL), ATTN_OK);
        assert_true(f == 0 ? eight > 0 && adds == 0 : adds > 0); /* the 8 rows below the last count as six */
        for (int64_t i = 0; i < M; i++)
            assert_true(i == FAR || memcmp(x.other + i * N, x.c + i * N, N * sizeof(float)) == 0);
    }
    release(&x);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* Infinity and NaN go where mathematics has them, and nowhere else. */
static void what_is_not_finite_spreads_as_it_should(void **state)
{
    (void)state;
    enum { M = 33, N = 40, K = 130 };
    attn_context *context;
    attn_tape *tape = tape_of(&context, NULL);
    attn__rng rng = {.seed = 6};
    matrices x = make(NORMAL, NORMAL, &rng, M, N, K);
    x.a[3 * K + 7] = INFINITY;
    x.a[20 * K + 9] = NAN;
    x.b[5 * K + 11] = -INFINITY;
    for (int64_t k = 0; k < K; k++)
        x.a[8 * K + k] = 0;
    attn__gemm_args args = args_of(&x, false, true);
    assert_int_equal(attn__gemm_slices_with(tape, attn__slices_portable(), &args, NULL), ATTN_OK);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += x.a[i * K + k] * x.b[j * K + k];
            float got = x.c[i * N + j];
            assert_true(isfinite(sum) ? isfinite(got) : isnan(sum) ? isnan(got) : got == sum);
        }
    release(&x);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* -------------------------------------------------------------------------------------------------- functions */

static void no_hook(attn__slices_hook *hook)
{
    (void)hook;
}

/* A tile of C from 16 rows of A and 16 columns of B, with all that is found on the way. */
typedef struct way {
    attn__slices_scale scale[SIDE];
    int8_t _Alignas(64) a[2 * ATTN__SLICES_STEP], b[2 * ATTN__SLICES_STEP], columns[2 * ATTN__SLICES_STEP];
    attn__slices_rows rows, of_columns, of_b;
    attn__slices_panel panel;
    attn__slices_choice choice;
    float c[SIDE * SIDE];
    uint16_t again;
} way;

static void go(const attn__slices_kernel *kernel, const matrices *x, way *w)
{
    memset(w, 0, sizeof *w);
    int64_t steps = (x->k + ATTN__SLICES_DEPTH - 1) / ATTN__SLICES_DEPTH;
    for (int64_t i = 0; i < SIDE; i++) {
        w->scale[i] = kernel->scale(x->a + i * x->k, x->k);
        kernel->quantize(x->a + i * x->k, w->scale[i].scale, x->k, w->a + i * ATTN__SLICES_DEPTH);
        kernel->measure(w->a + i * ATTN__SLICES_DEPTH, x->k, w->scale[i], &w->rows, i);
    }
    attn__slices_columns columns = {x->bt, SIDE, x->k, SIDE, NULL};
    attn__slices_scale of_column[SIDE];
    kernel->scale_columns(&columns, of_column);
    kernel->quantize_columns(&columns, of_column, w->columns);
    kernel->measure_columns(w->columns, x->k, SIDE, of_column, &w->of_columns);
    for (int64_t i = 0; i < SIDE; i++) {
        attn__slices_scale scale = kernel->scale(x->b + i * x->k, x->k);
        kernel->quantize(x->b + i * x->k, scale.scale, x->k, w->b + i * ATTN__SLICES_DEPTH);
        kernel->measure(w->b + i * ATTN__SLICES_DEPTH, x->k, scale, &w->of_b, i);
    }
    kernel->transpose(w->b, steps * ATTN__SLICES);
    attn__slices_panel_of(&w->of_b, &w->panel);
    w->choice = kernel->decide(&w->rows, &w->panel, attn__slices_limit(x->k));
    static attn__slices_state state;
    memset(&state, 0, sizeof state);
    attn__slices_args args = {.m = 1,
                              .steps = steps,
                              .a = w->a,
                              .b = w->b,
                              .rows = &w->rows,
                              .panel = &w->panel,
                              .limit = attn__slices_limit(x->k),
                              .to = w->c,
                              .ld = SIDE,
                              .again = &w->again};
    kernel->begin();
    kernel->run(&args, &state, &(attn__slices_hook){no_hook});
    kernel->finish(&state);
    kernel->end();
}

/* Each function of the kernels gives the same in plain C and with AMX; rows and columns become the same tiles. */
static void functions_agree(void **state)
{
    (void)state;
    static way plain, amx;
    attn__rng rng = {.seed = 7};
    for (int i = 0; i < 2 * STRUCTURES; i++) {
        matrices x = make((structure)(i / 2), (structure)(i / 2), &rng, SIDE, SIDE, i % 2 ? 128 : 101);
        go(attn__slices_portable(), &x, &plain);
        assert_memory_equal(plain.b, plain.columns, sizeof plain.b);
        assert_memory_equal(&plain.of_b, &plain.of_columns, sizeof plain.of_b);
        if (attn__slices_for(ATTN_ISA_AMX) && attn__isa_runs_here(ATTN_ISA_AMX)) {
            go(attn__slices_for(ATTN_ISA_AMX), &x, &amx);
            assert_memory_equal(amx.scale, plain.scale, sizeof plain.scale);
            assert_memory_equal(amx.a, plain.a, sizeof plain.a);
            assert_memory_equal(amx.columns, plain.columns, sizeof plain.columns);
            assert_memory_equal(amx.b, plain.b, sizeof plain.b);
            assert_memory_equal(&amx.rows, &plain.rows, sizeof plain.rows);
            assert_memory_equal(&amx.of_columns, &plain.of_columns, sizeof plain.of_columns);
            assert_memory_equal(&amx.panel, &plain.panel, sizeof plain.panel);
            assert_memory_equal(&amx.choice, &plain.choice, sizeof plain.choice);
            assert_memory_equal(amx.c, plain.c, sizeof plain.c);
            assert_int_equal(amx.again, plain.again);
        }
        release(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_agree),
        cmocka_unit_test(hostile_products_keep_the_promise),
        cmocka_unit_test(ordinary_products_take_six),
        cmocka_unit_test(rows_do_not_know_each_other),
        cmocka_unit_test(what_is_not_finite_spreads_as_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
