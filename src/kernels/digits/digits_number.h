/* SPDX-License-Identifier: MIT
 *
 * digits_number.h - vectors of numbers: what unit they have, and their digits as bytes in the order of tiles.
 *
 * x * cut rounds to an integer of 24 bits with its sign; with 0x808080 it is three bytes, its digits each 128 too large.
 * Include within a region of the instruction set, after vec_avx512.h.
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

CUT_FN attn__digits_scale scale_of_lanes(looked a, looked b)
{
    return scale_of(_mm512_reduce_max_epu32(_mm512_max_epu32(a.most, b.most)),
                    _mm512_reduce_add_ps(_mm512_add_ps(a.sum, b.sum)),
                    (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(a.count, b.count)));
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

CUT_FN void store_digits(int8_t *out, __m512i d0, __m512i d1, __m512i d2)
{
    __m512i zero = _mm512_set1_epi8((char)0x80);
    _mm512_storeu_si512(out, _mm512_xor_si512(d0, zero));
    _mm512_storeu_si512(out + TILE, _mm512_xor_si512(d1, zero));
    _mm512_storeu_si512(out + 2 * TILE, _mm512_xor_si512(d2, zero));
}

/* Which bytes of two vectors permutations take: d2 and d1 of either's lanes; d0, twice. */
typedef struct orders {
    __m512i last, first;
} orders;

#define FOUR(at, each)  (at), (at) + (each), (at) + 2 * (each), (at) + 3 * (each)
#define LANES(at)       FOUR(at, 4), FOUR((at) + 16, 4), FOUR((at) + 32, 4), FOUR((at) + 48, 4)
#define PAIRS(at, next) (at), (at) + 64, (at) + (next), (at) + 64 + (next)
#define EIGHT(at, next) PAIRS(at, next), PAIRS((at) + 4, next), PAIRS((at) + 8, next), PAIRS((at) + 12, next)

/* Of two rows, in each lane. */
CUT_FN orders column_orders(void)
{
    static const _Alignas(64) uint8_t last[ROW] = {EIGHT(0, 1), EIGHT(16, 1), EIGHT(32, 1), EIGHT(48, 1)},
                                      first[ROW] = {EIGHT(2, 0), EIGHT(18, 0), EIGHT(34, 0), EIGHT(50, 0)};
    return (orders){_mm512_load_si512(last), _mm512_load_si512(first)};
}

/* Four rows of 16 columns. */
CUT_FN void cut_rows(const __m512 x[ROWS], __m512 cut, const orders *o, int8_t *out)
{
    const __mmask32 high = 0xaaaaaaaau;
    __m512i y[ROWS];
    VF_UNROLL
    for (int i = 0; i < ROWS; i++)
        y[i] = bytes_of(x[i], cut);
    __m512i a = _mm512_permutex2var_epi8(y[0], o->last, y[1]), b = _mm512_permutex2var_epi8(y[2], o->last, y[3]);
    __m512i c = _mm512_permutex2var_epi8(y[0], o->first, y[1]), d = _mm512_permutex2var_epi8(y[2], o->first, y[3]);
    store_digits(out, _mm512_mask_blend_epi16(high, c, d), _mm512_mask_blend_epi16(high, _mm512_srli_epi32(a, 16), b),
                 _mm512_mask_blend_epi16(high, a, _mm512_slli_epi32(b, 16)));
}

/* Rows [k, k + 64) of up to 16 columns to a tile of B for each digit. */
CUT_FN void cut_tiles(const attn__digits_columns *from, int64_t k, __mmask16 some, __m512 cut, const orders *o,
                      int8_t *tiles)
{
    for (int64_t r = 0; r < SIDE; r++) {
        __m512 x[ROWS];
        VF_UNROLL
        for (int j = 0; j < ROWS; j++)
            x[j] = row_of(from, k + r * ROWS + j, 0, some);
        cut_rows(x, cut, o, tiles + r * ROW);
    }
}

#endif
