/* SPDX-License-Identifier: MIT
 *
 * vec_avx512.h - the vector operations (vec.h) on AVX-512 (F, BW, DQ, VL): 16 lanes.  It opens a region in which
 * functions are compiled for AVX-512, so that no file needs its own compiler flags. isa_end.h closes the region.
 * Include other headers before this one.
 */
#ifndef ATTN_SIMD_VEC_H
#define ATTN_SIMD_VEC_H

#include "simd/vec.h"

#include <immintrin.h>

#define VF_REGION
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

#define VF_LANES      16
#define VF_REGISTERS  32
#define VF_ISA        ATTN_ISA_AVX512
#define VF_NAME(name) name##_avx512
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

#define VF_FN static inline __attribute__((always_inline))

VF_FN vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
VF_FN vf vf_load_once(const float *p)
{
    vf x = vf_load(p);
    __asm__("" : "+v"(x));
    return x;
}
VF_FN void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
VF_FN void vf_stream(float *p, vf x) { _mm512_stream_ps(p, x); }
VF_FN void vf_stream_end(void) { _mm_sfence(); }
VF_FN void vf_in_order(void) {}
VF_FN vf vf_set1(float x) { return _mm512_set1_ps(x); }
#define VF_LOOKUP 16
VF_FN vf vf_lookup(const float *table, vf x)
{
    return _mm512_permutexvar_ps(_mm512_castps_si512(x), _mm512_loadu_ps(table));
}
VF_FN vf vf_zero(void) { return _mm512_setzero_ps(); }
VF_FN vm vm_first(int n) { return (vm)((1u << n) - 1u); }
VF_FN vf vf_load_part(const float *p, int n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
VF_FN void vf_store_part(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, vm_first(n), x); }

VF_FN vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
VF_FN vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
VF_FN vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
VF_FN vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
VF_FN vf vf_sqrt(vf x) { return _mm512_sqrt_ps(x); }
VF_FN vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
VF_FN vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
VF_FN vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
VF_FN vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
VF_FN vf vf_floor(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
VF_FN vf vf_abs(vf x) { return _mm512_abs_ps(x); }
/* Returns x - floor(x). For both infinities the result is 0. */
VF_FN vf vf_fraction(vf x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
/* Returns p * 2^floor(x). The mask avoids underflows, because an underflow takes hundreds of cycles on Intel's
 * processors. */
VF_FN vf vf_scale2(vf p, vf x)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, vf_set1(-126.0f), _CMP_NLT_UQ), p, x);
}

/* Defines vf_pick, which returns in each lane element i % 32 of a table in two registers. Other instruction sets have
 * no fast equivalent. */
#define VF_TABLE
VF_FN vf vf_pick(vf low, vf high, vi i) { return _mm512_permutex2var_ps(low, i, high); }

/* Defines vf_shift, which returns elements n to n + 15 of the concatenation of two vectors. n is a constant from 0 to
 * 7. */
#define VF_SHIFT
#define VF_ALIGN(n)                                                                                                    \
    case n:                                                                                                            \
        return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(b), _mm512_castps_si512(a), n))
VF_FN vf vf_shift(vf a, vf b, int n)
{
    switch (n) {
        VF_ALIGN(1);
        VF_ALIGN(2);
        VF_ALIGN(3);
        VF_ALIGN(4);
        VF_ALIGN(5);
        VF_ALIGN(6);
        VF_ALIGN(7);
    default:
        return a;
    }
}
#undef VF_ALIGN

VF_FN vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
VF_FN vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
VF_FN vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
VF_FN vf vf_below(vf a, vf l, vf x) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, l, _CMP_NLT_UQ), x); }
VF_FN vf vf_mul_below(vf a, vf l, vf b) { return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(a, l, _CMP_NLT_UQ), a, b); }
VF_FN bool vm_any(vm m) { return m != 0; }
VF_FN vm vm_and(vm a, vm b) { return (vm)(a & b); }
VF_FN vm vm_or(vm a, vm b) { return (vm)(a | b); }
VF_FN vm vm_not(vm a) { return (vm)~a; }

VF_FN vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
VF_FN void vi_store(void *p, vi x) { _mm512_storeu_si512(p, x); }
VF_FN vi vi_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
VF_FN vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
VF_FN vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
VF_FN vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
VF_FN vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
VF_FN vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
VF_FN vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
#define vi_shr(x, n) _mm512_srli_epi32(x, n)
#define vi_shl(x, n) _mm512_slli_epi32(x, n)
VF_FN vm vi_lt(vi a, vi b) { return _mm512_cmplt_epi32_mask(a, b); }
VF_FN vm vi_ltu(vi a, vi b) { return _mm512_cmplt_epu32_mask(a, b); }
VF_FN vi vf_bits(vf x) { return _mm512_castps_si512(x); }
VF_FN vf vf_from_bits(vi x) { return _mm512_castsi512_ps(x); }
VF_FN vf vf_from_int(vi x) { return _mm512_cvtepi32_ps(x); }

VF_FN vf vf_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

