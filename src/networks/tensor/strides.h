/* SPDX-License-Identifier: MIT
 *
 * strides.h - strided loops over whole tensors.
 */
#ifndef ATTN_TENSOR_STRIDES_H
#define ATTN_TENSOR_STRIDES_H

#include "tensor/op.h"

void attn__contiguous(int rank, const int64_t *shape, int64_t *stride);
/* Runs the kernel STRIDED or BINARY over an array of shape args->shape with the strides args->stride_*. Axes of length
 * 1 are dropped, and neighbouring axes are merged if all strides allow it, so that the loops are longer and fewer. */
void attn__strided_run(const attn_tape *tape, attn_dtype dtype, attn__elementwise_kernel kernel,
                       attn__elementwise_args args);

/* Sums `share`, which has y's shape, over the axes along which x was broadcast to y. The reference `share` passes to
 * this function. If there is no memory, sets tape->failed and returns a hold without data. */
attn__hold attn__sum_to(attn_tape *tape, attn__hold share, const attn_tensor *y, const attn_tensor *x);

#endif
