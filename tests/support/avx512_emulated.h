/* SPDX-License-Identifier: MIT
 *
 * avx512_emulated.h - AVX-512 in pairs of AVX2 registers and loops, for the intrinsics that attn uses.
 * scripts/test-emulated renames _mm512_ to emu512_ in the sources. The emulation is slow and tests only correctness.
 */
#ifndef EMU512_H
#define EMU512_H
/* clang-format off */
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define E static inline __attribute__((always_inline, unused))
typedef int32_t emu_s32 __attribute__((vector_size(64)));
typedef uint32_t emu_u32 __attribute__((vector_size(64)));
typedef int16_t emu_s16 __attribute__((vector_size(64)));
typedef uint16_t emu_u16 __attribute__((vector_size(64)));
typedef int8_t emu_s8 __attribute__((vector_size(64)));
typedef uint8_t emu_u8 __attribute__((vector_size(64)));
typedef float emu_f __attribute__((vector_size(64)));
typedef double emu_d __attribute__((vector_size(64)));
typedef union emu512 {
    __m512 f;
    __m512d d;
    __m512i i;
    emu_s32 s32;
    emu_u32 u32;
    emu_s16 s16;
    emu_u16 u16;
    emu_s8 s8;
    emu_u8 u8;
    __m256 hf[2];
    __m256d hd[2];
    __m256i hi[2];
    float F[16];
    double D[8];
    int32_t S32[16];
    uint32_t U32[16];
    int16_t S16[32];
    uint16_t U16[32];
    int8_t S8[64];
    uint8_t U8[64];
    int64_t S64[8];
} emu512;

/* A masked lane's memory is neither read nor written. */
#define EMU_ALIGNED(p)                                                                                                 \
    do {                                                                                                               \
        if ((uintptr_t)(p) % 64)                                                                                       \
            __builtin_trap();                                                                                          \
    } while (0)
#define LOAD(name, type, check)                                                                                        \
    E type emu512_##name(const void *p)                                                                                \
    {                                                                                                                  \
        type r;                                                                                                        \
        check;                                                                                                         \
        memcpy(&r, p, 64);                                                                                             \
        return r;                                                                                                      \
    }
#define STORE(name, type, check)                                                                                       \
    E void emu512_##name(void *p, type x)                                                                              \
    {                                                                                                                  \
        check;                                                                                                         \
        memcpy(p, &x, 64);                                                                                             \
    }
LOAD(loadu_ps, __m512, )
LOAD(loadu_pd, __m512d, )
LOAD(loadu_si512, __m512i, )
LOAD(load_ps, __m512, EMU_ALIGNED(p))
LOAD(load_si512, __m512i, EMU_ALIGNED(p))
STORE(storeu_ps, __m512, )
STORE(storeu_pd, __m512d, )
STORE(storeu_si512, __m512i, )
STORE(store_ps, __m512, EMU_ALIGNED(p))
STORE(store_si512, __m512i, EMU_ALIGNED(p))
STORE(stream_ps, __m512, EMU_ALIGNED(p))
static __attribute__((noinline, unused)) void emu_part_load(void *r, uint64_t m, const void *p, int size)
{
    memset(r, 0, 64);
    for (int i = 0; i < 64 / size; i++)
        if (m >> i & 1)
            memcpy((char *)r + i * size, (const char *)p + i * size, (size_t)size);
}
static __attribute__((noinline, unused)) void emu_part_store(void *p, uint64_t m, const void *r, int size)
{
    for (int i = 0; i < 64 / size; i++)
        if (m >> i & 1)
            memcpy((char *)p + i * size, (const char *)r + i * size, (size_t)size);
}
#define LOAD_PART(name, type, mask, size, field)                                                                       \
    E type name(mask m, const void *p)                                                                                 \
    {                                                                                                                  \
        emu512 r;                                                                                                      \
        emu_part_load(&r, m, p, size);                                                                                 \
        return r.field;                                                                                                \
    }
#define STORE_PART(name, type, mask, size)                                                                             \
    E void name(void *p, mask m, type x)                                                                               \
    {                                                                                                                  \
        emu_part_store(p, m, &x, size);                                                                                \
    }
