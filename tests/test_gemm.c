/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares products of matrices with sums in double. Sizes are around the block sizes of every path. There are
 * transposes, rows with gaps, accumulation, bias and activation, packed weights, bf16, and failing allocations.
 */
#include "support/cmocka.h"
#include "support/faults.h"

#include "attn/tensor.h"
#include "tensor/matrix_product.h"
#include "tensor/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state_of_numbers = 1;

static float number(void)
{
    state_of_numbers = state_of_numbers * 1664525u + 1013904223u;
    return (float)(state_of_numbers >> 8) / 8388608.0f - 1;
}

static float *numbers(int64_t n)
{
    float *x = malloc((size_t)(n > 0 ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = number();
    return x;
}

/* Returns the nearest bf16 number, with ties to even. */
static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double activated(double x, attn_activation activation)
{
    if (activation == ATTN_ACTIVATION_RELU)
        return x > 0 ? x : 0;
    if (activation == ATTN_ACTIVATION_GELU_ERF)
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    return activation == ATTN_ACTIVATION_TANH ? tanh(x) : x;
}

/* Compares a sum of `size` terms with the exact sum. Partial sums grow to about sqrt(size) / 3, and their roundings
 * add up to about a third of size * 6e-8. The bound is three times as large. A missing term would change the sum by
 * about 1/3. */
static void check(double got, double wanted, int64_t size)
{
    double allowed = 6e-8 * (16 + (double)size) * (1 + fabs(wanted));
    if (!(fabs(got - wanted) <= allowed))
        fail_msg("%.9g where %.9g was wanted (sums of %lld, %.2g allowed)", got, wanted, (long long)size, allowed);
}

typedef struct product {
    int64_t m, n, k, apart; /* apart: number of unused elements between rows */
    bool ta, tb, add, bias;
    attn_activation activation;
} product;

typedef struct arrays {
    int64_t lda, ldb, ldc, size;
    float *a, *b, *bias, *c, *old;
} arrays;

static arrays make_arrays(const product *p)
{
    arrays x = {
        .lda = (p->ta ? p->m : p->k) + p->apart, .ldb = (p->tb ? p->k : p->n) + p->apart, .ldc = p->n + p->apart};
    x.size = p->m * x.ldc;
    x.a = numbers((p->ta ? p->k : p->m) * x.lda);
    x.b = numbers((p->tb ? p->n : p->k) * x.ldb);
    x.bias = numbers(p->n);
    x.c = numbers(x.size);
    x.old = malloc((size_t)x.size * sizeof(float) + 1);
    assert_non_null(x.old);
    memcpy(x.old, x.c, (size_t)x.size * sizeof(float));
    return x;
}

static void free_arrays(arrays *x)
{
    free(x->a);
    free(x->b);
    free(x->bias);
    free(x->c);
    free(x->old);
}

/* Checks all columns, but only a few rows, because checking takes most of the test's time. */
static void check_product(const product *p, const arrays *x, bool bf16)
{
    for (int64_t i = 0; i<p->m; i += p->m> 40 ? p->m / 7 : 1) {
        for (int64_t j = 0; j < x->ldc; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p->k && j < p->n; k++) {
                float a = p->ta ? x->a[k * x->lda + i] : x->a[i * x->lda + k];
                float b = p->tb ? x->b[j * x->ldb + k] : x->b[k * x->ldb + j];
                sum += bf16 ? (double)rounded(a) * (double)rounded(b) : (double)a * (double)b;
            }
            double old = (double)x->old[i * x->ldc + j], got = (double)x->c[i * x->ldc + j];
            if (j >= p->n)
                assert_true(got == old);
            else
                check(got, activated(sum + (p->bias ? (double)x->bias[j] : 0) + (p->add ? old : 0), p->activation),
                      p->k);
        }
    }
}

typedef struct world {
    attn_context *c;
    attn_tape *tape;
} world;

static world make_world(const char *isa, int threads)
{
    world w;
    assert_int_equal(attn_context_create(&w.c, &(attn_context_options){.threads = threads, .isa = isa}), ATTN_OK);
    assert_int_equal(attn_tape_create(&w.tape, w.c), ATTN_OK);
    return w;
}

static void end_world(world w)
{
    attn_tape_destroy(w.tape);
    attn_context_destroy(w.c);
}

static attn__gemm_problem problem_of(const product *p, const arrays *x)
{
    return (attn__gemm_problem){.dtype = ATTN_F32,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .a = attn__matrix_rows(x->a, x->lda, !p->ta),
                                .b = attn__matrix_rows(x->b, x->ldb, p->tb),
                                .c = x->c,
                                .ldc = x->ldc,
                                .add = p->add};
}

/* Computes rows [row, row + m) of the product. `packed` is the packed B, or NULL if B is not packed. */
static bool run_rows(world w, const product *p, const arrays *x, const attn__packed *packed, int64_t row, int64_t m,
                     float *c)
{
    attn__gemm_problem g = problem_of(p, x);
    g.m = m;
    g.a.data = x->a + row * g.a.outer;
    g.c = c;
    return attn__gemm_linear(w.tape, &g, p->bias ? x->bias : NULL, p->activation, packed);
}

static bool run(world w, const product *p, const arrays *x, const attn__packed *packed, float *c)
{
    return run_rows(w, p, x, packed, 0, p->m, c);
}

static attn__packed packed_b(world w, attn_dtype dtype, const product *p, const arrays *x)
{
    attn__packed packed;
    assert_int_equal(attn__gemm_pack(w.tape, dtype, x->b, x->ldb, p->n, p->k, false, &packed), ATTN_OK);
    return packed;
}

static void try_product(world w, const product *p)
{
    arrays x = make_arrays(p);
    assert_true(run(w, p, &x, NULL, x.c));
    check_product(p, &x, false);
    free_arrays(&x);
}

static void try_sizes(world w)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1},      {1, 17, 3},      {7, 5, 13},      {12, 64, 64},    {13, 65, 63},    {31, 33, 257},
        {96, 192, 256}, {97, 193, 255},  {127, 48, 400},  {768, 64, 64},   {769, 67, 127},  {771, 129, 65},
        {767, 64, 129}, {1000, 300, 70}, {161, 193, 257}, {193, 529, 197}, {389, 129, 1061}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = 0; kind < 8; kind++) {
            product p = {
                sizes[i][0], sizes[i][1], sizes[i][2], kind & 4 ? 3 : 0, kind & 1, kind & 2, kind % 3 == 1, false, 0};
            p.bias = kind % 3 != 0;
            p.activation =
                p.add ? ATTN_ACTIVATION_IDENTITY
                      : (attn_activation[]){ATTN_ACTIVATION_IDENTITY, ATTN_ACTIVATION_RELU, ATTN_ACTIVATION_GELU_ERF,
                                            ATTN_ACTIVATION_TANH}[(i + (size_t)kind) % 4];
            try_product(w, &p);
        }
    }
}

