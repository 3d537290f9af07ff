/* SPDX-License-Identifier: MIT
 *
 * dnnl.h - what oneDNN is asked for where it is built in.  only dnnl*.c know it; without it its
 * functions do nothing and say so, and the library's own loops take over.
 */
#ifndef ATTN_TENSOR_DNNL_H
#define ATTN_TENSOR_DNNL_H

#include "tensor/gemm.h"
#include "tensor/image.h"

/* oneDNN takes OpenMP's number of threads, which is set before a call and put back after it.  What a thread that OpenMP
 * does not give would have done, oneDNN leaves undone: so it is told of no more threads than there will be. */
typedef struct attn__dnnl_threads {
    int count;
    bool dynamic; /* OpenMP may give fewer than asked for */
} attn__dnnl_threads;
attn__dnnl_threads attn__dnnl_use_threads(int threads);
void attn__dnnl_end_threads(attn__dnnl_threads before);

/* The rows of the product that were done: all, or fewer where oneDNN refuses. */
int64_t attn__dnnl_product(int threads, const attn__gemm_args *args);

/* attn__gemm_pack and attn__gemm_fused by oneDNN. */
attn_status attn__dnnl_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            attn__packed *packed);
attn_status attn__dnnl_fused(attn_tape *tape, const attn__fused_args *args);

typedef enum attn__conv_pass { ATTN__CONV_FORWARD, ATTN__CONV_INPUT, ATTN__CONV_WEIGHTS } attn__conv_pass;

/* A convolution in single precision over [batch, groups * in, size...], and what its passes compute: y from x, w and
 * bias (may be NULL); dx from dy and w; dw from x and dy.  The result, which is overwritten, is the array not read. */
typedef struct attn__conv_args {
    attn__conv_pass pass;
    int spatial;
    attn__window_grid grid;         /* missing axes in front, of length 1 */
    int64_t batch, groups, in, out; /* channels of one group */
    float *x, *w, *bias, *y;        /* or their gradients */
} attn__conv_args;
/* False where oneDNN is missing, refuses or has no memory: nothing that the caller sees has changed but the result. */
bool attn__dnnl_convolve(attn_tape *tape, const attn__conv_args *args);

#endif
