/* SPDX-License-Identifier: MIT
 *
 * digits_place.c - numbers of images and of their kernels to digits, as convolutions have them; see digits.h.
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

attn__digits_scale attn__digits_scale_block(const attn__digits_columns *from)
{
    looked a = nothing_yet(), b = a;
    for (int64_t r = 0; r < from->k; r++) {
        for (int64_t c = 0; c < from->n; c += 2 * SIDE) {
            look_at(&a, row_of(from, r, c, first_lanes(from->n - c)));
            look_at(&b, row_of(from, r, c + SIDE, first_lanes(from->n - c - SIDE)));
        }
    }
    return scale_of_lanes(a, b);
}

/* A tile for each digit as cut_rows leaves it, turned: a row of bytes for each column. */
CUT_FN void turn_across(const int8_t *tiles, int64_t columns, int64_t bytes, int64_t pitch, int64_t plane, int8_t *out)
{
    __mmask16 some = first_lanes(bytes / ROWS);
    for (int64_t d = 0; d < ATTN__DIGITS; d++, tiles += TILE, out += plane) {
        vf row[VF_LANES];
        VF_UNROLL
        for (int r = 0; r < VF_LANES; r++)
            row[r] = vf_load((const float *)(const void *)(tiles + r * ROW));
        vf_transpose(row);
        VF_UNROLL
        for (int r = 0; r < VF_LANES; r++)
            _mm512_mask_storeu_ps(out + r * pitch, r < columns ? some : (vm)0, row[r]);
    }
}

void attn__digits_cut_across(const attn__digits_columns *from, float cut, int64_t pitch, int64_t plane, int8_t *out)
{
    orders o = column_orders();
    __mmask16 some = first_lanes(from->n);
    __m512 factor = _mm512_set1_ps(cut);
    int8_t _Alignas(64) tiles[STEP];
    int64_t bytes = (from->k + DEPTH / 2 - 1) / (DEPTH / 2) * (DEPTH / 2);
    for (int64_t k = 0; k < from->k; k += DEPTH) {
        cut_tiles(from, k, some, factor, &o, tiles);
        turn_across(tiles, from->n, bytes - k, pitch, plane, out + k);
    }
}

/* The first, second or third byte of each lane of four vectors. */
CUT_FN __m512i bytes_at(const __m512i y[4], int shift)
{
    __m512i zero = _mm512_set1_epi8((char)0x80);
    __m128i quarter[4];
    VF_UNROLL
    for (int j = 0; j < 4; j++)
        quarter[j] = _mm512_cvtepi32_epi8(_mm512_srli_epi32(y[j], (unsigned)shift));
    __m512i all = _mm512_castsi128_si512(quarter[0]);
    all = _mm512_inserti32x4(all, quarter[1], 1);
    all = _mm512_inserti32x4(all, quarter[2], 2);
    return _mm512_xor_si512(_mm512_inserti32x4(all, quarter[3], 3), zero);
}

void attn__digits_cut_line(const float *x, float cut, int64_t n, int64_t plane, int8_t *out)
{
    __m512 factor = _mm512_set1_ps(cut);
    for (int64_t i = 0; i < n; i += DEPTH, out += DEPTH) {
        __m512i y[4];
        VF_UNROLL
        for (int j = 0; j < 4; j++)
            y[j] = bytes_of(_mm512_maskz_loadu_ps(first_lanes(n - i - j * SIDE), x + i + j * SIDE), factor);
        _mm512_storeu_si512(out, bytes_at(y, 16));
        _mm512_storeu_si512(out + plane, bytes_at(y, 8));
        _mm512_storeu_si512(out + 2 * plane, bytes_at(y, 0));
    }
}

void attn__digits_gather(const attn__digits_taps *from, float *to, attn__digits_scale *scale)
{
    __mmask16 some = first_lanes(from->results);
    int64_t stride = from->result_stride;
    int64_t _Alignas(64) offset[SIDE];
    for (int64_t i = 0; i < SIDE; i++)
        offset[i] = i * stride * (int64_t)sizeof(float);
    __m512i low = _mm512_load_si512(offset), high = _mm512_load_si512(offset + SIDE / 2);
    looked l = nothing_yet();
    for (int64_t tap = 0; tap < from->taps; tap++) {
        const float *w = from->w + tap * from->tap_stride;
        for (int64_t c = 0; c < from->channels; c++, to += SIDE, w += from->channel_stride) {
            __m256 none = _mm256_setzero_ps();
            __m256 a = _mm512_mask_i64gather_ps(none, (__mmask8)some, low, w, 1);
            __m256 b = _mm512_mask_i64gather_ps(none, (__mmask8)(some >> 8), high, w, 1);
            __m512 x = _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
            if (from->spread)
                x = _mm512_mul_ps(x, _mm512_set1_ps(from->spread[c]));
            look_at(&l, x);
            _mm512_storeu_ps(to, x);
        }
        memset(to, 0, (size_t)((from->padded - from->channels) * SIDE) * sizeof *to);
        to += (from->padded - from->channels) * SIDE;
    }
    scales_of_lanes(l, SIDE, scale);
}

/* All is read before anything is written: short rows overlap, and a read waits for a write beside its numbers. */
void attn__digits_put_turned(const float *const from[ATTN__DIGITS_SIDE], int64_t rows, int64_t columns, float *to,
                             int64_t ld, bool add)
{
    vf row[VF_LANES];
    __mmask16 some = first_lanes(columns);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        row[r] = r < columns ? vf_load(from[r]) : vf_zero();
    vf_transpose(row);
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        if (add)
            row[r] = vf_add(row[r], _mm512_maskz_loadu_ps(r < rows ? some : (vm)0, to + r * ld));
    VF_UNROLL
    for (int r = 0; r < VF_LANES; r++)
        _mm512_mask_storeu_ps(to + r * ld, r < rows ? some : (vm)0, row[r]);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
