/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests the error bound of products by int8 slices, |error| <= k 2^-24 sum |a||b|, for every element and on extreme
 * numbers. The kernel in plain C runs on every machine. AMX, if the machine has it, must give the same bits.
 */
#include "support/cmocka.h"

#include "base/rng.h"
#include "gemm/sliced.h"
#include "support/slices_portable.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = ATTN__SLICES_SIDE };

/* --------------------------------------------------------------------------------------------------- operands */

typedef enum structure {
    NORMAL,
    GELU,
    RELU,
    BLOCKS,   /* blocks of 64 along k are scaled by 1e9 or 1e-9 */
    GROUPS,   /* some rows have tiny numbers at every fourth k */
    ZEROS,    /* some rows and some ranges of k are zero */
    OUTLIER,  /* each row has one outlier */
    OUTLIERS, /* all rows have outliers at two k */
    SPARSE,   /* 95 % of the numbers are zeros */
    LOGNORMAL,
    ROWS,      /* rows have numbers of very different magnitudes */
    EXPONENTS, /* numbers are multiplied by random powers of two */
    EDGES,     /* numbers that have the largest slices or are ties of rounding */
    TINY,      /* all numbers are below 2^-100 */
    HUGE_ONES, /* all numbers are above 1e30 */
    OPPOSED,   /* numbers are large at those k for which the other operand's are small */
    STRUCTURES
} structure;

static const char *const names[STRUCTURES] = {"normal",  "gelu",     "relu",   "blocks",    "groups", "zeros",
                                              "outlier", "outliers", "sparse", "lognormal", "rows",   "exponents",
                                              "edges",   "tiny",     "huge",   "opposed"};

static double normal(attn__rng *rng)
{
    return attn__rng_normal(rng);
}

/* Returns element c of row r of an operand, where c is the index along k. */
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

/* ---------------------------------------------------------------------------------------------------- product */

typedef struct matrices {
    int64_t m, n, k;
    float *a, *b, *c, *old; /* a is [m][k], and b is [n][k] */
} matrices;

/* Makes operands of two structures. `old` is what C holds before a product is added. */
static matrices make(structure a, structure b, attn__rng *rng, int64_t m, int64_t n, int64_t k)
{
    double by = pow(10, 9 * (2 * attn__rng_uniform(rng) - 1));
    matrices x = {.m = m, .n = n, .k = k};
    x.a = operand(a, rng, m, k, false, by);
    x.b = operand(b, rng, n, k, true, by);
    x.c = calloc((size_t)(m * n), sizeof(float));
    x.old = operand(NORMAL, rng, m, n, false, by);
    assert_non_null(x.c);
    return x;
}

static void release(matrices *x)
{
    free(x->a);
    free(x->b);
    free(x->c);
    free(x->old);
}

static void *memory(size_t bytes)
{
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(data);
    return data;
}

/* Uses slices in all panels whose numbers allow them, even if the error bound is not proved for ordinary rows. */
static void use_all_panels(const attn__sliced_weights *w)
{
    for (int64_t i = 0; i < w->panels; i++)
        for (int64_t c = 0; c < w->blocks; c++)
            w->multiply_adds[i] = (c > 0 && w->multiply_adds[i]) || isnan(w->bounds[c * w->panels + i].q);
    for (int64_t c = 0, joined = 0; c < w->blocks; c++, joined = 0)
        for (int64_t i = 0; i < w->panels; i++)
            if (!w->multiply_adds[i]) {
                const attn__slices_panel *panel = w->bounds + c * w->panels + i;
                w->joined[c] = joined++ ? w->joined[c] : *panel;
                attn__slices_panel_join(w->joined + c, panel);
            }
}

enum { ADD = 1, ALL_PANELS = 2 }; /* Options of a product, combined as bits. */

static void *pack(const attn__slices_kernel *kernel, const matrices *x, int way, bool *serves)
{
    void *data = memory(attn__sliced_bytes(x->n, x->k));
    const attn__gemm_operand b = attn__matrix(x->b, x->k, 1);
    *serves = attn__sliced_pack(kernel, &b, x->n, x->k, 2, data);
    if (way & ALL_PANELS) {
        const attn__sliced_weights w = attn__sliced_weights_in(data, x->n, x->k);
        use_all_panels(&w);
    }
    return data;
}

