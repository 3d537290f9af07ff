/* SPDX-License-Identifier: MIT
 *
 * strides.h - strided loops over whole tensors.
 */
#ifndef ATTN_TENSOR_STRIDES_H
#define ATTN_TENSOR_STRIDES_H

#include "tensor/op.h"

/* Strides of a contiguous array. */
void attn__contiguous(int rank, const int64_t *shape, int64_t *stride);
/* Runs STRIDED or BINARY over args->shape with args->stride_*. Axes of length 1 are dropped. Neighbouring axes are
 * merged if all strides allow it. */
void attn__strided_run(const attn_tape *tape, attn_dtype dtype, attn__elementwise_kernel kernel,
                       attn__elementwise_args args);

/* The sum of `share`, of y's shape, over the axes along which x was stretched to y; consumes `share`.
 * .data is NULL (tape->failed) without memory. */
attn__hold attn__sum_to(attn_tape *tape, attn__hold share, const attn_tensor *y, const attn_tensor *x);

#endif
