/* SPDX-License-Identifier: MIT
 *
 * quantized.h - weights that are stored in int8. "NAME", I8 [n,k], holds integers, and "NAME.int8_scale", F32 [n],
 * holds one scale per row. Element (i,j) of the weight is the product of integer (i,j) and scale i (see
 * gemm/int8_product.h). */
#ifndef ATTN_IO_QUANTIZED_H
#define ATTN_IO_QUANTIZED_H

#include "io/tensors/weights.h"

#define ATTN__INT8_SCALE ".int8_scale"

/* Combines the integers and the scales of each weight to one array of reals with the name of the weight.
 * ATTN_ERROR_FORMAT: integers and scales do not match, or a scale is negative or not finite. */
attn_status attn__findings_dequantize(attn__findings *findings);
/* Computes the integers and scales of F32 weights [n,k]. *exact becomes true if a model that reads them computes the
 * same results in int8 products. If it becomes false, the weights must be stored in F32. */
attn_status attn__int8_of_weights(attn_context *context, const attn_tensor *w, int8_t *q, float *scales, bool *exact);
/* Rounds F32 weights to bf16, like products in bf16. */
void attn__bf16_of_weights(const attn_tensor *w, uint16_t *to);

#endif
