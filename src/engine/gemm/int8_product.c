/* SPDX-License-Identifier: MIT
 * Matrix products in 8-bit integers. */
#include "gemm/int8_product.h"

#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/int8_rows.h"
#include "gemm/weights.h"

enum { LINE = 64 /* bytes */ };

bool attn__int8_sums(int64_t k)
{
    return k <= ATTN__INT8_MOST_SUMMANDS;
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

void attn__int8_quantize_rows(attn__isa isa, int threads, const float *x, int64_t ld, int64_t rows, int64_t n,
                              int8_t *q, float *scales)
{
    enum { NUMBERS = 16384 }; /* minimum number of elements that a thread quantizes */
    quantizing z = {attn__int8_rows_for(isa), n, ld, x, q, scales};
    attn__parallel_range(threads, rows, 1 + NUMBERS / (n + 1), quantize_range, &z);
}

void attn__int8_plan_make(attn__int8_plan *p, const attn__gemm_problem *problem, attn__isa isa, int threads)
{
    const attn__gemm_problem *g = problem;
    *p = (attn__int8_plan){.g = *g, .isa = isa, .threads = threads};
    attn__gemm_plan_make(&p->integers,
                         &(attn__gemm_problem){.dtype = ATTN_I32,
                                               .m = g->m,
                                               .n = g->n,
                                               .k = g->k,
                                               .a = attn__matrix(NULL, g->k, 1),
                                               .b = attn__matrix(NULL, g->k, 1),
                                               .packed = g->weights ? g->weights->data : NULL,
                                               .c = g->c,
                                               .c_bf16 = g->c_bf16,
                                               .ldc = g->add ? g->n : g->ldc},
                         isa, threads);
}

/* Arrays in the workspace, after the workspace of the integer product. `sums` is needed if the product is added to C.
 * The integers of B are needed if B is not packed. */
typedef struct integers {
    const attn__int8_plan *p;
    const attn__int8_rows *scaling;
    float *sums, *rows;
    const float *columns;
    float *own_columns;
    int8_t *a, *b;
} integers;

static int64_t own_columns(const attn__gemm_problem *g)
{
    return g->weights ? 0 : g->n;
}

static int64_t sums_of(const attn__gemm_problem *g)
{
    return g->add ? g->m * g->n : 0;
}

static size_t own_bytes(const attn__int8_plan *p)
{
    return (size_t)attn__round_up((int64_t)attn__gemm_workspace(&p->integers), LINE);
}

size_t attn__int8_workspace(const attn__int8_plan *p)
{
    const attn__gemm_problem *g = &p->g;
    return own_bytes(p) + (size_t)sums_of(g) * sizeof(float) +
           (size_t)(g->m + own_columns(g)) * (sizeof(float) + (size_t)g->k);
}

static integers lay_out(const attn__int8_plan *p, char *workspace)
{
    const attn__gemm_problem *g = &p->g;
    integers z = {.p = p, .scaling = attn__int8_rows_for(p->isa)};
    z.sums = (float *)(void *)(workspace + own_bytes(p));
    z.rows = z.sums + sums_of(g);
    z.own_columns = z.rows + g->m;
    z.columns = g->weights ? g->weights->scales : z.own_columns;
    z.a = (int8_t *)(z.own_columns + own_columns(g));
    z.b = z.a + g->m * g->k;
    return z;
}

static void finish(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const integers *z = user;
    const attn__gemm_problem *g = &z->p->g;
    z->scaling->scale(c, n, z->rows[row], z->columns + column);
    if (g->finish)
        g->finish(g->user, c, row, column, n);
    float *y = (float *)g->c + row * g->ldc + column;
    for (int64_t i = 0; i < n && g->add; i++)
        y[i] += ((const float *)c)[i];
}

void attn__int8_run(const attn__int8_plan *p, void *workspace)
{
    const attn__gemm_problem *g = &p->g;
    integers z = lay_out(p, workspace);
    attn__gemm_plan plan = p->integers;
    attn__int8_quantize_rows(p->isa, p->threads, g->a.data, g->a.outer, g->m, g->k, z.a, z.rows);
    if (!g->weights)
        attn__int8_quantize_rows(p->isa, p->threads, g->b.data, g->b.outer, g->n, g->k, z.b, z.own_columns);
    plan.g.a.data = plan.transposed ? z.b : z.a;
    plan.g.b.data = plan.transposed ? z.a : z.b;
    plan.g.c = g->add ? z.sums : g->c;
    plan.g.finish = finish;
    plan.g.user = &z;
    attn__gemm_run(&plan, workspace);
}
