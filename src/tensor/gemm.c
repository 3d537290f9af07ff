/* SPDX-License-Identifier: MIT
 * Which matrix product to use. */
#include "tensor/gemm.h"

#include "tensor/dnnl.h"

#include <string.h>

/* Rows that are done stay as they are: where C is added to, doing them again would count them twice. */
static attn__gemm_args rows_from(const attn__gemm_args *g, int64_t row)
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

bool attn__gemm(attn_tape *tape, const attn__gemm_args *args)
{
    if (args->m == 0 || args->n == 0)
        return true;
    if (args->k == 0) {
        empty_product(args);
        return true;
    }
    if (args->dtype == ATTN_F64) {
        attn__gemm_double(tape, args);
        return true;
    }
    int64_t done = attn__dnnl_product(tape->context->threads, args);
    if (done == args->m)
        return true;
    attn__gemm_args rest = rows_from(args, done);
    return attn__gemm_own(tape, &rest);
}
