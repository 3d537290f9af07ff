/* SPDX-License-Identifier: MIT
 *
 * Compares products (gemm/gemm.h) with their definition, bit by bit. An element is the sum of its K blocks in ascending
 * order, and a K block is a chain of multiply-adds. The tests cover batches, sums over a batch, strides, gathered
 * operands, narrow and wide C, and every instruction set, in float and double. ATTN_TEST_STEP=N, for emulators, runs
 * only every N-th small product and no product of 10^9 multiply-adds.
 */
#include "support/cmocka.h"

#include "base/caches.h"
#include "base/integers.h"
#include "base/system.h"
#include "gemm/im2col.h"
#include "gemm/gemm.h"
#include "gemm/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state_of_numbers = 7;

static double number(void)
{
    state_of_numbers = state_of_numbers * 1664525u + 1013904223u;
    return (double)(state_of_numbers >> 8) / 8388608.0 - 1;
}

/* An array of floats or doubles that is read and written as double. */
typedef struct array {
    bool wide;
    int64_t n;
    void *data;
} array;

static array make(bool wide, int64_t n)
{
    array x = {wide, n, malloc((size_t)(n > 0 ? n : 1) * (wide ? sizeof(double) : sizeof(float)))};
    assert_non_null(x.data);
    for (int64_t i = 0; i < n; i++)
        if (wide)
            ((double *)x.data)[i] = number();
        else
            ((float *)x.data)[i] = (float)number();
    return x;
}

static double get(array x, int64_t i)
{
    assert_true(i >= 0 && i < x.n);
    return x.wide ? ((double *)x.data)[i] : (double)((float *)x.data)[i];
}

/* Computes a * b + c in the type, with one rounding if it is fused, and with two in plain C. */
static double multiply_add(bool wide, bool fused, double a, double b, double c)
{
    if (wide)
        return fused ? fma(a, b, c) : a * b + c;
    if (fused)
        return (double)fmaf((float)a, (float)b, (float)c);
    float product = (float)a * (float)b;
    return (double)(product + (float)c);
}

static double add(bool wide, double a, double b)
{
    return wide ? a + b : (double)((float)a + (float)b);
}

/* Returns element (i, k) of a matrix of the batch, where `outer` is i. `user` describes the matrix. */
typedef double element_of(const void *user, int64_t batch, int64_t outer, int64_t k);

typedef struct definition {
    element_of *a, *b;
    const void *user;
    bool wide, fused;
    int64_t batches, k; /* batches: number of products that are summed */
} definition;

static double sum_of(const definition *d, int64_t batch, int64_t i, int64_t j, const double *old)
{
    double sum = old ? *old : 0;
    bool first = !old;
    for (int64_t t = 0; t < d->batches; t++) {
        for (int64_t k0 = 0; k0 < d->k; k0 += ATTN__GEMM_K) {
            double chain = 0;
            for (int64_t k = k0; k < d->k && k < k0 + ATTN__GEMM_K; k++)
                chain = multiply_add(d->wide, d->fused, d->a(d->user, batch + t, i, k), d->b(d->user, batch + t, j, k),
                                     chain);
            sum = first ? chain : add(d->wide, sum, chain);
            first = false;
        }
    }
    return sum;
}

typedef struct strided {
    array a, b;
    attn__gemm_problem g;
} strided;

static double a_of(const void *user, int64_t batch, int64_t i, int64_t k)
{
    const strided *s = user;
    return get(s->a, batch * s->g.a.batch + i * s->g.a.outer + k * s->g.a.inner);
}

static double b_of(const void *user, int64_t batch, int64_t j, int64_t k)
{
    const strided *s = user;
    return get(s->b, batch * s->g.b.batch + j * s->g.b.outer + k * s->g.b.inner);
}

