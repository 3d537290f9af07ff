/* SPDX-License-Identifier: MIT
 *
 * digits_number.h - vectors of numbers: what unit they have, and their digits as bytes in the order of tiles.
 *
 * x * cut rounds to an integer of 24 bits with its sign; with 0x808080 it is three bytes, its digits each 128 too
 * large. Include within a region of the instruction set, after vec_avx512.h.
 */
#ifndef ATTN_KERNELS_DIGITS_NUMBER_H
#define ATTN_KERNELS_DIGITS_NUMBER_H

#include "kernels/digits/digits.h"

#include <math.h>
#include <string.h>

#define CUT_FN static inline __attribute__((always_inline))

enum { SIDE = ATTN__DIGITS_SIDE, DEPTH = ATTN__DIGITS_DEPTH, TILE = ATTN__DIGITS_TILE, STEP = ATTN__DIGITS_STEP };
enum { ROW = 64, ROWS = 4 }; /* of a tile, bytes; of B's numbers in a row of its tiles */

/* The bits of |x|: as integers in the order of the numbers, infinity and NaN above all. */
CUT_FN __m512i size_of(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* -------------------------------------------------------------------------------------------------- scales */

/* How far the largest number may be above the mean of the others that are not zero: each power of two costs them a bit.
 * Of normal numbers it is 4 to 5 times that, of what GELU leaves of them 10. */
#define FAR     12.0f
#define TOO_FAR 1024.0f
enum { MANY = 32 }; /* fewer others count for nothing beside it */

/* With the largest number below 2^e / MARGIN, `cut` is 2^(23-e) and the first digit at most 127.  e is held where both
 * factors are normal numbers: below 2^-106 digits are lost. */
enum { LEAST_EXPONENT = 22, INFINITE = 255, CUT_BIAS = 276, UNIT_BIAS = 6, MANTISSA = 23 };
#define MARGIN 1.00395f

/* Inlined, or a caller is left with the upper halves of registers in use, which slows down what follows it.
 * Of numbers: the bits of the largest, the sum of the sizes, how many are not zero. */
CUT_FN attn__digits_scale scale_of(uint32_t largest, float sum, uint32_t count)
{
    float x;
    memcpy(&x, &largest, sizeof x);
    float others = sum - x, all_like_it = x * ((float)count - 1);
    bool far = all_like_it > FAR * others || sum == INFINITY;
    bool none = count >= MANY && all_like_it > TOO_FAR * others;
    x *= MARGIN;
    memcpy(&largest, &x, sizeof largest);
    uint32_t e = largest >> MANTISSA;
    if (e >= INFINITE || none)
        return (attn__digits_scale){0, NAN, false};
    e = e < LEAST_EXPONENT ? LEAST_EXPONENT : e;
    uint32_t cut = (CUT_BIAS - e) << MANTISSA, unit = (e - UNIT_BIAS) << MANTISSA;
    attn__digits_scale scale = {.fine = far};
    memcpy(&scale.cut, &cut, sizeof cut);
    memcpy(&scale.unit, &unit, sizeof unit);
    return scale;
}

/* Of each lane. */
typedef struct looked {
    __m512i most, count;
    __m512 sum;
} looked;

CUT_FN looked nothing_yet(void)
{
    return (looked){_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_ps()};
}

CUT_FN void look_at(looked *l, __m512 x)
{
    __m512i size = size_of(x);
    l->most = _mm512_max_epu32(l->most, size);
    l->count = _mm512_add_epi32(l->count, _mm512_min_epu32(size, _mm512_set1_epi32(1)));
    l->sum = _mm512_add_ps(l->sum, _mm512_castsi512_ps(size));
}

CUT_FN looked both(looked a, looked b)
{
    return (looked){_mm512_max_epu32(a.most, b.most), _mm512_add_epi32(a.count, b.count), _mm512_add_ps(a.sum, b.sum)};
}

CUT_FN attn__digits_scale scale_of_lanes(looked a, looked b)
{
    looked l = both(a, b);
    return scale_of(_mm512_reduce_max_epu32(l.most), _mm512_reduce_add_ps(l.sum),
                    (uint32_t)_mm512_reduce_add_epi32(l.count));
}

/* Of each of the first n lanes, which are columns. */
CUT_FN void scales_of_lanes(looked l, int64_t n, attn__digits_scale *scale)
{
    uint32_t _Alignas(64) most[SIDE], count[SIDE];
    float _Alignas(64) sum[SIDE];
    _mm512_store_si512(most, l.most);
    _mm512_store_si512(count, l.count);
    _mm512_store_ps(sum, l.sum);
    for (int64_t i = 0; i < SIDE && i < n; i++)
        scale[i] = scale_of(most[i], sum[i], count[i]);
}

/* -------------------------------------------------------------------------------------------------- digits */

/* Of columns from c on. */
CUT_FN __m512 row_of(const attn__digits_columns *from, int64_t r, int64_t c, __mmask16 some)
{
    if (r >= from->k)
        return _mm512_setzero_ps();
    __m512 x = _mm512_maskz_loadu_ps(some, from->x + r * from->ld + c);
    return from->spread ? _mm512_mul_ps(x, _mm512_set1_ps(from->spread[r])) : x;
}

/* Three bytes of each lane. */
CUT_FN __m512i bytes_of(__m512 x, __m512 cut)
{
    return _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x, cut)), _mm512_set1_epi32(0x808080));
}

