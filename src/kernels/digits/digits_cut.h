/* SPDX-License-Identifier: MIT
 *
 * digits_cut.h - the functions of attn__digits_kernel (digits.h) that do without the matrix unit.
 */
#ifndef ATTN_KERNELS_DIGITS_CUT_H
#define ATTN_KERNELS_DIGITS_CUT_H

#include "kernels/digits/digits.h"

attn__digits_scale attn__digits_scale_of_row(const float *x, const float *spread, int64_t n);
void attn__digits_cut_row(const float *x, const float *spread, float cut, int64_t n, int8_t *row);
void attn__digits_scale_columns(const attn__digits_columns *from, attn__digits_scale *scale);
void attn__digits_cut_columns(const attn__digits_columns *from, const attn__digits_scale *scale, int8_t *tiles);
void attn__digits_turn(int8_t *tiles, int64_t count);
void attn__digits_put(const float *x, float *y, int64_t n, bool add);
void attn__digits_exponents(const float *x, int64_t n, float *sum, float *count, float *most);
void attn__digits_exponents_of_row(const float *x, int64_t n, int64_t apart, float *sum, float *count, float *most);

/* digits_place.c */
attn__digits_scale attn__digits_scale_block(const attn__digits_columns *from);
void attn__digits_cut_across(const attn__digits_columns *from, float cut, int64_t pitch, int64_t plane, int8_t *out);
void attn__digits_cut_line(const float *x, float cut, int64_t n, int64_t plane, int8_t *out);
void attn__digits_move(const attn__digits_rows *from, int64_t width, int8_t *to);
void attn__digits_gather(const attn__digits_taps *from, float *to);
void attn__digits_cut_sixteen(const float *rows, int64_t k, attn__digits_scale *scale, int8_t *tiles);
void attn__digits_put_turned(const float *const from[ATTN__DIGITS_SIDE], int64_t rows, int64_t columns, float *to,
                             int64_t ld, bool add);

#endif