static void run(const attn__gemm_problem *g, attn__isa isa, int threads)
{
    attn__gemm_plan plan;
    attn__gemm_plan_make(&plan, g, isa, threads);
    size_t bytes = attn__gemm_workspace(&plan);
    void *workspace = attn__system_alloc(bytes + 64, 64);
    assert_non_null(workspace);
    /* NaN in the workspace shows numbers that are read before they are written. */
    memset(workspace, 0xff, bytes);
    attn__gemm_run(&plan, workspace);
    attn__system_release(workspace);
}

/* Checks some elements of each row and column, including the corners. Gaps between rows must not change. */
static void check(const attn__gemm_problem *g, const definition *d, array c, array old)
{
    int64_t matrices = g->c_batch ? g->batch : 1, i_step = g->m > 40 ? g->m / 13 : 1,
            j_step = g->n > 40 ? g->n / 11 : 1;
    for (int64_t t = 0; t < matrices; t++) {
        for (int64_t i = 0; i < g->m; i = i < g->m - 1 && i + i_step >= g->m ? g->m - 1 : i + i_step) {
            for (int64_t j = 0; j < g->n; j = j < g->n - 1 && j + j_step >= g->n ? g->n - 1 : j + j_step) {
                int64_t at = t * g->c_batch + i * g->ldc + j;
                double before = get(old, at), wanted = sum_of(d, t, i, j, g->add ? &before : NULL), got = get(c, at);
                if (got != wanted)
                    fail_msg("%lld x %lld x %lld, batch %lld: element (%lld, %lld) is %.17g, not %.17g",
                             (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->batch, (long long)i,
                             (long long)j, got, wanted);
            }
            for (int64_t j = g->n; j < g->ldc; j++)
                assert_true(get(c, t * g->c_batch + i * g->ldc + j) == get(old, t * g->c_batch + i * g->ldc + j));
        }
    }
}

static bool is_fused(attn__isa isa)
{
    return isa != ATTN_ISA_SCALAR;
}

typedef struct shape {
    int64_t m, n, k, batch;
    bool ta, tb, add, sum, shared_b;
    int64_t apart;
    /* if above 0, k is longer than one round, and only every n-th element is checked, where n is this number */
    int64_t every;
} shape;

static void try_strided(const shape *s, bool wide, attn__isa isa, int threads)
{
    int64_t lda = (s->ta ? s->m : s->k) + s->apart, ldb = (s->tb ? s->k : s->n) + s->apart, ldc = s->n + s->apart;
    int64_t a_size = (s->ta ? s->k : s->m) * lda, b_size = (s->tb ? s->n : s->k) * ldb;
    strided x = {make(wide, a_size * s->batch),
                 make(wide, b_size * (s->shared_b ? 1 : s->batch)),
                 {.dtype = wide ? ATTN_F64 : ATTN_F32,
                  .batch = s->batch,
                  .m = s->m,
                  .n = s->n,
                  .k = s->k,
                  .a = {NULL, s->ta ? 1 : lda, s->ta ? lda : 1, a_size},
                  .b = {NULL, s->tb ? ldb : 1, s->tb ? 1 : ldb, s->shared_b ? 0 : b_size},
                  .ldc = ldc,
                  .c_batch = s->sum ? 0 : s->m * ldc,
                  .add = s->add}};
    array c = make(wide, s->m * ldc * s->batch), old = make(wide, c.n);
    memcpy(c.data, old.data, (size_t)c.n * (wide ? sizeof(double) : sizeof(float)));
    x.g.a.data = x.a.data;
    x.g.b.data = x.b.data;
    x.g.c = c.data;
    run(&x.g, isa, threads);
    definition d = {a_of, b_of, &x, wide, is_fused(isa), s->sum ? s->batch : 1, s->k};
    check(&x.g, &d, c, old);
    free(x.a.data);
    free(x.b.data);
    free(c.data);
    free(old.data);
}

static void strided_matrices(void **state)
{
    static const int64_t sizes[][4] = {{1, 1, 1, 1},       {1, 300, 700, 1},  {7, 5, 13, 3},       {64, 64, 256, 1},
                                       {65, 33, 257, 2},   {200, 97, 513, 1}, {300, 3, 300, 1},    {3, 300, 300, 2},
                                       {13, 1, 1000, 4},   {12, 16, 511, 5},  {400, 260, 80, 1},   {6, 16, 1, 9},
                                       {193, 520, 300, 1}, {1, 1, 3000, 2},   {50, 1030, 1025, 1}, {70, 24, 255, 3}};
    static const attn__isa sets[] = {ATTN_ISA_SCALAR, ATTN_ISA_NEON, ATTN_ISA_AVX2, ATTN_ISA_AVX512};
    int round = 0, step = test_step();
    for (size_t isa = 0; isa < sizeof sets / sizeof *sets; isa++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && attn__isa_runs_here(sets[isa]); i++) {
            for (int kind = 0; kind < 8; kind++, round++) {
                const int64_t *n = sizes[i];
                if (round % step != 0)
                    continue;
                shape s = {n[0],     n[1],           n[2],           n[3],      kind & 1, kind & 2,
                           kind & 4, round % 3 == 0, round % 5 == 0, round % 7, 0};
                try_strided(&s, round % 4 == 3, sets[isa], 1 + round % 3);
            }
        }
    }
}

