/* SPDX-License-Identifier: MIT
 * The seam to matrix products against sums in double precision: sizes around the blocks of every path, transposes,
 * rows that lie apart, adding, bias and activation, packed weights, bf16, failing allocations. */
#include "support/cmocka.h"
#include "support/faults.h"

#include "attn/tensor.h"
#include "tensor/gemm_slices.h"
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

/* To nearest even, as bf16 has it. */
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

/* Partial sums of `size` terms up to 1 grow to about sqrt(size) / 3; as many roundings of them, of random signs, make
 * a third of size * 6e-8.  Three times that is allowed; one term too many or too few is a third of 1. */
static void check(double got, double wanted, int64_t size)
{
    double allowed = 6e-8 * (16 + (double)size) * (1 + fabs(wanted));
    if (!(fabs(got - wanted) <= allowed))
        fail_msg("%.9g where %.9g was wanted (sums of %lld, %.2g allowed)", got, wanted, (long long)size, allowed);
}

typedef struct product {
    int64_t m, n, k, apart; /* apart: elements between rows */
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

/* Every element of a few rows: all products there would take longer than all the rest. */
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
                assert_true(got == old); /* what lies between the rows stays */
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

static attn__gemm_args args_of(const product *p, const arrays *x)
{
    return (attn__gemm_args){.dtype = ATTN_F32,
                             .transpose_a = p->ta,
                             .transpose_b = p->tb,
                             .m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .a = x->a,
                             .lda = x->lda,
                             .b = x->b,
                             .ldb = x->ldb,
                             .c = x->c,
                             .ldc = x->ldc,
                             .add = p->add,
                             .bias = p->bias ? x->bias : NULL,
                             .activation = p->activation};
}

/* `vectors`: in multiply-adds, whatever faster route there is. */
static void try_product(world w, const product *p, bool vectors)
{
    arrays x = make_arrays(p);
    attn__gemm_args args = args_of(p, &x);
    assert_true(vectors ? attn__gemm_in_vectors(w.tape, &args) : attn__gemm(w.tape, &args));
    check_product(p, &x, false);
    free_arrays(&x);
}

static void try_sizes(world w, bool vectors)
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
            try_product(w, &p, vectors);
        }
    }
}

static void products_are_sums(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        world w = make_world(NULL, threads);
        try_sizes(w, false);
        end_world(w);
    }
}

/* Few rows of C beside B transposed, as where channels come first: alone or added, with space between the rows. */
static void few_rows_of_a_transposed_b(void **state)
{
    (void)state;
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
                try_product(w, &p, false);
            }
        }
        end_world(w);
    }
}

/* More columns, and more of k, than AMX's product packs at once. */
static void large_products_are_sums(void **state)
{
    (void)state;
    world w = make_world(NULL, 2);
    for (int kind = 0; kind < 4; kind++)
        try_product(w, &(product){130, 3075, 1030, 2, kind & 1, kind & 2, kind == 1, true, ATTN_ACTIVATION_IDENTITY},
                    false);
    try_product(w, &(product){130, 3075, 1030, 0, false, true, false, true, ATTN_ACTIVATION_GELU_ERF}, false);
    end_world(w);
}

/* What is not finite in one row leaves the bits of the others, but the 15 that are computed again with it. */
static void one_row_leaves_the_others(void **state)
{
    (void)state;
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    enum { ODD = 300, FIRST = ODD / 16 * 16, LAST = FIRST + 16 };
    for (int kind = 0; kind < 4; kind++) {
        product p = {700, 600, 1100, 0, kind & 1, kind & 2, false, true, ATTN_ACTIVATION_GELU_ERF};
        arrays x = make_arrays(&p);
        attn__gemm_args args = args_of(&p, &x);
        size_t row = (size_t)p.n * sizeof(float);
        world w = make_world("amx", 2);
        args.c = x.old;
        assert_true(attn__gemm(w.tape, &args));
        end_world(w);
        x.a[p.ta ? 1030 * x.lda + ODD : ODD * x.lda + 1030] = NAN;
        args.c = x.c;
        for (int threads = 1; threads <= 5; threads++) {
            w = make_world("amx", threads);
            assert_true(attn__gemm(w.tape, &args));
            assert_memory_equal(x.c, x.old, FIRST * row);
            assert_memory_equal(x.c + LAST * p.n, x.old + LAST * p.n, (size_t)(p.m - LAST) * row);
            for (int64_t i = FIRST * p.n; i < LAST * p.n; i++)
                assert_int_equal(isnan(x.c[i]) != 0, i / p.n == ODD);
            end_world(w);
        }
        free_arrays(&x);
    }
}

