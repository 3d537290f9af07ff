/* SPDX-License-Identifier: MIT
 * Converts rows of floats to int8, and int32 sums to floats. */
#include "gemm/int8_rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Returns the maximum of `most` and the bits of all |x|. Compared as integers, the bits of infinity and NaN are the
 * largest. */
static uint32_t larger(uint32_t most, const float *x, int64_t begin, int64_t n)
{
    for (int64_t i = begin; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Rounds x * factor to integers. Adding 1.5 x 2^23 to a float moves the integer to its lowest bits. */
static void round_part(const float *x, int64_t begin, int64_t n, float factor, int8_t *q)
{
    for (int64_t i = begin; i < n; i++) {
        float shifted = x[i] * factor + 12582912.0f;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        q[i] = (int8_t)(uint8_t)(bits & 0xff);
    }
}

/* Returns the scale of a row, and in *factor the inverse scale. The factor is 0 if the row counts as zero or is not
 * finite. */
static float scale_of(uint32_t bits, float *factor)
{
    float most;
    memcpy(&most, &bits, sizeof most);
    bool usual = most >= 128 * FLT_MIN && most <= FLT_MAX;
    *factor = usual ? 127 / most : 0;
    return usual ? most / 127 : most <= FLT_MAX ? 0 : NAN;
}

static float quantize(const float *x, int64_t n, int8_t *q)
{
    float factor, scale = scale_of(larger(0, x, 0, n), &factor);
    if (factor > 0)
        round_part(x, 0, n, factor, q);
    else
        memset(q, 0, (size_t)n);
    return scale;
}

static void scale_part(void *y, int64_t begin, int64_t n, float row, const float *columns)
{
    char *at = (char *)y + begin * (int64_t)sizeof(float);
    for (int64_t j = begin; j < n; j++, at += sizeof(float)) {
        int32_t sum;
        memcpy(&sum, at, sizeof sum);
        float value = (float)((double)sum * row * columns[j]);
        memcpy(at, &value, sizeof value);
    }
}

static void scale(void *y, int64_t n, float row, const float *columns)
{
    scale_part(y, 0, n, row, columns);
}

static const attn__int8_rows in_c = {quantize, scale};

#if defined(__x86_64__)
#include "simd/vec_avx2.h"

enum { AT_ONCE = 4 * VF_LANES };

static float quantize_avx2(const float *x, int64_t n, int8_t *q)
{
    int64_t whole = n / AT_ONCE * AT_ONCE;
    __m256i most = _mm256_setzero_si256(), sign = _mm256_set1_epi32(0x7fffffff);
    for (int64_t i = 0; i < whole; i += VF_LANES)
        most = _mm256_max_epu32(most, _mm256_and_si256(vf_bits(vf_load(x + i)), sign));
    uint32_t lanes[VF_LANES], all = 0;
    vi_store(lanes, most);
    for (int i = 0; i < VF_LANES; i++)
        all = lanes[i] > all ? lanes[i] : all;
    float factor, result = scale_of(larger(all, x, whole, n), &factor);
    if (!(factor > 0)) {
        memset(q, 0, (size_t)n);
        return result;
    }
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* packing interleaves the 128-bit halves */
    for (int64_t i = 0; i < whole; i += AT_ONCE) {
        __m256i z[4];
        VF_UNROLL
        for (int j = 0; j < 4; j++)
            z[j] = _mm256_cvtps_epi32(vf_mul(vf_load(x + i + j * VF_LANES), vf_set1(factor)));
        __m256i y = _mm256_packs_epi16(_mm256_packs_epi32(z[0], z[1]), _mm256_packs_epi32(z[2], z[3]));
        vi_store(q + i, _mm256_permutevar8x32_epi32(y, order));
    }
    round_part(x, whole, n, factor, q);
    return result;
}

static void scale_avx2(void *y, int64_t n, float row, const float *columns)
{
    int64_t whole = n / 4 * 4;
    __m256d by = _mm256_set1_pd((double)row);
    for (int64_t j = 0; j < whole; j += 4) {
        float *at = (float *)y + j;
        __m256d sums = _mm256_cvtepi32_pd(_mm_loadu_si128((const void *)at));
        __m256d scaled = _mm256_mul_pd(_mm256_mul_pd(sums, by), _mm256_cvtps_pd(_mm_loadu_ps(columns + j)));
        _mm_storeu_ps(at, _mm256_cvtpd_ps(scaled));
    }
    scale_part(y, whole, n, row, columns);
}
#include "simd/isa_end.h"

static const attn__int8_rows in_avx2 = {quantize_avx2, scale_avx2};
#endif

const attn__int8_rows *attn__int8_rows_for(attn__isa isa)
{
#if defined(__x86_64__)
    if (isa >= ATTN_ISA_AVX2)
        return &in_avx2;
#endif
    (void)isa;
    return &in_c;
}
