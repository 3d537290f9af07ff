/* SPDX-License-Identifier: MIT
 * Which matrix product to use. */
#include "tensor/gemm.h"

#include "kernels/rows/rows.h"
#include "tensor/dnnl.h"
#include "tensor/gemm_slices.h"
#include "tensor/op.h"

#include <string.h>

/* Rows that are done stay as they are: where C is added to, doing them again would count them twice. */
attn__gemm_args attn__gemm_rows_from(const attn__gemm_args *g, int64_t row)
{
    attn__gemm_args rest = *g;
    rest.m = g->m - row;
    rest.a = (const float *)g->a + row * (g->transpose_a ? 1 : g->lda);
    rest.c = (float *)g->c + row * g->ldc;
    return rest;
}

/* No terms to sum: zeros. */
static void empty_product(const attn__gemm_args *g)
{
    size_t element = attn_dtype_size(g->dtype);
    for (int64_t i = 0; i < g->m && !g->add; i++)
        memset((char *)g->c + (size_t)(i * g->ldc) * element, 0, (size_t)g->n * element);
}

/* Bias and activation as a pass of their own. */
static void finish(const attn_tape *tape, const attn__gemm_args *g)
{
    size_t element = attn_dtype_size(g->dtype);
    attn__rows_args args = {.x = g->bias, .y = g->c, .n = g->n, .kind = (int)g->activation};
    if (!g->bias && g->activation == ATTN_IDENTITY)
        return;
    if (g->ldc == g->n)
        attn__rows_run(tape, g->dtype, ATTN__ROWS_BIAS_ACTIVATE, &args, g->m, g->n);
    for (int64_t i = 0; i < g->m && g->ldc != g->n; i++) {
        args.y = (char *)g->c + (size_t)(i * g->ldc) * element;
        attn__rows_run(tape, g->dtype, ATTN__ROWS_BIAS_ACTIVATE, &args, 1, g->n);
    }
}

/* A linear layer of many rows: oneDNN's general product reads B across its rows, at 0.74 to 0.91 of the machine's peak;
 * packing it first costs a few hundredths at a thousand rows, and gives 0.95. */
static attn_status packed_product(attn_tape *tape, const attn__gemm_args *g)
{
    enum { ROWS = 768, COLUMNS = 64 };
    if (g->dtype != ATTN_F32 || g->transpose_a || !g->transpose_b || g->lda != g->k || g->ldc != g->n || g->m < ROWS ||
        g->n < COLUMNS || g->k < COLUMNS)
        return ATTN_UNSUPPORTED;
    bool gelu = g->activation == ATTN_GELU_ERF; /* oneDNN's ReLU of NaN is 0, and the rest has other formulas there */
    attn__fused_args args = {.in = ATTN_F32,
                             .out = ATTN_F32,
                             .m = g->m,
                             .n = g->n,
                             .k = g->k,
                             .a = g->a,
                             .b = g->b,
                             .ldb = g->ldb,
                             .bias = g->bias,
                             .gelu = gelu,
                             .add = g->add,
                             .c = g->c};
    attn_status status = attn__dnnl_fused(tape, &args);
    if (status != ATTN_OK)
        return status;
    attn__gemm_args rest = *g;
    rest.bias = NULL;
    rest.activation = gelu ? ATTN_IDENTITY : g->activation;
    finish(tape, &rest);
    return ATTN_OK;
}

/* Of few multiply-adds, and quicker than oneDNN's with one thread and with two: where B is transposed (0.85 and 0.8 of
 * its time, half where C has few rows), or so narrow that a block has all of its columns.  Others take 1.05 to 1.3 of
 * it, as does adding where k is short: C's old numbers are fetched for few products. */
static bool is_small(const attn__gemm_args *g)
{
    enum { LEAST = 32, MOST = 1 << 23, NARROW = 128, SHORT = 128 };
    bool gains = g->transpose_b || (g->n <= NARROW && (!g->add || g->k >= SHORT));
    return gains && g->dtype == ATTN_F32 && g->m >= LEAST && g->n >= LEAST && g->k >= LEAST &&
           g->m * g->n <= MOST / LEAST && g->m * g->n * g->k <= MOST;
}

/* oneDNN's, and what it has left. */
static bool general_product(attn_tape *tape, const attn__gemm_args *g)
{
    int64_t done = attn__dnnl_product(tape->context->threads, g);
    attn__gemm_args rest = attn__gemm_rows_from(g, done);
    return rest.m == 0 || attn__gemm_own(tape, &rest);
}

bool attn__gemm_in_vectors(attn_tape *tape, const attn__gemm_args *args)
{
    bool small = is_small(args), done = true;
    attn_status packed = small ? ATTN_UNSUPPORTED : packed_product(tape, args);
    if (packed != ATTN_UNSUPPORTED)
        return packed == ATTN_OK;
    if (args->k == 0)
        empty_product(args);
    else if (args->dtype == ATTN_F64)
        attn__gemm_double(tape, args);
    else
        done = small ? attn__gemm_own(tape, args) : general_product(tape, args);
    if (done)
        finish(tape, args);
    return done;
}

bool attn__gemm(attn_tape *tape, const attn__gemm_args *args)
{
    if (args->m == 0 || args->n == 0)
        return true;
    attn_status status = attn__gemm_slices(tape, args, args->packed);
    return status == ATTN_UNSUPPORTED ? attn__gemm_in_vectors(tape, args) : status == ATTN_OK;
}

attn_status attn__gemm_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            attn__packed *packed)
{
    attn_status status = dtype == ATTN_F32 ? attn__gemm_slices_pack(tape, b, ldb, n, k, packed) : ATTN_UNSUPPORTED;
    return status == ATTN_UNSUPPORTED ? attn__dnnl_pack(tape, dtype, b, ldb, n, k, packed) : status;
}

void attn__gemm_unpack(attn__packed *packed)
{
    if (packed->hold.data)
        attn__scratch_release(packed->hold);
    *packed = (attn__packed){0};
}

/* In the matrix unit if the weights are there for it, or if the product is worth packing them. */
static attn_status fused_slices(attn_tape *tape, const attn__fused_args *g)
{
    attn__gemm_args args = {.dtype = ATTN_F32,
                            .transpose_b = true,
                            .m = g->m,
                            .n = g->n,
                            .k = g->k,
                            .a = g->a,
                            .lda = g->k,
                            .b = g->b,
                            .ldb = g->ldb,
                            .c = g->c,
                            .ldc = g->n,
                            .add = g->add,
                            .bias = g->bias,
                            .activation = g->gelu ? ATTN_GELU_ERF : ATTN_IDENTITY};
    const attn__packed *packed = g->packed && g->packed->hold.data ? g->packed : NULL;
    if (g->in != ATTN_F32 || g->out != ATTN_F32 || (packed && !packed->slices))
        return ATTN_UNSUPPORTED;
    return attn__gemm_slices(tape, &args, packed);
}

attn_status attn__gemm_fused(attn_tape *tape, const attn__fused_args *args)
{
    attn_status status = fused_slices(tape, args);
    if (status != ATTN_UNSUPPORTED)
        return status;
    attn__fused_args rest = *args;
    rest.packed = rest.packed && rest.packed->slices ? NULL : rest.packed;
    return attn__dnnl_fused(tape, &rest);
}
