/* SPDX-License-Identifier: MIT
 *
 * quantized.h - weights in int8: "NAME", I8 [n,k], and "NAME.int8_scale", F32 [n]; row i stands for scale[i] times its
 * integers (gemm/int8_product.h has the scheme).
 */
#ifndef ATTN_IO_QUANTIZED_H
#define ATTN_IO_QUANTIZED_H

#include "io/tensors/weights.h"

#define ATTN__INT8_SCALE ".int8_scale"

/* Combines pairs of int8 weights and scales to arrays of real numbers under the weights' names. ATTN_ERROR_FORMAT: they
 * do not match, or a scale is negative or not finite. */
attn_status attn__findings_dequantize(attn__findings *findings);
/* The integers and scales of F32 weights [n,k]. *exact: the weights read back give the same results in an int8 product;
 * if not, the weights must be stored unchanged. */
attn_status attn__int8_of_weights(attn_context *context, const attn_tensor *w, int8_t *q, float *scales, bool *exact);
/* Rounds F32 weights like products in bf16. */
void attn__bf16_of_weights(const attn_tensor *w, uint16_t *to);

#endif
