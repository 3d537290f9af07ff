/* SPDX-License-Identifier: MIT
 *
 * slices_quantize.c - converts floats to tiles of slices (slices.h) with AVX-512.
 */
#include "gemm/slices_quantize.h"

#include "base/cpu.h"

#if ATTN__COMPILES_AMX
#include "simd/vec_avx512.h"

#include "simd/amx_tiles.h"

#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma")
#endif

#include "gemm/slices_vectors.h"

/* -------------------------------------------------------------------------------------------------- scales */

attn__slices_scale attn__slices_scale_row(const float *x, int64_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    int64_t i = 0;
    for (; i + 2 * SIDE <= n; i += 2 * SIDE) {
        a = _mm512_max_epu32(a, size_of(_mm512_loadu_ps(x + i)));
        b = _mm512_max_epu32(b, size_of(_mm512_loadu_ps(x + i + SIDE)));
    }
    for (; i < n; i += SIDE)
        a = _mm512_max_epu32(a, size_of(_mm512_maskz_loadu_ps(first_lanes(n - i), x + i)));
    return attn__slices_scale_of(_mm512_reduce_max_epu32(_mm512_max_epu32(a, b)));
}

/* ------------------------------------------------------------------------------------------------ quantize */

SLICES_FN void quantize_end(const float *x, __m512 scale, __m512i order, int64_t n, int8_t *row)
{
    __m512 v[ROWS];
    VF_UNROLL
    for (int j = 0; j < ROWS; j++)
        v[j] = _mm512_maskz_loadu_ps(first_lanes(n - j * SIDE), x + j * SIDE);
    quantize_numbers(v, scale, order, row);
}

void attn__slices_quantize_row(const float *x, float scale, int64_t n, int8_t *row)
{
    __m512i order = order_of_numbers();
    __m512 by = _mm512_set1_ps(scale);
    int64_t i = 0;
    for (; i + DEPTH <= n; i += DEPTH, row += STEP) {
        __m512 v[ROWS];
        VF_UNROLL
        for (int j = 0; j < ROWS; j++)
            v[j] = _mm512_loadu_ps(x + i + j * SIDE);
        quantize_numbers(v, by, order, row);
    }
    if (i < n)
        quantize_end(x + i, by, order, n - i, row);
}

void attn__slices_transpose(int8_t *tiles, int64_t count)
{
    transpose_tiles((float *)(void *)tiles, count);
}

void attn__slices_store(const float *x, float *y, int64_t n, bool add)
{
    for (int64_t i = 0; i < n; i += SIDE) {
        __mmask16 some = first_lanes(n - i);
        __m512 v = _mm512_maskz_loadu_ps(some, x + i);
        _mm512_mask_storeu_ps(y + i, some, add ? _mm512_add_ps(_mm512_maskz_loadu_ps(some, y + i), v) : v);
    }
}

/* ------------------------------------------------------------------------------------------------- measure */

void attn__slices_measure_row(const int8_t *row, int64_t n, attn__slices_scale scale, attn__slices_rows *rows,
                              int64_t lane)
{
    int32_t count[LEVELS], sums[ATTN__SLICES];
    tally t;
    if (scale.inverse == 0) {
        attn__slices_note_none(rows, lane);
        return;
    }
    begin_tally(&t);
    for (int64_t i = 0; i < n; i += DEPTH, row += STEP)
        add_to_tally(&t, row);
    VF_UNROLL
    for (int i = 0; i < LEVELS; i++)
        count[i] = (int32_t)_mm512_reduce_add_epi64(_mm512_sad_epu8(t.count[i], _mm512_setzero_si512()));
    VF_UNROLL
    for (int i = 0; i < ATTN__SLICES; i++)
        sums[i] = _mm512_reduce_add_epi32(t.squares[i]);
    attn__slices_note(rows, lane, scale, n, count, sums);
}

/* -------------------------------------------------------------------------------------------------- decide */

attn__slices_choice attn__slices_decide(const attn__slices_rows *rows, const attn__slices_panel *panel, float limit)
{
    __m512 low = _mm512_loadu_ps(panel->table), high = _mm512_loadu_ps(panel->table + SIDE);
    __m512 bound = _mm512_loadu_ps(rows->lift), d1 = _mm512_loadu_ps(rows->d1), d2 = _mm512_loadu_ps(rows->d2);
    VF_UNROLL
    for (int i = 0; i < LEVELS; i++) {
        __m512i share = _mm512_srli_epi32(_mm512_loadu_si512(rows->count[i]), ATTN__SLICES_FINE);
        __m512 add = _mm512_permutex2var_ps(low, share, high);
        bound = _mm512_fmadd_ps(_mm512_set1_ps(attn__slices_rise[i]), add, bound);
    }
    bound = _mm512_mul_ps(bound, _mm512_set1_ps(limit));
    __m512 eight = _mm512_add_ps(_mm512_loadu_ps(rows->q), _mm512_set1_ps(panel->q));
    eight = _mm512_fmadd_ps(eight, _mm512_set1_ps(0.5f), _mm512_set1_ps(ATTN__SLICES_ROUNDING + 0.25f));
    eight = _mm512_fmadd_ps(d2, _mm512_set1_ps(panel->d2), eight);
    __m512 six = _mm512_fmadd_ps(d1, _mm512_set1_ps(256 * panel->d2), eight);
    six = _mm512_fmadd_ps(d2, _mm512_set1_ps(256 * panel->d1), six);
    __mmask16 six_pass = _mm512_cmp_ps_mask(six, bound, _CMP_LE_OQ);
    __mmask16 eight_pass = _mm512_cmp_ps_mask(eight, bound, _CMP_LE_OQ);
    return (attn__slices_choice){(uint16_t)(eight_pass & ~six_pass), (uint16_t) ~(eight_pass | six_pass)};
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