static void products_are_sums(void **state)
{
    for (int threads = 1; threads <= 3; threads++) {
        world w = make_world(NULL, threads);
        try_sizes(w);
        end_world(w);
    }
}

/* Tests few rows of C and a transposed B, as in layouts with channels first. The result is written or added, and
 * rows have gaps. */
static void few_rows_of_a_transposed_b(void **state)
{
    static const int64_t sizes[][3] = {{64, 1024, 64}, {64, 64, 1024}, {128, 64, 77},  {33, 133, 32},
                                       {32, 128, 40},  {40, 39, 300},  {127, 509, 33}, {31, 200, 64}};
    for (int threads = 1; threads <= 3; threads++) {
        world w = make_world(NULL, threads);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (int kind = 0; kind < 8; kind++) {
                product p = {.m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2]};
                p.ta = kind & 1;
                p.tb = true;
                p.add = kind & 2;
                p.apart = kind & 4 ? 3 : 0;
                try_product(w, &p);
            }
        }
        end_world(w);
    }
}

/* Tests a product with more columns and a larger k than AMX packs at once. */
static void large_products_are_sums(void **state)
{
    world w = make_world(NULL, 2);
    for (int kind = 0; kind < 4; kind++)
        try_product(w, &(product){130, 3075, 1030, 2, kind & 1, kind & 2, kind == 1, true, ATTN_ACTIVATION_IDENTITY});
    try_product(w, &(product){130, 3075, 1030, 0, false, true, false, true, ATTN_ACTIVATION_GELU_ERF});
    end_world(w);
}

