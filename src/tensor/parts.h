/* SPDX-License-Identifier: MIT
 *
 * parts.h - operations that layers are made of, in addition to those of attn/tensor.h.
 */
#ifndef ATTN_TENSOR_PARTS_H
#define ATTN_TENSOR_PARTS_H

#include "attn/tensor.h"

/* attn_linear along any axis of x. It reads images whose channels are the first axis without a copy.
 * x [...,in,...] -> [...,out,...], w [out,in]. */
attn_tensor *attn_linear_axis(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *w, attn_tensor *b);

/* attn_linear whose input channels are axis `from` of x and whose output channels are axis `to` of y. At least one of
 * the two is the last axis, or both are the same axis; otherwise ATTN_ERROR_SHAPE. The other axes keep their order.
 * x [...,in,...] -> [...,out,...], w [out,in]. */
attn_tensor *attn_linear_between(attn_tape *tape, attn_tensor *x, int from, int to, attn_tensor *w, attn_tensor *b);

/* attn_convolve of which each output channel is multiplied by its scale before shift and addend are added: a convolution
 * with a norm of fixed statistics behind it, in a residual block.  scale, shift [O], of x's type; the scale gets no gradient.
 * addend: of the result's shape, or NULL. */
attn_tensor *attn_convolve_scaled(attn_tape *tape, attn_tensor *x, attn_tensor *w, const attn_tensor *scale,
                                  attn_tensor *shift, attn_tensor *addend, const attn_conv *conv);

/* layer_norm(x + dropout(y, p)): the transformer's "add & norm" in one pass.  x, y [...,D] -> the same; g, b [D]. */
attn_tensor *attn_add_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *y, double p, attn_tensor *g,
                                 attn_tensor *b, double eps);

/* Cross-entropy of attention weights [B,H,T,S], averaged over the heads, with the target weights [B,T,S] (which get no
 * gradient): the sum over b, t and s of -target * log(mean + 1e-6), divided by `divisor` (above 0).  One element. */
attn_tensor *attn_weights_cross_entropy(attn_tape *tape, attn_tensor *weights, const attn_tensor *wanted,
                                        double divisor);

/* Over pairs of boxes [N,4] (centre x, centre y, width, height): the sum of l1 * |box - target| and of giou * (1 - GIoU),
 * the generalized intersection over union.  No pair gives 0.  One element; `target` gets no gradient.
 * ATTN_ERROR_ARGUMENT: a target box without area. */
attn_tensor *attn_box_loss(attn_tape *tape, attn_tensor *boxes, const attn_tensor *target, double l1, double giou);
/* The GIoU of two boxes; `target` must have an area. */
double attn__box_giou(const double *box, const double *target);

/* ------------------------------------------------------------------------------------------ reversible */

/* A function of one tensor that returns one of the same shape.  It may read the caller's tensors (parameters), but of
 * the tape's own only `x` and what it makes of it; it may be run twice, and must give the same both times: dropout
 * does, batch normalization too (its running statistics move once). */
typedef struct attn_branch {
    attn_tensor *(*run)(const void *self, attn_tape *tape, attn_tensor *x);
    const void *self; /* alive until the backward pass is over */
} attn_branch;
typedef struct attn_reversible_block {
    attn_branch f, g;
} attn_reversible_block;
/* A stack of reversible blocks (Gomez et al. 2017, arXiv:1707.04585): x1 = x2 = x; for each block x1 += f(x2), then
 * x2 += g(x1); the result is (x1 + x2) / 2.  While recording only the last x1 and x2 are kept: the backward pass
 * finds the inputs of each block again from its outputs, so that memory does not grow with n.  Costs one more
 * forward pass; inputs found again differ from the first ones by rounding, which grows slowly with n.  `blocks` is
 * copied. ATTN_ERROR_ARGUMENT: a branch reads another of the tape's tensors that needs a gradient;
 * ATTN_ERROR_SHAPE.  x and the result have the same shape. */
attn_tensor *attn_reversible(attn_tape *tape, attn_tensor *x, const attn_reversible_block *blocks, int n);

/* attn_backward_many for one result. */
attn_status attn_backward_from(attn_tape *tape, attn_tensor *result, const attn_tensor *grad);

#endif
