/* SPDX-License-Identifier: MIT
 *
 * kernel_amx.c - the micro-kernels of bf16 and int8 on AMX, with 2 x 2 tiles of 16 x 16 sums.  Panels are divided into
 * steps of 64 bytes along k.  A step of A is two tiles, each with 16 rows of 64 bytes. A step of B is two tiles. A row
 * of B's tile has 16 groups of 4 bytes, one group per column of B. The 4 bytes of a group are adjacent along k.  If
 * `add` is set, sums continue from the values in C.
 */
#include "gemm/kernel.h"

#if ATTN__COMPILES_AMX
#include "simd/vec_avx512.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"))),      \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#endif

enum { SIDE = 16, ROWS = 2 * SIDE, STEP_BYTES = 64, TILE_BYTES = SIDE * STEP_BYTES };

/* Tiles 0 to 3 hold sums, tiles 4 and 5 hold A, and tiles 6 and 7 hold B. The tile numbers are constants, because
 * instructions encode them. */
#include "simd/amx.h"
#include "gemm/bf16_square.h"
#define DOT(int8, sum, a, b)                                                                                           \
    do {                                                                                                               \
        if (int8)                                                                                                      \
            _tile_dpbssd(sum, a, b);                                                                                   \
        else                                                                                                           \
            _tile_dpbf16ps(sum, a, b);                                                                                 \
    } while (0)

static void load_sums(const int32_t *c, int64_t ld)
{
    int64_t bytes = ld * (int64_t)sizeof *c;
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + SIDE, bytes);
    _tile_loadd(2, c + SIDE * ld, bytes);
    _tile_loadd(3, c + SIDE * ld + SIDE, bytes);
}

static void store_sums(int32_t *c, int64_t ld)
{
    int64_t bytes = ld * (int64_t)sizeof *c;
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + SIDE, bytes);
    _tile_stored(2, c + SIDE * ld, bytes);
    _tile_stored(3, c + SIDE * ld + SIDE, bytes);
}

VF_FN void multiply(const attn__gemm_tile *t, bool int8)
{
    const char *a = t->a, *b = t->b;
    for (int64_t left = t->k * (int64_t)(int8 ? sizeof(int8_t) : sizeof(uint16_t)); left > 0; left -= STEP_BYTES) {
        _tile_loadd(4, a, STEP_BYTES);
        _tile_loadd(6, b, STEP_BYTES);
        DOT(int8, 0, 4, 6);
        _tile_loadd(7, b + TILE_BYTES, STEP_BYTES);
        DOT(int8, 1, 4, 7);
        _tile_loadd(5, a + TILE_BYTES, STEP_BYTES);
        DOT(int8, 2, 5, 6);
        DOT(int8, 3, 5, 7);
        a += 2 * TILE_BYTES, b += 2 * TILE_BYTES;
    }
}

/* Copies a tile of 32-bit sums, which are float or int32. */
static void copy(int32_t *to, int64_t ldt, const int32_t *from, int64_t ldf, const attn__gemm_tile *t)
{
    for (int i = 0; i < t->rows; i++)
        memcpy(to + i * ldt, from + i * ldf, (size_t)t->columns * sizeof *to);
}

/* If the tile exceeds the edge of C, it is stored through a buffer. */
VF_FN void run(const attn__gemm_tile *t, bool int8)
{
    _Alignas(64) int32_t edge[ROWS * ROWS];
    bool whole = t->rows == ROWS && t->columns == ROWS;
    int32_t *c = whole ? t->c : edge;
    int64_t ld = whole ? t->ldc : ROWS;
    if (t->add) {
        if (!whole) {
            memset(edge, 0, sizeof edge);
            copy(edge, ROWS, t->c, t->ldc, t);
            __asm__ volatile("" ::: "memory"); /* tells gcc 12 that tile loads read memory */
        }
        load_sums(c, ld);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    multiply(t, int8);
    store_sums(c, ld);
    if (!whole)
        copy(t->c, t->ldc, edge, ROWS, t);
}

/* ----------------------------------------------------------------------------------------------- packing */

/* Loads up to 64 bytes along k from x[at] on. If there are fewer than 64, zeros follow. */
VF_FN __m512i int8_along_k(const attn__gemm_pack *p, int64_t at, int64_t n)
{
    const int8_t *x = (const int8_t *)p->x + at;
    if (p->inner == 1)
        return _mm512_maskz_loadu_epi8(n >= STEP_BYTES ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1, x);
    _Alignas(64) int8_t numbers[STEP_BYTES] = {0};
    for (int64_t i = 0; i < n && i < STEP_BYTES; i++)
        numbers[i] = x[i * p->inner];
    return _mm512_load_si512(numbers);
}

/* Packs a tile. 16 rows of A are copied. 16 columns of B are transposed in groups of 4 bytes. */
VF_FN void pack_tile(const attn__gemm_pack *p, int64_t first, int64_t k, bool int8, char *to)
{
    vf r[SIDE];
    if (!int8) {
        bf16_square(p, first, p->n - first, k, p->is_b, r);
    } else {
        VF_UNROLL
        for (int i = 0; i < SIDE; i++) {
            int64_t at = (first + i) * p->outer + k * p->inner, n = first + i < p->n ? p->k - k : 0;
            r[i] = vf_from_bits(int8_along_k(p, at, n));
        }
        if (p->is_b)
            vf_transpose(r);
    }
    VF_UNROLL
    for (int i = 0; i < SIDE; i++)
        vi_store(to + i * STEP_BYTES, vf_bits(r[i]));
}

VF_FN void pack(const attn__gemm_pack *p, bool int8)
{
    char *to = p->to;
    for (int64_t first = 0; first < p->n; first += ROWS) {
        for (int64_t k = 0; k < p->k; k += STEP_BYTES / (int8 ? 1 : 2), to += 2 * TILE_BYTES) {
            pack_tile(p, first, k, int8, to);
            pack_tile(p, first + SIDE, k, int8, to + TILE_BYTES);
        }
    }
}

/* ---------------------------------------------------------------------------------------------- kernels */

static void run_bf16(const attn__gemm_tile *t)
{
    run(t, false);
}

static void pack_bf16(const attn__gemm_pack *p)
{
    pack(p, false);
}

static void run_int8(const attn__gemm_tile *t)
{
    run(t, true);
}

static void pack_int8(const attn__gemm_pack *p)
{
    pack(p, true);
}

const attn__gemm_kernel attn__gemm_kernel_bf16_amx = {.isa = ATTN_ISA_AMX,
                                                      .rows = ROWS,
                                                      .columns = ROWS,
                                                      .lanes = SIDE,
                                                      .k_step = STEP_BYTES / sizeof(uint16_t),
                                                      .squares = true,
                                                      .k_block = ATTN__GEMM_K,
                                                      .a_size = sizeof(uint16_t),
                                                      .b_size = sizeof(uint16_t),
                                                      .begin = begin,
                                                      .end = end,
                                                      .run = run_bf16,
                                                      .pack = pack_bf16};

const attn__gemm_kernel attn__gemm_kernel_int8_amx = {.isa = ATTN_ISA_AMX,
                                                      .rows = ROWS,
                                                      .columns = ROWS,
                                                      .lanes = SIDE,
                                                      .k_step = STEP_BYTES,
                                                      .squares = true,
                                                      .k_block = ATTN__GEMM_K,
                                                      .a_size = sizeof(int8_t),
                                                      .b_size = sizeof(int8_t),
                                                      .begin = begin,
                                                      .end = end,
                                                      .run = run_int8,
                                                      .pack = pack_int8};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
