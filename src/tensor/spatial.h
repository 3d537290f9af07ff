/* SPDX-License-Identifier: MIT
 *
 * spatial.h - loops of pooling, and of gradients of convolutions, for float and double.  Every shape is seen
 * as three spatial axes, missing ones of length 1 in front.
 */
#ifndef ATTN_TENSOR_SPATIAL_H
#define ATTN_TENSOR_SPATIAL_H

#include "gemm/im2col.h"
#include "kernels/batch_norm/batch_norm.h"
#include "tensor/tensor.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct attn__spatial_args {
    attn__window_grid grid;
    const void *x;
    void *y;
    int32_t *index; /* of the largest element of each window */
} attn__spatial_args;

/* Each function is run(args, begin, end) and computes a part of the stated range. */
typedef struct attn__spatial_loops {
    void (*fold)(void *args, int64_t begin, int64_t end); /* channels: y [channels, in] += x [channels, taps, out] */
    void (*max_pool)(void *args, int64_t begin, int64_t end);     /* planes: y, index from x */
    void (*max_backward)(void *args, int64_t begin, int64_t end); /* planes: y [in] += x [out] at index */
    void (*avg_pool)(void *args, int64_t begin, int64_t end);     /* planes */
    void (*avg_backward)(void *args, int64_t begin, int64_t end); /* planes */
} attn__spatial_loops;

const attn__spatial_loops *attn__spatial_loops_for(bool is_double);

/* dbias (+)= the sum of dy [batch, channels, plane] over all but channels, f32 or f64, by the context's threads. */
void attn__sum_channels(const attn_context *context, attn_dtype dtype, const attn__batch_norm_args *args);

#endif