/* Describes rows [row, row + m) of the product, which are written to c with row stride ldc. */
static attn__gemm_problem problem_of(const matrices *x, int way, int64_t row, int64_t m, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m && way & ADD; i++)
        memcpy(c + i * ldc, x->old + (row + i) * x->n, (size_t)x->n * sizeof(float));
    return (attn__gemm_problem){.dtype = ATTN_F32,
                                .m = m,
                                .n = x->n,
                                .k = x->k,
                                .a = attn__matrix(x->a + row * x->k, x->k, 1),
                                .b = attn__matrix(x->b, x->k, 1),
                                .c = c,
                                .ldc = ldc,
                                .add = way & ADD};
}

/* Returns false, without a result, if packing refuses the weights. */
static bool run_slices(const attn__slices_kernel *kernel, const matrices *x, int way, const attn__gemm_problem *g)
{
    bool serves;
    void *data = pack(kernel, x, way, &serves);
    attn__sliced_plan plan;
    if (serves || way & ALL_PANELS) {
        attn__sliced_plan_make(&plan, g, kernel, data, attn__isa_best(), 2);
        void *workspace = memory(attn__sliced_workspace(&plan));
        attn__sliced_run(&plan, workspace);
        free(workspace);
    }
    free(data);
    return serves || way & ALL_PANELS;
}

static bool multiply(const attn__slices_kernel *kernel, const matrices *x, int way, int64_t row, int64_t m, float *c)
{
    const attn__gemm_problem g = problem_of(x, way, row, m, c, x->n);
    return run_slices(kernel, x, way, &g);
}

static void run_multiply_adds(const attn__gemm_problem *g)
{
    attn__gemm_plan plan;
    attn__gemm_plan_make(&plan, g, attn__isa_best(), 2);
    void *workspace = memory(attn__gemm_workspace(&plan));
    attn__gemm_run(&plan, workspace);
    free(workspace);
}

/* Numbers of rows that use six products, eight products or multiply-adds. A row counts once for each panel and K
 * block. */
typedef struct shares {
    int64_t six, eight, adds;
} shares;

static void count_ways(const matrices *x, int way, shares *of)
{
    const attn__slices_kernel *kernel = attn__slices_portable();
    bool serves;
    void *data = pack(kernel, x, way, &serves);
    const attn__sliced_weights w = attn__sliced_weights_in(data, x->n, x->k);
    static int8_t tiles[ATTN__SLICES_K_BLOCK / ATTN__SLICES_DEPTH * ATTN__SLICES_STEP];
    for (int64_t r = 0; r < x->m; r++)
        for (int64_t c = 0; c < w.blocks; c++) {
            const float *row = x->a + r * x->k + attn__sliced_k(&w, c);
            int64_t depth = attn__sliced_depth(&w, c);
            attn__slices_scale scale = kernel->scale(row, depth);
            attn__slices_rows rows;
            for (int64_t i = 1; i < SIDE; i++)
                attn__slices_note_none(&rows, i);
            kernel->quantize(row, scale.scale, depth, tiles);
            kernel->measure(tiles, depth, scale, &rows, 0);
            for (int64_t i = 0; i < w.panels; i++) {
                attn__slices_choice choice =
                    kernel->decide(&rows, w.bounds + c * w.panels + i, attn__slices_limit(x->k));
                of->adds += w.multiply_adds[i] || choice.multiply_adds;
                of->eight += !w.multiply_adds[i] && choice.eight;
                of->six += !w.multiply_adds[i] && !choice.multiply_adds && !choice.eight;
            }
        }
    free(data);
}

/* Returns the largest error divided by k 2^-24 sum |a||b|, without elements whose sum is tiny or overflows. */
static double worst_share(const matrices *x, int way)
{
    double worst = 0;
    int64_t terms = x->k + (way & ADD ? 1 : 0);
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            double sum = way & ADD ? (double)x->old[i * x->n + j] : 0, size = fabs(sum);
            for (int64_t k = 0; k < x->k; k++) {
                double p = (double)x->a[i * x->k + k] * (double)x->b[j * x->k + k];
                sum += p;
                size += fabs(p);
            }
            double off = fabs((double)x->c[i * x->n + j] - sum);
            if (size == 0)
                assert_true(x->c[i * x->n + j] == 0);
            else if (size >= 1e-30 && size < (double)FLT_MAX)
                worst = fmax(worst, isnan(off) ? INFINITY : off / ((double)terms * 0x1p-24 * size));
        }
    return worst;
}

