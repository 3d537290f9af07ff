/* SPDX-License-Identifier: MIT
 *
 * im2col.h - the matrix that makes a convolution a product: row (channel, tap), column (position of the output), whose
 * element is the number of the image that the tap meets there, or zero outside the image.  It is never whole in memory:
 * a product gathers blocks of it (attn__gemm_gather).
 */
#ifndef ATTN_GEMM_IM2COL_H
#define ATTN_GEMM_IM2COL_H

#include <stdint.h>

/* Windows over one volume [in], which give one volume [out]. Axes are depth, height, width. */
typedef struct attn__window_grid {
    int64_t in[3], out[3], kernel[3], stride[3], padding[3];
    int64_t dilation[3]; /* distance between taps; 0 means 1 */
} attn__window_grid;

static inline int64_t attn__tap_step(const attn__window_grid *grid, int axis)
{
    return grid->dilation[axis] ? grid->dilation[axis] : 1;
}

int64_t attn__volume(const int64_t size[3]);

/* Images [batch][channels...][in]; `image` elements from one to the next; element_size 4 or 8. */
typedef struct attn__im2col {
    attn__window_grid grid;
    const void *x;
    int64_t image, element_size;
} attn__im2col;

/* An attn__gemm_gather of an attn__im2col. */
void attn__im2col_gather(const void *source, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns,
                         int64_t ld, void *to);

#endif