/* Where AMX takes the product: the same bits for any number of threads, for some of the rows alone, and
 * with weights packed before. */
static void bits_depend_on_nothing_else(void **state)
{
    (void)state;
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    for (int kind = 0; kind < 4; kind++) {
        product p = {700, 600, 1100, 0, kind & 1, kind & 2, false, true, ATTN_ACTIVATION_GELU_ERF};
        arrays x = make_arrays(&p);
        attn__gemm_args args = args_of(&p, &x);
        for (int threads = 1; threads <= 5; threads++) {
            world w = make_world("amx", threads);
            args.c = threads == 1 ? x.old : x.c;
            assert_true(attn__gemm(w.tape, &args));
            assert_true(threads == 1 || memcmp(x.c, x.old, (size_t)x.size * sizeof(float)) == 0);
            end_world(w);
        }
        world w = make_world("amx", 2);
        attn__gemm_args some = attn__gemm_rows_from(&args, 211);
        some.m = 130;
        assert_true(attn__gemm(w.tape, &some));
        attn__packed packed = {0};
        if (p.tb && !p.ta)
            assert_int_equal(attn__gemm_pack(w.tape, ATTN_F32, x.b, x.ldb, p.n, p.k, &packed), ATTN_OK);
        for (int64_t row = 0; row < 30 && packed.hold.data; row += 15) {
            some = attn__gemm_rows_from(&args, row);
            some.m = 15;
            assert_int_equal(attn__gemm_slices(w.tape, &some, &packed), ATTN_OK);
        }
        attn__gemm_unpack(&packed);
        assert_memory_equal(x.c, x.old, (size_t)x.size * sizeof(float));
        end_world(w);
        free_arrays(&x);
    }
}

/* Multiply-adds: the same bits for any number of threads and for some of the rows alone. */
static void bits_of_multiply_adds(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{64, 1024, 64}, {128, 64, 1024}, {64, 64, 1025}, {300, 130, 70},
                                       {33, 129, 300}, {500, 40, 2000}, {17, 5, 9000},  {200, 200, 513}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = 0; kind < 8; kind++) {
            product p = {.m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2]};
            p.ta = kind & 1;
            p.tb = kind & 2;
            p.apart = kind & 4 ? 3 : 0;
            arrays x = make_arrays(&p);
            attn__gemm_args args = args_of(&p, &x);
            for (int threads = 1; threads <= 5; threads++) {
                world w = make_world(NULL, threads);
                args.c = threads == 1 ? x.old : x.c;
                assert_true(attn__gemm_in_vectors(w.tape, &args));
                attn__gemm_args some = attn__gemm_rows_from(&args, p.m / 3);
                some.m = p.m / 3;
                if (threads > 1)
                    assert_true(attn__gemm_in_vectors(w.tape, &some));
                for (int64_t row = 0; row < p.m && threads > 1; row++)
                    assert_memory_equal(x.c + row * x.ldc, x.old + row * x.ldc, (size_t)p.n * sizeof(float));
                end_world(w);
            }
            free_arrays(&x);
        }
    }
}

/* Packed weights of more columns than are summed at a time, from few and from many chunks of k. */
static void many_packed_columns(void **state)
{
    (void)state;
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    for (int kind = 0; kind < 4; kind++) {
        bool add = kind & 2;
        product p = {70,  6201,  kind & 1 ? 500 : 900,
                     5,   false, true,
                     add, !add,  add ? ATTN_ACTIVATION_IDENTITY : ATTN_ACTIVATION_TANH};
        arrays x = make_arrays(&p);
        attn__gemm_args args = args_of(&p, &x);
        world w = make_world("amx", 2);
        attn__packed packed;
        args.c = x.c;
        assert_int_equal(attn__gemm_pack(w.tape, ATTN_F32, x.b, x.ldb, p.n, p.k, &packed), ATTN_OK);
        assert_int_equal(attn__gemm_slices(w.tape, &args, &packed), ATTN_OK);
        check_product(&p, &x, false);
        args.c = x.old;
        assert_int_equal(attn__gemm_slices(w.tape, &args, NULL), ATTN_OK);
        assert_memory_equal(x.c, x.old, (size_t)x.size * sizeof(float));
        attn__gemm_unpack(&packed);
        end_world(w);
        free_arrays(&x);
    }
}

/* A row with a number far above its others, and the bits of those beside it: far enough for eight products, and so far
 * that multiply-adds take its place.  On packed weights also one row at a time. */