/* If the machine has AMX, it must give the same bits as plain C. */
static void same_with_amx(const matrices *x, int way)
{
    const attn__slices_kernel *amx = attn__slices_for(ATTN_ISA_AMX);
    size_t bytes = (size_t)(x->m * x->n) * sizeof(float);
    if (!amx || !attn__isa_runs_here(ATTN_ISA_AMX))
        return;
    float *plain = malloc(bytes);
    assert_non_null(plain);
    memcpy(plain, x->c, bytes);
    assert_true(multiply(amx, x, way, 0, x->m, x->c));
    assert_memory_equal(x->c, plain, bytes);
    free(plain);
}

static void one_product(attn__rng *rng, structure a, structure b, int way, shares *of)
{
    int64_t m = 1 + (int64_t)(attn__rng_below(rng, 40)), n = 1 + (int64_t)(attn__rng_below(rng, 40));
    int64_t k = 64 + (int64_t)(attn__rng_below(rng, way == 0 ? 900 : 400));
    matrices x = make(a, b, rng, m, n, k);
    count_ways(&x, way, of);
    if (multiply(attn__slices_portable(), &x, way, 0, m, x.c)) {
        double share = worst_share(&x, way);
        if (!(share <= 1))
            fail_msg("%s by %s, %lld x %lld x %lld, way %d: %g of the bound", names[a], names[b], (long long)m,
                     (long long)n, (long long)k, way, share);
        same_with_amx(&x, way);
    }
    release(&x);
}

/* Reads a number from the environment. SLICES_SEED selects other random numbers, SLICES_ROUNDS is the number of
 * rounds, and SLICES_EVERY=N, for emulators, runs only one product in N. */
static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static void hostile_products_keep_the_promise(void **state)
{
    attn__rng rng = {.seed = (uint64_t)setting("SLICES_SEED", 17)};
    int64_t every = setting("SLICES_EVERY", 1);
    shares of = {0, 0, 0};
    for (int64_t round = 0; round < setting("SLICES_ROUNDS", 2); round++)
        for (int a = 0; a < STRUCTURES; a++)
            for (int b = 0; b < STRUCTURES; b++)
                if ((a * STRUCTURES + b) % every == 0)
                    one_product(&rng, (structure)a, (structure)b, ALL_PANELS ^ ((a + b + (int)round) & 3), &of);
    print_message("rows by panels and K blocks: %lld six, %lld eight, %lld multiply-adds\n", (long long)of.six,
                  (long long)of.eight, (long long)of.adds);
    assert_true(every > 1 || (of.six > 1000 && of.eight > 100 && of.adds > 1000));
}

/* ----------------------------------------------------------------------------------------------- ordinary data */

/* Slices are only faster because six products are enough for nearly all numbers of networks. */
static void ordinary_products_take_six(void **state)
{
    static const struct {
        structure of;
        int64_t k;
        /* least shares, over panels and K blocks, of rows with six products and of rows with slices */
        double least_six, least_slices;
    } cases[] = {{NORMAL, 256, 0.95, 1}, {NORMAL, 768, 1, 1},  {NORMAL, 1024, 1, 1},  {NORMAL, 3072, 1, 1},
                 {GELU, 256, 0, 0},      {GELU, 768, 0.98, 1}, {GELU, 1024, 0.98, 1}, {GELU, 3072, 1, 1},
                 {RELU, 256, 0, 0},      {RELU, 768, 0, 0},    {RELU, 1024, 0, 0},    {RELU, 3072, 1, 1}};
    if (setting("SLICES_EVERY", 1) > 1)
        skip();
    attn__rng rng = {.seed = 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrices x = make(cases[i].of, cases[i].of, &rng, 64, 64, cases[i].k);
        shares of = {0, 0, 0};
        count_ways(&x, 0, &of);
        assert_true(multiply(attn__slices_portable(), &x, 0, 0, x.m, x.c));
        double all = (double)(of.six + of.eight + of.adds), share = worst_share(&x, 0);
        print_message("%s, k %lld: six %.3f, eight %.3f, multiply-adds %.3f; worst %.4f of the bound\n",
                      names[cases[i].of], (long long)cases[i].k, (double)of.six / all, (double)of.eight / all,
                      (double)of.adds / all, share);
        assert_true((double)of.six / all >= cases[i].least_six);
        assert_true((double)(of.six + of.eight) / all >= cases[i].least_slices);
        assert_true(share <= 1);
        same_with_amx(&x, 0);
        release(&x);
    }
}

