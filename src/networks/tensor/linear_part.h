/* SPDX-License-Identifier: MIT
 *
 * linear_part.h - computes a linear layer, or some of its channels, into existing memory. Inference thus needs less
 * memory than with the operations of attn/tensor.h, which allocate each result. The tape must not record. */
#ifndef ATTN_TENSOR_LINEAR_PART_H
#define ATTN_TENSOR_LINEAR_PART_H

#include "tensor/matrix_product.h"

/* A product y[i,o] (+)= activation(sum_c x[i,c] w[row + o, column + c] + b[row + o]). i is the row, and c and o are
 * indices of the last axes of x and y. (+)= means that the result is added to y if `add` is set. If x is bf16, w is
 * rounded to bf16, sums and b are f32, and y is bf16 or f32. If x is f32 and the tape has int8 precision, the product
 * is computed in int8. */
typedef struct attn__linear_part {
    const attn_tensor *x, *w, *b; /* b NULL: none */
    int64_t row, column;
    attn_activation activation; /* must be IDENTITY if `add` is set */
    bool add;
    /* packed form of the same rows and columns of w; NULL or empty: the function packs them */
    const attn__packed *packed;
    attn_tensor *y;
} attn__linear_part;

/* Returns false and records an error if there is no memory or a tensor is NULL. */
bool attn__linear_part_run(attn_tape *tape, const attn__linear_part *part);

/* Computes the part into a new tensor of type `dtype`. Its shape is that of x, with `out` as the length of the last
 * axis. */
attn_tensor *attn__linear_new(attn_tape *tape, const attn__linear_part *part, int64_t out, attn_dtype dtype);

/* Rounds n f32 elements to bf16, like products in bf16. */
void attn__round_to_bf16(attn_context *context, const float *from, int64_t n, uint16_t *to);
/* Converts a row of n weights to int8, like products in int8. Returns the scale of the row. */
float attn__quantize_row(const float *row, int64_t n, int8_t *q);
/* Returns whether an int8 model computes layers with `in` input channels in int8. Other layers are computed in bf16. */
bool attn__fits_int8(int64_t in);
attn_tensor *attn__rounded(attn_tape *tape, const attn_tensor *x);

attn_tensor *attn__widened(attn_tape *tape, const attn_tensor *x);

/* Returns a view of x, restricted to indices [begin, end) of axis 0. The view shares the memory of x. */
attn_tensor *attn__part_of(attn_tape *tape, attn_tensor *x, int64_t begin, int64_t end);

#endif
