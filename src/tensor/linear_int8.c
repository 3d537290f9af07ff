/* SPDX-License-Identifier: MIT
 * Linear layers in 8-bit integers. */
#include "tensor/linear_int8.h"

#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/int8_rows.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/op.h"

bool attn__linear_int8_sums(int64_t k)
{
    enum { MOST = 130000 }; /* products of 127 x 127 that 31 bits hold */
    return k <= MOST;
}

bool attn__linear_int8_for(const attn_tape *tape, attn_dtype dtype, int64_t k)
{
    return tape->precision == ATTN_PRECISION_INT8 && dtype == ATTN_F32 && attn__linear_int8_sums(k);
}

bool attn__linear_int8_takes(const attn_tape *tape, const attn__gemm_args *g)
{
    bool adds = g->add && (g->c_bf16 || g->activation != ATTN_ACTIVATION_IDENTITY); /* which the epilogue cannot */
    return attn__linear_int8_for(tape, g->dtype, g->k) && g->weights && g->transpose_b && !g->transpose_a && !adds;
}

typedef struct quantizing {
    const attn__int8_rows *rows;
    int64_t n, ld;
    const float *x;
    int8_t *q;
    float *scales;
} quantizing;

static void quantize_range(void *user, int64_t begin, int64_t end)
{
    const quantizing *z = user;
    for (int64_t i = begin; i < end; i++)
        z->scales[i] = z->rows->quantize(z->x + i * z->ld, z->n, z->q + i * z->n);
}

static void quantize_rows(const attn_tape *tape, int64_t rows, int64_t n, const float *x, int64_t ld, int8_t *q,
                          float *scales)
{
    quantizing z = {attn__int8_rows_for(tape->context->isa), n, ld, x, q, scales};
    attn__parallel_range(tape->context->threads, rows, 1 + 16384 / (n + 1), quantize_range, &z);
}

/* What follows the sums, which lie where the result will, or in memory of their own where it is added to `sum`. */
typedef struct epilogue {
    attn__elementwise_fn run, add;
    const attn__int8_rows *scaling;
    const float *rows, *columns, *bias;
    int kind;
    bool plain;
    float *sum; /* NULL, or rows `ld` apart */
    int64_t ld;
} epilogue;

static void finish(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const epilogue *e = user;
    e->scaling->scale(c, n, e->rows[row], e->columns + column);
    attn__elementwise_args args = {.x = e->bias ? e->bias + column : NULL, .y = c, .n = n, .kind = e->kind};
    if (!e->plain)
        e->run(&args, 0, 1);
    if (e->sum) {
        float *y = e->sum + row * e->ld + column;
        e->add(&(attn__elementwise_args){.x = y, .x2 = c, .y = y}, 0, n);
    }
}

/* Integers of m rows of A, and, without packed ones, of B; before them their scales and the sums, if they are added. */
typedef struct integers {
    attn__hold hold;
    int8_t *a, *b;
    float *rows, *columns, *sums;
} integers;

static bool quantize_operands(attn_tape *tape, const attn__gemm_args *g, integers *z)
{
    int64_t own_b = g->packed ? 0 : g->n, sums = g->add ? g->m * g->n : 0;
    z->hold =
        attn__scratch(tape, (size_t)sums * sizeof(float) + (size_t)(g->m + own_b) * (sizeof(float) + (size_t)g->k));
    if (!z->hold.data)
        return false;
    z->sums = z->hold.data;
    z->rows = z->sums + sums;
    z->columns = z->rows + g->m;
    z->a = (int8_t *)(z->columns + own_b);
    z->b = z->a + g->m * g->k;
    quantize_rows(tape, g->m, g->k, g->a, g->lda, z->a, z->rows);
    if (!g->packed)
        quantize_rows(tape, g->n, g->k, g->b, g->ldb, z->b, z->columns);
    return true;
}

bool attn__linear_int8(attn_tape *tape, const attn__gemm_args *g)
{
    integers z;
    if (!quantize_operands(tape, g, &z))
        return false;
    attn__isa isa = tape->context->isa;
    const attn__elementwise_table *set = attn__elementwise_for(false, isa);
    epilogue after = {.run = set->run[ATTN__ELEMENTWISE_BIAS_ACTIVATE],
                      .add = set->run[ATTN__ELEMENTWISE_ADD],
                      .scaling = attn__int8_rows_for(isa),
                      .rows = z.rows,
                      .columns = g->packed ? g->packed->scales : z.columns,
                      .bias = g->bias,
                      .kind = (int)g->activation,
                      .plain = !g->bias && g->activation == ATTN_ACTIVATION_IDENTITY,
                      .sum = g->add ? g->c : NULL,
                      .ld = g->ldc};
    bool done = attn__gemm_problem_run(tape, &(attn__gemm_problem){.dtype = ATTN_I32,
                                                                   .m = g->m,
                                                                   .n = g->n,
                                                                   .k = g->k,
                                                                   .a = attn__matrix(z.a, g->k, 1),
                                                                   .b = attn__matrix(z.b, g->k, 1),
                                                                   .packed = g->packed ? g->packed->hold.data : NULL,
                                                                   .c = g->add ? z.sums : g->c,
                                                                   .c_bf16 = g->c_bf16,
                                                                   .ldc = g->add ? g->n : g->ldc,
                                                                   .finish = finish,
                                                                   .user = &after});
    attn__scratch_release(z.hold);
    return done;
}

attn_status attn__linear_int8_pack(attn_tape *tape, const float *b, int64_t ldb, int64_t n, int64_t k,
                                   attn__packed *packed)
{
    attn__gemm_problem problem = {.dtype = ATTN_I32, .n = n, .k = k, .b = attn__matrix(NULL, k, 1)};
    size_t panels = (attn__gemm_packed_bytes(&problem, tape->context->isa) + sizeof(float) - 1) & ~(sizeof(float) - 1);
    *packed = (attn__packed){ATTN_I32, n, k, attn__scratch(tape, panels + (size_t)n * sizeof(float)), .slices = false};
    int64_t part = attn__least(n, ATTN__GEMM_PART);
    attn__hold rows = packed->hold.data ? attn__scratch(tape, (size_t)(part * k)) : (attn__hold){0};
    if (!rows.data) {
        attn__gemm_unpack(packed);
        return ATTN_ERROR_MEMORY;
    }
    packed->scales = (float *)((char *)packed->hold.data + panels);
    for (int64_t first = 0; first < n; first += part) {
        int64_t end = attn__least(first + part, n);
        quantize_rows(tape, end - first, k, b + first * ldb, ldb, rows.data, packed->scales + first);
        problem.b.data = (const void *)((uintptr_t)rows.data - (uintptr_t)(first * k)); /* where row 0 would be */
        attn__gemm_pack_b(&problem, tape->context->isa, tape->context->threads, first, end, packed->hold.data);
    }
    attn__scratch_release(rows);
    return ATTN_OK;
}

float attn__linear_int8_row(const float *row, int64_t k, int8_t *q)
{
    return attn__int8_rows_for(ATTN_ISA_SCALAR)->quantize(row, k, q);
}
