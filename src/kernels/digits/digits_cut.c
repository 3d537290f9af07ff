/* SPDX-License-Identifier: MIT
 *
 * digits_cut.c - numbers of the caller to tiles of digits; see digits.h.
 */
#include "kernels/digits/digits_cut.h"

#include "base/cpu.h"

#include <math.h>
#include <string.h>

#if ATTN__COMPILES_AMX
#include "simd/vec_avx512.h"

#include "kernels/tiles.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma")
#endif

#include "kernels/digits/digits_number.h"

CUT_FN __m512 spread_by(__m512 x, const float *spread, int64_t i, __mmask16 some)
{
    return spread ? _mm512_mul_ps(x, _mm512_maskz_loadu_ps(some, spread + i)) : x;
}

/* -------------------------------------------------------------------------------------------------- scales */

CUT_FN attn__digits_scale scale_of_row(const float *x, const float *spread, int64_t n)
{
    looked a = nothing_yet(), b = a;
    int64_t i = 0;
    for (; i + 2 * SIDE <= n; i += 2 * SIDE) {
        look_at(&a, spread_by(_mm512_loadu_ps(x + i), spread, i, 0xffff));
        look_at(&b, spread_by(_mm512_loadu_ps(x + i + SIDE), spread, i + SIDE, 0xffff));
    }
    for (; i < n; i += SIDE) {
        __mmask16 some = first_lanes(n - i);
        look_at(&a, spread_by(_mm512_maskz_loadu_ps(some, x + i), spread, i, some));
    }
    return scale_of_lanes(a, b);
}

attn__digits_scale attn__digits_scale_of_row(const float *x, const float *spread, int64_t n)
{
    return spread ? scale_of_row(x, spread, n) : scale_of_row(x, NULL, n);
}

/* Lanes whose exponents count: neither zero nor subnormal, infinite or NaN. */
CUT_FN __mmask16 ordinary(__m512 x, __mmask16 some)
{
    enum { ODD = 0xbf }; /* all that vfpclassps knows but negative numbers */
    return _mm512_mask_fpclass_ps_mask(some, x, ODD) ^ some;
}

void attn__digits_exponents(const float *x, int64_t n, float *sum, float *count, float *most)
{
    const __m512 one = _mm512_set1_ps(1);
    for (int64_t i = 0; i < n; i += SIDE) {
        __mmask16 some = first_lanes(n - i);
        __m512 v = _mm512_maskz_loadu_ps(some, x + i), s = _mm512_maskz_loadu_ps(some, sum + i);
        __m512 c = _mm512_maskz_loadu_ps(some, count + i), m = _mm512_maskz_loadu_ps(some, most + i);
        __m512 e = _mm512_getexp_ps(v);
        __mmask16 has = ordinary(v, some);
        _mm512_mask_storeu_ps(sum + i, some, _mm512_mask_add_ps(s, has, s, e));
        _mm512_mask_storeu_ps(count + i, some, _mm512_mask_add_ps(c, has, c, one));
        _mm512_mask_storeu_ps(most + i, some, _mm512_mask_max_ps(m, has, m, e));
    }
}

void attn__digits_exponents_of_row(const float *x, int64_t n, int64_t apart, float *sum, float *count, float *most)
{
    __m512 s = _mm512_setzero_ps(), m = _mm512_set1_ps(*most);
    int counted = 0;
    for (int64_t i = 0; i < n; i += apart) {
        __mmask16 some = first_lanes(n - i);
        __m512 v = _mm512_maskz_loadu_ps(some, x + i);
        __mmask16 has = ordinary(v, some);
        __m512 e = _mm512_getexp_ps(v);
        s = _mm512_mask_add_ps(s, has, s, e);
        m = _mm512_mask_max_ps(m, has, m, e);
        counted += __builtin_popcount(has);
    }
    *sum += _mm512_reduce_add_ps(s);
    *count += (float)counted;
    *most = _mm512_reduce_max_ps(m);
}

/* As many vectors beside each other as make whole pieces of the rows' lines worth fetching, and how many
 * rows before. */
enum { BESIDE = ATTN__DIGITS_COPIED / SIDE, AHEAD = 12 };

