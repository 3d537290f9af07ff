/* SPDX-License-Identifier: MIT
 *
 * product.h - the route of a product, chosen once, before anything is computed:
 *
 *     slices         f32 by weights packed as slices (sliced.h), on AMX
 *     int8           f32 of a linear layer where its model computes in int8 (int8_product.h)
 *     multiply-adds  all others, with the micro-kernel of their type (gemm.h), on packed weights or not */
#ifndef ATTN_GEMM_PRODUCT_H
#define ATTN_GEMM_PRODUCT_H

#include "gemm/int8_product.h"
#include "gemm/sliced.h"
#include "gemm/weights.h"

typedef enum attn__route { ATTN__ROUTE_MULTIPLY_ADDS, ATTN__ROUTE_INT8, ATTN__ROUTE_SLICES } attn__route;

typedef struct attn__product {
    attn__route route;
    union {
        attn__gemm_plan multiply_adds;
        attn__int8_plan int8;
        attn__sliced_plan slices;
    };
} attn__product;

/* g.weights is ignored if the chosen route cannot read its form; the route then reads B. */
void attn__product_plan(attn__product *product, const attn__gemm_problem *problem, attn__isa isa, int threads);
/* Prints the route and its GEMM plan as one line, as snprintf does. With slices, the plan is that of the rows
 * without a proof. */
int attn__product_print(const attn__product *product, char *text, size_t size);
/* Bytes of scratch that attn__product_run needs, aligned to 64. */
size_t attn__product_workspace(const attn__product *product);
/* Runs the product as attn__gemm_run does. It allocates nothing. */
void attn__product_run(const attn__product *product, void *workspace);

#endif