static void rows_do_not_change_those_beside_them(void **state)
{
    (void)state;
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    enum { FAR = 35, FIRST = 32, COUNT = 7 };
    for (int kind = 0; kind < 8; kind++) {
        product p = {200, 150, 700, 3, kind & 1, kind & 2, false, true, ATTN_ACTIVATION_GELU_ERF};
        arrays x = make_arrays(&p);
        attn__gemm_args args = args_of(&p, &x);
        world w = make_world("amx", 2);
        args.c = x.old;
        assert_true(attn__gemm(w.tape, &args));
        x.a[p.ta ? 411 * x.lda + FAR : FAR * x.lda + 411] = kind & 4 ? 3e4f : 50;
        args.c = x.c;
        assert_true(attn__gemm(w.tape, &args));
        size_t row = (size_t)p.n * sizeof(float);
        for (int64_t i = 0; i < p.m; i++)
            assert_int_equal(memcmp(x.c + i * x.ldc, x.old + i * x.ldc, row) != 0, i == FAR);
        attn__packed packed = {0};
        if (p.tb)
            assert_int_equal(attn__gemm_pack(w.tape, ATTN_F32, x.b, x.ldb, p.n, p.k, &packed), ATTN_OK);
        for (int64_t i = FIRST; i < FIRST + COUNT && packed.hold.data; i++) {
            attn__gemm_args some = attn__gemm_rows_from(&args, i);
            some.m = 1;
            some.c = x.old;
            assert_int_equal(attn__gemm_slices(w.tape, &some, &packed), ATTN_OK);
            assert_true((kind & 4 && i == FAR) || memcmp(x.c + i * x.ldc, x.old, row) == 0);
        }
        attn__gemm_unpack(&packed);
        end_world(w);
        free_arrays(&x);
    }
}

/* Largest error of a product on packed weights, relative to the norms of row and column. */
static double error_in_norms(world w, const attn__gemm_args *g)
{
    const float *a = g->a, *b = g->b, *c = g->c;
    attn__packed packed = {0};
    double most = 0;
    assert_int_equal(attn__gemm_pack(w.tape, ATTN_F32, b, g->ldb, g->n, g->k, &packed), ATTN_OK);
    assert_int_equal(attn__gemm_slices(w.tape, g, &packed), ATTN_OK);
    attn__gemm_unpack(&packed);
    for (int64_t i = 0; i < g->m * g->n; i++) {
        double sum = 0, x = 0, y = 0;
        for (int64_t k = 0; k < g->k; k++) {
            double p = (double)a[i / g->n * g->lda + k], q = (double)b[i % g->n * g->ldb + k];
            sum += p * q;
            x += p * p;
            y += q * q;
        }
        most = fmax(most, fabs((double)c[i / g->n * g->ldc + i % g->n] - sum) / sqrt(x * y));
    }
    return most;
}

/* Few columns of numbers most of which are small: what they are for one k on average says little of the others. */
static void few_columns_keep_their_digits(void **state)
{
    (void)state;
    if (!attn__isa_runs_here(ATTN_ISA_AMX))
        skip();
    world w = make_world("amx", 2);
    for (int i = 0; i < 40; i++) {
        product p = {20, 1 + i % 16, 77 + 141 * (i % 3), 0, false, true, false, false, ATTN_ACTIVATION_IDENTITY};
        arrays x = make_arrays(&p);
        for (int64_t j = 0; j < p.n * p.k; j++)
            x.b[j] = powf(x.b[j], 6);
        attn__gemm_args args = args_of(&p, &x);
        assert_true(error_in_norms(w, &args) < 8 * 0x1p-24);
        free_arrays(&x);
    }
    end_world(w);
}

static int class_of(float x)
{
    return isnan(x) ? 2 : isinf(x) ? (x > 0 ? 1 : -1) : 0;
}

