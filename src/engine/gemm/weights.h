/* SPDX-License-Identifier: MIT
 *
 * weights.h - packs a matrix B once for many products. The columns of B are the rows of the weights [n,k]. The packed
 * order is the order in which products of that type read B.  product.h multiplies by packed weights.
 */
#ifndef ATTN_GEMM_WEIGHTS_H
#define ATTN_GEMM_WEIGHTS_H

#include "gemm/gemm.h"

typedef struct attn__weights {
    attn_dtype dtype; /* type of the product; I32 means int8 */
    bool slices;      /* F32 only: packed as slices (sliced.h), otherwise as panels */
    int64_t n, k;
    void *data;    /* packed weights, or NULL if nothing is packed */
    float *scales; /* int8 only: one scale per row of the weights, stored in `data` */
} attn__weights;

/* Chooses the packed form of weights of size n x k. `data` of the result is NULL. */
attn__weights attn__weights_for(attn_dtype dtype, attn__isa isa, int64_t n, int64_t k);
size_t attn__weights_bytes(const attn__weights *weights, attn__isa isa);
size_t attn__weights_workspace(const attn__weights *weights);
/* Sets the memory of packed weights that are not slices, and finds their scales in it. */
void attn__weights_place(attn__weights *weights, attn__isa isa, void *data);
/* Packs the rows of `w`, which are w->outer apart, to weights->data. If `drop` is set, rows are released from memory
 * after packing, because they are not read again. Slices ignore `drop`. Returns false if slices would not be faster.
 * The caller should then pack panels instead. */
bool attn__weights_pack(attn__weights *weights, const attn__gemm_operand *w, bool drop, attn__isa isa, int threads,
                        void *workspace);
/* Copies one row of the weights from the packed panels, as k numbers of type double if the type is F64, and otherwise of
 * type float. With F32 and F64 these are the original numbers, with BF16 the numbers rounded to bf16, and with I32 the
 * integers times their scale. */
void attn__weights_row(const attn__weights *weights, attn__isa isa, int64_t row, void *to);

#endif
