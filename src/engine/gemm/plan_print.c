/* SPDX-License-Identifier: MIT
 * Prints the plan of a matrix product as one line, and computes the bytes that the product moves. */
#include "base/caches.h"
#include "base/integers.h"
#include "gemm/gemm.h"
#include "gemm/kernel.h"

#include <stdio.h>

attn__gemm_traffic attn__gemm_plan_traffic(const attn__gemm_plan *p)
{
    const attn__gemm_problem *g = &p->g;
    int64_t sum = g->dtype == ATTN_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    int64_t panels = attn__ceil_div(attn__max(g->k, 1), p->k_panel);
    int64_t a = g->m * g->k * p->kernel->a_size, b = g->n * g->k * p->kernel->b_size, c = g->m * g->n * sum;
    bool one_group = p->m_group >= p->m_block && p->m_blocks == 1;
    return (attn__gemm_traffic){
        .a = p->share_a ? a * (2 + p->n_blocks) : a * (one_group ? 1 : p->n_blocks),
        .b = p->share_b ? b * (2 + p->m_blocks) : b * (g->packed || !p->pack_b ? p->m_blocks : 1),
        /* AMX keeps a block of C in L2 between K panels. Other kernels read and write C once per K panel. */
        .c = p->kernel->begin ? 2 * c : 2 * c * panels,
    };
}

static const char *way(bool packed, bool shared, bool by_each)
{
    return packed ? "packed before" : shared ? "packed once" : by_each ? "packed by each block" : "in place";
}

int attn__gemm_plan_print(const attn__gemm_plan *p, char *text, size_t size)
{
    const attn__gemm_problem *g = &p->g;
    const attn__gemm_kernel *kernel = p->kernel;
    attn__gemm_traffic moved = attn__gemm_plan_traffic(p);
    const double mb = 1e6;
    return snprintf(
        text, size,
        "%s %s %d x %d: m %lld, n %lld, k %lld; K panels of %lld; %lld x %lld blocks of %lld x %lld, %lld rows at "
        "once; A %s, B %s; moves A %.1f, B %.1f, C %.1f MB, %.0f FLOP a byte",
        attn_dtype_name(g->dtype), attn__isa_text(kernel->isa), kernel->rows, kernel->columns, (long long)g->m,
        (long long)g->n, (long long)g->k, (long long)p->k_panel, (long long)p->m_blocks, (long long)p->n_blocks,
        (long long)p->m_block, (long long)p->n_block, (long long)attn__min(p->m_block, p->m_group),
        way(false, p->share_a, p->pack_a), way(g->packed != NULL, p->share_b, p->pack_b), (double)moved.a / mb,
        (double)moved.b / mb, (double)moved.c / mb,
        2.0 * (double)g->m * (double)g->n * (double)g->k / (double)attn__max(moved.a + moved.b + moved.c, 1));
}
