/* SPDX-License-Identifier: MIT
 *
 * im2col.h - the im2col matrix, which turns a convolution into a matrix product. Each row belongs to a channel and a
 * tap of the window, and each column to a position of the output. An element of the matrix is the image element under
 * the tap, or zero outside of the image.  The matrix is never stored as a whole. The product gathers blocks of it
 * (attn__gemm_gather).
 */
#ifndef ATTN_GEMM_IM2COL_H
#define ATTN_GEMM_IM2COL_H

#include <stdint.h>

/* Sliding windows over a volume of size `in` with an output of size `out`. The axes are depth, height and width. */
typedef struct attn__window_grid {
    int64_t in[3], out[3], kernel[3], stride[3], padding[3];
    int64_t dilation[3]; /* distance between taps; 0 means 1 */
} attn__window_grid;

static inline int64_t attn__tap_step(const attn__window_grid *grid, int axis)
{
    return grid->dilation[axis] ? grid->dilation[axis] : 1;
}

int64_t attn__volume(const int64_t size[3]);

/* Images [batch][channels...][in]. `image` is the stride between images in elements, and element_size is 4 or 8. */
typedef struct attn__im2col {
    attn__window_grid grid;
    const void *x;
    int64_t image, element_size;
} attn__im2col;

/* Gathers a part of the im2col matrix as an attn__gemm_gather. `source` points to an attn__im2col. */
void attn__im2col_gather(const void *source, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns,
                         int64_t ld, void *to);

#endif
