/* SPDX-License-Identifier: MIT
 *
 * depthwise.h - convolutions in which each output channel reads one input channel, in f32: no product of matrices, but
 * sums over taps.
 */
#ifndef ATTN_TENSOR_DEPTHWISE_H
#define ATTN_TENSOR_DEPTHWISE_H

#include "gemm/gemm.h"
#include "gemm/im2col.h"
#include "tensor/op.h"

/* x [batch,groups,in], w [groups,out_channels,kernel], y [batch,groups,out_channels,out]. */
typedef struct attn__depthwise {
    attn__window_grid grid;
    int64_t batch, groups, out_channels; /* channels of one group */
    const float *x, *w;
    float *y;
    attn__gemm_finish *finish; /* for each plane of y, whose number is its row */
    const void *user;
    /* The backward pass takes the gradient of y and gives the gradients that are requested. */
    const float *dy;
    attn__target dx, dw;
} attn__depthwise;

/* All three functions return false without memory. For dx, w must be finite, because it is multiplied by zeros of
 * the border. */
bool attn__depthwise_forward(attn_tape *tape, const attn__depthwise *conv);
bool attn__depthwise_input_gradient(attn_tape *tape, const attn__depthwise *conv);
/* finite[group] is false if numbers of x that are not finite may have been multiplied by zeros. The group's dw is
 * then not written. */
bool attn__depthwise_weight_gradient(attn_tape *tape, const attn__depthwise *conv, bool *finite);

#endif
