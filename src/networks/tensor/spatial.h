/* SPDX-License-Identifier: MIT
 *
 * spatial.h - loops of pooling, and of gradients of convolutions, for float and double. Every shape has three spatial
 * axes. If there are fewer axes, the first ones have length 1. */
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
    int32_t *index;
} attn__spatial_args;

/* The loops for one type. Each loop, run(args, begin, end), processes a range of channels or of planes. */
typedef struct attn__spatial_loops {
    /* for channels [begin, end): adds x [channels, taps, out] to y [channels, in], the reverse of im2col */
    void (*fold)(void *args, int64_t begin, int64_t end);
    /* for planes [begin, end): computes y and index from x */
    void (*max_pool)(void *args, int64_t begin, int64_t end);
    /* for planes [begin, end): adds each element of x [out] to the element of y [in] whose position is in `index` */
    void (*max_backward)(void *args, int64_t begin, int64_t end);
    void (*avg_pool)(void *args, int64_t begin, int64_t end);     /* planes */
    void (*avg_backward)(void *args, int64_t begin, int64_t end); /* planes */
} attn__spatial_loops;

const attn__spatial_loops *attn__spatial_loops_for(bool is_double);

/* Computes dbias (+)= the sum of dy [batch, channels, plane] over batch and plane, in f32 or f64. Uses the context's
 * threads. */
void attn__sum_channels(const attn_context *context, attn_dtype dtype, const attn__batch_norm_args *args);

#endif
