/* SPDX-License-Identifier: MIT
 *
 * strides.h - strided loops over whole tensors.
 */
#ifndef ATTN_TENSOR_STRIDES_H
#define ATTN_TENSOR_STRIDES_H

#include "tensor/op.h"

/* Computes the strides of a contiguous array. */
void attn__contiguous(int rank, const int64_t *shape, int64_t *stride);
/* Runs STRIDED or BINARY over args->shape with args->stride_*. Axes of length 1 are dropped. Neighbouring axes are
 * merged if all strides allow it. */
void attn__strided_run(const attn_tape *tape, attn_dtype dtype, attn__elementwise_kernel kernel,
                       attn__elementwise_args args);

/* Returns the sum of `share`, which has y's shape, over the axes along which x was broadcast to y. Takes over `share`.
 * .data is NULL and tape->failed is set if there is no memory. */
attn__hold attn__sum_to(attn_tape *tape, attn__hold share, const attn_tensor *y, const attn_tensor *x);

#endif
