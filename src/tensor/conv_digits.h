/* SPDX-License-Identifier: MIT
 *
 * conv_digits.h - convolutions in the integers of the matrix unit (kernels/digits), in single precision.
 *
 * Nothing is unfolded.  An operand of the sum is cut to digits once, within a border of zeros, and a tile for a tap of
 * the kernel is a place in it: the same rows of digits, begun elsewhere.  So numbers that one sum meets by several taps
 * have one unit, a row of up to 64 places of the image or, for gradients of weights, what a channel has of some rows.
 */
#ifndef ATTN_TENSOR_CONV_DIGITS_H
#define ATTN_TENSOR_CONV_DIGITS_H

#include "kernels/digits/digits.h"
#include "tensor/dnnl.h"

#include <stdatomic.h>

/* False where there is no such unit, the convolution is of another kind (strides, groups, one axis or three, kernels of
 * more than 512 places in a row), or holds or makes numbers that digits do not hold; or there is no memory, which is
 * noted.  The result is undefined then, unless it is added to, and nothing else has changed. */
bool attn__conv_by_digits(attn_tape *tape, const attn__conv_args *args);
/* Whether there is the unit, and the convolution of the kind, large enough, and fitting the tiles well enough, to be
 * faster than oneDNN's. */
bool attn__conv_digits_pay(const attn_tape *tape, const attn__conv_args *args);

/* ------------------------------------------------------------------------------------------- among its files */

/* Items of two kinds among each other, so that a thread's share has as much of each as its share of either alone:
 * whether one of `all` is of the first kind, of which there are `first`, and its number within its kind. */
static inline bool attn__is_of_first(int64_t *item, int64_t first, int64_t all)
{
    int64_t before = *item * first / all;
    bool is = (*item + 1) * first / all > before;
    *item = is ? before : *item - before;
    return is;
}

/* The sum over `channels` and taps of the images `from` [batch, channels, height, width], within a border, by weights
 * w, to `to` [batch, results, out_height, out_width]. */
typedef struct attn__correlation {
    const attn__digits_kernel *kernel;
    attn_tape *tape;
    int64_t batch, channels, results, height, width, out_height, out_width;
    int64_t kernel_height, kernel_width, top, left;
    int64_t result_stride, channel_stride; /* of w; taps are adjacent */
    bool flipped;                          /* taps from the last to the first */
    const float *from, *w, *bias;
    attn_activation activation;
    float *to;
} attn__correlation;
bool attn__correlate_by_digits(const attn__correlation *c);

/* dw from x and dy. */
bool attn__conv_weights_by_digits(attn_tape *tape, const attn__digits_kernel *kernel, const attn__conv_args *args);

/* What the threads of a correlation share.  A sum is made of chunks: the taps of one row of the kernel, for some
 * channels.  Digits of images lie as [image][row][strip][block of channels][digit][place][channel], so that a tap, 16
 * places and 64 of (column of the kernel, channel) are a tile. */
typedef struct attn__correlating {
    const attn__correlation *c;
    int64_t blocks, depth;          /* of channels: how many; of each, with zeros to whole halves of tiles */
    int64_t chunks, steps;          /* of a sum; tiles along a chunk */
    int64_t panels;                 /* of 16 results */
    int64_t across, strips, places; /* squares of a strip, at most; strips of a row; places of one with its border */
    int64_t plane, line;            /* bytes of a digit of a strip, of a row */
    int64_t rows, height, bands; /* bordered rows; rows of the result that are worked on together; how many of these */
    int64_t image, images, groups; /* the first one at hand, and how many; what its panels are shared out in */
    int8_t *digits, *weights;
    float *units, *column_units; /* [image][row][strip][block][16] all the same; [panel][chunk][16] */
    bool *fine, *panel_fine;     /* as many; [panel][chunk] */
    float *bias;                 /* of whole panels; NULL: none */
    float *spread_x, *spread_w;  /* [channels]; NULL: 1 */
    int64_t gathered;            /* rows of the kernel at once */
    int64_t rows_each;           /* of a strip, that a thread cuts one after the other */
    int64_t each;                /* of a thread's numbers at once: of weights [row, column of the kernel][depth][16] */
    float *numbers;              /* [thread][each] */
    atomic_bool held;            /* digits hold all that they have met */
} attn__correlating;

/* For attn__parallel_items: the operands of the images at hand as digits, and how many items that are. */
void attn__correlating_cut(void *work, int64_t item, int thread);
int64_t attn__correlating_items(const attn__correlating *k);
/* Whether channels differ so much that they are spread, by powers of two in spread_x and spread_w. */
bool attn__correlating_spread(const attn__correlation *c, float *spread_x, float *spread_w);

#endif