static void row_bits_do_not_depend_on_other_rows(void **state)
{
    enum { M = 40, N = 48, K = 500, FAR = 21 };
    attn__rng rng = {.seed = 5};
    matrices x = make(NORMAL, NORMAL, &rng, M, N, K);
    assert_true(multiply(attn__slices_portable(), &x, 0, 0, M, x.c));
    for (int64_t i = 0; i < M; i++) {
        assert_true(multiply(attn__slices_portable(), &x, 0, i, 1, x.old));
        assert_memory_equal(x.old, x.c + i * N, N * sizeof(float));
    }
    static const float far[] = {12, 1e4f, INFINITY};
    for (size_t f = 0; f < sizeof far / sizeof *far; f++) {
        x.a[FAR * K + 411] = far[f];
        shares of = {0, 0, 0};
        count_ways(&x, 0, &of);
        assert_true(multiply(attn__slices_portable(), &x, 0, 0, M, x.old));
        assert_true(f == 0 ? of.eight > 0 && of.adds == 0 : of.adds > 0);
        for (int64_t i = 0; i < M; i++)
            assert_true(i == FAR || memcmp(x.old + i * N, x.c + i * N, N * sizeof(float)) == 0);
    }
    release(&x);
}

/* The epilogue adds a bias and counts how often each element is finished. */
typedef struct finished {
    int64_t n;
    uint8_t *times;
} finished;

static void finish(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const finished *f = user;
    for (int64_t i = 0; i < n; i++) {
        f->times[row * f->n + column + i]++;
        ((float *)c)[i] += (float)(column + i);
    }
}

enum { EVERY = 7, OTHER = 3 };

static bool is_unproved(int64_t row)
{
    return row % EVERY == OTHER;
}

static bool has_multiply_adds(int64_t panel)
{
    return panel == 3 || panel == 9;
}

/* Makes normal numbers, except for rows with only one nonzero number and columns with one very large number. The
 * error bound of slices is not proved for these. */
static matrices mixed(attn__rng *rng, int64_t m, int64_t n, int64_t k)
{
    matrices x = make(NORMAL, NORMAL, rng, m, n, k);
    for (int64_t i = 0; i < m * k; i++)
        x.a[i] = is_unproved(i / k) && i % k != 5 ? 0 : x.a[i];
    for (int64_t j = 0; j < n; j++)
        if (has_multiply_adds(j / SIDE))
            x.b[j * k + 7] = 1e6f;
    return x;
}

/* Each row by slices must have the same bits as when it is computed alone. Other elements must have the bits of
 * `adds`. */
static void check_mixed(const matrices *x, int way, const float *all, const float *adds, int64_t ld)
{
    enum { SOME = 50 };
    for (int64_t r = 0; r < x->m; r++) {
        bool alone = !is_unproved(r) && r % SOME == 0;
        if (alone)
            assert_true(multiply(attn__slices_portable(), x, way, r, 1, x->c));
        for (int64_t j = 0; j < ld; j++)
            if (is_unproved(r) || j >= x->n || has_multiply_adds(j / SIDE))
                assert_true(all[r * ld + j] == adds[r * ld + j]);
            else if (alone)
                assert_true(all[r * ld + j] == x->c[j] + (float)j);
    }
}

/* A row for which the error bound of slices is proved must have the same bits as alone. Other rows, and columns
 * without a proved bound, must have the bits of multiply-adds. Each element is computed and finished once. There are
 * more rows than are computed at a time, and more panels than a group has. */