VF_FN vf vf_load_bf16_part(const uint16_t *p, int n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), p)), 16));
}

VF_FN __m256i vf_round_bf16(vf x)
{
    vi bits = _mm512_castps_si512(x), lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    vi even = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
    vi quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    vi rounded = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), even, quiet);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

VF_FN void vf_store_bf16(uint16_t *p, vf x) { _mm256_storeu_si256((void *)p, vf_round_bf16(x)); }
VF_FN void vf_stream_bf16(uint16_t *p, vf x) { _mm256_stream_si256((void *)p, vf_round_bf16(x)); }
VF_FN void vf_store_bf16_part(uint16_t *p, vf x, int n) { _mm256_mask_storeu_epi16(p, vm_first(n), vf_round_bf16(x)); }

/* Functions for pairs of bf16 numbers in 32 bits. vi_order_of_pairs is the permutation (0, 16, 1, 17, ...), which makes
 * pairs from two vectors. vi_any_not_finite reports whether any number is infinite or NaN. vf_pair_upper makes pairs
 * from the upper 16 bits of two vectors' lanes. vf_without_upper returns a number minus its upper 16 bits. */
VF_FN vi vi_order_of_pairs(void)
{
    vi low = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_or_si512(low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(16)), 16));
}

VF_FN bool vi_any_not_finite(vi pairs)
{
    vi exponent = _mm512_set1_epi16(0x7f80);
    return _mm512_cmpeq_epi16_mask(_mm512_and_si512(pairs, exponent), exponent) != 0;
}

VF_FN vi vf_pair_upper(vf low, vf high)
{
    vi shifted = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, shifted, _mm512_castps_si512(high));
}

/* Rounds x so that its upper 16 bits are the nearest bf16 number. Numbers above the range of bf16 become infinite. */
VF_FN vf vf_round_upper(vf x)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)));
}

/* Returns x minus the upper 16 bits of `near`. The difference is exact if those bits are x truncated or rounded to
 * bf16. */
VF_FN vf vf_beyond_upper(vf x, vf near)
{
    vi upper = _mm512_and_si512(_mm512_castps_si512(near), _mm512_set1_epi32((int32_t)0xffff0000u));
    return _mm512_sub_ps(x, _mm512_castsi512_ps(upper));
}

VF_FN vf vf_without_upper(vf x) { return vf_beyond_upper(x, x); }

VF_FN float vf_sum(vf x) { return _mm512_reduce_add_ps(x); }
VF_FN float vf_largest(vf x) { return _mm512_reduce_max_ps(x); }

/* Functions for vectors that consist of two halves. They load the halves from two places in memory, and transpose the
 * square of each half. */
#define VF_HALVES
VF_FN vf vf_load_halves(const float *low, const float *high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high), 1);
}

VF_FN void vf_store_halves(float *low, float *high, vf x)
{
    _mm256_storeu_ps(low, _mm512_castps512_ps256(x));
    _mm256_storeu_ps(high, _mm512_extractf32x8_ps(x, 1));
}

VF_FN void vf_transpose_halves(vf r[8])
{
    vf t[8], u[8];
    const __m512i low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#define PD(x) _mm512_castps_pd(x)
#define PS(x) _mm512_castpd_ps(x)
    VF_UNROLL
    for (int i = 0; i < 2; i++) {
        u[4 * i] = PS(_mm512_unpacklo_pd(PD(t[4 * i]), PD(t[4 * i + 2])));
        u[4 * i + 1] = PS(_mm512_unpackhi_pd(PD(t[4 * i]), PD(t[4 * i + 2])));
        u[4 * i + 2] = PS(_mm512_unpacklo_pd(PD(t[4 * i + 1]), PD(t[4 * i + 3])));
        u[4 * i + 3] = PS(_mm512_unpackhi_pd(PD(t[4 * i + 1]), PD(t[4 * i + 3])));
    }
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = PS(_mm512_permutex2var_pd(PD(u[i]), low, PD(u[4 + i])));
        r[4 + i] = PS(_mm512_permutex2var_pd(PD(u[i]), high, PD(u[4 + i])));
    }
#undef PD
#undef PS
}

/* Transposes in four rounds: pairs of rows by 32 bits, then by 64 bits, then quarters of the register twice. */
VF_FN void vf_transpose(vf r[16])
{
    vf t[16];
    VF_UNROLL
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#define PD(x) _mm512_castps_pd(x)
#define PS(x) _mm512_castpd_ps(x)
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        r[4 * i] = PS(_mm512_unpacklo_pd(PD(t[4 * i]), PD(t[4 * i + 2])));
        r[4 * i + 1] = PS(_mm512_unpackhi_pd(PD(t[4 * i]), PD(t[4 * i + 2])));
        r[4 * i + 2] = PS(_mm512_unpacklo_pd(PD(t[4 * i + 1]), PD(t[4 * i + 3])));
        r[4 * i + 3] = PS(_mm512_unpackhi_pd(PD(t[4 * i + 1]), PD(t[4 * i + 3])));
    }
#undef PD
#undef PS
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

#endif
