/* SPDX-License-Identifier: MIT
 * Micro-kernels of int8 products with sums in int32.  Products are of 16-bit numbers, two along k together, so that no
 * intermediate result saturates: all kernels give the same integers.  A is widened to 16 bits while it is packed.  B,
 * which may be weights that are kept, stays in bytes, and is widened when it is read. */
#include "gemm/kernel.h"

/* One panel from k on.  Element (k, i) lies at [(k / 2 * width + i) * 2 + k % 2]. */
static void pack_panel(const attn__gemm_pack *p, int64_t first, int64_t k, void *to)
{
    const int8_t *x = p->x;
    int16_t *wide = to;
    int8_t *bytes = to;
    for (int64_t at = 0; k < p->k; k += 2) {
        for (int64_t i = 0; i < p->width; i++, at += 2) {
            const int8_t *from = x + (first + i) * p->outer + k * p->inner;
            bool inside = first + i < p->n;
            int16_t pair[2] = {inside ? from[0] : 0, inside && k + 1 < p->k ? from[p->inner] : 0};
            for (int j = 0; j < 2; j++) {
                if (p->is_b)
                    bytes[at + j] = (int8_t)pair[j];
                else
                    wide[at + j] = pair[j];
            }
        }
    }
}

/* Bytes of a packed number. */
static int64_t size_of(const attn__gemm_pack *p)
{
    return p->is_b ? (int64_t)sizeof(int8_t) : (int64_t)sizeof(int16_t);
}

static void pack(const attn__gemm_pack *p)
{
    char *to = p->to;
    for (int64_t first = 0; first < p->n; first += p->width, to += (p->k + p->k % 2) * p->width * size_of(p))
        pack_panel(p, first, 0, to);
}

enum { ROWS = 4, COLUMNS = 8 };

static void run(const attn__gemm_tile *t)
{
    const int16_t *a = t->a;
    const int8_t *b = t->b;
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
                                                         .a_size = sizeof(int16_t),
                                                         .b_size = sizeof(int8_t),
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

/* Pairs of eight columns of B. */
VF_FN __m256i widen(const int8_t *b)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)b));
}

/* A pair of A's numbers by pairs of eight columns of B: vpmaddwd is exact, since each product is at most 2^14.  The
 * bytes' own instruction (vpmaddubsw) would take a sign and an absolute value for each pair of vectors, and so as
 * many steps. */
VF_FN void tile_avx2(const attn__gemm_tile *t, int rows)
{
    const int16_t *a = t->a;
    const int8_t *b = t->b;
    __m256i sum[WIDE_ROWS][WIDE_VECTORS];
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch((int32_t *)t->c + i * t->ldc, 1);
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    }
    for (int64_t k = 0; k < t->k; k += 2, a += 2 * WIDE_ROWS, b += 2 * WIDE_COLUMNS) {
        __m256i y0 = widen(b), y1 = widen(b + WIDE_COLUMNS);
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

/* Eight rows or columns by eight pairs along k, transposed: vf_transpose moves pairs of 16 bits. */
VF_FN void pack_pairs(const attn__gemm_pack *p, const int8_t *x, int n, char *to)
{
    vf r[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        r[i] = i < n ? vf_from_bits(widen(x + i * p->outer)) : vf_zero();
    vf_transpose(r);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++, to += 2 * p->width * size_of(p)) {
        __m256i pairs = vf_bits(r[i]);
        __m128i low = _mm256_castsi256_si128(pairs), high = _mm256_extracti128_si256(pairs, 1);
        if (p->is_b)
            _mm_storeu_si128((__m128i *)(void *)to, _mm_packs_epi16(low, high));
        else
            vi_store(to, pairs);
    }
}

/* Numbers along k are adjacent.  A panel of 6 is written past its end, as kernel.h says. */
static void pack_avx2(const attn__gemm_pack *p)
{
    enum { RUN = 2 * VF_LANES };
    int64_t whole = p->inner == 1 ? p->k / RUN * RUN : 0, size = size_of(p);
    char *to = p->to;
    for (int64_t first = 0; first < p->n; first += p->width, to += (p->k + p->k % 2) * p->width * size) {
        const int8_t *x = (const int8_t *)p->x + first * p->outer;
        int n = p->n - first < p->width ? (int)(p->n - first) : p->width;
        for (int64_t k = 0; k < whole; k += RUN)
            for (int j = 0; j < p->width; j += VF_LANES)
                pack_pairs(p, x + j * p->outer + k, n - j, to + (k * p->width + 2 * j) * size);
        pack_panel(p, first, whole, to + whole * p->width * size);
    }
}

const attn__gemm_kernel attn__gemm_kernel_int8_avx2 = {.isa = ATTN_ISA_AVX2,
                                                       .rows = WIDE_ROWS,
                                                       .columns = WIDE_COLUMNS,
                                                       .lanes = VF_LANES,
                                                       .k_step = 2,
                                                       .a_size = sizeof(int16_t),
                                                       .b_size = sizeof(int8_t),
                                                       .run = run_avx2,
                                                       .pack = pack_avx2};
#include "simd/isa_end.h"
#endif
