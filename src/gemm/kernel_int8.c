/* SPDX-License-Identifier: MIT
 * Micro-kernels of int8 products with sums in int32.  Numbers are widened to 16 bits while they are packed, two along k
 * together, so that no intermediate result saturates: all of them give the same integers. */
#include "gemm/kernel.h"

/* One panel from k on.  Element (k, i) lies at [(k / 2 * width + i) * 2 + k % 2]. */
static void pack_panel(const attn__gemm_pack *p, int64_t first, int64_t k, int16_t *to)
{
    const int8_t *x = p->x;
    for (; k < p->k; k += 2) {
        for (int64_t i = 0; i < p->width; i++, to += 2) {
            const int8_t *from = x + (first + i) * p->outer + k * p->inner;
            bool inside = first + i < p->n;
            to[0] = inside ? from[0] : 0;
            to[1] = inside && k + 1 < p->k ? from[p->inner] : 0;
        }
    }
}

static void pack(const attn__gemm_pack *p)
{
    int16_t *to = p->to;
    for (int64_t first = 0; first < p->n; first += p->width, to += (p->k + p->k % 2) * p->width)
        pack_panel(p, first, 0, to);
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

enum { WIDE_ROWS = 6, WIDE_VECTORS = 2, WIDE_COLUMNS = WIDE_VECTORS * VF_LANES };

/* C has whole vectors of the first columns, and `last` columns of the last one. */
VF_FN void store_row(const attn__gemm_tile *t, int row, const __m256i *sum, int last)
{
    int32_t *c = (int32_t *)t->c + row * t->ldc;
    VF_UNROLL
    for (int j = 0; j < WIDE_VECTORS; j++, c += VF_LANES) {
        int n = last - j * VF_LANES;
        __m256i mask = _mm256_castps_si256(vm_first(n));
        if (n >= VF_LANES)
            vi_store(c, t->add ? vi_add(vi_load(c), sum[j]) : sum[j]);
        else if (n > 0)
            _mm256_maskstore_epi32(c, mask, t->add ? vi_add(_mm256_maskload_epi32(c, mask), sum[j]) : sum[j]);
    }
}

/* A pair of A's numbers by pairs of eight columns of B: vpmaddwd is exact, since each product is at most 2^14.  The
 * bytes' own instruction (vpmaddubsw) would take a sign and an absolute value for each pair of vectors, and so as
 * many steps. */
VF_FN void tile_avx2(const attn__gemm_tile *t, int rows)
{
    const int16_t *a = t->a, *b = t->b;
    __m256i sum[WIDE_ROWS][WIDE_VECTORS];
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch((int32_t *)t->c + i * t->ldc, 1);
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    }
    for (int64_t k = 0; k < t->k; k += 2, a += 2 * WIDE_ROWS, b += 2 * WIDE_COLUMNS) {
        __m256i y0 = vi_load(b), y1 = vi_load(b + WIDE_COLUMNS);
        VF_UNROLL
        for (int i = 0; i < rows; i++) {
            __m256i x = vf_bits(_mm256_broadcast_ss((const float *)(const void *)(a + 2 * (int64_t)i)));
            sum[i][0] = vi_add(sum[i][0], _mm256_madd_epi16(x, y0));
            sum[i][1] = vi_add(sum[i][1], _mm256_madd_epi16(x, y1));
        }
    }
    VF_UNROLL
    for (int i = 0; i < rows; i++)
        store_row(t, i, sum[i], t->columns);
}

static void run_avx2(const attn__gemm_tile *t)
{
    switch (t->rows) {
    case 6:
        tile_avx2(t, 6);
        break;
    case 5:
        tile_avx2(t, 5);
        break;
    case 4:
        tile_avx2(t, 4);
        break;
    case 3:
        tile_avx2(t, 3);
        break;
    case 2:
        tile_avx2(t, 2);
        break;
    default:
        tile_avx2(t, 1);
    }
}

/* Rows whose numbers are adjacent: 8 by 8 pairs are transposed.  A panel of 6 is written past its end, as kernel.h
 * says. */
static void pack_avx2(const attn__gemm_pack *p)
{
    enum { RUN = 2 * VF_LANES };
    int64_t whole = p->inner == 1 ? p->k / RUN * RUN : 0, step = (p->k + p->k % 2) * p->width;
    int16_t *to = p->to;
    for (int64_t first = 0; first < p->n; first += p->width, to += step) {
        const int8_t *x = (const int8_t *)p->x + first * p->outer;
        int n = p->n - first < p->width ? (int)(p->n - first) : p->width;
        for (int64_t k = 0; k < whole; k += RUN) {
            for (int j = 0; j < p->width; j += VF_LANES) {
                vf r[VF_LANES];
                VF_UNROLL
                for (int i = 0; i < VF_LANES; i++) {
                    const void *from = x + (j + i) * p->outer + k;
                    r[i] = j + i < n ? vf_from_bits(_mm256_cvtepi8_epi16(_mm_loadu_si128(from))) : vf_zero();
                }
                vf_transpose(r);
                VF_UNROLL
                for (int i = 0; i < VF_LANES; i++)
                    vi_store(to + (k + 2 * i) * p->width + 2 * j, vf_bits(r[i]));
            }
        }
        pack_panel(p, first, whole, to + whole * p->width);
    }
}

const attn__gemm_kernel attn__gemm_kernel_int8_avx2 = {.isa = ATTN_ISA_AVX2,
                                                       .rows = WIDE_ROWS,
                                                       .columns = WIDE_COLUMNS,
                                                       .lanes = VF_LANES,
                                                       .k_step = 2,
                                                       .packed_size = sizeof(int16_t),
                                                       .run = run_avx2,
                                                       .pack = pack_avx2};
#include "simd/isa_end.h"
#endif
