/* SPDX-License-Identifier: MIT
 *
 * kernel_int8_avx512.c - the micro-kernels of kernel_int8_tmpl.h for AVX-512, with and without VNNI.
 */
#include "gemm/kernel.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"

/* Converts bytes to 16-bit integers, because vpmaddwd multiplies and adds pairs of them. */
VF_FN vi widen(const int8_t *b)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)b));
}
VF_FN vi broadcast(const int8_t *a)
{
    int32_t numbers;
    memcpy(&numbers, a, sizeof numbers);
    return vi_set1(numbers);
}
VF_FN void narrow(int8_t *b, vi y)
{
    _mm256_storeu_si256((__m256i *)(void *)b, _mm512_cvtepi16_epi8(y));
}
#define Q(name)             name##_avx512
#define Q_KERNEL            attn__gemm_kernel_int8_avx512
#define Q_NEEDS             ATTN__CPU_ANY
#define Q_ROWS              12
#define Q_VECTORS           2
#define Q_STEP              2
#define q_load_b            widen
#define q_dot(sum, a, i, y) vi_add(sum, _mm512_madd_epi16(broadcast(a + 4 * (i)), y))
#define q_move_a            widen
#define q_move_b            widen
#define q_store_b           narrow
#include "gemm/kernel_int8_tmpl.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
#define VF_REGION
/* Adds 128 to numbers of B, because vpdpbusd needs unsigned bytes as one operand. */
VF_FN vi with_128(const int8_t *x)
{
    return vi_xor(vi_load(x), vi_set1((int32_t)0x80808080));
}
#define Q(name)             name##_avx512_vnni
#define Q_KERNEL            attn__gemm_kernel_int8_avx512_vnni
#define Q_NEEDS             ATTN__CPU_AVX512_VNNI
#define Q_ROWS              12
#define Q_VECTORS           2
#define Q_STEP              4
#define q_load_b            vi_load
#define q_dot(sum, a, i, y) _mm512_dpbusd_epi32(sum, y, broadcast(a + 4 * (i)))
#define q_excess(sum, x)    _mm512_dpbusd_epi32(sum, vi_set1((int32_t)0x80808080), x)
#define q_move_a            vi_load
#define q_move_b            with_128
#define q_store_b           vi_store
#include "gemm/kernel_int8_tmpl.h"
#include "simd/isa_end.h"
#endif