static void each_element_is_computed_and_finished_once(void **state)
{
    enum { M = 1040, N = 150, LD = N + 5 };
    static const struct {
        int way;
        int64_t k;
    } cases[] = {{0, 300}, {ADD, 800}};
    attn__rng rng = {.seed = 8};
    if (setting("SLICES_EVERY", 1) > 1)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        matrices x = mixed(&rng, M, N, cases[i].k);
        float *all = calloc(2 * M * LD, sizeof *all), *adds = all + M * LD;
        const finished by_slices = {N, calloc(2 * M, N)}, by_adds = {N, by_slices.times + M * N};
        assert_true(all && by_slices.times);
        attn__gemm_problem g = problem_of(&x, cases[i].way, 0, M, all, LD);
        g.finish = finish;
        g.user = &by_slices;
        assert_true(run_slices(attn__slices_portable(), &x, cases[i].way, &g));
        g = problem_of(&x, cases[i].way, 0, M, adds, LD);
        g.finish = finish;
        g.user = &by_adds;
        run_multiply_adds(&g);
        for (int64_t at = 0; at < M * N; at++)
            assert_int_equal(by_slices.times[at], 1);
        check_mixed(&x, cases[i].way, all, adds, LD);
        free(all);
        free(by_slices.times);
        release(&x);
    }
}

/* Infinity and NaN must be in exactly those results whose exact sums have them. */
static void infinity_and_nan_appear_as_in_mathematics(void **state)
{
    enum { M = 33, N = 40, K = 130 };
    attn__rng rng = {.seed = 6};
    matrices x = make(NORMAL, NORMAL, &rng, M, N, K);
    x.a[3 * K + 7] = INFINITY;
    x.a[20 * K + 9] = NAN;
    for (int64_t k = 0; k < K; k++)
        x.a[8 * K + k] = 0;
    assert_true(multiply(attn__slices_portable(), &x, 0, 0, M, x.c));
    x.b[5 * K + 11] = -INFINITY;
    assert_false(multiply(attn__slices_portable(), &x, 0, 0, M, x.c));
    assert_true(multiply(attn__slices_portable(), &x, ALL_PANELS, 0, M, x.c));
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += x.a[i * K + k] * x.b[j * K + k];
            float got = x.c[i * N + j];
            assert_true(isfinite(sum) ? isfinite(got) : isnan(sum) ? isnan(got) : got == sum);
        }
    release(&x);
}

/* -------------------------------------------------------------------------------------------------- functions */

static void no_hook(attn__slices_hook *hook)
{
    (void)hook;
}

/* A tile of C, from 16 rows of A and 16 columns of B, with all intermediate results. */
typedef struct way {
    attn__slices_scale scale[SIDE];
    int8_t _Alignas(64) a[2 * ATTN__SLICES_STEP], b[2 * ATTN__SLICES_STEP];
    attn__slices_rows rows, of_b;
    attn__slices_panel panel;
    attn__slices_choice choice;
    float c[SIDE * SIDE];
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
                              .ld = SIDE};
    kernel->begin();
    kernel->run(&args, &state, &(attn__slices_hook){no_hook});
    kernel->finish(&state);
    kernel->end();
}

static void amx_functions_match_plain_c(void **state)
{
    static way plain, amx;
    attn__rng rng = {.seed = 7};
    for (int i = 0; i < 2 * STRUCTURES; i++) {
        matrices x = make((structure)(i / 2), (structure)(i / 2), &rng, SIDE, SIDE, i % 2 ? 128 : 101);
        go(attn__slices_portable(), &x, &plain);
        if (attn__slices_for(ATTN_ISA_AMX) && attn__isa_runs_here(ATTN_ISA_AMX)) {
            go(attn__slices_for(ATTN_ISA_AMX), &x, &amx);
            assert_memory_equal(amx.scale, plain.scale, sizeof plain.scale);
            assert_memory_equal(amx.a, plain.a, sizeof plain.a);
            assert_memory_equal(amx.b, plain.b, sizeof plain.b);
            assert_memory_equal(&amx.rows, &plain.rows, sizeof plain.rows);
            assert_memory_equal(&amx.of_b, &plain.of_b, sizeof plain.of_b);
            assert_memory_equal(&amx.panel, &plain.panel, sizeof plain.panel);
            assert_memory_equal(&amx.choice, &plain.choice, sizeof plain.choice);
            assert_memory_equal(amx.c, plain.c, sizeof plain.c);
        }
        release(&x);
    }
}

RUN_TESTS(TEST(amx_functions_match_plain_c), TEST(hostile_products_keep_the_promise), TEST(ordinary_products_take_six),
          TEST(row_bits_do_not_depend_on_other_rows), TEST(each_element_is_computed_and_finished_once),
          TEST(infinity_and_nan_appear_as_in_mathematics))
