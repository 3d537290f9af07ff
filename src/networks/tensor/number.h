/* SPDX-License-Identifier: MIT
 *
 * number.h - reads or writes one element of an f32 or f64 tensor. The type is checked for each element, which is too
 * slow for computations. This serves for tensors that are filled or read once, such as tables of positions, masks and
 * labels. */
#ifndef ATTN_TENSOR_NUMBER_H
#define ATTN_TENSOR_NUMBER_H

#include "attn/tensor.h"

static inline double attn__number(const attn_tensor *x, int64_t i)
{
    const void *data = attn_tensor_data(x);
    return attn_tensor_dtype(x) == ATTN_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static inline void attn__set_number(attn_tensor *x, int64_t i, double value)
{
    void *data = attn_tensor_data(x);
    if (attn_tensor_dtype(x) == ATTN_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

#endif
