/* SPDX-License-Identifier: MIT
 *
 * int8_product.h - the product of a linear layer in 8-bit integers. Each row of A and each column of B (an output
 * channel) has one scale: its largest number divided by 127. Products are summed in int32 without rounding.
 *
 *     C[i,j] = or += finish(scale_a[i] scale_b[j] sum_k qa[i,k] qb[k,j])        qa, qb in [-127, 127]
 */
#ifndef ATTN_GEMM_INT8_PRODUCT_H
#define ATTN_GEMM_INT8_PRODUCT_H

#include "gemm/gemm.h"

enum { ATTN__INT8_MOST_SUMMANDS = 130000 }; /* largest k for which sums of 127 x 127 fit into 31 bits */
/* Reports whether int32 can hold sums of k products. */
bool attn__int8_sums(int64_t k);
/* Converts rows of n floats, which are `ld` apart, to integers with one scale per row. */
void attn__int8_quantize_rows(attn__isa isa, int threads, const float *x, int64_t ld, int64_t rows, int64_t n,
                              int8_t *q, float *scales);

typedef struct attn__int8_plan {
    attn__gemm_problem g;
    attn__isa isa;
    int threads;
    attn__gemm_plan integers;
} attn__int8_plan;

/* Plans a product of type F32. A and B^T must be stored in rows. g.weights must be NULL or int8. If g.add is set, C
 * must be f32. */
void attn__int8_plan_make(attn__int8_plan *plan, const attn__gemm_problem *problem, attn__isa isa, int threads);
size_t attn__int8_workspace(const attn__int8_plan *plan);
void attn__int8_run(const attn__int8_plan *plan, void *workspace);

#endif
