/* SPDX-License-Identifier: MIT
 *
 * parts_digits.c - rows of numbers to tiles of their digits; see parts_digits.h.
 */
#include "kernels/parts/parts_digits.h"

#include <math.h>

#if defined(__x86_64__)
#include "simd/vec_avx512.h"

#include "kernels/tiles.h"

enum { SIDE = ATTN__DIGITS_SIDE, DEPTH = ATTN__DIGITS_DEPTH, TILE = ATTN__DIGITS_TILE, STEP = ATTN__DIGITS_STEP };
enum { VECTORS = DEPTH / SIDE, ROW = DEPTH, MANTISSA = 23 };

/* How far a row's largest number may be above the mean of the others: each power of two costs them a bit. */
#define FAR 12.0f
/* The largest, times this and without its mantissa, is at least half of what the first digit can be. */
#define MARGIN 1.00395f
/* 2^22 / 2^e and 2^e / 2^14 have the exponents SUM - e and e - UNIT: a product of two digits is 2^16 of the lowest. */
enum { CUT_SUM = 276, UNIT_BIAS = 14 };
static const float least = 0x1p-60f, most = 0x1p60f;

/* 16 rows of which all columns are known, and what they have in common. */
typedef struct sixteen {
    const attn__parts_rows *rows;
    const float *row[SIDE];
    int there;
    float _Alignas(64) cut[SIDE];
} sixteen;

VF_FN const float *row_of(const attn__parts_rows *rows, int64_t r)
{
    return (const float *)rows->data + (rows->row_at ? rows->row_at[r] : r * rows->ld);
}

/* In place of rows that are not there stands one of which nothing is read. */
VF_FN void find_rows(sixteen *x, int64_t r)
{
    x->there = (int)(x->rows->rows - r < SIDE ? x->rows->rows - r : SIDE);
    for (int64_t i = 0; i < SIDE; i++)
        x->row[i] = row_of(x->rows, i < x->there ? r + i : r);
}

VF_FN void fetch(const attn__parts_rows *rows, int64_t r)
{
    if (r < rows->rows)
        for (int64_t c = 0; c < rows->columns; c += SIDE)
            __builtin_prefetch(row_of(rows, r) + c, 0, 3);
}

/* 16 numbers of a row; `whole` if all rows are there and have whole steps of columns. */
VF_FN vf numbers(const sixteen *x, int i, int64_t c, bool whole)
{
    if (whole)
        return vf_load(x->row[i] + c);
    vm lanes = i < x->there ? first_lanes(x->rows->columns - c) : (vm)0;
    return _mm512_maskz_loadu_ps(lanes, x->row[i] + c);
}

typedef struct looked {
    vf top, sum;
} looked;

VF_FN looked look_at(const sixteen *x, int i, bool whole)
{
    looked l = {vf_zero(), vf_zero()};
    for (int64_t c = 0; c < x->rows->columns; c += DEPTH) {
        vf size[VECTORS];
        VF_UNROLL
        for (int j = 0; j < VECTORS; j++)
            size[j] = _mm512_abs_ps(numbers(x, i, c + j * SIDE, whole));
        l.top = vf_max(vf_max(size[0], size[1]), vf_max(vf_max(size[2], size[3]), l.top));
        l.sum = vf_add(vf_add(size[0], size[1]), vf_add(vf_add(size[2], size[3]), l.sum));
    }
    return l;
}

/* Half of the way to one number for each of two rows, four, and so on. */
#define MERGE(op, low, high, a, b) op(low(a, b), high(a, b))
#define PD(x)                      _mm512_castps_pd(x)
#define LOW_PS(a, b)               _mm512_unpacklo_ps(a, b)
#define HIGH_PS(a, b)              _mm512_unpackhi_ps(a, b)
#define LOW_PD(a, b)               _mm512_castpd_ps(_mm512_unpacklo_pd(PD(a), PD(b)))
#define HIGH_PD(a, b)              _mm512_castpd_ps(_mm512_unpackhi_pd(PD(a), PD(b)))
#define EVEN(a, b)                 _mm512_shuffle_f32x4(a, b, 0x88)
#define ODD(a, b)                  _mm512_shuffle_f32x4(a, b, 0xdd)
#define REDUCE(op, x)                                                                                                  \
    do {                                                                                                               \
        VF_UNROLL                                                                                                      \
        for (int i_ = 0; i_ < 4; i_++)                                                                                 \
            (x)[i_] = MERGE(op, LOW_PD, HIGH_PD, (x)[2 * i_], (x)[2 * i_ + 1]);                                        \
        (x)[0] = MERGE(op, EVEN, ODD, (x)[0], (x)[1]);                                                                 \
        (x)[1] = MERGE(op, EVEN, ODD, (x)[2], (x)[3]);                                                                 \
        (x)[0] = MERGE(op, EVEN, ODD, (x)[0], (x)[1]);                                                                 \
    } while (0)

/* The largest number of each row and the sum of their sizes. */
VF_FN looked look_at_rows(const sixteen *x, bool whole)
{
    vf top[SIDE / 2], sum[SIDE / 2];
    VF_UNROLL
    for (int i = 0; i < SIDE / 2; i++) {
        looked a = look_at(x, 2 * i, whole), b = look_at(x, 2 * i + 1, whole);
        top[i] = MERGE(vf_max, LOW_PS, HIGH_PS, a.top, b.top);
        sum[i] = MERGE(vf_add, LOW_PS, HIGH_PS, a.sum, b.sum);
    }
    REDUCE(vf_max, top);
    REDUCE(vf_add, sum);
    return (looked){top[0], sum[0]};
}

