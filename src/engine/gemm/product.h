/* SPDX-License-Identifier: MIT
 *
 * product.h - a product by one of three routes, which is chosen before anything is computed:
 *
 *     slices         f32 by weights packed as slices (sliced.h), on AMX
 *     int8           f32 products of a linear layer, if its model computes in int8 (int8_product.h)
 *     multiply-adds  all other products, with the micro-kernel of their type (gemm.h), with or without packed weights
 */
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

/* Chooses the route and plans the product. The route reads g.weights if it supports their packed form, otherwise B. */
void attn__product_plan(attn__product *product, const attn__gemm_problem *problem, attn__isa isa, int threads);
/* Prints the route and its plan as one line to text[size]. Returns the same value as snprintf. With slices, it prints
 * the plan for the rows that multiply-adds compute. */
int attn__product_print(const attn__product *product, char *text, size_t size);
/* Returns the bytes of scratch memory of attn__product_run, aligned to 64 bytes. */
size_t attn__product_workspace(const attn__product *product);
/* Runs the product as attn__gemm_run does, without allocating memory. */
void attn__product_run(const attn__product *product, void *workspace);

#endif
