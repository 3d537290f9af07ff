/* SPDX-License-Identifier: MIT
 *
 * quantized.h - weights in int8, stored as "NAME", I8 [n,k], and "NAME.int8_scale", F32 [n]. Row i is scale[i] times
 * its integers (gemm/int8_product.h has the scheme).
 */
#ifndef ATTN_IO_QUANTIZED_H
#define ATTN_IO_QUANTIZED_H

#include "io/tensors/weights.h"

#define ATTN__INT8_SCALE ".int8_scale"

/* Combines pairs of int8 weights and scales to arrays of real numbers with the names of the weights. ATTN_ERROR_FORMAT:
 * the two do not match, or a scale is negative or not finite. */
attn_status attn__findings_dequantize(attn__findings *findings);
/* Computes integers and scales of F32 weights [n,k]. *exact means that the weights read back give the same results in
 * an int8 product. Otherwise the weights must be stored unchanged. */
attn_status attn__int8_of_weights(attn_context *context, const attn_tensor *w, int8_t *q, float *scales, bool *exact);
/* Rounds F32 weights like products in bf16. */
void attn__bf16_of_weights(const attn_tensor *w, uint16_t *to);

#endif
