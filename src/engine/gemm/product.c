/* SPDX-License-Identifier: MIT
 * Chooses how a matrix product is computed (product.h). */
#include "gemm/product.h"

#include <stdio.h>

/* Reports whether the product may belong to a linear layer: A and B^T are f32 matrices with contiguous rows. */
static bool is_linear(const attn__gemm_problem *g)
{
    const attn__gemm_operand *a = &g->a, *b = &g->b;
    return g->dtype == ATTN_F32 && g->batch <= 1 && !a->gather && !b->gather && !a->bf16 && !b->bf16 && a->inner == 1 &&
           b->inner == 1;
}

static attn__route route_of(const attn__gemm_problem *g)
{
    const attn__weights *w = g->weights;
    if (!is_linear(g) || g->m == 0 || g->n == 0)
        return ATTN__ROUTE_MULTIPLY_ADDS;
    if (g->int8 && attn__int8_sums(g->k) && !(g->add && g->c_bf16))
        return ATTN__ROUTE_INT8;
    return w && w->slices && !g->int8 && !g->c_bf16 ? ATTN__ROUTE_SLICES : ATTN__ROUTE_MULTIPLY_ADDS;
}

void attn__product_plan(attn__product *p, const attn__gemm_problem *problem, attn__isa isa, int threads)
{
    attn__gemm_problem g = *problem;
    p->route = route_of(&g);
    if (p->route == ATTN__ROUTE_SLICES) {
        attn__sliced_plan_make(&p->slices, &g, attn__slices_for(isa), g.weights->data, isa, threads);
    } else if (p->route == ATTN__ROUTE_INT8) {
        g.weights = g.weights && g.weights->dtype == ATTN_I32 ? g.weights : NULL;
        attn__int8_plan_make(&p->int8, &g, isa, threads);
    } else {
        if (g.weights && g.weights->dtype == g.dtype && !g.weights->slices)
            g.packed = g.weights->data;
        attn__gemm_plan_make(&p->multiply_adds, &g, isa, threads);
    }
}

int attn__product_print(const attn__product *p, char *text, size_t size)
{
    char plan[512];
    attn__gemm_plan_print(p->route == ATTN__ROUTE_SLICES ? &p->slices.rest
                          : p->route == ATTN__ROUTE_INT8 ? &p->int8.integers
                                                         : &p->multiply_adds,
                          plan, sizeof plan);
    static const char *const names[] = {
        [ATTN__ROUTE_MULTIPLY_ADDS] = "multiply-adds", [ATTN__ROUTE_INT8] = "int8", [ATTN__ROUTE_SLICES] = "slices"};
    return snprintf(text, size, "%s: %s", names[p->route], plan);
}

size_t attn__product_workspace(const attn__product *p)
{
    return p->route == ATTN__ROUTE_SLICES ? attn__sliced_workspace(&p->slices)
           : p->route == ATTN__ROUTE_INT8 ? attn__int8_workspace(&p->int8)
                                          : attn__gemm_workspace(&p->multiply_adds);
}

void attn__product_run(const attn__product *p, void *workspace)
{
    if (p->route == ATTN__ROUTE_SLICES)
        attn__sliced_run(&p->slices, workspace);
    else if (p->route == ATTN__ROUTE_INT8)
        attn__int8_run(&p->int8, workspace);
    else
        attn__gemm_run(&p->multiply_adds, workspace);
}