/* With weights packed as slices, a row with infinity or NaN does not change the bits of other rows. */
static void not_finite_row_keeps_bits_of_other_rows(void **state)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    enum { ODD = 300 };
    product p = {700, 600, 1100, 0, false, true, false, true, ATTN_ACTIVATION_GELU_ERF};
    arrays x = make_arrays(&p);
    world owner = make_world("amx", 2);
    attn__packed packed = packed_b(owner, ATTN_F32, &p, &x);
    assert_true(packed.weights.slices);
    assert_true(run(owner, &p, &x, &packed, x.old));
    x.a[ODD * x.lda + 1030] = NAN;
    for (int threads = 1; threads <= 5; threads++) {
        world w = make_world("amx", threads);
        assert_true(run(w, &p, &x, &packed, x.c));
        for (int64_t i = 0; i < p.m; i++)
            assert_true(i == ODD || memcmp(x.c + i * p.n, x.old + i * p.n, (size_t)p.n * sizeof(float)) == 0);
        for (int64_t i = ODD * p.n; i < (ODD + 1) * p.n; i++)
            assert_true(isnan(x.c[i]));
        end_world(w);
    }
    attn__gemm_unpack(&packed);
    end_world(owner);
    free_arrays(&x);
}

/* With weights packed as slices, the bits depend neither on the number of threads nor on which rows are computed. */
static void bits_do_not_depend_on_threads_or_rows(void **state)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    product p = {700, 600, 1100, 0, false, true, false, true, ATTN_ACTIVATION_GELU_ERF};
    arrays x = make_arrays(&p);
    world owner = make_world("amx", 2);
    attn__packed packed = packed_b(owner, ATTN_F32, &p, &x);
    for (int threads = 1; threads <= 5; threads++) {
        world w = make_world("amx", threads);
        assert_true(run(w, &p, &x, &packed, threads == 1 ? x.old : x.c));
        assert_true(threads == 1 || memcmp(x.c, x.old, (size_t)x.size * sizeof(float)) == 0);
        assert_true(run_rows(w, &p, &x, &packed, 211, 130, x.c + 211 * x.ldc));
        for (int64_t row = 0; row < 30; row += 15)
            assert_true(run_rows(w, &p, &x, &packed, row, 15, x.c + row * x.ldc));
        assert_true(threads == 1 || memcmp(x.c, x.old, (size_t)x.size * sizeof(float)) == 0);
        end_world(w);
    }
    attn__gemm_unpack(&packed);
    end_world(owner);
    free_arrays(&x);
}

/* With multiply-adds, the bits depend neither on the number of threads nor on which rows are computed. */
static void bits_of_multiply_adds(void **state)
{
    static const int64_t sizes[][3] = {{64, 1024, 64}, {128, 64, 1024}, {64, 64, 1025}, {300, 130, 70},
                                       {33, 129, 300}, {500, 40, 2000}, {17, 5, 9000},  {200, 200, 513}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = 0; kind < 8; kind++) {
            product p = {.m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2]};
            p.ta = kind & 1;
            p.tb = kind & 2;
            p.apart = kind & 4 ? 3 : 0;
            arrays x = make_arrays(&p);
            for (int threads = 1; threads <= 5; threads++) {
                world w = make_world(NULL, threads);
                int64_t some = p.m / 3;
                assert_true(run(w, &p, &x, NULL, threads == 1 ? x.old : x.c));
                if (threads > 1)
                    assert_true(run_rows(w, &p, &x, NULL, some, some, x.c + some * x.ldc));
                for (int64_t row = 0; row < p.m && threads > 1; row++)
                    assert_memory_equal(x.c + row * x.ldc, x.old + row * x.ldc, (size_t)p.n * sizeof(float));
                end_world(w);
            }
            free_arrays(&x);
        }
    }
}

/* Packed weights have more columns than are summed at a time. k has few or many chunks. */
static void many_packed_columns(void **state)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    for (int kind = 0; kind < 4; kind++) {
        bool add = kind & 2;
        product p = {70,  6201,  kind & 1 ? 500 : 900,
                     5,   false, true,
                     add, !add,  add ? ATTN_ACTIVATION_IDENTITY : ATTN_ACTIVATION_TANH};
        arrays x = make_arrays(&p);
        world w = make_world("amx", 2);
        attn__packed packed = packed_b(w, ATTN_F32, &p, &x);
        assert_true(packed.weights.slices && run(w, &p, &x, &packed, x.c));
        check_product(&p, &x, false);
        attn__gemm_unpack(&packed);
        end_world(w);
        free_arrays(&x);
    }
}

/* One row has a number so large that it needs eight products or multiply-adds. The bits of the other rows must not
 * change. Rows are also computed one at a time. */
