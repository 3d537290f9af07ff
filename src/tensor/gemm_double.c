/* SPDX-License-Identifier: MIT
 * Matrix products in double precision: for checking gradients, so plain loops, but parallel. */
#include "base/parallel.h"
#include "tensor/gemm.h"

static void product_rows(void *user, int64_t begin, int64_t end)
{
    const attn__gemm_args *g = user;
    const double *a = g->a, *b = g->b;
    int64_t am = g->transpose_a ? 1 : g->lda, ak = g->transpose_a ? g->lda : 1;
    int64_t bk = g->transpose_b ? 1 : g->ldb, bn = g->transpose_b ? g->ldb : 1;
    for (int64_t i = begin; i < end; i++) {
        double *c = (double *)g->c + i * g->ldc;
        for (int64_t j = 0; j < g->n && !g->add; j++)
            c[j] = 0;
        for (int64_t k = 0; k < g->k; k++) {
            double x = a[i * am + k * ak];
            for (int64_t j = 0; j < g->n; j++)
                c[j] += x * b[k * bk + j * bn];
        }
    }
}

void attn__gemm_double(attn_tape *tape, const attn__gemm_args *args)
{
    enum { WORTH_A_THREAD = 16384 };
    int64_t row = args->n * args->k;
    attn__gemm_args copy = *args;
    attn__parallel_range(tape->context->threads, args->m,
                         WORTH_A_THREAD / (row < WORTH_A_THREAD ? row : WORTH_A_THREAD), product_rows, &copy);
}