/* Tests a matrix B that is larger than what one round packs. */
static void large_matrices(void **state)
{
    for (int kind = test_step() > 1 ? 3 : 0; kind < 4; kind++)
        try_strided(&(shape){50, 1500, 4100, 1, kind & 1, kind & 2, kind == 3, false, false, 0, 0}, false,
                    attn__isa_best(), 2);
}

static void add_one(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    (void)user, (void)row, (void)column;
    for (int64_t i = 0; i < n; i++)
        ((float *)c)[i] += 1;
}

/* Tests a product of one column, which is computed as C^T. With small caches, k needs several rounds. */
static void rounds_of_a_transposed_product_are_finished_once(void **state)
{
    enum { M = 96, K = 90000 };
    static const attn__caches small = {.l1 = 1 << 15, .l2 = 1 << 18, .l3 = 1 << 20};
    array a = make(false, M * K), b = make(false, K * 2), sums = make(false, M), finished = make(false, M);
    attn__gemm_plan plan;
    attn__gemm_problem g = {.dtype = ATTN_F32,
                            .m = M,
                            .n = 1,
                            .k = K,
                            .a = attn__matrix(a.data, K, 1),
                            .b = attn__matrix(b.data, 1, 2),
                            .c = sums.data,
                            .ldc = 1,
                            .caches = &small};
    run(&g, attn__isa_best(), 4);
    g.c = finished.data;
    g.finish = add_one;
    attn__gemm_plan_make(&plan, &g, attn__isa_best(), 4);
    assert_true(attn__isa_best() == ATTN_ISA_SCALAR || (plan.transposed && plan.k_round < K));
    run(&g, attn__isa_best(), 4);
    for (int64_t i = 0; i < M; i++)
        assert_true(get(finished, i) == add(false, get(sums, i), 1));
    free(a.data);
    free(b.data);
    free(sums.data);
    free(finished.data);
}

/* ------------------------------------------------------------------------------------------------ bf16 */