LOAD_PART(emu512_maskz_loadu_ps, __m512, __mmask16, 4, f)
LOAD_PART(emu512_maskz_loadu_pd, __m512d, __mmask8, 8, d)
LOAD_PART(emu512_maskz_loadu_epi16, __m512i, __mmask32, 2, i)
LOAD_PART(emu512_maskz_loadu_epi8, __m512i, __mmask64, 1, i)
LOAD_PART(emu256_maskz_loadu_epi16, __m256i, __mmask16, 2, hi[0])
STORE_PART(emu512_mask_storeu_ps, __m512, __mmask16, 4)
STORE_PART(emu512_mask_storeu_pd, __m512d, __mmask8, 8)
STORE_PART(emu256_mask_storeu_epi16, __m256i, __mmask16, 2)

#define SET1(name, type, of, h, field)                                                                                 \
    E type emu512_set1_##name(of x)                                                                                    \
    {                                                                                                                  \
        emu512 r;                                                                                                      \
        r.h[0] = r.h[1] = _mm256_set1_##name(x);                                                                       \
        return r.field;                                                                                                \
    }
SET1(ps, __m512, float, hf, f)
SET1(pd, __m512d, double, hd, d)
SET1(epi32, __m512i, int, hi, i)
SET1(epi16, __m512i, short, hi, i)
SET1(epi8, __m512i, char, hi, i)
E __m512 emu512_setzero_ps(void)
{
    return emu512_set1_ps(0.0f);
}
E __m512d emu512_setzero_pd(void)
{
    return emu512_set1_pd(0.0);
}
E __m512i emu512_setzero_si512(void)
{
    return emu512_set1_epi32(0);
}
E __m512i emu512_set_epi64(long long h, long long g, long long f, long long e, long long d, long long c, long long b,
                           long long a)
{
    emu512 r = {.S64 = {a, b, c, d, e, f, g, h}};
    return r.i;
}
E __m512i emu512_set_epi32(int p, int o, int n, int m, int l, int k, int j, int i, int h, int g, int f, int e, int d,
                           int c, int b, int a)
{
    emu512 r = {.S32 = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p}};
    return r.i;
}
#define CAST(name, from, to)                                                                                           \
    E to emu512_cast##name(from x)                                                                                     \
    {                                                                                                                  \
        return (to)x;                                                                                                  \
    }
CAST(si512_ps, __m512i, __m512)
CAST(ps_si512, __m512, __m512i)
CAST(ps_pd, __m512, __m512d)
CAST(pd_ps, __m512d, __m512)
E __m256 emu512_castps512_ps256(__m512 x)
{
    emu512 r = {.f = x};
    return r.hf[0];
}
E __m256i emu512_castsi512_si256(__m512i x)
{
    emu512 r = {.i = x};
    return r.hi[0];
}
E __m512 emu512_castps256_ps512(__m256 x)
{
    emu512 r;
    r.hf[0] = x, r.hf[1] = _mm256_set1_ps(NAN);
    return r.f;
}
E __m512 emu512_insertf32x8(__m512 x, __m256 y, int at)
{
    emu512 r = {.f = x};
    r.hf[at] = y;
    return r.f;
}
E __m256 emu512_extractf32x8_ps(__m512 x, int at)
{
    emu512 r = {.f = x};
    return r.hf[at];
}
E __m256i emu512_extracti64x4_epi64(__m512i x, int at)
{
    emu512 r = {.i = x};
    return r.hi[at];
}

#define TWO(name, type, field, h)                                                                                      \
    E type emu512_##name(type a, type b)                                                                               \
    {                                                                                                                  \
        emu512 x = {.field = a}, y = {.field = b}, r;                                                                  \
        for (int k = 0; k < 2; k++)                                                                                    \
            r.h[k] = _mm256_##name(x.h[k], y.h[k]);                                                                    \
        return r.field;                                                                                                \
    }
#define TWO_BITS(op)                                                                                                   \
    E __m512i emu512_##op##_si512(__m512i a, __m512i b)                                                                \
    {                                                                                                                  \
        emu512 x = {.i = a}, y = {.i = b}, r;                                                                          \
        for (int k = 0; k < 2; k++)                                                                                    \
            r.hi[k] = _mm256_##op##_si256(x.hi[k], y.hi[k]);                                                           \
        return r.i;                                                                                                    \
    }
#define THREE(name, type, field, h)                                                                                    \
    E type emu512_##name(type a, type b, type c)                                                                       \
    {                                                                                                                  \
        emu512 x = {.field = a}, y = {.field = b}, z = {.field = c}, r;                                                \
        for (int k = 0; k < 2; k++)                                                                                    \
            r.h[k] = _mm256_##name(x.h[k], y.h[k], z.h[k]);                                                            \
        return r.field;                                                                                                \
    }
