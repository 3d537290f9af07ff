/* SPDX-License-Identifier: MIT
 *
 * slices_quantize.h - the functions of attn__slices_kernel (slices.h) that do not use AMX.
 */
#ifndef ATTN_GEMM_SLICES_QUANTIZE_H
#define ATTN_GEMM_SLICES_QUANTIZE_H

#include "gemm/slices.h"

attn__slices_choice attn__slices_decide(const attn__slices_rows *rows, const attn__slices_panel *panel, float limit);
attn__slices_scale attn__slices_scale_row(const float *x, int64_t n);
void attn__slices_quantize_row(const float *x, float scale, int64_t n, int8_t *row);
void attn__slices_measure_row(const int8_t *row, int64_t n, attn__slices_scale scale, attn__slices_rows *rows,
                              int64_t lane);
void attn__slices_transpose(int8_t *tiles, int64_t count);
void attn__slices_store(const float *x, float *y, int64_t n, bool add);

#endif