static void rows_do_not_change_those_beside_them(void **state)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    enum { FAR = 35, FIRST = 32, COUNT = 7 };
    for (int kind = 0; kind < 2; kind++) {
        product p = {200, 150, 700, 3, false, true, false, true, ATTN_ACTIVATION_GELU_ERF};
        arrays x = make_arrays(&p);
        world w = make_world("amx", 2);
        attn__packed packed = packed_b(w, ATTN_F32, &p, &x);
        assert_true(packed.weights.slices && run(w, &p, &x, &packed, x.old));
        x.a[FAR * x.lda + 411] = kind ? 3e4f : 50;
        assert_true(run(w, &p, &x, &packed, x.c));
        size_t row = (size_t)p.n * sizeof(float);
        for (int64_t i = 0; i < p.m; i++)
            assert_int_equal(memcmp(x.c + i * x.ldc, x.old + i * x.ldc, row) != 0, i == FAR);
        for (int64_t i = FIRST; i < FIRST + COUNT; i++) {
            assert_true(run_rows(w, &p, &x, &packed, i, 1, x.old));
            assert_memory_equal(x.c + i * x.ldc, x.old, row);
        }
        attn__gemm_unpack(&packed);
        end_world(w);
        free_arrays(&x);
    }
}

/* Returns the largest error of a product with packed weights, divided by the norms of the element's row and column. */
static double error_in_norms(world w, const product *p, const arrays *a)
{
    attn__packed packed = packed_b(w, ATTN_F32, p, a);
    double most = 0;
    assert_true(run(w, p, a, &packed, a->c));
    attn__gemm_unpack(&packed);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double sum = 0, x = 0, y = 0;
        for (int64_t k = 0; k < p->k; k++) {
            double u = (double)a->a[i / p->n * a->lda + k], v = (double)a->b[i % p->n * a->ldb + k];
            sum += u * v;
            x += u * u;
            y += v * v;
        }
        most = fmax(most, fabs((double)a->c[i / p->n * a->ldc + i % p->n] - sum) / sqrt(x * y));
    }
    return most;
}

/* Tests few columns of mostly small numbers. For one k, the mean over the columns does not represent each column. */
static void few_columns_of_small_numbers_are_exact(void **state)
{
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    world w = make_world("amx", 2);
    for (int i = 0; i < 40; i++) {
        product p = {20, 1 + i % 16, 77 + 141 * (i % 3), 0, false, true, false, false, ATTN_ACTIVATION_IDENTITY};
        arrays x = make_arrays(&p);
        for (int64_t j = 0; j < p.n * p.k; j++)
            x.b[j] = powf(x.b[j], 6);
        assert_true(error_in_norms(w, &p, &x) < 8 * 0x1p-24);
        free_arrays(&x);
    }
    end_world(w);
}

static int class_of(float x)
{
    return isnan(x) ? 2 : isinf(x) ? (x > 0 ? 1 : -1) : 0;
}

/* With packed weights, infinity, NaN and overflow give the same results as with multiply-adds, and change no other
 * elements. */
static void infinity_nan_and_overflow_match_multiply_adds(void **state)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -2e38f};
    enum { ODD = sizeof odd / sizeof *odd };
    world w = make_world(NULL, 2);
    for (int i = 0; i < 4 * ODD * 3; i++) {
        product p = {300, 135, 1100, i % 2, false, true, i % 3 == 1, i % 3 == 2, ATTN_ACTIVATION_IDENTITY};
        arrays x = make_arrays(&p);
        float *at = i / 4 / ODD == 1 ? x.b : x.a;
        at[i / 4 / ODD == 1 ? 7 : 7 * x.lda] = odd[i / 4 % ODD];
        if (i / 4 / ODD == 2)
            x.b[11] = 3e38f;
        attn__packed packed = packed_b(w, ATTN_F32, &p, &x);
        assert_true(run(w, &p, &x, &packed, x.c));
        assert_true(run(w, &p, &x, NULL, x.old));
        attn__gemm_unpack(&packed);
        for (int64_t j = 0; j < x.size; j++) {
            assert_int_equal(class_of(x.c[j]), class_of(x.old[j]));
            if (class_of(x.c[j]) == 0)
                assert_true(fabsf(x.c[j] - x.old[j]) <= 1e-3f + 1e-5f * fabsf(x.old[j]));
        }
        free_arrays(&x);
    }
    end_world(w);
}

static void all_sizes_on_every_instruction_set(void **state)
{
    for (int i = 0; attn_isa_name(i); i++) {
        world w = make_world(attn_isa_name(i), 2);
        try_sizes(w);
        end_world(w);
    }
}

static void nothing_to_sum_is_zero(void **state)
{
    world w = make_world(NULL, 1);
    product p = {.m = 3, .n = 5, .k = 0, .bias = true, .tb = true};
    try_product(w, &p);
    p.add = true;
    try_product(w, &p);
    end_world(w);
}