#define EACH(name, type, field, h, from, from_field, from_h)                                                           \
    E type emu512_##name(from a)                                                                                       \
    {                                                                                                                  \
        emu512 x = {.from_field = a}, r;                                                                               \
        for (int k = 0; k < 2; k++)                                                                                    \
            r.h[k] = _mm256_##name(x.from_h[k]);                                                                       \
        return r.field;                                                                                                \
    }
#define SHIFT(name)                                                                                                    \
    E __m512i emu512_##name(__m512i a, unsigned n)                                                                     \
    {                                                                                                                  \
        emu512 x = {.i = a}, r;                                                                                        \
        for (int k = 0; k < 2; k++)                                                                                    \
            r.hi[k] = _mm256_##name(x.hi[k], (int)n);                                                                  \
        return r.i;                                                                                                    \
    }
TWO(add_ps, __m512, f, hf)
TWO(sub_ps, __m512, f, hf)
TWO(mul_ps, __m512, f, hf)
TWO(div_ps, __m512, f, hf)
TWO(max_ps, __m512, f, hf)
TWO(min_ps, __m512, f, hf)
TWO(unpacklo_ps, __m512, f, hf)
TWO(unpackhi_ps, __m512, f, hf)
TWO(unpacklo_pd, __m512d, d, hd)
TWO(unpackhi_pd, __m512d, d, hd)
TWO(add_pd, __m512d, d, hd)
TWO(mul_pd, __m512d, d, hd)
TWO(sub_pd, __m512d, d, hd)
TWO(add_epi32, __m512i, i, hi)
TWO(sub_epi32, __m512i, i, hi)
TWO(mullo_epi32, __m512i, i, hi)
TWO_BITS(and)
TWO_BITS(or)
TWO_BITS(xor)
TWO(max_epu32, __m512i, i, hi)
TWO(min_epu8, __m512i, i, hi)
TWO(sad_epu8, __m512i, i, hi)
TWO(madd_epi16, __m512i, i, hi)
TWO(add_epi8, __m512i, i, hi)
TWO(sub_epi8, __m512i, i, hi)
THREE(fmadd_ps, __m512, f, hf)
THREE(fnmadd_ps, __m512, f, hf)
THREE(fmadd_pd, __m512d, d, hd)
EACH(sqrt_ps, __m512, f, hf, __m512, f, hf)
EACH(abs_epi8, __m512i, i, hi, __m512i, i, hi)
EACH(cvtepi32_ps, __m512, f, hf, __m512i, i, hi)
EACH(cvtps_epi32, __m512i, i, hi, __m512, f, hf)
SHIFT(slli_epi32)
SHIFT(srli_epi32)
E __m512 emu512_abs_ps(__m512 a)
{
    return (__m512)emu512_and_si512((__m512i)a, emu512_set1_epi32(0x7fffffff));
}
E __m512i emu512_cvtepu8_epi32(__m128i a)
{
    emu512 r;
    r.hi[0] = _mm256_cvtepu8_epi32(a), r.hi[1] = _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8));
    return r.i;
}
#define WIDEN(name)                                                                                                    \
    E __m512i emu512_##name(__m256i a)                                                                                 \
    {                                                                                                                  \
        emu512 r;                                                                                                      \
        r.hi[0] = _mm256_##name(_mm256_castsi256_si128(a)), r.hi[1] = _mm256_##name(_mm256_extracti128_si256(a, 1));   \
        return r.i;                                                                                                    \
    }
#define NARROW(name, n, to, from)                                                                                      \
    E __m256i emu512_##name(__m512i a)                                                                                 \
    {                                                                                                                  \
        emu512 x = {.i = a}, r;                                                                                        \
        for (int k = 0; k < n; k++)                                                                                    \
            r.to[k] = x.from[k];                                                                                       \
        return r.hi[0];                                                                                                \
    }
WIDEN(cvtepu16_epi32)
WIDEN(cvtepi8_epi16)
NARROW(cvtepi32_epi16, 16, U16, U32)
NARROW(cvtepi16_epi8, 32, U8, U16)

