/* SPDX-License-Identifier: MIT
 *
 * weights.h - packs B once for many products. B's columns are the rows of weights [n,k], in the order in which products
 * of their type read them.  product.h multiplies with them.
 */
#ifndef ATTN_GEMM_WEIGHTS_H
#define ATTN_GEMM_WEIGHTS_H

#include "gemm/gemm.h"

typedef struct attn__weights {
    attn_dtype dtype; /* type of the product; I32 for int8 */
    bool slices;      /* F32 weights are tiles of slices (sliced.h), otherwise panels */
    int64_t n, k;
    void *data;    /* packed weights; NULL: nothing is packed */
    float *scales; /* int8: a scale per row of the weights, in the same memory */
} attn__weights;

/* Chooses the form in which weights of this size are packed. The result has no data. */
attn__weights attn__weights_for(attn_dtype dtype, attn__isa isa, int64_t n, int64_t k);
/* Returns the bytes of the packed data. */
size_t attn__weights_bytes(const attn__weights *weights, attn__isa isa);
size_t attn__weights_workspace(const attn__weights *weights);
/* Fills weights->data from rows of `w`, w->outer apart. `drop`: the rows are not read again, and the memory of each
 * packed part is released (not with slices). Returns false if slices would gain nothing. Panels should then be packed
 * instead. */
bool attn__weights_pack(attn__weights *weights, const attn__gemm_operand *w, bool drop, attn__isa isa, int threads,
                        void *workspace);
/* Copies one row of the original weights from panels of F32 or F64. */
void attn__weights_row(const attn__weights *weights, attn__isa isa, int64_t row, void *to);

#endif
