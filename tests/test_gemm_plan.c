/* SPDX-License-Identifier: MIT
 * labels: no-isa amx no-asan no-tsan
 *
 * Tests the block sizes of products (gemm/gemm.h) for given caches. Blocks must fit into the caches, and the sizes of
 * caches must not change a bit of the result.
 */
#include "support/cmocka.h"

#include "base/caches.h"
#include "base/integers.h"
#include "gemm/gemm.h"
#include "gemm/kernel.h"
#include "gemm/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };
static const attn__caches machines[] = {
    {32 * KIB, 256 * KIB, 2 * MIB}, /* a small core */
    /* the caches of some machines; the last machine is a Xeon with AMX */
    {32 * KIB, 512 * KIB, 4 * MIB},
    {48 * KIB, MIB, 4 * MIB},
    {48 * KIB, 2 * MIB, 2 * MIB},
    /* these caches are smaller than any block */
    {16 * KIB, 8 * KIB, 0},
};
enum { MACHINES = sizeof machines / sizeof *machines };

static const int64_t sizes[][3] = {{1576, 2304, 768}, {1576, 768, 3072}, {8192, 768, 768}, {4096, 4096, 4096},
                                   {197, 768, 3072},  {20000, 64, 64},   {16, 4096, 4096}, {100, 100, 100},
                                   {1, 1, 1},         {333, 777, 555}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static attn__gemm_plan plan_for(attn_dtype dtype, const int64_t size[3], const attn__caches *caches, int threads)
{
    static const float nothing[1];
    attn__gemm_plan plan;
    int64_t m = size[0], n = size[1], k = size[2];
    attn__gemm_problem problem = {.dtype = dtype,
                                  .m = m,
                                  .n = n,
                                  .k = k,
                                  .a = attn__matrix(nothing, k, 1),
                                  .b = attn__matrix(nothing, k, 1),
                                  .ldc = n,
                                  .caches = caches};
    attn__gemm_plan_make(&plan, &problem, attn__isa_best(), threads);
    return plan;
}

static void caches_of_this_machine_are_plausible(void **state)
{
    const attn__caches *here = attn__caches_here();
    assert_in_range(here->l1, 8 * KIB, MIB);
    assert_in_range(here->l2, 64 * KIB, 64 * MIB);
    assert_true(here->l3 >= 0);
    assert_ptr_equal(here, attn__caches_here());
}

/* The rows of A take at most half of L2, rounded up to a register tile. A panel of B takes at most an eighth of L2,
 * unless a single K block is larger. */
static void blocks_fit_into_l2(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_I32};
    for (int i = 0; i < MACHINES * SIZES * 4; i++) {
        const attn__caches *caches = &machines[i % MACHINES];
        attn__gemm_plan p = plan_for(types[i % 4], sizes[i / 4 % SIZES], caches, 1);
        int64_t k = attn__min(p.k_panel, attn__round_up(p.g.k, p.kernel->k_step));
        int64_t rows = attn__min(p.m_group, p.m_block) - p.kernel->rows;
        assert_true(rows <= 0 || rows * k * p.kernel->a_size <= caches->l2 / 2);
        assert_int_equal(p.k_panel % p.kernel->k_block, 0);
        if (p.k_panel > p.kernel->k_block)
            assert_true(p.k_panel * p.kernel->columns * p.kernel->b_size <= caches->l2 / 8);
        if (p.own_c && p.m_block > p.kernel->rows)
            assert_true((p.m_block - p.kernel->rows) * attn__min(p.n_block, p.g.n) * 4 <= caches->l2 / 4);
        assert_true(p.m_blocks * p.m_block >= p.g.m && p.n_blocks * p.n_block >= p.g.n);
    }
}

static void k_panels_of_packed_weights_do_not_depend_on_rows(void **state)
{
    static const float nothing[1];
    int64_t expected = 0;
    for (int64_t m = 1; m < 5000; m = 2 * m + 1) {
        attn__gemm_plan p;
        attn__gemm_problem problem = {
            .m = m, .n = 512, .k = 4096, .a = attn__matrix(nothing, 4096, 1), .packed = nothing, .ldc = 512};
        attn__gemm_plan_make(&p, &problem, attn__isa_best(), 2);
        assert_true(expected == 0 || p.k_panel == expected);
        expected = p.k_panel;
    }
}

static float *numbers(int64_t n, unsigned seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1;
    }
    return x;
}

static void run(attn__gemm_problem *problem, const attn__caches *caches, int threads, float *c)
{
    attn__gemm_plan plan;
    problem->c = c;
    problem->caches = caches;
    attn__gemm_plan_make(&plan, problem, attn__isa_without_amx(attn__isa_best()), threads);
    size_t bytes = (attn__gemm_workspace(&plan) + 127) / 64 * 64;
    void *workspace = aligned_alloc(64, bytes);
    assert_non_null(workspace);
    attn__gemm_run(&plan, workspace);
    free(workspace);
}

