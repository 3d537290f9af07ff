/* SPDX-License-Identifier: MIT
 * Which matrix product to use; the only place that knows oneDNN. */
#include "tensor/gemm.h"

#include <string.h>

#ifdef ATTN_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static bool dnnl_rows(const attn__gemm_args *g, int64_t begin, int64_t m)
{
    const float *a = (const float *)g->a + begin * (g->transpose_a ? 1 : g->lda);
    return dnnl_sgemm(g->transpose_a ? 'T' : 'N', g->transpose_b ? 'T' : 'N', m, g->n, g->k, 1.0f, a, g->lda, g->b, g->ldb,
                      g->add ? 1.0f : 0.0f, (float *)g->c + begin * g->ldc, g->ldc) == dnnl_success;
}

/* From some sixteen rows on oneDNN copies a transposed B first, which costs more than it gains while there
 * are few rows: 16 rows of 512 by 512 take 110 us at once, 27 us in parts. */
static int64_t rows_at_once(const attn__gemm_args *g)
{
    enum { PART = 12, FEW = 64 };
    return g->transpose_b && g->m > PART && g->m <= FEW ? PART : g->m;
}

/* oneDNN takes OpenMP's number of threads, which is set for the call only. */
static bool dnnl_product(int threads, const attn__gemm_args *g)
{
#ifdef _OPENMP
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
#endif
    bool done = true;
    int64_t part = rows_at_once(g);
    for (int64_t row = 0; row < g->m && done; row += part)
        done = dnnl_rows(g, row, g->m - row < part ? g->m - row : part);
#ifdef _OPENMP
    if (before != threads)
        omp_set_num_threads(before);
#endif
    return done;
}
#else
static bool dnnl_product(int threads, const attn__gemm_args *g)
{
    (void)threads;
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
    if (dnnl_product(tape->context->threads, args))
        return true;
    return attn__gemm_own(tape, args);
}
