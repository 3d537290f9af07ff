/* SPDX-License-Identifier: MIT
 *
 * kernel_int8_neon.c - the micro-kernels of kernel_int8_tmpl.h for NEON, with and without its dot products.
 */
#include "gemm/kernel.h"
#if defined(__aarch64__)
#include "simd/vec_neon.h"

/* Copies four adjacent numbers of a row of A into each 32-bit lane of the result. */
VF_FN int8x16_t broadcast(const int8_t *a)
{
    return vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(const void *)a));
}
/* Adds to each sum the dot product of four numbers. The sum of two products fits in 16 bits, because it is at most 2^15
 * - 510. */
VF_FN vi dot(vi sum, const int8_t *a, vi y)
{
    int8x16_t x = broadcast(a), b = vreinterpretq_s8_s32(y);
    int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(b)), high = vmull_high_s8(x, b);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
#define Q(name)             name##_neon
#define Q_KERNEL            attn__gemm_kernel_int8_neon
#define Q_NEEDS             ATTN__CPU_ANY
#define Q_ROWS              8
#define Q_VECTORS           2
#define Q_STEP              4
#define q_load_b            vi_load
#define q_dot(sum, a, i, y) dot(sum, a + 4 * (i), y)
#define q_move_a            vi_load
#define q_move_b            vi_load
#define q_store_b           vi_store
#include "gemm/kernel_int8_tmpl.h"
#endif

#if ATTN__COMPILES_NEON_MATRIX
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#define VF_REGION
/* Adds to each sum the dot product with row i of A. Four rows of A share a vector, and the instruction reads one lane
 * of it. */
VF_FN vi dot_of_row(vi sum, const int8_t *a, int i, vi y)
{
    int8x16_t rows = vld1q_s8(a + i / 4 * 16), b = vreinterpretq_s8_s32(y);
    switch (i % 4) {
    case 0:
        return vdotq_laneq_s32(sum, b, rows, 0);
    case 1:
        return vdotq_laneq_s32(sum, b, rows, 1);
    case 2:
        return vdotq_laneq_s32(sum, b, rows, 2);
    default:
        return vdotq_laneq_s32(sum, b, rows, 3);
    }
}
#define Q(name)   name##_neon_dot
#define Q_KERNEL  attn__gemm_kernel_int8_neon_dot
#define Q_NEEDS   ATTN__CPU_DOT_PRODUCT
#define Q_ROWS    8
#define Q_VECTORS 3
#define Q_STEP    4
#define q_load_b  vi_load
#define q_dot     dot_of_row
#define q_move_a  vi_load
#define q_move_b  vi_load
#define q_store_b vi_store
#include "gemm/kernel_int8_tmpl.h"
#include "simd/isa_end.h"
#endif
