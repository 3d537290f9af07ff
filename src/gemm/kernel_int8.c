/* SPDX-License-Identifier: MIT
 * Micro-kernels of int8 products with sums in int32.  Numbers are widened to 16 bits while they are packed, two along k
 * together, so that no intermediate result saturates: all of them give the same integers. */
#include "gemm/kernel.h"

/* Element (k, i) of a panel lies at [(k / 2 * width + i) * 2 + k % 2]. */
static void pack(const attn__gemm_pack *p)
{
    int16_t *to = p->to;
    const int8_t *x = p->x;
    for (int64_t first = 0; first < p->n; first += p->width) {
        for (int64_t k = 0; k < p->k; k += 2) {
            for (int64_t i = 0; i < p->width; i++, to += 2) {
                const int8_t *from = x + (first + i) * p->outer + k * p->inner;
                bool inside = first + i < p->n;
                to[0] = inside ? from[0] : 0;
                to[1] = inside && k + 1 < p->k ? from[p->inner] : 0;
            }
        }
    }
}

enum { ROWS = 4, COLUMNS = 8 };

static void run(const attn__gemm_tile *t)
{
    const int16_t *a = t->a, *b = t->b;
    int32_t sum[ROWS][COLUMNS] = {{0}};
    for (int64_t k = 0; k < t->k; k += 2, a += 2 * ROWS, b += 2 * COLUMNS) {
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < COLUMNS; j++)
                sum[i][j] += a[2 * i] * b[2 * j] + a[2 * i + 1] * b[2 * j + 1];
        }
    }
    for (int i = 0; i < t->rows; i++) {
        int32_t *c = (int32_t *)t->c + i * t->ldc;
        for (int j = 0; j < t->columns; j++)
            c[j] = t->add ? c[j] + sum[i][j] : sum[i][j];
    }
}

const attn__gemm_kernel attn__gemm_kernel_int8_scalar = {.isa = ATTN_ISA_SCALAR,
                                                         .rows = ROWS,
                                                         .columns = COLUMNS,
                                                         .lanes = COLUMNS,
                                                         .k_step = 2,
                                                         .packed_size = sizeof(int16_t),
                                                         .run = run,
                                                         .pack = pack};

#if defined(__x86_64__)
#include "simd/vec_avx2.h"

enum { WIDE_ROWS = 6, WIDE_COLUMNS = 16 };

/* A pair of A's numbers by pairs of eight columns of B: vpmaddwd is exact, since each product is at most 2^14. */
static void run_avx2(const attn__gemm_tile *t)
{
    const int16_t *a = t->a, *b = t->b;
    __m256i sum[WIDE_ROWS][2];
    VF_UNROLL
    for (int i = 0; i < WIDE_ROWS; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (int64_t k = 0; k < t->k; k += 2, a += 2 * WIDE_ROWS, b += 2 * WIDE_COLUMNS) {
        __m256i y0 = _mm256_loadu_si256((const __m256i *)(const void *)b);
        __m256i y1 = _mm256_loadu_si256((const __m256i *)(const void *)(b + WIDE_COLUMNS));
        VF_UNROLL
        for (int i = 0; i < WIDE_ROWS; i++) {
            __m256i x = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)(a + 2 * (int64_t)i)));
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(x, y0));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(x, y1));
        }
    }
    int32_t rows[WIDE_ROWS][WIDE_COLUMNS];
    VF_UNROLL
    for (int i = 0; i < WIDE_ROWS; i++) {
        _mm256_storeu_si256((__m256i *)(void *)rows[i], sum[i][0]);
        _mm256_storeu_si256((__m256i *)(void *)(rows[i] + 8), sum[i][1]);
    }
    for (int i = 0; i < t->rows; i++) {
        int32_t *c = (int32_t *)t->c + i * t->ldc;
        for (int j = 0; j < t->columns; j++)
            c[j] = t->add ? c[j] + rows[i][j] : rows[i][j];
    }
}

const attn__gemm_kernel attn__gemm_kernel_int8_avx2 = {.isa = ATTN_ISA_AVX2,
                                                       .rows = WIDE_ROWS,
                                                       .columns = WIDE_COLUMNS,
                                                       .lanes = 8,
                                                       .k_step = 2,
                                                       .packed_size = sizeof(int16_t),
                                                       .run = run_avx2,
                                                       .pack = pack};
#include "simd/isa_end.h"
#endif