static void try_packed(world w, attn_dtype dtype, const product *shape)
{
    product p = *shape;
    arrays x = make_arrays(&p);
    bool bf16 = dtype == ATTN_BF16;
    attn__packed packed = packed_b(w, dtype, &p, &x);
    uint16_t *halves = malloc((size_t)(p.m * p.k) * sizeof *halves);
    assert_non_null(halves);
    for (int64_t i = 0; i < p.m * p.k; i++) {
        uint32_t bits;
        float value = rounded(x.a[i]);
        memcpy(&bits, &value, sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    for (p.m = shape->m; p.m > 0; p.m /= 5) {
        memcpy(x.c, x.old, (size_t)x.size * sizeof(float));
        attn__gemm_problem g = problem_of(&p, &x);
        g.dtype = dtype;
        g.a.data = bf16 ? (const void *)halves : x.a;
        g.a.bf16 = bf16;
        assert_true(attn__gemm_linear(w.tape, &g, p.bias ? x.bias : NULL, p.activation, &packed));
        check_product(&p, &x, bf16);
    }
    attn__gemm_unpack(&packed);
    assert_null(packed.hold.data);
    free(halves);
    free_arrays(&x);
}

static void packed_weights_serve_any_rows(void **state)
{
    static const int64_t sizes[][3] = {{1000, 64, 64}, {250, 65, 129}, {33, 200, 31}, {5, 3, 7}, {2048, 96, 300}};
    world w = make_world(NULL, 2);
    for (int i = 0; i < 20; i++) {
        const int64_t *s = sizes[i / 4];
        product p = {
            s[0], s[1], s[2], 0, false, true, i % 2, true, i % 2 ? ATTN_ACTIVATION_IDENTITY : ATTN_ACTIVATION_GELU_ERF};
        try_packed(w, i & 2 ? ATTN_BF16 : ATTN_F32, &p);
    }
    end_world(w);
}

static void nan_passes_through_activations(void **state)
{
    world w = make_world(NULL, 2);
    for (attn_activation kind = ATTN_ACTIVATION_IDENTITY; kind <= ATTN_ACTIVATION_SILU; kind++) {
        product p = {800, 170, 166, 0, false, true, false, true, kind};
        arrays x = make_arrays(&p);
        x.a[5 * p.k + 3] = NAN;
        assert_true(run(w, &p, &x, NULL, x.c));
        for (int64_t i = 0; i < x.size; i++)
            assert_int_equal(isnan(x.c[i]) != 0, i / p.n == 5);
        free_arrays(&x);
    }
    end_world(w);
}

static attn_status product_or_failure(attn_context *context, void *packs)
{
    attn_tape *tape;
    attn__packed packed = {0};
    attn_status status = attn_tape_create(&tape, context);
    if (status != ATTN_OK)
        return status;
    product p = {800, 170, 166, 0, false, true, false, true, ATTN_ACTIVATION_GELU_ERF};
    arrays x = make_arrays(&p);
    bool done = !packs || attn__gemm_pack(tape, ATTN_F32, x.b, x.ldb, p.n, p.k, false, &packed) == ATTN_OK;
    done = done && run((world){context, tape}, &p, &x, &packed, x.c);
    if (done)
        check_product(&p, &x, false);
    attn__gemm_unpack(&packed);
    free_arrays(&x);
    attn_tape_destroy(tape);
    return done ? ATTN_OK : attn_context_status(context);
}

static void every_allocation_may_fail(void **state)
{
    bool packs = true;
    assert_true(faults_try_all(product_or_failure, NULL) > 0);
    assert_true(faults_try_all(product_or_failure, &packs) > 0);
}

RUN_TESTS(TEST(products_are_sums), TEST(few_rows_of_a_transposed_b), TEST(large_products_are_sums),
          TEST(bits_do_not_depend_on_threads_or_rows), TEST(bits_of_multiply_adds), TEST(many_packed_columns),
          TEST(rows_do_not_change_those_beside_them), TEST(few_columns_of_small_numbers_are_exact),
          TEST(not_finite_row_keeps_bits_of_other_rows), TEST(infinity_nan_and_overflow_match_multiply_adds),
          TEST(all_sizes_on_every_instruction_set), TEST(nothing_to_sum_is_zero), TEST(packed_weights_serve_any_rows),
          TEST(nan_passes_through_activations), TEST(every_allocation_may_fail))