#define emu512_cmp_ps_mask(a, b, how) emu_cmp((a), (b), (how))
E __mmask16 emu_cmp(__m512 a, __m512 b, const int how)
{
    emu512 x = {.f = a}, y = {.f = b};
    unsigned low = 0, high = 0;
#define ONE(H)                                                                                                         \
    case H:                                                                                                            \
        low = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.hf[0], y.hf[0], H)),                                        \
        high = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.hf[1], y.hf[1], H));                                       \
        break;
    switch (how) {
        ONE(_CMP_LT_OQ)
        ONE(_CMP_LE_OQ)
        ONE(_CMP_EQ_OQ) ONE(_CMP_NEQ_UQ) ONE(_CMP_NLT_UQ) ONE(_CMP_UNORD_Q) ONE(_CMP_GT_OQ) ONE(_CMP_GE_OQ)
            ONE(_CMP_ORD_Q) ONE(_CMP_NLE_UQ) ONE(_CMP_NGT_UQ) ONE(_CMP_NGE_UQ) ONE(_CMP_NEQ_OQ) default
            : __builtin_trap();
    }
#undef ONE
    return (__mmask16)(low | high << 8);
}
E __mmask16 emu512_mask_cmp_ps_mask(__mmask16 m, __m512 a, __m512 b, const int how)
{
    return (__mmask16)(m & emu_cmp(a, b, how));
}
#define COMPARE(name, mask, n, lanes, op)                                                                              \
    E mask emu512_##name##_mask(__m512i a, __m512i b)                                                                  \
    {                                                                                                                  \
        emu512 x = {.i = a}, y = {.i = b};                                                                             \
        mask m = 0;                                                                                                    \
        for (int k = 0; k < n; k++)                                                                                    \
            m |= (mask)((mask)(x.lanes[k] op y.lanes[k]) << k);                                                        \
        return m;                                                                                                      \
    }
COMPARE(cmplt_epi32, __mmask16, 16, S32, <)
COMPARE(cmplt_epu32, __mmask16, 16, U32, <)
COMPARE(cmpeq_epi16, __mmask32, 32, U16, ==)
COMPARE(cmpge_epu8, __mmask64, 64, U8, >=)

E __m512i emu_wide32(__mmask16 m)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    emu512 r;
    r.hi[0] = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(m), bit), bit);
    r.hi[1] = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(m >> 8), bit), bit);
    return r.i;
}
/* Takes an element of b where `wide` is set, and of a elsewhere. */
E __m512i emu_choose(__m512i wide, __m512i a, __m512i b)
{
    emu512 w = {.i = wide}, x = {.i = a}, y = {.i = b}, r;
    for (int h = 0; h < 2; h++)
        r.hi[h] = _mm256_blendv_epi8(x.hi[h], y.hi[h], w.hi[h]);
    return r.i;
}
E __m512 emu512_mask_blend_ps(__mmask16 m, __m512 a, __m512 b)
{
    return (__m512)emu_choose(emu_wide32(m), (__m512i)a, (__m512i)b);
}
E __m512i emu512_mask_blend_epi32(__mmask16 m, __m512i a, __m512i b)
{
    return emu_choose(emu_wide32(m), a, b);
}
#define BLEND(name, mask, n, lanes)                                                                                    \
    E __m512i emu512_mask_blend_##name(mask m, __m512i a, __m512i b)                                                   \
    {                                                                                                                  \
        emu512 x = {.i = a}, y = {.i = b};                                                                             \
        for (int k = 0; k < n; k++)                                                                                    \
            x.lanes[k] = m >> k & 1 ? y.lanes[k] : x.lanes[k];                                                         \
        return x.i;                                                                                                    \
    }
BLEND(epi16, __mmask32, 32, U16)
BLEND(epi8, __mmask64, 64, U8)
E __m512 emu512_maskz_mov_ps(__mmask16 m, __m512 a)
{
    return (__m512)emu512_and_si512(emu_wide32(m), (__m512i)a);
}
E __m512 emu512_maskz_mul_ps(__mmask16 m, __m512 a, __m512 b)
{
    return emu512_maskz_mov_ps(m, emu512_mul_ps(a, b));
}
E __m512i emu512_mask_sub_epi8(__m512i src, __mmask64 m, __m512i a, __m512i b)
{
    return emu512_mask_blend_epi8(m, src, emu512_sub_epi8(a, b));
}

