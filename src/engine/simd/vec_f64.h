/* SPDX-License-Identifier: MIT
 *
 * vec_f64.h - vectors of double for the instruction set whose vec_*.h was included before. It defines VD_LANES and
 * vd_load, vd_store, vd_load_part, vd_store_part, vd_set1, vd_zero, vd_add and vd_fma. They work as vec.h describes for
 * float.
 */
#ifndef ATTN_SIMD_VEC_F64_H
#define ATTN_SIMD_VEC_F64_H

#define VD_LANES (VF_LANES > 4 ? VF_LANES / 2 : 2)

#if defined(__x86_64__) && VF_LANES == 16
typedef __m512d vd;
VF_FN vd vd_load(const double *p) { return _mm512_loadu_pd(p); }
VF_FN void vd_store(double *p, vd x) { _mm512_storeu_pd(p, x); }
VF_FN vd vd_load_part(const double *p, int n) { return _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p); }
VF_FN void vd_store_part(double *p, vd x, int n) { _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), x); }
VF_FN vd vd_set1(double x) { return _mm512_set1_pd(x); }
VF_FN vd vd_zero(void) { return _mm512_setzero_pd(); }
VF_FN vd vd_add(vd a, vd b) { return _mm512_add_pd(a, b); }
VF_FN vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }

#elif defined(__x86_64__) && VF_LANES == 8
typedef __m256d vd;
VF_FN vd vd_load(const double *p) { return _mm256_loadu_pd(p); }
VF_FN void vd_store(double *p, vd x) { _mm256_storeu_pd(p, x); }
VF_FN __m256i vd_first(int n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
VF_FN vd vd_load_part(const double *p, int n) { return _mm256_maskload_pd(p, vd_first(n)); }
VF_FN void vd_store_part(double *p, vd x, int n) { _mm256_maskstore_pd(p, vd_first(n), x); }
VF_FN vd vd_set1(double x) { return _mm256_set1_pd(x); }
VF_FN vd vd_zero(void) { return _mm256_setzero_pd(); }
VF_FN vd vd_add(vd a, vd b) { return _mm256_add_pd(a, b); }
VF_FN vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }

#else /* two lanes: NEON's vectors, or vectors that the compiler maps to the target */
typedef double vd __attribute__((vector_size(16)));
VF_FN vd vd_load(const double *p)
{
    vd x;
    memcpy(&x, p, sizeof x);
    return x;
}
VF_FN void vd_store(double *p, vd x) { memcpy(p, &x, sizeof x); }
VF_FN vd vd_load_part(const double *p, int n) { return (vd){n > 0 ? p[0] : 0, n > 1 ? p[1] : 0}; }
VF_FN void vd_store_part(double *p, vd x, int n)
{
    for (int i = 0; i < n && i < 2; i++)
        p[i] = x[i];
}
VF_FN vd vd_set1(double x) { return (vd){x, x}; }
VF_FN vd vd_zero(void) { return (vd){0, 0}; }
VF_FN vd vd_add(vd a, vd b) { return a + b; }
#if defined(__aarch64__) && VF_REGISTERS == 32
VF_FN vd vd_fma(vd a, vd b, vd c) { return (vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
#else
VF_FN vd vd_fma(vd a, vd b, vd c) { return a * b + c; }
#endif
#endif

#endif
