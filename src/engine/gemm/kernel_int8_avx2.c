/* SPDX-License-Identifier: MIT
 *
 * kernel_int8_avx2.c - the micro-kernels of kernel_int8_tmpl.h for AVX2 and AVX-VNNI.
 */
#include "gemm/kernel.h"
#if defined(__x86_64__)
#include "simd/vec_avx2.h"

/* Converts bytes to 16-bit integers, because vpmaddwd multiplies and adds pairs of them. The sums are exact, because
 * each product is at most 2^14.  vpmaddubsw, which multiplies bytes, would not be faster, because one operand must be
 * unsigned, and the signs would have to be moved to the other operand. */
VF_FN vi widen(const int8_t *b)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)b));
}
VF_FN vi broadcast(const int8_t *a)
{
    return vf_bits(_mm256_broadcast_ss((const float *)(const void *)a));
}
VF_FN void narrow(int8_t *b, vi y)
{
    __m128i low = _mm256_castsi256_si128(y), high = _mm256_extracti128_si256(y, 1);
    _mm_storeu_si128((__m128i *)(void *)b, _mm_packs_epi16(low, high));
}
#define Q(name)             name##_avx2
#define Q_KERNEL            attn__gemm_kernel_int8_avx2
#define Q_NEEDS             ATTN__CPU_ANY
#define Q_ROWS              6
#define Q_VECTORS           2
#define Q_STEP              2
#define q_load_b            widen
#define q_dot(sum, a, i, y) vi_add(sum, _mm256_madd_epi16(broadcast(a + 4 * (i)), y))
#define q_move_a            widen
#define q_move_b            widen
#define q_store_b           narrow
#include "gemm/kernel_int8_tmpl.h"
#include "simd/isa_end.h"
#endif

#if ATTN__COMPILES_AVX_VNNI
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avxvnni,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avxvnni,avx2,fma")
#endif
#define VF_REGION
/* Adds 128 to numbers of B, because vpdpbusd needs unsigned bytes as one operand. */
VF_FN vi with_128(const int8_t *x)
{
    return vi_xor(vi_load(x), vi_set1((int32_t)0x80808080));
}
#define Q(name)             name##_avx_vnni
#define Q_KERNEL            attn__gemm_kernel_int8_avx_vnni
#define Q_NEEDS             ATTN__CPU_AVX_VNNI
#define Q_ROWS              6
#define Q_VECTORS           2
#define Q_STEP              4
#define q_load_b            vi_load
#define q_dot(sum, a, i, y) _mm256_dpbusd_avx_epi32(sum, y, broadcast(a + 4 * (i)))
#define q_excess(sum, x)    _mm256_dpbusd_avx_epi32(sum, vi_set1((int32_t)0x80808080), x)
#define q_move_a            vi_load
#define q_move_b            with_128
#define q_store_b           vi_store
#include "gemm/kernel_int8_tmpl.h"
#include "simd/isa_end.h"
#endif