E __m512 emu512_roundscale_ps(__m512 a, const int how)
{
    if (how != (_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC))
        __builtin_trap();
    emu512 x = {.f = a}, r;
    for (int h = 0; h < 2; h++)
        r.hf[h] = _mm256_floor_ps(x.hf[h]);
    return r.f;
}
E __m512 emu512_reduce_ps(__m512 a, const int how)
{
    __m512 whole = emu512_roundscale_ps(a, how), r = emu512_sub_ps(a, whole);
    __mmask16 infinite = emu_cmp(emu512_abs_ps(a), emu512_set1_ps(INFINITY), _CMP_EQ_OQ);
    return emu512_maskz_mov_ps((__mmask16)~infinite, r);
}
static __attribute__((noinline, unused)) float emu_scalef(float p, float x)
{
    if (isnan(p) || isnan(x))
        return p + x;
    if (isinf(x))
        return x > 0 ? (p == 0 ? NAN : p * INFINITY) : (isinf(p) ? NAN : copysignf(0.0f, p));
    float n = floorf(x);
    if (n > 100000)
        n = 100000;
    if (n < -100000)
        n = -100000;
    return ldexpf(p, (int)n);
}
/* If 2^n is a normal number, one product gives the result with one rounding. */
E __m512 emu512_scalef_ps(__m512 p, __m512 x)
{
    __m512 n = emu512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __mmask16 usual =
        (__mmask16)(emu_cmp(n, emu512_set1_ps(-126.0f), _CMP_GE_OQ) & emu_cmp(n, emu512_set1_ps(127.0f), _CMP_LE_OQ));
    if (usual == 0xffff)
        return emu512_mul_ps(
            p, (__m512)emu512_slli_epi32(emu512_add_epi32(emu512_cvtps_epi32(n), emu512_set1_epi32(127)), 23));
    emu512 a = {.f = p}, b = {.f = x}, r;
    for (int i = 0; i < 16; i++)
        r.F[i] = emu_scalef(a.F[i], b.F[i]);
    return r.f;
}
E __m512 emu512_maskz_scalef_ps(__mmask16 m, __m512 p, __m512 x)
{
    return emu512_maskz_mov_ps(m, emu512_scalef_ps(p, emu512_maskz_mov_ps(m, x)));
}

/* Adds the two halves, and then sums the result in the same order as compilers do. */
E float emu512_reduce_add_ps(__m512 a)
{
    emu512 x = {.f = a};
    __m256 h = _mm256_add_ps(x.hf[1], x.hf[0]);
    __m128 q = _mm_add_ps(_mm256_extractf128_ps(h, 1), _mm256_castps256_ps128(h));
    float r[4];
    memcpy(r, &q, 16);
    float s0 = r[0] + r[2], s1 = r[1] + r[3];
    return s0 + s1;
}
E float emu512_reduce_max_ps(__m512 a)
{
    emu512 x = {.f = a};
    __m256 h = _mm256_max_ps(x.hf[1], x.hf[0]);
    __m128 q = _mm_max_ps(_mm256_extractf128_ps(h, 1), _mm256_castps256_ps128(h));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
E unsigned emu512_reduce_max_epu32(__m512i a)
{
    emu512 x = {.i = a};
    unsigned m = 0;
    for (int i = 0; i < 16; i++)
        m = x.U32[i] > m ? x.U32[i] : m;
    return m;
}
#define REDUCE_ADD(name, type, sum, n, lanes)                                                                          \
    E type emu512_reduce_add_##name(__m512i a)                                                                         \
    {                                                                                                                  \
        emu512 x = {.i = a};                                                                                           \
        sum s = 0;                                                                                                     \
        for (int k = 0; k < n; k++)                                                                                    \
            s += x.lanes[k];                                                                                           \
        return (type)s;                                                                                                \
    }
REDUCE_ADD(epi32, int, unsigned, 16, U32)
REDUCE_ADD(epi64, long long, long long, 8, S64)

#define PERMUTE(name, type, field, n, to, by)                                                                          \
    E type emu512_permutexvar_##name(__m512i index, type a)                                                            \
    {                                                                                                                  \
        emu512 at = {.i = index}, x = {.field = a}, r;                                                                 \
        for (int k = 0; k < n; k++)                                                                                    \
            r.to[k] = x.to[at.by[k] & (n - 1)];                                                                        \
        return r.field;                                                                                                \
    }
#define PERMUTE_TWO(name, type, field, n, to, by)                                                                      \
    E type emu512_permutex2var_##name(type a, __m512i index, type b)                                                   \
    {                                                                                                                  \
        emu512 at = {.i = index}, x = {.field = a}, y = {.field = b}, r;                                               \
        for (int k = 0; k < n; k++)                                                                                    \
            r.to[k] = (at.by[k] & n ? y : x).to[at.by[k] & (n - 1)];                                                   \
        return r.field;                                                                                                \
    }
PERMUTE(ps, __m512, f, 16, F, U32)
PERMUTE(epi16, __m512i, i, 32, U16, U16)
PERMUTE(epi8, __m512i, i, 64, U8, U8)
PERMUTE_TWO(ps, __m512, f, 16, F, U32)
PERMUTE_TWO(pd, __m512d, d, 8, D, S64)
E __m512i emu512_alignr_epi32(__m512i a, __m512i b, const int n)
{
    emu512 x = {.i = a}, y = {.i = b}, r;
    for (int i = 0; i < 16; i++)
        r.U32[i] = i + n < 16 ? y.U32[i + n] : x.U32[i + n - 16];
    return r.i;
}
E __m512 emu512_shuffle_ps(__m512 a, __m512 b, const int how)
{
    emu512 x = {.f = a}, y = {.f = b}, r;
    for (int i = 0; i < 16; i++)
        r.U32[i] = (i % 4 < 2 ? x : y).U32[i / 4 * 4 + (how >> i % 4 * 2 & 3)];
    return r.f;
}
E __m512 emu512_shuffle_f32x4(__m512 a, __m512 b, const int how)
{
    emu512 x = {.f = a}, y = {.f = b}, r;
    for (int q = 0; q < 4; q++)
        for (int i = 0; i < 4; i++)
            r.U32[4 * q + i] = (q < 2 ? x : y).U32[4 * (how >> 2 * q & 3) + i];
    return r.f;
}
E __m512i emu512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, const int how)
{
    if (how != 0x96)
        __builtin_trap();
    return emu512_xor_si512(emu512_xor_si512(a, b), c);
}

