/* SPDX-License-Identifier: MIT
 *
 * vec_avx2.h - the vector operations (vec.h) on AVX2 with FMA: 8 lanes.  It opens a region, which isa_end.h closes,
 * like vec_avx512.h.
 */
#ifndef ATTN_SIMD_VEC_H
#define ATTN_SIMD_VEC_H

#include "simd/vec.h"

#include <immintrin.h>

#define VF_REGION
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define VF_LANES      8
#define VF_REGISTERS  16
#define VF_ISA        ATTN_ISA_AVX2
#define VF_NAME(name) name##_avx2
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; /* a lane is selected if its sign bit is set */

#define VF_FN static inline __attribute__((always_inline))

VF_FN vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
/* The lowest three bits are the index in each half of the table. The bit above them selects the half. */
#define VF_LOOKUP 16
VF_FN vf vf_lookup(const float *table, vf x)
{
    __m256i at = _mm256_castps_si256(x);
    vf low = _mm256_permutevar8x32_ps(vf_load(table), at), high = _mm256_permutevar8x32_ps(vf_load(table + 8), at);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}
VF_FN vf vf_load_once(const float *p)
{
    vf x = vf_load(p);
    __asm__("" : "+x"(x));
    return x;
}
VF_FN void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
VF_FN void vf_stream(float *p, vf x) { _mm256_stream_ps(p, x); }
VF_FN void vf_stream_end(void) { _mm_sfence(); }
VF_FN void vf_in_order(void) {}
VF_FN vf vf_set1(float x) { return _mm256_set1_ps(x); }
VF_FN vf vf_zero(void) { return _mm256_setzero_ps(); }
VF_FN vm vm_first(int n)
{
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}
VF_FN vf vf_load_part(const float *p, int n) { return _mm256_maskload_ps(p, _mm256_castps_si256(vm_first(n))); }
VF_FN void vf_store_part(float *p, vf x, int n) { _mm256_maskstore_ps(p, _mm256_castps_si256(vm_first(n)), x); }

VF_FN vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
VF_FN vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
VF_FN vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
VF_FN vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
VF_FN vf vf_sqrt(vf x) { return _mm256_sqrt_ps(x); }
VF_FN vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
VF_FN vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
VF_FN vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
VF_FN vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
VF_FN vf vf_floor(vf x) { return _mm256_floor_ps(x); }
VF_FN vf vf_abs(vf x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
VF_FN vf vf_from_bits(vi x) { return _mm256_castsi256_ps(x); }
VF_FN vi vf_bits(vf x) { return _mm256_castps_si256(x); }

#include "simd/scale_range.h"

VF_FN vf vf_fraction(vf x)
{
    x = vf_scale_range(x);
    return _mm256_sub_ps(x, _mm256_floor_ps(x));
}
VF_FN vf vf_scale2(vf p, vf x)
{
    vi n = _mm256_cvtps_epi32(_mm256_floor_ps(vf_scale_range(x)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)));
}

VF_FN vm vf_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
VF_FN vm vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
VF_FN vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
VF_FN vf vf_below(vf a, vf l, vf x) { return _mm256_andnot_ps(_mm256_cmp_ps(a, l, _CMP_LT_OQ), x); }
VF_FN vf vf_mul_below(vf a, vf l, vf b) { return vf_mul(vf_below(a, l, a), b); }
VF_FN bool vm_any(vm m) { return _mm256_movemask_ps(m) != 0; }
VF_FN vm vm_and(vm a, vm b) { return _mm256_and_ps(a, b); }
VF_FN vm vm_or(vm a, vm b) { return _mm256_or_ps(a, b); }
VF_FN vm vm_not(vm a) { return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))); }

VF_FN vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
VF_FN void vi_store(void *p, vi x) { _mm256_storeu_si256(p, x); }
VF_FN vi vi_load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
VF_FN vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
VF_FN vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
VF_FN vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
VF_FN vi vi_mul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
VF_FN vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
VF_FN vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
#define vi_shr(x, n) _mm256_srli_epi32(x, n)
#define vi_shl(x, n) _mm256_slli_epi32(x, n)
VF_FN vm vi_lt(vi a, vi b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a)); }
VF_FN vm vi_ltu(vi a, vi b)
{
    vi sign = _mm256_set1_epi32(INT32_MIN);
    return vi_lt(_mm256_xor_si256(a, sign), _mm256_xor_si256(b, sign));
}
VF_FN vf vf_from_int(vi x) { return _mm256_cvtepi32_ps(x); }

VF_FN vf vf_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}

VF_FN vf vf_load_bf16_part(const uint16_t *p, int n)
{
    uint16_t whole[8] = {0};
    memcpy(whole, p, (size_t)n * sizeof *p);
    return vf_load_bf16(whole);
}

VF_FN __m128i vf_round_bf16(vf x)
{
    vi bits = _mm256_castps_si256(x), lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    vi even = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
    vi quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    vf unordered = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    vf rounded = _mm256_blendv_ps(_mm256_castsi256_ps(even), _mm256_castsi256_ps(quiet), unordered);
    vi high = _mm256_srli_epi32(_mm256_castps_si256(rounded), 16);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0xd8));
}

VF_FN void vf_store_bf16(uint16_t *p, vf x) { _mm_storeu_si128((void *)p, vf_round_bf16(x)); }
VF_FN void vf_stream_bf16(uint16_t *p, vf x) { _mm_stream_si128((void *)p, vf_round_bf16(x)); }

VF_FN void vf_store_bf16_part(uint16_t *p, vf x, int n)
{
    uint16_t whole[8];
    vf_store_bf16(whole, x);
    memcpy(p, whole, (size_t)n * sizeof *p);
}

VF_FN float vf_sum(vf x)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

VF_FN float vf_largest(vf x)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

VF_FN void vf_transpose(vf r[8])
{
    vf t[8];
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    VF_UNROLL
    for (int i = 0; i < 2; i++) {
        r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    VF_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
    }
    VF_UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

#endif
