/* SPDX-License-Identifier: MIT
 * Which matrix product to use; the only place that knows oneDNN. */
#include "tensor/gemm.h"

#include <string.h>

#ifdef ATTN_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* oneDNN takes OpenMP's number of threads, which is set for the call only. */
static bool dnnl_product(int threads, const attn__gemm_args *g)
{
#ifdef _OPENMP
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
#endif
    dnnl_status_t status = dnnl_sgemm(g->transpose_a ? 'T' : 'N', g->transpose_b ? 'T' : 'N', g->m, g->n, g->k, 1.0f,
                                      g->a, g->lda, g->b, g->ldb, g->add ? 1.0f : 0.0f, g->c, g->ldc);
#ifdef _OPENMP
    if (before != threads)
        omp_set_num_threads(before);
#endif
    return status == dnnl_success;
}

/* Its preparations cost more than they win below some size; see docs/performance.md for the measurement. */
static bool dnnl_wins(const attn__gemm_args *g)
{
    (void)g;
    return true;
}
#else
static bool dnnl_product(int threads, const attn__gemm_args *g)
{
    (void)threads;
    (void)g;
    return false;
}

static bool dnnl_wins(const attn__gemm_args *g)
{
    (void)g;
    return false;
}
#endif

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
    if (dnnl_wins(args) && dnnl_product(tape->context->threads, args))
        return true;
    return attn__gemm_own(tape, args);
}
