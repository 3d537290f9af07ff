/* SPDX-License-Identifier: MIT
 *
 * vec_double.h - the vector operations that the row kernels use, for one double.  simd/vec.h documents them.
 */
#ifndef ATTN_KERNELS_VEC_DOUBLE_H
#define ATTN_KERNELS_VEC_DOUBLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define VF_DOUBLE
#define VF_LANES      1
#define VF_ISA        ATTN_ISA_SCALAR
#define VF_NAME(name) name##_double
typedef double vf;
typedef uint32_t vi;
typedef bool vm;
#define VF_UNROLL

#define VF_FN static inline __attribute__((always_inline))

VF_FN vf vf_load(const double *p)
{
    return *p;
}
VF_FN void vf_store(double *p, vf x)
{
    *p = x;
}
VF_FN void vf_stream(double *p, vf x)
{
    vf_store(p, x);
}
VF_FN void vf_stream_end(void)
{
}
VF_FN vf vf_load_part(const double *p, int n)
{
    return n ? *p : 0;
}
VF_FN void vf_store_part(double *p, vf x, int n)
{
    if (n)
        *p = x;
}
VF_FN vf vf_set1(double x)
{
    return x;
}
VF_FN vf vf_zero(void)
{
    return 0;
}
VF_FN vm vm_first(int n)
{
    return n > 0;
}
VF_FN vf vf_add(vf a, vf b)
{
    return a + b;
}
VF_FN vf vf_sub(vf a, vf b)
{
    return a - b;
}
VF_FN vf vf_mul(vf a, vf b)
{
    return a * b;
}
VF_FN vf vf_div(vf a, vf b)
{
    return a / b;
}
VF_FN vf vf_sqrt(vf a)
{
    return sqrt(a);
}
VF_FN vf vf_below(vf a, vf l, vf x)
{
    return a < l ? 0 : x;
}
VF_FN vf vf_mul_below(vf a, vf l, vf b)
{
    return a < l ? 0 : a * b;
}
VF_FN vf vf_abs(vf a)
{
    return fabs(a);
}
VF_FN vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
VF_FN vf vf_fnma(vf a, vf b, vf c)
{
    return c - a * b;
}
VF_FN vf vf_max(vf a, vf b)
{
    return a > b ? a : b;
}
VF_FN vf vf_min(vf a, vf b)
{
    return a < b ? a : b;
}
VF_FN vm vf_lt(vf a, vf b)
{
    return a < b;
}
VF_FN vf vf_select(vm m, vf a, vf b)
{
    return m ? a : b;
}
VF_FN double vf_sum(vf x)
{
    return x;
}
VF_FN double vf_largest(vf x)
{
    return x;
}
VF_FN vi vi_set1(int32_t x)
{
    return (uint32_t)x;
}
VF_FN vi vi_load(const void *p)
{
    return *(const uint32_t *)p;
}
VF_FN vi vi_add(vi a, vi b)
{
    return a + b;
}
VF_FN vi vi_mul(vi a, vi b)
{
    return a * b;
}
VF_FN vi vi_xor(vi a, vi b)
{
    return a ^ b;
}
#define vi_shr(x, n) ((x) >> (n))
VF_FN vm vi_ltu(vi a, vi b)
{
    return a < b;
}

#endif
