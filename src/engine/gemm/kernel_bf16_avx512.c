/* SPDX-License-Identifier: MIT
 *
 * kernel_bf16_avx512.c - the micro-kernel of bf16 with AVX-512 BF16. Its instruction multiplies and sums pairs along k,
 * and treats subnormal numbers as zero.  A panel has one line for each pair of k values. The line holds this pair of
 * every row of A or column of B.
 */
#include "gemm/kernel.h"
#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
#define VF_REGION
#include "gemm/bf16_square.h"

VF_FN vi dot(vi sum, const int8_t *a, vi y)
{
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
    return vf_bits(_mm512_dpbf16_ps(vf_from_bits(sum), (__m512bh)vi_set1(pair), (__m512bh)y));
}

VF_FN vi add(vi x, vi y)
{
    return vf_bits(vf_add(vf_from_bits(x), vf_from_bits(y)));
}

#define Q(name)             name##_bf16
#define Q_ROWS              12
#define Q_VECTORS           2
#define Q_STEP              2
#define Q_B_BYTES           4
#define q_load_b            vi_load
#define q_dot(sum, a, i, y) dot(sum, a + 4 * (i), y)
#define q_add               add
#include "gemm/kernel_dot_tmpl.h"
_Static_assert(Q_ROWS == BF16_ROWS, "a panel of A is packed without branches");

/* Distance in rows between the row being packed and the prefetched row. The hardware does not prefetch rows that are
 * far apart. */
enum { AHEAD = 16 };
VF_FN void prefetch_row(const attn__gemm_pack *p, int64_t at)
{
    __builtin_prefetch((const char *)p->x + at * (p->bf16 ? 2 : 4));
}

/* Packs n rows or columns that are adjacent in the matrix into panels. Each pair along k is stored to all panels before
 * the next pair is read.  Vectors may be stored past a panel's line, because the next line overwrites the excess. Only
 * the last line is stored in part. */
VF_FN void pack_adjacent(const attn__gemm_pack *p, int64_t first, int64_t n, char *to)
{
    const int64_t pairs = (p->k + 1) / 2, bytes = p->width * 4;
    for (int64_t i = 0; i < pairs; i++, to += bytes) {
        char *row = to;
        for (int64_t done = 0; done < n; done += p->width, row += pairs * bytes) {
            for (int j = 0; j < p->width; j += BF16_SIDE) {
                int64_t left = n - done - j, at = 2 * i * p->inner + first + done + j;
                int columns = left >= BF16_SIDE ? BF16_SIDE : left > 0 ? (int)left : 0;
                prefetch_row(p, at + AHEAD * p->inner);
                prefetch_row(p, at + (AHEAD + 1) * p->inner);
                vf x = vf_from_bits(bf16_pairs(p, at, columns, 2 * i + 1 < p->k));
                float *place = (float *)(void *)row + j;
                if (i == pairs - 1 && j + BF16_SIDE > p->width)
                    vf_store_part(place, x, p->width - j);
                else
                    vf_store(place, x);
            }
        }
    }
}

/* Packs one panel of n rows or columns square by square. A square may be stored past a line, because the next line
 * overwrites the excess. */
VF_FN void pack_squares(const attn__gemm_pack *p, int64_t first, int64_t n, char *to)
{
    const int64_t pairs = (p->k + 1) / 2, bytes = p->width * 4;
    for (int64_t k = 0; k < pairs; k += BF16_SIDE) {
        for (int64_t j = 0; j < p->width; j += BF16_SIDE) {
            vf r[BF16_SIDE];
            bf16_square(p, first + j, n - j, 2 * k, true, r);
            VF_UNROLL
            for (int64_t i = 0; i < BF16_SIDE; i++)
                if (k + i < pairs)
                    vf_store((float *)(void *)(to + (k + i) * bytes) + j, r[i]);
        }
    }
}

static void pack(const attn__gemm_pack *p)
{
    enum { AT_ONCE = 8 };
    const int64_t pairs = (p->k + 1) / 2;
    int64_t n = p->outer == 1 ? AT_ONCE * p->width : p->width;
    char *to = p->to;
    for (int64_t first = 0; first < p->n; first += n, to += pairs * n * 4) {
        int64_t part = p->n - first < n ? p->n - first : n;
        if (p->outer == 1)
            pack_adjacent(p, first, part, to);
        else
            pack_squares(p, first, part, to);
    }
}

const attn__gemm_kernel attn__gemm_kernel_bf16_avx512_bf16 = {.isa = ATTN_ISA_AVX512BF16,
                                                              .gains_by = ATTN__CPU_BF16_DOT,
                                                              .rows = Q_ROWS,
                                                              .columns = Q_VECTORS * VF_LANES,
                                                              .lanes = VF_LANES,
                                                              .k_step = Q_STEP,
                                                              .k_block = 512,
                                                              .a_size = sizeof(uint16_t),
                                                              .b_size = sizeof(uint16_t),
                                                              .run = run_bf16,
                                                              .pack = pack};
#include "simd/isa_end.h"
#endif