/* What is infinite, no number, or too large for a sum gives what multiply-adds give, and only where it counts. */
static void numbers_that_are_not_finite(void **state)
{
    (void)state;
    static const float odd[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -2e38f};
    enum { ODD = sizeof odd / sizeof *odd };
    world w = make_world(NULL, 2);
    for (int i = 0; i < 4 * ODD * 3; i++) {
        product p = {300, 135, 1100, i % 2, i & 1, i & 2, i % 3 == 1, i % 3 == 2, ATTN_ACTIVATION_IDENTITY};
        arrays x = make_arrays(&p);
        float *at = i / 4 / ODD == 1 ? x.b : x.a;
        at[i / 4 / ODD == 1 && p.tb ? 7 : 7 * (at == x.a ? x.lda : x.ldb)] = odd[i / 4 % ODD];
        if (i / 4 / ODD == 2)
            x.b[11] = 3e38f;
        attn__gemm_args args = args_of(&p, &x);
        assert_true(attn__gemm(w.tape, &args));
        args.c = x.old;
        assert_true(attn__gemm_in_vectors(w.tape, &args));
        for (int64_t j = 0; j < x.size; j++) {
            assert_int_equal(class_of(x.c[j]), class_of(x.old[j]));
            if (class_of(x.c[j]) == 0)
                assert_true(fabsf(x.c[j] - x.old[j]) <= 1e-3f + 1e-5f * fabsf(x.old[j]));
        }
        free_arrays(&x);
    }
    end_world(w);
}

static void own_tiles_of_every_instruction_set(void **state)
{
    (void)state;
    for (int i = 0; attn_isa_name(i); i++) {
        world w = make_world(attn_isa_name(i), 2);
        try_sizes(w, true);
        end_world(w);
    }
}

static void nothing_to_sum_is_zero(void **state)
{
    (void)state;
    world w = make_world(NULL, 1);
    product p = {.m = 3, .n = 5, .k = 0, .bias = true, .tb = true};
    try_product(w, &p, false);
    p.add = true;
    try_product(w, &p, false);
    end_world(w);
}

/* The linear layer of packed weights, for several numbers of rows. */
static void try_packed(world w, attn_dtype dtype, const product *shape)
{
    product p = *shape;
    arrays x = make_arrays(&p);
    bool bf16 = dtype == ATTN_BF16;
    attn__packed packed;
    assert_int_equal(attn__gemm_pack(w.tape, dtype, x.b, x.ldb, p.n, p.k, &packed), ATTN_OK);
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
        attn__gemm_args args = args_of(&p, &x);
        args.dtype = dtype;
        args.a = bf16 ? (const void *)halves : x.a;
        args.packed = &packed;
        assert_true(attn__gemm(w.tape, &args));
        check_product(&p, &x, bf16);
    }
    attn__gemm_unpack(&packed);
    assert_null(packed.hold.data);
    free(halves);
    free_arrays(&x);
}

static void packed_weights_serve_any_rows(void **state)
{
    (void)state;
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

static void nan_goes_through(void **state)
{
    (void)state;
    world w = make_world(NULL, 2);
    for (attn_activation kind = ATTN_ACTIVATION_IDENTITY; kind <= ATTN_ACTIVATION_SILU; kind++) {
        product p = {800, 170, 166, 0, false, true, false, true, kind};
        arrays x = make_arrays(&p);
        x.a[5 * p.k + 3] = NAN;
        attn__gemm_args args = args_of(&p, &x);
        assert_true(attn__gemm(w.tape, &args));
        for (int64_t i = 0; i < x.size; i++)
            assert_int_equal(isnan(x.c[i]) != 0, i / p.n == 5);
        free_arrays(&x);
    }
    end_world(w);
}

static attn_status product_or_failure(attn_context *context, void *user)
{
    (void)user;
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, context);
    if (status != ATTN_OK)
        return status;
    product p = {800, 170, 166, 0, false, true, false, true, ATTN_ACTIVATION_GELU_ERF};
    arrays x = make_arrays(&p);
    attn__gemm_args args = args_of(&p, &x);
    bool done = attn__gemm(tape, &args);
    if (done)
        check_product(&p, &x, false);
    free_arrays(&x);
    attn_tape_destroy(tape);
    return done ? ATTN_OK : attn_context_status(context);
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    assert_true(faults_try_all(product_or_failure, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_sums),
        cmocka_unit_test(few_rows_of_a_transposed_b),
        cmocka_unit_test(large_products_are_sums),
        cmocka_unit_test(bits_depend_on_nothing_else),
        cmocka_unit_test(bits_of_multiply_adds),
        cmocka_unit_test(many_packed_columns),
        cmocka_unit_test(rows_do_not_change_those_beside_them),
        cmocka_unit_test(few_columns_keep_their_digits),
        cmocka_unit_test(one_row_leaves_the_others),
        cmocka_unit_test(numbers_that_are_not_finite),
        cmocka_unit_test(own_tiles_of_every_instruction_set),
        cmocka_unit_test(nothing_to_sum_is_zero),
        cmocka_unit_test(packed_weights_serve_any_rows),
        cmocka_unit_test(nan_goes_through),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
