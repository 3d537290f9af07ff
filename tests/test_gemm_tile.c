/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests the tile product of every instruction set: odd sizes, all layouts of A, and the bits of sums, which depend on
 * their order. Arrays end at guard pages.
 */
#include "support/cmocka.h"

#include "base/rng.h"
#include "kernels/gemm_tile/gemm_tile.h"
#include "support/guard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *random_matrix(attn__rng *rng, int64_t count)
{
    float *x = guard_alloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)attn__rng_normal(rng);
    return x;
}

static void count_call(void *calls)
{
    ++*(int *)calls;
}

/* Computes an element in the kernel's order of summation, with the old value last. The portable kernel also rounds
 * each product. */
static float element(const attn__gemm_tile_args *t, attn__isa isa, int64_t m, int64_t n, float start)
{
    float sum = 0.0f;
    for (int64_t k = 0; k < t->k; k++) {
        float a = t->a[m * t->am + k * t->ak], b = t->b[k * t->ldb + n];
        volatile float product = a * b;
        sum = isa == ATTN_ISA_SCALAR ? sum + product : fmaf(a, b, sum);
    }
    return t->accumulate ? sum + start : sum;
}

static void check(const attn__gemm_tile_kernel *kernel, attn__rng *rng, int64_t m, int64_t n, int64_t k, int layout,
                  bool accumulate)
{
    int64_t am = layout == 0 ? 1 : layout == 1 ? k + 3 : 2 * k + 1, ak = layout == 0 ? m + 2 : layout == 1 ? 1 : 2;
    int64_t a_size = m && k ? (m - 1) * am + (k - 1) * ak + 1 : 0;
    float *a = random_matrix(rng, a_size), *b = random_matrix(rng, n * k), *c = random_matrix(rng, m * n);
    float *before = malloc((size_t)(m * n) * sizeof *before + 1);
    memcpy(before, c, (size_t)(m * n) * sizeof *before);
    float *top = accumulate ? NULL : random_matrix(rng, n), *highest = malloc((size_t)n * sizeof *highest);
    if (top)
        memcpy(highest, top, (size_t)n * sizeof *top);
    int calls = 0;
    attn__gemm_tile_args t = {m, n, k, a, am, ak, b, n, c, n, accumulate, top, {count_call, &calls}};
    kernel->run(&t);
    assert_true(calls >= (m + kernel->rows - 1) / kernel->rows * (n > 0));
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float want = element(&t, kernel->isa, i, j, before[i * n + j]);
            if (memcmp(&want, &c[i * n + j], sizeof want) != 0)
                fail_msg("%s m=%d n=%d k=%d layout %d: (%d,%d) is %a, not %a", attn__isa_text(kernel->isa), (int)m,
                         (int)n, (int)k, layout, (int)i, (int)j, (double)c[i * n + j], (double)want);
            if (top)
                highest[j] = want > highest[j] ? want : highest[j];
        }
    }
    if (top) {
        assert_memory_equal(top, highest, (size_t)n * sizeof *top);
        guard_free(top, (size_t)n * sizeof *top);
    }
    free(highest);
    free(before);
    guard_free(a, (size_t)a_size * sizeof *a);
    guard_free(b, (size_t)(n * k) * sizeof *b);
    guard_free(c, (size_t)(m * n) * sizeof *c);
}

static void products_are_right_to_the_bit(void **state)
{
    static const int64_t ks[] = {0, 1, 2, 7, 64, 65};
    attn__rng rng = {.seed = 5};
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        const attn__gemm_tile_kernel *kernel = attn__gemm_tile_for((attn__isa)isa);
        if (!attn__isa_runs_here((attn__isa)isa) || kernel->isa != (attn__isa)isa)
            continue;
        for (int64_t m = 0; m <= 2 * kernel->rows + 1; m++) {
            for (int vectors = 1; vectors <= 2 * kernel->vectors + 1; vectors++)
                for (int i = 0; i < 18; i++)
                    check(kernel, &rng, m, vectors * kernel->lanes, ks[i / 3], i % 3, (m + i + vectors) % 2);
        }
    }
}

/* Makes packed rows with gaps between groups of rows. Gaps and elements after the last row are NaN, because the
 * kernel must not read them. */
static float *packed_matrix(const attn__gemm_tile_kernel *kernel, attn__rng *rng, int64_t m, int64_t k, int64_t group)
{
    int64_t groups = (m + kernel->group - 1) / kernel->group;
    float *a = guard_alloc((size_t)(groups * group) * sizeof *a);
    for (int64_t i = 0; i < groups * group; i++)
        a[i] = NAN;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++)
            a[i / kernel->group * group + j * kernel->group + i % kernel->group] = (float)attn__rng_normal(rng);
    return a;
}

