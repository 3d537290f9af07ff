/* SPDX-License-Identifier: MIT
 *
 * quantized.h - weights that are stored in int8. "NAME", I8 [n,k], holds the integers, and "NAME.int8_scale", F32 [n],
 * holds one scale per row. Element (i,j) of the weight is scale[i] times the integer (gemm/int8_product.h describes the
 * scheme).
 */
#ifndef ATTN_IO_QUANTIZED_H
#define ATTN_IO_QUANTIZED_H

#include "io/tensors/weights.h"

#define ATTN__INT8_SCALE ".int8_scale"

/* Combines each pair of int8 integers and scales to an array of reals with the name of the weight.
 * ATTN_ERROR_FORMAT: integers and scales do not match, or a scale is negative or not finite. */
attn_status attn__findings_dequantize(attn__findings *findings);
/* Computes integers and scales of F32 weights [n,k]. *exact becomes true if the stored weights, when they are read,
 * give the same results in an int8 product. If it becomes false, the weights must be stored unchanged. */
attn_status attn__int8_of_weights(attn_context *context, const attn_tensor *w, int8_t *q, float *scales, bool *exact);
/* Rounds F32 weights to bf16, in the same way as products in bf16 do. */
void attn__bf16_of_weights(const attn_tensor *w, uint16_t *to);

#endif