CUT_FN void look_at_columns(const attn__digits_columns *from, int64_t c, float *copy, attn__digits_scale *scale)
{
    looked l[BESIDE];
    __mmask16 some[BESIDE];
    VF_UNROLL
    for (int i = 0; i < BESIDE; i++) {
        l[i] = nothing_yet();
        some[i] = first_lanes(from->n - c - i * SIDE);
    }
    for (int64_t r = 0; r < from->k; r++) {
        const float *ahead = from->x + (r + AHEAD < from->k ? r + AHEAD : r) * from->ld + c;
        VF_UNROLL
        for (int i = 0; i < BESIDE; i++) {
            __builtin_prefetch(ahead + i * SIDE, 0, 3);
            __m512 x = row_of(from, r, c + i * SIDE, some[i]);
            look_at(&l[i], x);
            if (copy)
                _mm512_storeu_ps(copy + r * ATTN__DIGITS_COPIED + i * SIDE, x);
        }
    }
    VF_UNROLL
    for (int i = 0; i < BESIDE; i++) /* unrolled, or what was looked at would go through memory above */
        if (c + i * SIDE < from->n)
            scales_of_lanes(l[i], from->n - c - i * SIDE, scale + c + i * SIDE);
}

void attn__digits_scale_columns(const attn__digits_columns *from, attn__digits_scale *scale)
{
    if (from->copy)
        look_at_columns(from, 0, from->copy, scale);
    for (int64_t c = 0; c < from->n && !from->copy; c += BESIDE * SIDE)
        look_at_columns(from, c, NULL, scale);
}

/* -------------------------------------------------------------------------------------------------- digits */

CUT_FN void cut_end(const float *x, const float *spread, __m512 cut, __m512i order, int64_t n, int8_t *row)
{
    __m512 v[4];
    for (int j = 0; j < 4; j++) {
        __mmask16 some = first_lanes(n - j * SIDE);
        v[j] = spread_by(_mm512_maskz_loadu_ps(some, x + j * SIDE), spread, j * SIDE, some);
    }
    cut_numbers(v, cut, order, TILE, row);
}

CUT_FN void cut_row(const float *x, const float *spread, float factor, int64_t n, int8_t *row)
{
    __m512i order = order_of_numbers();
    __m512 cut = _mm512_set1_ps(factor);
    int64_t i = 0;
    for (; i + DEPTH <= n; i += DEPTH, row += STEP) {
        __m512 v[4];
        VF_UNROLL
        for (int j = 0; j < 4; j++)
            v[j] = spread_by(_mm512_loadu_ps(x + i + j * SIDE), spread, i + j * SIDE, 0xffff);
        cut_numbers(v, cut, order, TILE, row);
    }
    if (i < n)
        cut_end(x + i, spread ? spread + i : NULL, cut, order, n - i, row);
}

void attn__digits_cut_row(const float *x, const float *spread, float cut, int64_t n, int8_t *row)
{
    if (spread)
        cut_row(x, spread, cut, n, row);
    else
        cut_row(x, NULL, cut, n, row);
}

void attn__digits_cut_columns(const attn__digits_columns *from, const attn__digits_scale *scale, int8_t *tiles)
{
    __mmask16 some = first_lanes(from->n);
    float _Alignas(64) cut[SIDE] = {0};
    for (int64_t i = 0; i < from->n && i < SIDE; i++)
        cut[i] = scale[i].cut;
    __m512 factor = _mm512_load_ps(cut);
    for (int64_t k = 0; k < from->k; k += DEPTH, tiles += STEP)
        cut_tiles(from, k, some, factor, tiles);
}

void attn__digits_turn(int8_t *tiles, int64_t count)
{
    turn_tiles((float *)(void *)tiles, count);
}

void attn__digits_put(const float *x, float *y, int64_t n, bool add)
{
    for (int64_t i = 0; i < n; i += SIDE) {
        __mmask16 some = first_lanes(n - i);
        __m512 v = _mm512_maskz_loadu_ps(some, x + i);
        _mm512_mask_storeu_ps(y + i, some, add ? _mm512_add_ps(_mm512_maskz_loadu_ps(some, y + i), v) : v);
    }
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