/* Lane i of d has the bytes of lane i of four vectors: d[0] their third ones, d[2] their first, as signed numbers. */
CUT_FN void digits_of(const __m512 x[ROWS], __m512 cut, __m512i d[ATTN__DIGITS])
{
    __m512i y[ROWS];
    VF_UNROLL
    for (int i = 0; i < ROWS; i++)
        y[i] = bytes_of(x[i], cut);
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaau;
    const __mmask32 high = 0xaaaaaaaau;
    const __m512i zero = _mm512_set1_epi8((char)0x80);
    enum { XOR_OF_THREE = 0x96 };
    __m512i ends_a = _mm512_mask_blend_epi8(odd, y[0], _mm512_slli_epi32(y[1], 8));
    __m512i ends_b = _mm512_mask_blend_epi8(odd, y[2], _mm512_slli_epi32(y[3], 8));
    __m512i middle_a = _mm512_mask_blend_epi8(odd, _mm512_srli_epi32(y[0], 8), y[1]);
    __m512i middle_b = _mm512_mask_blend_epi8(odd, _mm512_srli_epi32(y[2], 8), y[3]);
    d[0] = _mm512_xor_si512(_mm512_mask_blend_epi16(high, _mm512_srli_epi32(ends_a, 16), ends_b), zero);
    d[1] = _mm512_ternarylogic_epi32(middle_a, _mm512_slli_epi32(middle_b, 16), zero, XOR_OF_THREE);
    d[2] = _mm512_xor_si512(_mm512_mask_blend_epi16(high, ends_a, _mm512_slli_epi32(ends_b, 16)), zero);
}

/* Four rows of 16 columns. */
CUT_FN void cut_rows(const __m512 x[ROWS], __m512 cut, int8_t *out)
{
    __m512i d[ATTN__DIGITS];
    digits_of(x, cut, d);
    VF_UNROLL
    for (int i = 0; i < ATTN__DIGITS; i++)
        _mm512_storeu_si512(out + i * TILE, d[i]);
}

#define FOUR(at)  (at), (at) + 4, (at) + 8, (at) + 12
#define LANES(at) FOUR(at), FOUR((at) + 16), FOUR((at) + 32), FOUR((at) + 48)

/* Which bytes make 64 numbers, four vectors, follow each other. */
CUT_FN __m512i order_of_numbers(void)
{
    static const _Alignas(64) uint8_t order[ROW] = {LANES(0), LANES(1), LANES(2), LANES(3)};
    return _mm512_load_si512(order);
}

CUT_FN void cut_numbers(const __m512 x[ROWS], __m512 cut, __m512i order, int64_t plane, int8_t *out)
{
    __m512i d[ATTN__DIGITS];
    digits_of(x, cut, d);
    VF_UNROLL
    for (int i = 0; i < ATTN__DIGITS; i++)
        _mm512_storeu_si512(out + i * plane, _mm512_permutexvar_epi8(order, d[i]));
}

CUT_FN void cut_whole_tiles(const float *x, int64_t ld, __mmask16 some, __m512 cut, int8_t *tiles)
{
    for (int64_t r = 0; r < SIDE; r++, x += ROWS * ld) {
        __m512 v[ROWS];
        VF_UNROLL
        for (int j = 0; j < ROWS; j++)
            v[j] = _mm512_maskz_loadu_ps(some, x + j * ld);
        cut_rows(v, cut, tiles + r * ROW);
    }
}

/* Rows [k, k + 64) of up to 16 columns to a tile of B for each digit. */
CUT_FN void cut_tiles(const attn__digits_columns *from, int64_t k, __mmask16 some, __m512 cut, int8_t *tiles)
{
    if (k + DEPTH <= from->k && !from->spread) {
        cut_whole_tiles(from->x + k * from->ld, from->ld, some, cut, tiles);
        return;
    }
    for (int64_t r = 0; r < SIDE; r++) {
        __m512 v[ROWS];
        VF_UNROLL
        for (int j = 0; j < ROWS; j++)
            v[j] = row_of(from, k + r * ROWS + j, 0, some);
        cut_rows(v, cut, tiles + r * ROW);
    }
}

#endif
