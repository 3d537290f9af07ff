/* SPDX-License-Identifier: MIT
 *
 * conv_parts.h - convolutions in the machine's matrix unit (kernels/parts), in single precision.
 *
 * Nothing is unfolded.  An operand of the sum is split once into parts, within a border of zeros, and a tile for a tap
 * of the kernel is a place in it: the same rows of numbers, begun elsewhere.
 */
#ifndef ATTN_TENSOR_CONV_PARTS_H
#define ATTN_TENSOR_CONV_PARTS_H

#include "kernels/parts/parts.h"
#include "tensor/dnnl.h"

/* False where there is no such unit, the convolution is of another kind (strides, groups, one axis or three), or holds
 * numbers that are not finite; or there is no memory, which is noted.  The result is undefined then, and nothing else
 * has changed. */
bool attn__conv_by_parts(attn_tape *tape, const attn__conv_args *args);
/* Whether it is large enough, and fits the tiles well enough, to be faster than oneDNN's. */
bool attn__conv_parts_pay(const attn__conv_args *args);

/* ------------------------------------------------------------------------------------------- among its files */

/* The sum over `channels` and taps of the images `from` [batch, channels, height, width], within a border, by weights
 * w, to `to` [batch, results, out_height, out_width]. */
typedef struct attn__correlation {
    const attn__parts_kernel *kernel;
    attn_tape *tape;
    int64_t batch, channels, results, height, width, out_height, out_width;
    int64_t kernel_height, kernel_width, top, left;
    int64_t result_stride, channel_stride; /* of w; taps are adjacent */
    bool flipped;                          /* taps from the last to the first */
    const float *from, *w, *bias;
    float *to;
} attn__correlation;
bool attn__correlate_by_parts(const attn__correlation *c);

/* dw from x and dy. */
bool attn__conv_weights_by_parts(attn_tape *tape, const attn__parts_kernel *kernel, const attn__conv_args *args);

#endif
