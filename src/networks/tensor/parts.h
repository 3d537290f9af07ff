/* SPDX-License-Identifier: MIT
 *
 * parts.h - operations for layers, in addition to those of attn/tensor.h.
 */
#ifndef ATTN_TENSOR_PARTS_H
#define ATTN_TENSOR_PARTS_H

#include "attn/tensor.h"

/* Computes attn_linear along any axis of x: x [...,in,...] -> [...,out,...], w [out,in]. Images whose channels are the
 * first axis are read without a copy. */
attn_tensor *attn_linear_axis(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *w, attn_tensor *b);

/* Computes attn_linear with the input channels on axis `from` of x and the output channels on axis `to` of y. The other
 * axes keep their order. x [...,in,...] -> [...,out,...], w [out,in]. ATTN_ERROR_SHAPE: the two axes differ, and
 * neither is the last axis. */
attn_tensor *attn_linear_between(attn_tape *tape, attn_tensor *x, int from, int to, attn_tensor *w, attn_tensor *b);

/* Computes attn_convolve, but multiplies each output channel by its scale before shift and addend are added. In
 * residual blocks, this computes a convolution and a norm with fixed statistics. scale and shift are [O] and of x's
 * type; scale gets no gradient. addend has the shape of the result, or is NULL. Without gradients and groups, the
 * result overwrites the addend. */
attn_tensor *attn_convolve_scaled(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *scale,
                                  attn_tensor *shift, attn_tensor *addend, const attn_conv *conv);

/* Computes layer_norm(x + dropout(y, p)), the transformer's "add & norm", in one pass. x, y [...,D] -> the same shape;
 * g, b [D]. */
attn_tensor *attn_add_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *y, double p, attn_tensor *g,
                                 attn_tensor *b, double eps);

/* Normalizes over the last axis by the root mean square (Zhang and Sennrich 2019, arXiv:1910.07467):
 * x / sqrt(mean(x^2) + eps) * g + b. x [...,D] -> the same shape; g, b [D]. */
attn_tensor *attn_rms_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b, double eps);

/* Rotary positions (Su et al. 2021, arXiv:2104.09864): rotates the first R channels of each of the `heads` heads of
 * x [B,T,D] by the angles of the token's position; other channels stay. Row p of `table` [max,R] has the cosines of
 * position p, and then its R / 2 sines. Angle j rotates channels 2j and 2j + 1 if `pairs` is true, otherwise channels j
 * and j + R / 2. `positions` I32 [B,T] has the position of each token; NULL: 0, 1, ... along T. `table` gets no
 * gradient. ATTN_ERROR_SHAPE: shapes do not fit. ATTN_ERROR_ARGUMENT: a position is not in the table. */
typedef struct attn_rotary {
    attn_tensor *table;
    int64_t heads;
    bool pairs;
    const attn_tensor *positions;
} attn_rotary;
attn_tensor *attn_rotate(attn_tape *tape, attn_tensor *x, const attn_rotary *rotary);

/* Computes the cross-entropy of attention weights [B,H,T,S], averaged over the heads, with target weights [B,T,S],
 * which get no gradient. The result has one element, the sum over b, t and s of -target * log(mean + 1e-6), divided by
 * `divisor`. `mean` is the average over the heads. `divisor` must be above 0. */
attn_tensor *attn_weights_cross_entropy(attn_tape *tape, attn_tensor *weights, const attn_tensor *wanted,
                                        double divisor);

/* Computes a loss of pairs of boxes [N,4] (centre x, centre y, width, height). The result has one element: the sum over
 * the pairs of l1 * |box - target| + giou * (1 - GIoU), where GIoU is the generalized intersection over union. `target`
 * gets no gradient. The loss of no pairs is 0. ATTN_ERROR_ARGUMENT: a target box has no area. */
attn_tensor *attn_box_loss(attn_tape *tape, attn_tensor *boxes, const attn_tensor *target, double l1, double giou);
/* Returns the generalized intersection over union of two boxes. `target` must have an area. */
double attn__box_giou(const double *box, const double *target);

/* ------------------------------------------------------------------------------------------ reversible */

/* A function of one tensor x with a result of x's shape. It may read the caller's tensors, such as parameters. It
 * must not read any tensors of the tape except x and results that it computes from x. It may be run twice and must
 * give the same result both times. Dropout and batch normalization do, and their running statistics change only
 * once. */
typedef struct attn_branch {
    attn_tensor *(*run)(const void *self, attn_tape *tape, attn_tensor *x);
    const void *self; /* argument of the function; must stay valid until the backward pass is over */
} attn_branch;
typedef struct attn_reversible_block {
    attn_branch f, g;
} attn_reversible_block;
/* Computes a stack of reversible blocks (Gomez et al. 2017, arXiv:1707.04585). It starts with x1 = x2 = x. Each block
 * computes x1 += f(x2), then x2 += g(x1). The result is (x1 + x2) / 2 and has the shape of x. While recording, only the
 * last x1 and x2 are kept, so that memory does not grow with n. The backward pass recomputes the inputs of each block
 * from its outputs, which costs one more forward pass. Recomputed inputs differ from the original ones by rounding,
 * which grows slowly with n. `blocks` is copied. ATTN_ERROR_ARGUMENT: a branch reads another of the tape's tensors that
 * needs a gradient. ATTN_ERROR_SHAPE: a branch changes the shape or the type, or n is negative. */
attn_tensor *attn_reversible(attn_tape *tape, attn_tensor *x, const attn_reversible_block *blocks, int n);

/* Runs attn_backward_many for the single result `result`, whose gradient is `grad`. */
attn_status attn_backward_from(attn_tape *tape, attn_tensor *result, const attn_tensor *grad);

#endif
