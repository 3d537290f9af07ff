/* SPDX-License-Identifier: MIT
 *
 * product_ref.h - float64 products of matrices and convolutions, and the sum of absolute values of each element's
 * terms. The promise of f32 products is an error bound:
 *
 *     |c - sum a b| <= k 2^-24 sum |a| |b|        for every element c, a sum of k terms a b
 *
 * If the sum is infinity or NaN, the result must be the same. Elements whose sum of absolute values may overflow are
 * not checked. If this sum is below 1e-30, an error of 1e-30 is allowed. If it is 0, no error is allowed.
 */
#ifndef ATTN_TESTS_PRODUCT_REF_H
#define ATTN_TESTS_PRODUCT_REF_H

#include "attn/tensor.h"

#include <stdbool.h>
#include <stdint.h>

/* A matrix of f32 with a stride between rows and a stride between columns. */
typedef struct matrix_view {
    const float *data;
    int64_t row, col;
} matrix_view;

/* Computes row i of c = a[m,k] b[k,n], and the sum of absolute values of each element's terms. `b` comes from
 * product_ref_pack. */
void product_ref_row(double *restrict value, double *restrict magnitude, matrix_view a, int64_t i,
                     const double *restrict b, int64_t n, int64_t k);
/* Returns a copy of b[k,n] as contiguous doubles. The caller frees it. */
double *product_ref_pack(matrix_view b, int64_t n, int64_t k);

/* Returns the error of an element, divided by its bound. It must not be above 1. Returns infinity if `got` or
 * `value` is not finite and the other is not the same. */
double product_ref_share(double got, double value, double magnitude, double terms);

/* A convolution as of attn_convolve. It always has three axes; missing leading axes have length 1. */
typedef struct conv_ref {
    int64_t batch, channels, outputs, groups;
    int64_t size[3], kernel[3], stride[3], padding[3], result[3]; /* conv_ref_result computes the sizes `result` */
} conv_ref;
void conv_ref_result(conv_ref *c);
int64_t conv_ref_pixels(const int64_t size[3]);

/* Values of y [B,O,...], dx [B,C,...] and dw [O,C/groups,...], and the sums of absolute values of their terms. */
typedef struct conv_ref_sums {
    double *y, *y_abs, *dx, *dx_abs, *dw, *dw_abs;
} conv_ref_sums;
/* The caller frees the sums with conv_ref_free. */
conv_ref_sums conv_ref_run(const conv_ref *c, const float *x, const float *w, const float *g);
void conv_ref_free(conv_ref_sums *s);

#endif
