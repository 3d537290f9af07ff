/* SPDX-License-Identifier: MIT
 *
 * linear_part.h - a linear layer, or some of its channels, into memory that is there: what inference on little memory
 * needs, where the operations of attn/tensor.h would make a new tensor for each step.  Nothing is recorded.
 */
#ifndef ATTN_TENSOR_LINEAR_PART_H
#define ATTN_TENSOR_LINEAR_PART_H

#include "tensor/matrix_product.h"

/* y[i,o] (+)= activation(sum_c x[i,c] w[row + o, column + c] + b[row + o]), c and o over the last axes of x and y.
 * If x is bf16, w is rounded to bf16, sums and b are f32, and y is either. If x is f32 and the tape has int8
 * precision, the product is one of int8. */
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

/* Computes the part into a new tensor of type `dtype`. Its shape is x's shape with `out` channels at the end. */
attn_tensor *attn__linear_new(attn_tape *tape, const attn__linear_part *part, int64_t out, attn_dtype dtype);

/* Rounds n numbers as products of bf16 do. */
void attn__round_to_bf16(attn_context *context, const float *from, int64_t n, uint16_t *to);
/* Converts a row of n weights to integers as products of int8 do; returns the scale. */
float attn__quantize_row(const float *row, int64_t n, int8_t *q);
/* Whether a model of int8 computes layers with so many inputs in int8. Otherwise they are computed in bf16. */
bool attn__fits_int8(int64_t in);
/* Rounds x (F32) to bf16, in a new tensor. */
attn_tensor *attn__rounded(attn_tape *tape, const attn_tensor *x);

/* Converts x (BF16) to floats, in a new tensor. */
attn_tensor *attn__widened(attn_tape *tape, const attn_tensor *x);

/* Indices [begin, end) of axis 0 of x, sharing its memory. */
attn_tensor *attn__part_of(attn_tape *tape, attn_tensor *x, int64_t begin, int64_t end);

#endif