/* Converts to bf16. Subnormal numbers become zero, and ties are rounded to even. */
static __attribute__((unused)) inline uint16_t emu_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    if ((u & 0x7f800000) == 0)
        return (uint16_t)(u >> 16 & 0x8000);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
E __m512bh emu512_cvtne2ps_pbh(__m512 high, __m512 low)
{
    emu512 x = {.f = low}, y = {.f = high}, r;
    for (int i = 0; i < 16; i++)
        r.U16[i] = emu_bf16(x.F[i]), r.U16[16 + i] = emu_bf16(y.F[i]);
    return (__m512bh)r.i;
}
static __attribute__((unused)) inline float emu_flush(uint32_t u)
{
    if ((u & 0x7f800000) == 0)
        u &= 0x80000000;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static __attribute__((noinline, unused)) void emu_dpbf16(emu512 *c, const emu512 *a, const emu512 *b)
{
    for (int i = 0; i < 16; i++) {
        float s = emu_flush(c->U32[i]);
        s = __builtin_fmaf(emu_flush(a->U32[i] & 0xffff0000u), emu_flush(b->U32[i] & 0xffff0000u), s);
        memcpy(&c->U32[i], &s, 4);
        s = emu_flush(c->U32[i]);
        s = __builtin_fmaf(emu_flush(a->U32[i] << 16), emu_flush(b->U32[i] << 16), s);
        memcpy(&c->U32[i], &s, 4);
        s = emu_flush(c->U32[i]);
        c->F[i] = s;
    }
}
E __m512 emu512_dpbf16_ps(__m512 c, __m512bh a, __m512bh b)
{
    emu512 s = {.f = c}, x = {.i = (__m512i)a}, y = {.i = (__m512i)b};
    emu_dpbf16(&s, &x, &y);
    return s.f;
}
/* The bytes of a are unsigned, and the bytes of b are signed. */
E __m512i emu512_dpbusd_epi32(__m512i c, __m512i a, __m512i b)
{
    emu512 s = {.i = c}, x = {.i = a}, y = {.i = b}, r;
    const __m256i even = _mm256_set1_epi16(0xff);
    for (int h = 0; h < 2; h++) {
        __m256i low =
            _mm256_madd_epi16(_mm256_and_si256(x.hi[h], even), _mm256_srai_epi16(_mm256_slli_epi16(y.hi[h], 8), 8));
        __m256i high = _mm256_madd_epi16(_mm256_srli_epi16(x.hi[h], 8), _mm256_srai_epi16(y.hi[h], 8));
        r.hi[h] = _mm256_add_epi32(s.hi[h], _mm256_add_epi32(low, high));
    }
    return r.i;
}
#undef E
#undef LOAD
#undef STORE
#undef LOAD_PART
#undef STORE_PART
#undef SET1
#undef CAST
#undef TWO
#undef TWO_BITS
#undef THREE
#undef EACH
#undef SHIFT
#undef WIDEN
#undef NARROW
#undef COMPARE
#undef BLEND
#undef REDUCE_ADD
#undef PERMUTE
#undef PERMUTE_TWO
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif
