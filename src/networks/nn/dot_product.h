/* SPDX-License-Identifier: MIT
 *
 * dot_product.h - dot-product attention whose scale can differ from 1/sqrt(D).
 */
#ifndef ATTN_NN_DOT_PRODUCT_H
#define ATTN_NN_DOT_PRODUCT_H

#include "nn/layers.h"

/* Computes the same as attn_nn_dot_product, with the weights softmax(scale q k^T). If `scale` is 0, the scale is
 * 1/sqrt(D). */
attn_tensor *attn__nn_dot_product_scaled(attn_tape *tape, attn_tensor *queries, attn_tensor *keys, attn_tensor *values,
                                         const attn_nn_mask *mask, double scale, double dropout, attn_tensor **weights);

#endif