static void bits_do_not_depend_on_caches(void **state)
{
    static const int64_t shapes[][3] = {{700, 530, 1300}, {333, 777, 555}, {1100, 200, 2100}, {40, 1000, 1500}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        float *a = numbers(m * k, 1), *b = numbers(k * n, 2), *c = numbers(m * n, 3), *first = numbers(m * n, 3);
        for (int transposed = 0; transposed < 4; transposed++) {
            attn__gemm_problem problem = {.m = m,
                                          .n = n,
                                          .k = k,
                                          .a = attn__matrix(a, transposed & 1 ? 1 : k, transposed & 1 ? m : 1),
                                          .b = attn__matrix(b, transposed & 2 ? k : 1, transposed & 2 ? 1 : n),
                                          .ldc = n};
            run(&problem, &machines[0], 1, first);
            for (int i = 1; i < 2 * MACHINES; i++) {
                run(&problem, &machines[i % MACHINES], 1 + i / MACHINES, c);
                assert_memory_equal(c, first, (size_t)(m * n) * sizeof *c);
            }
        }
        free(a), free(b), free(c), free(first);
    }
}

/* The plans use the caches of this machine, which attn__gemm_workspace_most also uses. */
static void workspace_is_within_its_upper_bound(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16};
    uint32_t seed = 7;
    int64_t size[3], most[3];
    double largest = 0;
    for (int i = 0; i < 60000; i++) {
        for (int d = 0; d < 3; d++) {
            seed = seed * 1664525u + 1013904223u;
            int bits = (int)(seed >> 28) % 14;
            most[d] = 1 + (int64_t)((seed >> 8) & ((1u << bits) - 1));
            seed = seed * 1664525u + 1013904223u;
            size[d] = (seed >> 30) ? most[d] : 1 + (int64_t)(seed >> 8) % most[d];
        }
        attn_dtype dtype = types[i % 3];
        attn__isa isa = i % 2 ? attn__isa_best() : ATTN_ISA_SCALAR;
        attn__gemm_problem problem = {.dtype = dtype, .m = size[0], .n = size[1], .k = size[2], .ldc = size[1]};
        problem.a = i & 4 ? attn__matrix(most, 1, size[0]) : attn__matrix(most, size[2], 1);
        problem.b = i & 8 ? attn__matrix(most, 1, size[1] + (i & 16)) : attn__matrix(most, size[2], 1);
        attn__gemm_plan plan;
        attn__gemm_plan_make(&plan, &problem, isa, 1);
        size_t bound = attn__gemm_workspace_most(dtype, isa, most[0], most[1], most[2]);
        double share = (double)attn__gemm_workspace(&plan) / (double)bound;
        largest = share > largest ? share : largest;
        if (share > 1)
            fail_msg("%lld x %lld x %lld: %zu bytes, but the bound is %zu", (long long)size[0], (long long)size[1],
                     (long long)size[2], attn__gemm_workspace(&plan), bound);
    }
    print_message("at most %.3f of the bound\n", largest);
}

static void a_plan_prints_as_one_line(void **state)
{
    char line[512], part[32];
    for (int i = 0; i < SIZES; i++) {
        attn__gemm_plan p = plan_for(ATTN_F32, sizes[i], &machines[3], 1);
        int length = attn__gemm_plan_print(&p, line, sizeof line);
        assert_in_range(length, 1, sizeof line - 1);
        assert_int_equal(strlen(line), (size_t)length);
        assert_null(strchr(line, '\n'));
        assert_int_equal(strncmp(line, "f32 ", 4), 0);
        snprintf(part, sizeof part, "n %lld", (long long)p.g.n);
        assert_non_null(strstr(line, part));
        print_message("%s\n", line);
        attn__gemm_traffic moved = attn__gemm_plan_traffic(&p);
        assert_true(moved.a >= p.g.m * p.g.k * 4 && moved.b >= p.g.n * p.g.k * 4 && moved.c >= p.g.m * p.g.n * 4);
        assert_int_equal(attn__gemm_plan_print(&p, part, sizeof part), length);
    }
}

/* A linear layer uses the algorithm of its precision, and its plan names the algorithm. */
static void plan_names_the_route_of_its_precision(void **state)
{
    static const float nothing[1];
    attn__product product;
    attn__gemm_problem problem = {.m = 300,
                                  .n = 200,
                                  .k = 128,
                                  .a = attn__matrix(nothing, 128, 1),
                                  .b = attn__matrix(nothing, 128, 1),
                                  .ldc = 200};
    char line[512];
    attn__product_plan(&product, &problem, attn__isa_best(), 2);
    attn__product_print(&product, line, sizeof line);
    assert_memory_equal(line, "multiply-adds: f32 ", 19);
    problem.int8 = true;
    attn__product_plan(&product, &problem, attn__isa_best(), 2);
    attn__product_print(&product, line, sizeof line);
    assert_memory_equal(line, "int8: ", 6);
    assert_non_null(strstr(line, "k 128"));
}

RUN_TESTS(TEST(caches_of_this_machine_are_plausible), TEST(blocks_fit_into_l2),
          TEST(k_panels_of_packed_weights_do_not_depend_on_rows), TEST(bits_do_not_depend_on_caches),
          TEST(workspace_is_within_its_upper_bound), TEST(a_plan_prints_as_one_line),
          TEST(plan_names_the_route_of_its_precision))
