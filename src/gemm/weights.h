/* SPDX-License-Identifier: MIT
 *
 * weights.h - B packed once for many products: weights [n,k], whose rows are B's columns, in the order in which products
 * of their type read them.  product.h multiplies with them. */
#ifndef ATTN_GEMM_WEIGHTS_H
#define ATTN_GEMM_WEIGHTS_H

#include "gemm/gemm.h"

typedef struct attn__weights {
    attn_dtype dtype; /* of the product: I32 for int8 */
    bool slices;      /* of F32: as tiles of slices (sliced.h), else panels */
    int64_t n, k;
    void *data;    /* NULL: nothing is packed */
    float *scales; /* of int8: one a row of the weights, in the same memory */
} attn__weights;

/* Chooses the form in which weights of this size are packed. The result has no data. */
attn__weights attn__weights_for(attn_dtype dtype, attn__isa isa, int64_t n, int64_t k);
/* Bytes of the packed data in whole cache lines, and bytes of memory needed while packing. */
size_t attn__weights_bytes(const attn__weights *weights, attn__isa isa);
size_t attn__weights_workspace(const attn__weights *weights);
/* Fills weights->data from rows of `w`, w->outer apart. `drop`: the rows are not read again, and the memory of each
 * packed part is released (not with slices). False: slices would gain nothing, and panels are to be packed instead. */
bool attn__weights_pack(attn__weights *weights, const attn__gemm_operand *w, bool drop, attn__isa isa, int threads,
                        void *workspace);
/* Copies one row of the original weights from panels of F32 or F64. */
void attn__weights_row(const attn__weights *weights, attn__isa isa, int64_t row, void *to);

#endif
