/* SPDX-License-Identifier: MIT
 *
 * kernel_amx.c - the micro-kernel of bf16 in AMX: 2 x 2 tiles of 16 x 16 sums.
 *
 * Panels are cut into steps of 32 along k.  A's step is two tiles, rows of 32 numbers; B's two tiles, rows of 16
 * pairs: the numbers of k and k + 1 of one column lie together.  A sum that is added to goes on from what C holds.
 */
#include "gemm/kernel.h"

#if ATTN__COMPILES_AMX
#include "simd/vec_avx512.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"))),               \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#endif

enum { SIDE = 16, ROWS = 2 * SIDE, STEP = 32, TILE = SIDE * STEP, ROW_BYTES = 64 };

/* Tiles 0 to 3 hold sums, 4 and 5 A, 6 and 7 B. */
#include "simd/amx.h"

static void load_sums(const float *c, int64_t ld)
{
    int64_t bytes = ld * (int64_t)sizeof *c;
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + SIDE, bytes);
    _tile_loadd(2, c + SIDE * ld, bytes);
    _tile_loadd(3, c + SIDE * ld + SIDE, bytes);
}

static void store_sums(float *c, int64_t ld)
{
    int64_t bytes = ld * (int64_t)sizeof *c;
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + SIDE, bytes);
    _tile_stored(2, c + SIDE * ld, bytes);
    _tile_stored(3, c + SIDE * ld + SIDE, bytes);
}

static void multiply(const attn__gemm_tile *t)
{
    const uint16_t *a = t->a, *b = t->b;
    for (int64_t k = 0; k < t->k; k += STEP, a += 2 * TILE, b += 2 * TILE) {
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + TILE, ROW_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + TILE, ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

static void copy(float *to, int64_t ldt, const float *from, int64_t ldf, const attn__gemm_tile *t)
{
    for (int i = 0; i < t->rows; i++)
        memcpy(to + i * ldt, from + i * ldf, (size_t)t->columns * sizeof *to);
}

/* A tile at C's edge takes its way through memory of its own. */
static void run(const attn__gemm_tile *t)
{
    _Alignas(64) float edge[ROWS * ROWS];
    bool whole = t->rows == ROWS && t->columns == ROWS;
    float *c = whole ? t->c : edge;
    int64_t ld = whole ? t->ldc : ROWS;
    if (t->add) {
        if (!whole) {
            memset(edge, 0, sizeof edge);
            copy(edge, ROWS, t->c, t->ldc, t);
        }
        load_sums(c, ld);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    multiply(t);
    store_sums(c, ld);
    if (!whole)
        copy(t->c, t->ldc, edge, ROWS, t);
}

/* ----------------------------------------------------------------------------------------------- packing */

/* Up to 32 numbers that follow one another along k, zeros behind them, rounded to bf16. */
VF_FN __m512i along_k(const attn__gemm_pack *p, int64_t column, int64_t k)
{
    int64_t at = column * p->outer + k * p->inner, n = p->k - k < STEP ? p->k - k : STEP;
    __mmask32 some = n == STEP ? 0xffffffffu : (1u << n) - 1;
    if (p->inner == 1 && p->bf16)
        return _mm512_maskz_loadu_epi16(some, (const uint16_t *)p->x + at);
    if (p->inner == 1) {
        const float *x = (const float *)p->x + at;
        __m512 low = _mm512_maskz_loadu_ps((__mmask16)some, x);
        __m512 high = some >> SIDE ? _mm512_maskz_loadu_ps((__mmask16)(some >> SIDE), x + SIDE) : _mm512_setzero_ps();
        return (__m512i)_mm512_cvtne2ps_pbh(high, low);
    }
    _Alignas(64) uint16_t numbers[STEP] = {0};
    for (int64_t i = 0; i < n; i++, at += p->inner) {
        if (p->bf16)
            numbers[i] = ((const uint16_t *)p->x)[at];
        else
            vf_store_bf16_part(&numbers[i], vf_set1(((const float *)p->x)[at]), 1);
    }
    return _mm512_load_si512(numbers);
}

/* A tile: 16 rows of A as they are, or 16 columns of B with pairs transposed. */
static void pack_tile(const attn__gemm_pack *p, int64_t first, int64_t k, uint16_t *to)
{
    vf r[SIDE];
    VF_UNROLL
    for (int i = 0; i < SIDE; i++)
        r[i] = first + i < p->n ? _mm512_castsi512_ps(along_k(p, first + i, k)) : _mm512_setzero_ps();
    if (p->is_b)
        vf_transpose(r);
    VF_UNROLL
    for (int i = 0; i < SIDE; i++)
        _mm512_storeu_ps(to + i * STEP, r[i]);
}

static void pack(const attn__gemm_pack *p)
{
    uint16_t *to = p->to;
    for (int64_t first = 0; first < p->n; first += ROWS) {
        for (int64_t k = 0; k < p->k; k += STEP, to += 2 * TILE) {
            pack_tile(p, first, k, to);
            pack_tile(p, first + SIDE, k, to + TILE);
        }
    }
}

const attn__gemm_kernel attn__gemm_kernel_bf16_amx = {.isa = ATTN_ISA_AMX,
                                                      .rows = ROWS,
                                                      .columns = ROWS,
                                                      .lanes = SIDE,
                                                      .k_step = STEP,
                                                      .a_size = sizeof(uint16_t),
                                                      .b_size = sizeof(uint16_t),
                                                      .begin = begin,
                                                      .end = end,
                                                      .run = run,
                                                      .pack = pack};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
