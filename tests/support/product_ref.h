/* SPDX-License-Identifier: MIT
 *
 * product_ref.h - products of matrices and convolutions in float64, with the sum of absolute values of each element's
 * terms, and the promise of f32 products stated in terms of the two:
 *
 *     |c - sum a b| <= k 2^-24 sum |a| |b|        for every element, k terms long
 *
 * Infinity and NaN must come out where the sum has them.  Elements whose sum of absolute values may overflow are left
 * out; where it is below 1e-30 an error of 1e-30 is allowed, and none where it is 0.
 */
#ifndef ATTN_TESTS_PRODUCT_REF_H
#define ATTN_TESTS_PRODUCT_REF_H

#include "attn/tensor.h"

#include <stdbool.h>
#include <stdint.h>

/* A matrix of f32 with free strides. */
typedef struct matrix_view {
    const float *data;
    int64_t row, col;
} matrix_view;

/* One row c[i,:] of a[m,k] b[k,n], with `b` from product_ref_pack: values and sums of absolute values. */
void product_ref_row(double *restrict value, double *restrict magnitude, matrix_view a, int64_t i,
                     const double *restrict b, int64_t n, int64_t k);
/* b[k,n] as contiguous doubles; the caller frees it. */
double *product_ref_pack(matrix_view b, int64_t n, int64_t k);

/* The share of the promise's bound that an element uses up; above 1 where it is broken, infinity where a number is not
 * of the right kind (NaN, infinite, finite). */
double product_ref_share(double got, double value, double magnitude, double terms);

/* A convolution as attn_convolve has it, brought to three spatial axes (leading ones of length 1). */
typedef struct conv_ref {
    int64_t batch, channels, outputs, groups;
    int64_t size[3], kernel[3], stride[3], padding[3], result[3]; /* result: conv_ref_result's */
} conv_ref;
void conv_ref_result(conv_ref *c);
int64_t conv_ref_pixels(const int64_t size[3]);

/* Values and sums of absolute values: y [B,O,...], dx [B,C,...] and dw [O,C/groups,...] for a gradient g of y. */
typedef struct conv_ref_sums {
    double *y, *y_abs, *dx, *dx_abs, *dw, *dw_abs;
} conv_ref_sums;
/* The caller frees it with conv_ref_free. */
conv_ref_sums conv_ref_run(const conv_ref *c, const float *x, const float *w, const float *g);
void conv_ref_free(conv_ref_sums *s);

#endif