/* Returns the nearest bf16 number, with ties to even. */
static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double value_of(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void check_rounds(const shape *s, const attn__gemm_problem *g, attn__isa isa)
{
    attn__gemm_plan plan;
    attn__gemm_plan_make(&plan, g, isa, 2);
    assert_true(s->every == 0 || plan.k_round < s->k);
}

/* The products are exact in f32, so that only sums are rounded. A is bf16, and B is rounded to bf16 and packed before
 * or during the product. C is bf16, or f32 that is written or accumulated. */
static void try_bf16(const shape *s, attn__isa isa, int kind)
{
    bool half = kind == 1, packs = kind == 2;
    int64_t ldb = s->tb ? s->k : s->n;
    array b = make(false, s->k * s->n), c = make(false, s->m * s->n), old = make(false, c.n);
    uint16_t *a = malloc((size_t)(s->m * s->k) * sizeof *a), *c16 = malloc((size_t)c.n * sizeof *c16);
    assert_true(a && c16);
    for (int64_t i = 0; i < s->m * s->k; i++)
        a[i] = bf16_of((float)number());
    memcpy(old.data, c.data, (size_t)c.n * sizeof(float));
    attn__gemm_problem g = {.dtype = ATTN_BF16,
                            .m = s->m,
                            .n = s->n,
                            .k = s->k,
                            .a = {a, s->k, 1, .bf16 = true},
                            .b = attn__matrix(b.data, s->tb ? ldb : 1, s->tb ? 1 : ldb),
                            .c = half ? (void *)c16 : c.data,
                            .c_bf16 = half,
                            .ldc = s->n,
                            .add = s->add && !half};
    void *panels = attn__system_alloc(attn__gemm_packed_bytes(&g, isa), 64);
    assert_non_null(panels);
    attn__gemm_pack_b(&g, isa, 2, 0, g.n, panels);
    g.packed = packs ? panels : NULL;
    check_rounds(s, &g, isa);
    run(&g, isa, 2);
    for (int64_t i = 0; i < c.n; i += attn__max(s->every, 1)) {
        double sum = g.add ? get(old, i) : 0, sizes = fabs(sum);
        for (int64_t k = 0; k < s->k; k++) {
            double x = value_of(a[i / s->n * s->k + k]);
            double y = value_of(bf16_of((float)get(b, s->tb ? i % s->n * ldb + k : k * ldb + i % s->n)));
            sum += x * y;
            sizes += fabs(x * y);
        }
        double got = half ? value_of(c16[i]) : get(c, i), most = (double)(s->k + 1) * 0x1p-24 * sizes;
        if (!(fabs(got - sum) <= most + (half ? 0x1p-8 * fabs(sum) : 0)))
            fail_msg("%lld x %lld x %lld: element %lld is %g, not %g", (long long)s->m, (long long)s->n,
                     (long long)s->k, (long long)i, got, sum);
    }
    attn__system_release(panels);
    free(a);
    free(c16);
    free(b.data);
    free(c.data);
    free(old.data);
}

static void bf16_matrices(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1},     {32, 32, 32},   {33, 31, 33},  {64, 96, 300}, {100, 7, 40},
                                       {70, 64, 512}, {200, 130, 65}, {3, 200, 257}, {40, 70, 1031}};
    static const attn__isa sets[] = {ATTN_ISA_SCALAR, ATTN_ISA_NEON,       ATTN_ISA_AVX2,
                                     ATTN_ISA_AVX512, ATTN_ISA_AVX512BF16, ATTN_ISA_AMX};
    for (size_t isa = 0; isa < sizeof sets / sizeof *sets; isa++) {
        for (size_t i = 0; i < 6 * sizeof sizes / sizeof *sizes && attn__isa_runs_here(sets[isa]); i++) {
            const int64_t *n = sizes[i / 6];
            try_bf16(&(shape){.m = n[0], .n = n[1], .k = n[2], .tb = i % 2, .add = i % 4 > 1}, sets[isa], (int)i % 3);
        }
    }
}

/* A bf16 C has sums over all of k that are rounded once, even if A or B needs several rounds of packing. */
static void bf16_results_of_long_sums(void **state)
{
    static const int64_t sizes[][3] = {{200, 3400, 1300}, {7000, 300, 1300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && test_step() == 1; i++) {
        int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2], wrong = 0;
        array a = make(false, m * k), b = make(false, n * k), c = make(false, m * n);
        uint16_t *c16 = malloc((size_t)c.n * sizeof *c16);
        assert_non_null(c16);
        attn__gemm_problem g = {.dtype = ATTN_F32,
                                .m = m,
                                .n = n,
                                .k = k,
                                .a = attn__matrix(a.data, k, 1),
                                .b = attn__matrix(b.data, 1, n),
                                .c = c.data,
                                .ldc = n};
        run(&g, attn__isa_best(), 2);
        g.c = c16;
        g.c_bf16 = true;
        run(&g, attn__isa_best(), 2);
        for (int64_t e = 0; e < c.n; e++)
            wrong += c16[e] != bf16_of((float)get(c, e));
        assert_int_equal(wrong, 0);
        free(a.data);
        free(b.data);
        free(c.data);
        free(c16);
    }
}

/* ------------------------------------------------------------------------------------------------ int8 */

static int8_t *integers(int64_t n)
{
    int8_t *x = malloc((size_t)n);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (int8_t)lrint(127 * number());
    x[0] = x[n - 1] = -127;
    return x;
}

/* Checks that int8 sums are exact. B is packed before or during the product. Gaps after the rows of C must not
 * change. */
static void try_int8(const shape *s, attn__isa isa, bool packs)
{
    int64_t lda = s->ta ? s->m : s->k, ldb = s->tb ? s->k : s->n, ldc = s->n + s->apart;
    int8_t *a = integers(s->m * s->k), *b = integers(s->n * s->k);
    int32_t *c = malloc((size_t)(s->m * ldc) * sizeof *c);
    attn__gemm_problem g = {.dtype = ATTN_I32,
                            .m = s->m,
                            .n = s->n,
                            .k = s->k,
                            .a = attn__matrix(a, s->ta ? 1 : lda, s->ta ? lda : 1),
                            .b = attn__matrix(b, s->tb ? ldb : 1, s->tb ? 1 : ldb),
                            .c = c,
                            .ldc = ldc,
                            .add = s->add};
    void *panels = aligned_alloc(64, (attn__gemm_packed_bytes(&g, isa) + 63) / 64 * 64);
    assert_true(c && panels);
    for (int64_t i = 0; i < s->m * ldc; i++)
        c[i] = 1000;
    attn__gemm_pack_b(&g, isa, 2, 0, g.n, panels);
    g.packed = packs ? panels : NULL;
    check_rounds(s, &g, isa);
    run(&g, isa, 2);
    for (int64_t i = 0; i < s->m * ldc; i += attn__max(s->every, 1)) {
        int32_t wanted = s->add || i % ldc >= s->n ? 1000 : 0;
        for (int64_t k = 0; k < s->k && i % ldc < s->n; k++)
            wanted += a[i / ldc * g.a.outer + k * g.a.inner] * b[i % ldc * g.b.outer + k * g.b.inner];
        if (c[i] != wanted)
            fail_msg("%lld x %lld x %lld: element %lld is %d, not %d", (long long)s->m, (long long)s->n,
                     (long long)s->k, (long long)i, c[i], wanted);
    }
    free(panels);
    free(a);
    free(b);
    free(c);
}

static void int8_matrices(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1},      {6, 16, 32},   {7, 17, 33},   {5, 24, 300},  {3, 9, 257},
                                       {200, 130, 65}, {4, 300, 513}, {197, 31, 64}, {30, 40, 2055}};
    static const attn__isa sets[] = {ATTN_ISA_SCALAR, ATTN_ISA_NEON, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_AMX};
    for (size_t isa = 0; isa < sizeof sets / sizeof *sets; isa++) {
        for (size_t i = 0; i < 8 * sizeof sizes / sizeof *sizes && attn__isa_runs_here(sets[isa]); i++) {
            const int64_t *n = sizes[i / 8];
            shape s = {.m = n[0], .n = n[1], .k = n[2], .ta = i % 8 == 3, .tb = i % 8 != 5, .add = i & 1};
            s.apart = (int64_t)(i % 3);
            try_int8(&s, sets[isa], i & 2);
        }
    }
}

/* Only some elements are checked. */
static void bf16_and_int8_sums_over_several_k_rounds(void **state)
{
    enum { EVERY = 62873 /* no common factor with n */ };
    for (int add = 0; add < 2 && test_step() == 1; add++) {
        try_bf16(&(shape){.m = 2200, .n = 2100, .k = 2100, .tb = true, .add = add, .every = EVERY}, attn__isa_best(),
                 0);
        try_int8(&(shape){.m = 2200, .n = 2100, .k = 4200, .tb = true, .add = add, .every = EVERY}, attn__isa_best(),
                 false);
    }
}

/* ---------------------------------------------------------------------------------------------- im2col */

typedef struct convolution {
    attn__im2col s;
    array x, w;
    int64_t rows, positions;
} convolution;

/* Returns an element of the im2col matrix by its definition, tap by tap. */
static double column_of(const void *user, int64_t batch, int64_t position, int64_t row)
{
    const convolution *c = user;
    const attn__window_grid *g = &c->s.grid;
    int64_t taps = attn__volume(g->kernel), tap = row % taps, at = 0;
    int64_t out[] = {position / (g->out[1] * g->out[2]), position / g->out[2] % g->out[1], position % g->out[2]};
    int64_t of[] = {tap / (g->kernel[1] * g->kernel[2]), tap / g->kernel[2] % g->kernel[1], tap % g->kernel[2]};
    for (int i = 0; i < 3; i++) {
        int64_t in = out[i] * g->stride[i] + of[i] - g->padding[i];
        if (in < 0 || in >= g->in[i])
            return 0;
        at = at * g->in[i] + in;
    }
    return get(c->x, batch * c->s.image + row / taps * attn__volume(g->in) + at);
}

static double row_of(const void *user, int64_t batch, int64_t row, int64_t position)
{
    return column_of(user, batch, position, row);
}

static double weight_of(const void *user, int64_t batch, int64_t i, int64_t k)
{
    const convolution *c = user;
    (void)batch;
    return get(c->w, i * c->rows + k);
}

static double gradient_of(const void *user, int64_t batch, int64_t i, int64_t k)
{
    const convolution *c = user;
    int64_t outputs = c->w.n / c->rows;
    return get(c->w, (batch * outputs + i) % outputs * c->rows + k % c->rows);
}

static attn__window_grid grid_of(const int64_t n[8])
{
    attn__window_grid g = {{n[0], n[1], n[2]}, {0}, {n[0] > 1 ? 2 : 1, n[3], n[4]}, {1, n[5], n[6]},
                           {0, n[7], n[7]},    {0}};
    for (int i = 0; i < 3; i++)
        g.out[i] = (g.in[i] + 2 * g.padding[i] - g.kernel[i]) / g.stride[i] + 1;
    return g;
}

enum { BATCH = 2, CHANNELS = 5, OUTPUTS = 19 };

static convolution convolution_of(const int64_t n[8], bool wide)
{
    attn__window_grid g = grid_of(n);
    convolution c = {.rows = CHANNELS * attn__volume(g.kernel), .positions = attn__volume(g.out)};
    c.x = make(wide, BATCH * CHANNELS * attn__volume(g.in));
    c.w = make(wide, OUTPUTS * c.rows);
    c.s = (attn__im2col){g, c.x.data, CHANNELS * attn__volume(g.in), wide ? 8 : 4};
    return c;
}

/* Tests a convolution as two products with the im2col matrix `columns`: Y = W columns, and the sum over the batch of
 * dY columns^T. */
static void try_convolution(const int64_t n[8], bool wide, attn__isa isa, int threads)
{
    convolution x = convolution_of(n, wide);
    attn__gemm_problem g = {.dtype = wide ? ATTN_F64 : ATTN_F32,
                            .batch = BATCH,
                            .m = OUTPUTS,
                            .n = x.positions,
                            .k = x.rows,
                            .a = attn__matrix(x.w.data, x.rows, 1),
                            .b = {NULL, 1, 0, .gather = attn__im2col_gather, .source = &x.s},
                            .ldc = x.positions,
                            .c_batch = OUTPUTS * x.positions};
    array c = make(wide, BATCH * g.c_batch), sums = make(wide, OUTPUTS * x.rows), old = make(wide, sums.n);
    definition d = {weight_of, column_of, &x, wide, is_fused(isa), 1, x.rows};
    g.c = c.data;
    run(&g, isa, threads);
    check(&g, &d, c, c);

    array dy = x.w;
    x.w = make(wide, OUTPUTS * x.positions);
    free(dy.data);
    convolution back = x;
    back.rows = x.positions;
    memcpy(sums.data, old.data, (size_t)old.n * (wide ? 8 : 4));
    attn__gemm_problem w = {.dtype = g.dtype,
                            .batch = BATCH,
                            .m = OUTPUTS,
                            .n = x.rows,
                            .k = x.positions,
                            .a = attn__matrix(x.w.data, x.positions, 1),
                            .b = {NULL, 0, 1, .gather = attn__im2col_gather, .source = &x.s},
                            .c = sums.data,
                            .ldc = x.rows,
                            .add = true};
    run(&w, isa, threads);
    d = (definition){gradient_of, row_of, &back, wide, is_fused(isa), BATCH, x.positions};
    check(&w, &d, sums, old);
    free(x.x.data);
    free(x.w.data);
    free(c.data);
    free(sums.data);
    free(old.data);
}

static void gathered_matrices(void **state)
{
    /* size, kernel, stride, padding */
    static const int64_t kinds[][8] = {
        {1, 9, 11, 3, 3, 1, 1, 1},  {1, 17, 33, 3, 3, 1, 1, 1}, {1, 32, 32, 5, 5, 1, 1, 2}, {1, 12, 13, 3, 3, 2, 2, 1},
        {1, 1, 40, 1, 7, 1, 1, 0},  {1, 8, 8, 1, 1, 1, 1, 0},   {1, 7, 6, 2, 4, 3, 1, 1},   {3, 6, 7, 3, 3, 1, 1, 1},
        {1, 20, 20, 4, 4, 4, 4, 0}, {1, 2, 2, 3, 3, 1, 1, 1},   {2, 5, 9, 3, 2, 1, 2, 2},   {1, 1, 1, 1, 1, 1, 1, 0},
        {1, 2, 2, 1, 1, 2, 2, 0},   {1, 2, 2, 3, 3, 2, 2, 1},   {1, 2, 1, 3, 3, 1, 1, 1}};
    static const attn__isa sets[] = {ATTN_ISA_SCALAR, ATTN_ISA_NEON, ATTN_ISA_AVX2, ATTN_ISA_AVX512};
    for (size_t isa = 0; isa < sizeof sets / sizeof *sets; isa++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds && attn__isa_runs_here(sets[isa]); i++)
            try_convolution(kinds[i], i % 4 == 1, sets[isa], 1 + (int)i % 3);
}

/* If the stride is larger than the padding, no tap is inside of the plane. */
static void padding_around_one_plane_reads_nothing_outside(void **state)
{
    enum { PLACES = 12, NUMBERS = 2 * PLACES };
    float x[NUMBERS], to[16];
    for (int i = 0; i < NUMBERS; i++)
        x[i] = 1;
    attn__im2col s = {
        {.in = {1, 3, 4}, .out = {1, 3, 4}, .kernel = {1, 1, 1}, .stride = {3, 1, 1}, .padding = {1, 0, 0}},
        x,
        NUMBERS,
        sizeof(float)};
    for (int64_t row = 0; row < 2; row++) {
        attn__im2col_gather(&s, 0, row, 1, 0, PLACES, 16, to);
        for (int i = 0; i < 16; i++)
            assert_true(to[i] == 0);
    }
}

/* Packing B in parts must give the same as packing B at once. B is packed in parts if its weights are freed part by
 * part. */
