/* SPDX-License-Identifier: MIT
 *
 * vec_neon.h - the vector operations (vec.h) on NEON, which every 64-bit Arm has: 4 lanes.
 */
#ifndef ATTN_SIMD_VEC_H
#define ATTN_SIMD_VEC_H

#include "simd/vec.h"

#include <arm_neon.h>

#define VF_LANES      4
#define VF_REGISTERS  32
#define VF_ISA        ATTN_ISA_NEON
#define VF_NAME(name) name##_neon
typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm; /* each lane is 0 or all ones */

#define VF_FN static inline __attribute__((always_inline))

VF_FN vf vf_load(const float *p) { return vld1q_f32(p); }
VF_FN vf vf_load_once(const float *p)
{
    vf x = vf_load(p);
    __asm__("" : "+w"(x));
    return x;
}
VF_FN void vf_store(float *p, vf x) { vst1q_f32(p, x); }
VF_FN void vf_stream(float *p, vf x) { vf_store(p, x); }
VF_FN void vf_stream_end(void) {}
/* Without this, gcc loads early, lacks registers, and stores some of 24 sums to memory in every iteration. */
VF_FN void vf_in_order(void) { __asm__ volatile("" ::: "memory"); }
VF_FN vf vf_set1(float x) { return vdupq_n_f32(x); }
VF_FN vf vf_zero(void) { return vdupq_n_f32(0.0f); }
VF_FN vm vm_first(int n)
{
    const int32_t index[4] = {0, 1, 2, 3};
    return vcltq_s32(vld1q_s32(index), vdupq_n_s32(n));
}
/* Loads the first n lanes. It does not call memcpy, because a call would overwrite half of the vector registers. */
VF_FN vf vf_load_part(const float *p, int n)
{
    if (n >= 4)
        return vld1q_f32(p);
    vf x = n == 3 ? vsetq_lane_f32(p[2], vf_zero(), 2) : vf_zero();
    if (n >= 2)
        return vcombine_f32(vld1_f32(p), vget_high_f32(x));
    return n == 1 ? vsetq_lane_f32(p[0], x, 0) : x;
}
VF_FN void vf_store_part(float *p, vf x, int n)
{
    if (n >= 4)
        vst1q_f32(p, x);
    else if (n >= 2)
        vst1_f32(p, vget_low_f32(x));
    if (n == 3)
        vst1q_lane_f32(p + 2, x, 2);
    else if (n == 1)
        vst1q_lane_f32(p, x, 0);
}

VF_FN vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
VF_FN vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
VF_FN vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
VF_FN vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
VF_FN vf vf_sqrt(vf x) { return vsqrtq_f32(x); }
VF_FN vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
VF_FN vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
/* Returns the maximum. vmaxq is not used, because it returns NaN if either number is NaN. */
VF_FN vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
VF_FN vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
VF_FN vf vf_floor(vf x) { return vrndmq_f32(x); }
VF_FN vf vf_abs(vf x) { return vabsq_f32(x); }
VF_FN vf vf_from_bits(vi x) { return vreinterpretq_f32_s32(x); }
VF_FN vi vf_bits(vf x) { return vreinterpretq_s32_f32(x); }

#include "simd/scale_range.h"

VF_FN vf vf_fraction(vf x)
{
    x = vf_scale_range(x);
    return vsubq_f32(x, vrndmq_f32(x));
}
VF_FN vf vf_scale2(vf p, vf x)
{
    vi n = vaddq_s32(vcvtmq_s32_f32(vf_scale_range(x)), vdupq_n_s32(127));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(n, 23)));
}

VF_FN vm vf_lt(vf a, vf b) { return vcltq_f32(a, b); }
VF_FN vm vf_eq(vf a, vf b) { return vceqq_f32(a, b); }
VF_FN vf vf_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
VF_FN vf vf_below(vf a, vf l, vf x)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), vcltq_f32(a, l)));
}
VF_FN vf vf_mul_below(vf a, vf l, vf b) { return vf_mul(vf_below(a, l, a), b); }
VF_FN bool vm_any(vm m) { return vmaxvq_u32(m) != 0; }
VF_FN vm vm_and(vm a, vm b) { return vandq_u32(a, b); }
VF_FN vm vm_or(vm a, vm b) { return vorrq_u32(a, b); }
VF_FN vm vm_not(vm a) { return vmvnq_u32(a); }

VF_FN vi vi_load(const void *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
VF_FN void vi_store(void *p, vi x) { vst1q_u8(p, vreinterpretq_u8_s32(x)); }
VF_FN vi vi_load_u8(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
VF_FN vi vi_set1(int32_t x) { return vdupq_n_s32(x); }
VF_FN vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
VF_FN vi vi_sub(vi a, vi b) { return vsubq_s32(a, b); }
VF_FN vi vi_mul(vi a, vi b) { return vmulq_s32(a, b); }
VF_FN vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
VF_FN vi vi_xor(vi a, vi b) { return veorq_s32(a, b); }
#define vi_shr(x, n) vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), n))
#define vi_shl(x, n) vshlq_n_s32(x, n)
VF_FN vm vi_lt(vi a, vi b) { return vcltq_s32(a, b); }
VF_FN vm vi_ltu(vi a, vi b) { return vcltq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)); }
VF_FN vf vf_from_int(vi x) { return vcvtq_f32_s32(x); }

VF_FN vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
VF_FN vf vf_load_bf16_part(const uint16_t *p, int n)
{
    uint16_t whole[4] = {0};
    memcpy(whole, p, (size_t)n * sizeof *p);
    return vf_load_bf16(whole);
}
VF_FN void vf_store_bf16(uint16_t *p, vf x)
{
    uint32x4_t bits = vreinterpretq_u32_f32(x), lsb = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t even = vaddq_u32(bits, vaddq_u32(lsb, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x00400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), even, quiet), 16));
}

VF_FN void vf_stream_bf16(uint16_t *p, vf x) { vf_store_bf16(p, x); }
VF_FN void vf_store_bf16_part(uint16_t *p, vf x, int n)
{
    uint16_t whole[4];
    vf_store_bf16(whole, x);
    memcpy(p, whole, (size_t)n * sizeof *p);
}

VF_FN float vf_sum(vf x) { return vaddvq_f32(x); }
VF_FN float vf_largest(vf x) { return vmaxvq_f32(x); }

VF_FN void vf_transpose(vf r[4])
{
    float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

#endif
