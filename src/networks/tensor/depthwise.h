/* SPDX-License-Identifier: MIT
 *
 * depthwise.h - f32 convolutions in which each output channel reads one input channel. They are computed as sums over
 * taps instead of matrix products. */
#ifndef ATTN_TENSOR_DEPTHWISE_H
#define ATTN_TENSOR_DEPTHWISE_H

#include "gemm/gemm.h"
#include "gemm/im2col.h"
#include "tensor/op.h"

/* A convolution of x [batch,groups,in] with w [groups,out_channels,kernel]. The result is y
 * [batch,groups,out_channels,out]. */
typedef struct attn__depthwise {
    attn__window_grid grid;
    int64_t batch, groups, out_channels; /* out_channels: channels of one group */
    const float *x, *w;
    float *y;
    attn__gemm_finish *finish; /* epilogue; called for each plane of y, with the index of the plane as row */
    const void *user;
    /* Arguments of the backward pass: the gradient dy of y, and the requested gradients. */
    const float *dy;
    attn__target dx, dw;
} attn__depthwise;

/* These two functions compute y and dx. They return false if there is no memory. For dx, w must be finite, because it
 * is multiplied by the zeros around dy. */
bool attn__depthwise_forward(attn_tape *tape, const attn__depthwise *conv);
bool attn__depthwise_input_gradient(attn_tape *tape, const attn__depthwise *conv);
/* If infinite or NaN values of x may have been multiplied by zeros, sets finite[group] to false and does not write dw
 * of this group. */
bool attn__depthwise_weight_gradient(attn_tape *tape, const attn__depthwise *conv, bool *finite);

#endif
