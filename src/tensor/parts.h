/* SPDX-License-Identifier: MIT
 *
 * parts.h - operations for layers, in addition to those of attn/tensor.h.
 */
#ifndef ATTN_TENSOR_PARTS_H
#define ATTN_TENSOR_PARTS_H

#include "attn/tensor.h"

/* Computes attn_linear along any axis of x: x [...,in,...] -> [...,out,...], w [out,in]. Images whose channels are
 * the first axis are read without a copy. */
attn_tensor *attn_linear_axis(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *w, attn_tensor *b);

/* Computes attn_linear with the input channels on axis `from` of x and the output channels on axis `to` of y. At least
 * one of the two must be the last axis, or both must be the same axis; otherwise an ATTN_ERROR_SHAPE is recorded. The
 * other axes keep their order. x [...,in,...] -> [...,out,...], w [out,in]. */
attn_tensor *attn_linear_between(attn_tape *tape, attn_tensor *x, int from, int to, attn_tensor *w, attn_tensor *b);

/* Computes attn_convolve and multiplies each output channel by its scale before it adds shift and addend. This is a
 * convolution followed by a norm with fixed statistics in a residual block. scale and shift are [O] and of x's type;
 * scale gets no gradient. addend has the shape of the result, or is NULL. Without gradients and groups, the result
 * overwrites the addend. */
attn_tensor *attn_convolve_scaled(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *scale,
                                  attn_tensor *shift, attn_tensor *addend, const attn_conv *conv);

/* Computes layer_norm(x + dropout(y, p)), the transformer's "add & norm", in one pass. x, y [...,D] -> the same shape;
 * g, b [D]. */
attn_tensor *attn_add_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *y, double p, attn_tensor *g,
                                 attn_tensor *b, double eps);

/* Computes the cross-entropy of attention weights [B,H,T,S], averaged over the heads, with target weights [B,T,S],
 * which get no gradient. The result has one element. It is the sum over b, t and s of -target * log(mean + 1e-6),
 * divided by `divisor`, which must be above 0. `mean` is the weight averaged over the heads. */
attn_tensor *attn_weights_cross_entropy(attn_tape *tape, attn_tensor *weights, const attn_tensor *wanted,
                                        double divisor);

/* Computes a loss of pairs of boxes [N,4] (centre x, centre y, width, height). The result has one element: the sum over
 * the pairs of l1 * |box - target| + giou * (1 - GIoU), where GIoU is the generalized intersection over union. Without
 * pairs the loss is 0. `target` gets no gradient. ATTN_ERROR_ARGUMENT: a target box has no area. */
attn_tensor *attn_box_loss(attn_tape *tape, attn_tensor *boxes, const attn_tensor *target, double l1, double giou);
/* Returns the GIoU of two boxes. `target` must have an area. */
double attn__box_giou(const double *box, const double *target);

/* ------------------------------------------------------------------------------------------ reversible */

/* A function of one tensor x whose result has the shape of x. It may read the caller's tensors, such as parameters. It
 * must not read any other tensors of the tape than x and results that it computes from x. It may be run twice and must
 * give the same result both times. Dropout and batch normalization fulfil this. Running statistics change only once. */
typedef struct attn_branch {
    attn_tensor *(*run)(const void *self, attn_tape *tape, attn_tensor *x);
    const void *self; /* argument of the function; must stay valid until the backward pass is over */
} attn_branch;
typedef struct attn_reversible_block {
    attn_branch f, g;
} attn_reversible_block;
/* Computes a stack of reversible blocks (Gomez et al. 2017, arXiv:1707.04585). It starts with x1 = x2 = x. Each block
 * computes x1 += f(x2), then x2 += g(x1). The result is (x1 + x2) / 2 and has the shape of x. While recording, only the
 * last x1 and x2 are kept. The backward pass recomputes the inputs of each block from its outputs, so that memory does
 * not grow with n. This costs one more forward pass. Recomputed inputs differ from the original ones by rounding, which
 * grows slowly with n. `blocks` is copied. ATTN_ERROR_ARGUMENT: a branch reads another of the tape's tensors that needs
 * a gradient. ATTN_ERROR_SHAPE: a branch changes the shape or the type, or n is negative. */
attn_tensor *attn_reversible(attn_tape *tape, attn_tensor *x, const attn_reversible_block *blocks, int n);

/* Runs attn_backward_many for the single result `result` with the gradient `grad`. */
attn_status attn_backward_from(attn_tape *tape, attn_tensor *result, const attn_tensor *grad);

#endif