/* Rows for which digits will do; of infinity and NaN the sum is no number that compares. */
VF_FN vm rows_that_do(looked l, int64_t columns)
{
    vf others = vf_mul(vf_sub(l.sum, l.top), vf_set1(FAR)), all_like_it = vf_mul(l.top, vf_set1((float)(columns - 1)));
    vm near = _mm512_cmp_ps_mask(all_like_it, others, _CMP_LE_OQ);
    near = _mm512_mask_cmp_ps_mask(near, l.top, vf_set1(least), _CMP_GE_OQ);
    near = _mm512_mask_cmp_ps_mask(near, l.top, vf_set1(most), _CMP_LE_OQ);
    return (vm)(near | _mm512_cmp_ps_mask(l.sum, vf_zero(), _CMP_EQ_OQ));
}

/* The factor that makes numbers of rows integers, and their unit.  False if digits will not do. */
VF_FN bool scale_rows(sixteen *x, float *unit, bool whole)
{
    looked l = look_at_rows(x, whole);
    vf top = vf_mul(vf_max(l.top, vf_set1(least)), vf_set1(MARGIN));
    __m512i e = _mm512_srli_epi32(_mm512_castps_si512(top), MANTISSA);
    __m512i cut = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(CUT_SUM), e), MANTISSA);
    __m512i own = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(UNIT_BIAS)), MANTISSA);
    vf_store(x->cut, _mm512_castsi512_ps(cut));
    vf units = vf_mul(_mm512_castsi512_ps(own), vf_set1(x->rows->factor));
    vf_store(unit, _mm512_mask_blend_ps(first_lanes(x->there), vf_set1(NAN), units));
    return rows_that_do(l, x->rows->columns) == 0xffff;
}

/* Numbers of four vectors, integers of 24 bits with their sign, whose bytes begin at the lowest or, of every second
 * vector, the one above it, to three digits: each lane gets the four vectors' bytes.  With 0x808080 a byte is a digit
 * that is 128 too large. */
VF_FN void cut_row(const sixteen *x, int i, int64_t c, int8_t *out, bool whole)
{
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaau;
    const __mmask32 upper = 0xaaaaaaaau;
    vf cut = vf_set1(x->cut[i]), above = vf_mul(cut, vf_set1(256.0f));
    __m512i y[VECTORS], outer[2], middle[2], sign = _mm512_set1_epi8((char)0x80);
    VF_UNROLL
    for (int j = 0; j < VECTORS; j++) {
        vf z = vf_mul(numbers(x, i, c + j * SIDE, whole), j % 2 ? above : cut);
        y[j] = _mm512_add_epi32(_mm512_cvtps_epi32(z), _mm512_set1_epi32((int)(j % 2 ? 0x80808080u : 0x00808080u)));
    }
    VF_UNROLL
    for (int j = 0; j < 2; j++) {
        outer[j] = _mm512_mask_blend_epi8(odd, y[2 * j], y[2 * j + 1]);
        middle[j] = _mm512_mask_blend_epi8(odd, y[2 * j + 1], y[2 * j]);
    }
    __m512i d0 = _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(outer[0], 16), outer[1]);
    __m512i d1 = _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(middle[0], 8), _mm512_slli_epi32(middle[1], 8));
    __m512i d2 = _mm512_mask_blend_epi16(upper, outer[0], _mm512_slli_epi32(outer[1], 16));
    _mm512_store_si512(out, _mm512_xor_si512(d0, sign));
    _mm512_store_si512(out + TILE, _mm512_xor_si512(d1, sign));
    _mm512_store_si512(out + 2 * TILE, _mm512_xor_si512(d2, sign));
}

VF_FN bool cut_rows(sixteen *x, int64_t r, int8_t *tiles, float *unit, bool whole)
{
    if (!scale_rows(x, unit, whole))
        return false;
    for (int64_t c = 0; c < x->rows->columns; c += DEPTH, tiles += STEP) {
        for (int i = 0; i < SIDE; i++) {
            if (c == 0)
                fetch(x->rows, r + ATTN__PARTS_CUT_NEAR + i);
            cut_row(x, i, c, tiles + i * ROW, whole);
        }
    }
    return true;
}

bool attn__parts_digits(attn__parts_way way, const attn__parts_rows *rows, int8_t *tiles, float *unit)
{
    sixteen x = {.rows = rows};
    int64_t steps = (rows->columns + DEPTH - 1) / DEPTH;
    for (int64_t r = 0; r < rows->rows; r += SIDE, tiles += steps * STEP) {
        find_rows(&x, r);
        bool whole = x.there == SIDE && rows->columns % DEPTH == 0;
        if (!(whole ? cut_rows(&x, r, tiles, unit + r, true) : cut_rows(&x, r, tiles, unit + r, false)))
            return false;
        if (way == ATTN__PARTS_ACROSS)
            turn_tiles((float *)(void *)tiles, steps * ATTN__DIGITS);
    }
    return true;
}

#include "simd/isa_end.h"
#else
bool attn__parts_digits(attn__parts_way way, const attn__parts_rows *rows, int8_t *tiles, float *unit)
{
    (void)way;
    (void)rows;
    (void)tiles;
    (void)unit;
    return false;
}
#endif
