/* SPDX-License-Identifier: MIT
 *
 * linear_part.h - a linear layer, or some of its channels, into memory that is there: what inference on little memory
 * needs, where the operations of attn/tensor.h would make a new tensor for each step.  Nothing is recorded.
 */
#ifndef ATTN_TENSOR_LINEAR_PART_H
#define ATTN_TENSOR_LINEAR_PART_H

#include "tensor/matrix_product.h"

/* y[i,o] (+)= activation(sum_c x[i,c] w[row + o, column + c] + b[row + o]), c and o over the last axes of x and y.
 * Where x is bf16, w is rounded to it, sums and b are f32, and y is either.  On a tape of that precision the product of
 * an f32 x is one of int8. */
typedef struct attn__linear_part {
    const attn_tensor *x, *w, *b; /* b NULL: none */
    int64_t row, column;
    attn_activation activation; /* IDENTITY where `add` */
    bool add;
    const attn__packed *packed; /* w's rows and columns, packed before; NULL or empty: packed here */
    attn_tensor *y;
} attn__linear_part;

/* False (noted) without memory, or where a tensor is NULL. */
bool attn__linear_part_run(attn_tape *tape, const attn__linear_part *part);

/* The part with y a new tensor of type `dtype`, x's shape but for `out` channels at the end. */
attn_tensor *attn__linear_new(attn_tape *tape, const attn__linear_part *part, int64_t out, attn_dtype dtype);

/* n numbers, rounded as products of bf16 round them. */
void attn__round_to_bf16(attn_context *context, const float *from, int64_t n, uint16_t *to);
/* A row of n weights as integers, as products of int8 have them; returns its scale. */
float attn__quantize_row(const float *row, int64_t n, int8_t *q);
/* Whether layers with so many inputs are computed in int8 where their model is; else in bf16. */
bool attn__fits_int8(int64_t in);
/* x, F32, rounded to bf16, in a new tensor. */
attn_tensor *attn__rounded(attn_tape *tape, const attn_tensor *x);

/* x, BF16, as floats in a new tensor. */
attn_tensor *attn__widened(attn_tape *tape, const attn_tensor *x);

/* Indices [begin, end) of axis 0 of x, sharing its memory. */
attn_tensor *attn__part_of(attn_tape *tape, attn_tensor *x, int64_t begin, int64_t end);

#endif
