/* SPDX-License-Identifier: MIT
 *
 * gemm_tile_bf16.c - the micro-kernel on pairs of bf16 numbers with AVX512-BF16; see gemm_tile_bf16.h.
 */
#include "kernels/gemm_tile/gemm_tile_bf16.h"

#include <stddef.h>

#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#endif

enum { LANES = 16, ROWS = 8, VECTORS = 3 };

#define INLINE static inline __attribute__((always_inline))

/* Computes one register tile, as `block` in gemm_tile_tmpl.h does. */
INLINE void block(const attn__gemm_tile_bf16_args *t, const uint32_t *a, const uint32_t *b, float *c, int rows,
                  int vectors, bool along_k)
{
    __m512 sum[ROWS][VECTORS];
    const uint32_t *row[ROWS];
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        row[m] = a + m * t->am;
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            sum[m][n] = t->accumulate ? _mm512_loadu_ps(c + m * t->ldc + n * LANES) : _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < t->k; k++) {
        __m512i lanes[VECTORS];
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            lanes[n] = _mm512_loadu_si512(b + n * LANES);
        VF_UNROLL
        for (int m = 0; m < rows; m++) {
            __m512i x = _mm512_set1_epi32((int32_t)(along_k ? row[m][k] : a[m]));
            VF_UNROLL
            for (int n = 0; n < vectors; n++)
                sum[m][n] = _mm512_dpbf16_ps(sum[m][n], (__m512bh)x, (__m512bh)lanes[n]);
        }
        b += t->ldb;
        if (!along_k)
            a += t->ak;
    }
    __m512 factor = _mm512_set1_ps(t->factor);
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            _mm512_storeu_ps(c + m * t->ldc + n * LANES, _mm512_mul_ps(sum[m][n], factor));
    }
}

INLINE void block_layout(const attn__gemm_tile_bf16_args *t, const uint32_t *a, const uint32_t *b, float *c, int rows,
                         int vectors)
{
    if (t->ak == 1)
        block(t, a, b, c, rows, vectors, true);
    else
        block(t, a, b, c, rows, vectors, false);
}

INLINE void strip(const attn__gemm_tile_bf16_args *t, int64_t n, int vectors)
{
    int64_t m = 0;
    for (; m + ROWS <= t->m; m += ROWS)
        block_layout(t, t->a + m * t->am, t->b + n, t->c + m * t->ldc + n, ROWS, vectors);
    for (; m + 4 <= t->m; m += 4)
        block_layout(t, t->a + m * t->am, t->b + n, t->c + m * t->ldc + n, 4, vectors);
    for (; m < t->m; m++)
        block_layout(t, t->a + m * t->am, t->b + n, t->c + m * t->ldc + n, 1, vectors);
}

static void run(const attn__gemm_tile_bf16_args *t)
{
    int64_t vectors = t->n / LANES, v = 0;
    for (; v + VECTORS <= vectors; v += VECTORS)
        strip(t, v * LANES, 3);
    if (vectors - v == 2)
        strip(t, v * LANES, 2);
    else if (vectors - v == 1)
        strip(t, v * LANES, 1);
}

static void round_rows(const float *in, int64_t rows, int64_t width, uint32_t *out)
{
    __m512i order = vi_order_of_pairs();
    for (int64_t r = 0; r < rows; r += 2) {
        for (int64_t c = 0; c < width; c += LANES) {
            __m512 first = _mm512_loadu_ps(in + r * width + c);
            __m512 second = r + 1 < rows ? _mm512_loadu_ps(in + (r + 1) * width + c) : _mm512_setzero_ps();
            __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);
            _mm512_storeu_si512(out + r / 2 * width + c, _mm512_permutexvar_epi16(order, both));
        }
    }
}

INLINE __m512i load_wide(const uint16_t *p, int64_t n)
{
    if (n >= LANES)
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}

static bool pair_rows(const uint16_t *in, const int64_t *row_offset, int64_t rows, int64_t columns, uint32_t *out,
                      int64_t ld)
{
    bool bad = false;
    for (int64_t r = 0; r < rows; r += 2) {
        for (int64_t c = 0; c < columns; c += LANES) {
            __m512i pairs = load_wide(in + row_offset[r] + c, columns - c);
            if (r + 1 < rows) {
                __m512i second = load_wide(in + row_offset[r + 1] + c, columns - c);
                pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(second, 16));
            }
            bad = vi_any_not_finite(pairs) || bad;
            _mm512_storeu_si512(out + r / 2 * ld + c, pairs);
        }
    }
    return !bad;
}

static void copy_rows(const uint16_t *in, const int64_t *row_offset, int64_t rows, int64_t columns, uint32_t *out,
                      int64_t ld)
{
    for (int64_t r = 0; r < rows; r++) {
        const uint16_t *row = in + row_offset[r];
        uint16_t *to = (uint16_t *)(out + r * ld);
        for (int64_t c = 0; c < columns; c += 2 * LANES) {
            __mmask32 some = columns - c >= 32 ? 0xffffffffu : (1u << (columns - c)) - 1u;
            _mm512_storeu_si512(to + c, _mm512_maskz_loadu_epi16(some, row + c));
        }
    }
}

static const attn__gemm_tile_bf16_kernel kernel = {run, round_rows, pair_rows, copy_rows};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const attn__gemm_tile_bf16_kernel *attn__gemm_tile_bf16_for(attn__isa isa)
{
    return isa >= ATTN_ISA_AVX512BF16 ? &kernel : NULL;
}
#else
const attn__gemm_tile_bf16_kernel *attn__gemm_tile_bf16_for(attn__isa isa)
{
    (void)isa;
    return NULL;
}
#endif