static void check_packed_column(const attn__gemm_tile_kernel *kernel, const attn__gemm_tile_packed_args *t,
                                const float *before, int64_t column)
{
    int64_t n = t->vectors * kernel->lanes;
    for (int64_t i = 0; i < t->m; i++) {
        attn__gemm_tile_args plain = {
            .k = t->k, .a = t->a + i / kernel->group * t->group + i % kernel->group, .ak = t->ak, .b = t->b, .ldb = n};
        float want = element(&plain, kernel->isa, 0, column, 0.0f);
        if (t->accumulate)
            want += before[i * n + column];
        if (memcmp(&want, &t->c[i * n + column], sizeof want) != 0)
            fail_msg("%s m=%d k=%d vectors=%d: (%d,%d) is %a, not %a", attn__isa_text(kernel->isa), (int)t->m,
                     (int)t->k, t->vectors, (int)i, (int)column, (double)t->c[i * n + column], (double)want);
    }
}

static void check_packed(const attn__gemm_tile_kernel *kernel, attn__rng *rng, int64_t m, int vectors, int64_t k,
                         bool even)
{
    int64_t n = vectors * kernel->lanes, group = kernel->group * k + (vectors <= kernel->vectors ? kernel->lanes : 0);
    if (vectors > kernel->vectors && m > kernel->group)
        return;
    float *a = packed_matrix(kernel, rng, m, k, group), *b = random_matrix(rng, n * k), *c = random_matrix(rng, m * n);
    float *before = malloc((size_t)(m * n) * sizeof *before + 1);
    memcpy(before, c, (size_t)(m * n) * sizeof *before);
    int calls = 0;
    attn__gemm_tile_packed_args t = {m, k, vectors, a, kernel->group, group, b, c, even, {count_call, &calls}};
    kernel->run_packed(&t);
    assert_true(calls >= (m + kernel->rows - 1) / kernel->rows);
    for (int64_t j = 0; j < n; j++)
        check_packed_column(kernel, &t, before, j);
    free(before);
    guard_free(a, (size_t)((m + kernel->group - 1) / kernel->group * group) * sizeof *a);
    guard_free(b, (size_t)(n * k) * sizeof *b);
    guard_free(c, (size_t)(m * n) * sizeof *c);
}

static void packed_products_are_right_to_the_bit(void **state)
{
    static const int64_t ks[] = {0, 1, 2, 7, 64, 65};
    attn__rng rng = {.seed = 6};
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        const attn__gemm_tile_kernel *kernel = attn__gemm_tile_for((attn__isa)isa);
        if (!attn__isa_runs_here((attn__isa)isa) || kernel->isa != (attn__isa)isa)
            continue;
        assert_true(kernel->group % kernel->rows == 0 && kernel->group % kernel->lanes == 0);
        for (int64_t m = 0; m <= 2 * kernel->group + 1; m++) {
            for (int vectors = 1; vectors <= kernel->widest; vectors++)
                for (int i = 0; i < 12; i++)
                    check_packed(kernel, &rng, m, vectors, ks[i / 2], i % 2);
        }
    }
}

static void rows_outside_the_tile_are_kept(void **state)
{
    const attn__gemm_tile_kernel *kernel = attn__gemm_tile_for(attn__isa_best());
    enum { M = 5, K = 9 };
    int64_t n = kernel->lanes, ld = 3 * n;
    float *a = guard_alloc(sizeof(float) * M * K), *b = guard_alloc(sizeof(float) * (size_t)(K * n));
    float *c = guard_alloc(sizeof(float) * (size_t)(M * ld));
    for (int64_t i = 0; i < M * ld; i++)
        c[i] = 42;
    attn__gemm_tile_args t = {M, n, K, a, K, 1, b, n, c + n, ld, false, NULL, {NULL, NULL}};
    kernel->run(&t);
    for (int64_t i = 0; i < M * ld; i++)
        assert_true(c[i] == (i % ld >= n && i % ld < 2 * n ? 0 : 42));
    guard_free(a, sizeof(float) * M * K);
    guard_free(b, sizeof(float) * (size_t)(K * n));
    guard_free(c, sizeof(float) * (size_t)(M * ld));
}

RUN_TESTS(TEST(products_are_right_to_the_bit), TEST(packed_products_are_right_to_the_bit),
          TEST(rows_outside_the_tile_are_kept))
