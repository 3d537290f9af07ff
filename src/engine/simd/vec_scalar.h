/* SPDX-License-Identifier: MIT
 *
 * vec_scalar.h - the vector operations (vec.h) in plain C: 4 lanes, which the compiler maps to the target's vectors. A
 * multiply-add rounds twice, because rounding once would need a function call on machines without the instruction.
 */
#ifndef ATTN_SIMD_VEC_H
#define ATTN_SIMD_VEC_H

#include "simd/vec.h"

#define VF_LANES      4
#define VF_REGISTERS  16
#define VF_ISA        ATTN_ISA_SCALAR
#define VF_NAME(name) name##_scalar
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef int32_t vm __attribute__((vector_size(16))); /* each lane is 0 or -1 */

#define VF_FN static inline __attribute__((always_inline))

VF_FN vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
VF_FN vf vf_load_once(const float *p) { return vf_load(p); }

VF_FN void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
VF_FN void vf_stream(float *p, vf x) { vf_store(p, x); }
VF_FN void vf_stream_end(void) {}
VF_FN void vf_in_order(void) {}
VF_FN vf vf_set1(float x) { return (vf){x, x, x, x}; }
VF_FN vf vf_zero(void) { return (vf){0}; }
VF_FN vm vm_first(int n) { return (vi){0, 1, 2, 3} < (vi){n, n, n, n}; }
VF_FN vf vf_load_part(const float *p, int n)
{
    vf x = {0};
    for (int i = 0; i < n; i++)
        x[i] = p[i];
    return x;
}
VF_FN void vf_store_part(float *p, vf x, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = x[i];
}

VF_FN vf vf_from_bits(vi x) { return (vf)x; }
VF_FN vi vf_bits(vf x) { return (vi)x; }
VF_FN vf vf_select(vm m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
VF_FN vf vf_add(vf a, vf b) { return a + b; }
VF_FN vf vf_sub(vf a, vf b) { return a - b; }
VF_FN vf vf_mul(vf a, vf b) { return a * b; }
VF_FN vf vf_div(vf a, vf b) { return a / b; }
VF_FN vf vf_sqrt(vf x) { return (vf){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])}; }
VF_FN vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
VF_FN vf vf_fnma(vf a, vf b, vf c) { return c - a * b; }
VF_FN vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
VF_FN vf vf_min(vf a, vf b) { return vf_select(a < b, a, b); }
VF_FN vf vf_abs(vf x) { return (vf)((vi)x & (vi){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}); }
VF_FN vm vf_lt(vf a, vf b) { return a < b; }
VF_FN vm vf_eq(vf a, vf b) { return a == b; }
VF_FN vf vf_below(vf a, vf l, vf x) { return (vf)(~(a < l) & (vi)x); }
VF_FN vf vf_mul_below(vf a, vf l, vf b) { return vf_mul(vf_below(a, l, a), b); }
VF_FN bool vm_any(vm m) { return (m[0] | m[1] | m[2] | m[3]) != 0; }
VF_FN vm vm_and(vm a, vm b) { return a & b; }
VF_FN vm vm_or(vm a, vm b) { return a | b; }
VF_FN vm vm_not(vm a) { return ~a; }
VF_FN vf vf_from_int(vi x) { return __builtin_convertvector(x, vf); }

/* Returns floor(x). The conversion to int rounds towards zero, so negative fractions are corrected. Floats of 2^23 and
 * more are integers already. NaN stays NaN. */
VF_FN vf vf_floor(vf x)
{
    vm small = vf_abs(x) < vf_set1(0x1p23f);
    vf t = vf_from_int(__builtin_convertvector(vf_select(small, x, vf_zero()), vi));
    t = t - (vf)((t > x) & (vi)vf_set1(1.0f));
    return vf_select(small, t, x);
}
#include "simd/scale_range.h"

VF_FN vf vf_fraction(vf x)
{
    x = vf_scale_range(x);
    return x - vf_floor(x);
}
VF_FN vf vf_scale2(vf p, vf x)
{
    vf whole = vf_floor(vf_scale_range(x));
    /* NOLINTNEXTLINE(misc-redundant-expression): false for NaN */
    vi n = __builtin_convertvector(vf_select(whole == whole, whole, vf_zero()), vi);
    return p * (vf)((n + 127) << 23);
}

VF_FN vi vi_load(const void *p)
{
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}
VF_FN void vi_store(void *p, vi x) { memcpy(p, &x, sizeof x); }
VF_FN vi vi_load_u8(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
VF_FN vi vi_set1(int32_t x) { return (vi){x, x, x, x}; }
VF_FN vi vi_add(vi a, vi b) { return (vi)((vu)a + (vu)b); }
VF_FN vi vi_sub(vi a, vi b) { return (vi)((vu)a - (vu)b); }
VF_FN vi vi_mul(vi a, vi b) { return (vi)((vu)a * (vu)b); }
VF_FN vi vi_and(vi a, vi b) { return a & b; }
VF_FN vi vi_xor(vi a, vi b) { return a ^ b; }
#define vi_shr(x, n) ((vi)((vu)(x) >> (n)))
#define vi_shl(x, n) ((vi)((vu)(x) << (n)))
VF_FN vm vi_lt(vi a, vi b) { return a < b; }
VF_FN vm vi_ltu(vi a, vi b) { return (vu)a < (vu)b; }

VF_FN vf vf_load_bf16_part(const uint16_t *p, int n)
{
    vi x = {0};
    for (int i = 0; i < n; i++)
        x[i] = (int32_t)((uint32_t)p[i] << 16);
    return (vf)x;
}
VF_FN vf vf_load_bf16(const uint16_t *p) { return vf_load_bf16_part(p, 4); }

VF_FN void vf_store_bf16_part(uint16_t *p, vf x, int n)
{
    vu bits = (vu)x, even = bits + ((bits >> 16) & 1) + 0x7fff;
    /* NOLINTNEXTLINE(misc-redundant-expression): false for NaN */
    vu rounded = (vu)vf_select(x == x, (vf)even, (vf)(bits | 0x00400000)) >> 16;
    for (int i = 0; i < n; i++)
        p[i] = (uint16_t)rounded[i];
}
VF_FN void vf_store_bf16(uint16_t *p, vf x) { vf_store_bf16_part(p, x, 4); }
VF_FN void vf_stream_bf16(uint16_t *p, vf x) { vf_store_bf16(p, x); }

VF_FN float vf_sum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }
VF_FN float vf_largest(vf x)
{
    float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
}

VF_FN void vf_transpose(vf r[4])
{
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++) {
            float swap = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = swap;
        }
    }
}

#endif
