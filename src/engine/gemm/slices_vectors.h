/* SPDX-License-Identifier: MIT
 *
 * slices_vectors.h - converts vectors of numbers to slices, as bytes in the order of tiles. It also counts slices and
 * sums their squares.
 *
 * x * scale is rounded to a signed integer of 24 bits. After adding 0x808080, each of its three bytes is a slice plus
 * 128. Include within a region of the instruction set, after vec_avx512.h.
 */
#ifndef ATTN_GEMM_SLICES_VECTORS_H
#define ATTN_GEMM_SLICES_VECTORS_H

#include "gemm/slices.h"

/* Functions are always inlined, because a call would leave the upper halves of the ZMM registers dirty. */
#define SLICES_FN static inline __attribute__((always_inline))

enum { SIDE = ATTN__SLICES_SIDE, DEPTH = ATTN__SLICES_DEPTH, TILE = ATTN__SLICES_TILE, STEP = ATTN__SLICES_STEP };
enum { LEVELS = ATTN__SLICES_LEVELS };
enum { ROW = 64, ROWS = 4 }; /* ROW: bytes of a row of a tile. ROWS: slices of one column in a row of B's tiles. */

/* Returns the bits of |x|. Compared as integers, the bits have the order of the numbers. The bits of infinity and NaN
 * are the largest. */
SLICES_FN __m512i size_of(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* ------------------------------------------------------------------------------------------------ quantize */

/* Converts each lane to an integer of three bytes. Each byte is a slice plus 128. */
SLICES_FN __m512i bytes_of(__m512 x, __m512 scale)
{
    return _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x, scale)), _mm512_set1_epi32(0x808080));
}

/* Computes the slices of four vectors as signed bytes. d[0] has the first slices, which are the third bytes,
 * and d[2] has the last slices. Lane i has the slices of lane i of the four vectors. */
SLICES_FN void slices_of(const __m512 x[ROWS], __m512 scale, __m512i d[ATTN__SLICES])
{
    __m512i y[ROWS];
    VF_UNROLL
    for (int i = 0; i < ROWS; i++)
        y[i] = bytes_of(x[i], scale);
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

#define FOUR(at)  (at), (at) + 4, (at) + 8, (at) + 12
#define LANES(at) FOUR(at), FOUR((at) + 16), FOUR((at) + 32), FOUR((at) + 48)

/* Returns the permutation of bytes that puts the slices of 64 numbers, from four vectors, in the order of the
 * numbers. */
SLICES_FN __m512i order_of_numbers(void)
{
    static const _Alignas(64) uint8_t order[ROW] = {LANES(0), LANES(1), LANES(2), LANES(3)};
    return _mm512_load_si512(order);
}

SLICES_FN void quantize_numbers(const __m512 x[ROWS], __m512 scale, __m512i order, int8_t *out)
{
    __m512i d[ATTN__SLICES];
    slices_of(x, scale, d);
    VF_UNROLL
    for (int i = 0; i < ATTN__SLICES; i++)
        _mm512_storeu_si512(out + i * TILE, _mm512_permutexvar_epi8(order, d[i]));
}

/* ------------------------------------------------------------------------------------------------- measure */

/* Sums over numbers: counts per level, in bytes up to 255, and squares of slices, in 32 bits. */
typedef struct tally {
    __m512i count[LEVELS], squares[ATTN__SLICES];
} tally;

SLICES_FN void begin_tally(tally *t)
{
    VF_UNROLL
    for (int i = 0; i < LEVELS; i++)
        t->count[i] = _mm512_setzero_si512();
    VF_UNROLL
    for (int i = 0; i < ATTN__SLICES; i++)
        t->squares[i] = _mm512_setzero_si512();
}

/* Adds the counts and squares of 64 numbers to the tally. */
SLICES_FN void add_to_tally(tally *t, const int8_t *slices)
{
    const __m512i most = _mm512_set1_epi8(127), minus_one = _mm512_set1_epi8(-1);
    __m512i size[ATTN__SLICES];
    VF_UNROLL
    for (int i = 0; i < ATTN__SLICES; i++) {
        size[i] = _mm512_abs_epi8(_mm512_loadu_si512(slices + i * TILE));
        t->squares[i] = _mm512_dpbusd_epi32(t->squares[i], size[i], _mm512_min_epu8(size[i], most));
    }
    VF_UNROLL
    for (int i = 0; i < LEVELS; i++) {
        __mmask64 at_least = _mm512_cmpge_epu8_mask(size[0], _mm512_set1_epi8((char)attn__slices_level[i]));
        t->count[i] = _mm512_mask_sub_epi8(t->count[i], at_least, t->count[i], minus_one);
    }
}

#endif