static void try_parts(attn_dtype dtype, attn__isa isa, int64_t n, int64_t k)
{
    void *b = dtype == ATTN_I32 ? (void *)integers(n * k) : make(dtype == ATTN_F64, n * k).data;
    attn__gemm_problem g = {.dtype = dtype, .n = n, .k = k, .b = attn__matrix(b, k, 1)};
    size_t bytes = attn__gemm_packed_bytes(&g, isa);
    char *whole = calloc(bytes, 1), *parts = calloc(bytes, 1);
    assert_true(whole && parts);
    attn__gemm_pack_b(&g, isa, 1, 0, g.n, whole);
    for (int64_t first = 0; first < n; first += ATTN__GEMM_PART)
        attn__gemm_pack_b(&g, isa, 2, first, attn__min(first + ATTN__GEMM_PART, n), parts);
    assert_memory_equal(whole, parts, bytes);
    free(b);
    free(whole);
    free(parts);
}

static void products_by_parts_match_the_whole(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_I32};
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        for (int i = 0; i < 4 && attn__isa_runs_here((attn__isa)isa); i++) {
            const attn__gemm_kernel *kernel;
            for (int at = 0; (kernel = attn__gemm_kernel_at(types[i], (attn__isa)isa, at)); at++)
                assert_int_equal(ATTN__GEMM_PART % kernel->columns, 0);
            try_parts(types[i], (attn__isa)isa, 2 * ATTN__GEMM_PART + 80, 300);
            try_parts(types[i], (attn__isa)isa, ATTN__GEMM_PART + 1, 17);
        }
    }
}

static int64_t columns_at_once(attn__gemm_operand a, attn__gemm_operand b, int64_t batch, attn__isa isa)
{
    float c;
    attn__gemm_plan plan;
    attn__gemm_problem g = {
        .dtype = ATTN_F32, .batch = batch, .m = 16, .n = 512, .k = 300, .a = a, .b = b, .c = &c, .ldc = 512};
    g.c_batch = g.m * g.n;
    attn__gemm_plan_make(&plan, &g, isa, 1);
    return plan.n_block;
}

/* Operands that are contiguous along k use blocks of one panel. Gathered or packed operands do not, because they
 * would be read again for every panel. The columns of a K block take at most a quarter of L2, and at least half of
 * that if the blocks are equal. */
static void few_rows_take_one_panel_per_block(void **state)
{
    static const float x;
    attn__gemm_operand gathered = {NULL, 1, 0, .gather = attn__im2col_gather, .source = &x};
    static const attn__isa sets[] = {ATTN_ISA_SCALAR, ATTN_ISA_NEON, ATTN_ISA_AVX2, ATTN_ISA_AVX512};
    int64_t of_l2 = attn__caches_here()->l2 / 4 / (int64_t)(ATTN__GEMM_K * sizeof x);
    int64_t several = attn__min(192, of_l2 / 2);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (!attn__isa_runs_here(sets[i]))
            continue;
        attn__gemm_operand a = attn__matrix(&x, 300, 1), weights = attn__matrix(&x, 300, 1);
        assert_true(columns_at_once(a, weights, 1, sets[i]) <= 64);
        assert_true(columns_at_once(a, gathered, 1, sets[i]) >= several);
        assert_true(columns_at_once(attn__matrix(&x, 1, 16), weights, 4, sets[i]) >= several);
        assert_true(columns_at_once(a, attn__matrix(&x, 1, 512), 1, sets[i]) >= several);
    }
}

RUN_TESTS(TEST(strided_matrices), TEST(large_matrices), TEST(int8_matrices), TEST(bf16_results_of_long_sums),
          TEST(bf16_matrices), TEST(gathered_matrices), TEST(few_rows_take_one_panel_per_block),
          TEST(padding_around_one_plane_reads_nothing_outside), TEST(products_by_parts_match_the_whole),
          TEST(bf16_and_int8_sums_over_several_k_rounds), TEST(rounds_of_a_transposed_product_are_finished_once))
