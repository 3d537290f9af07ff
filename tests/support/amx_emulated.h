/* SPDX-License-Identifier: MIT
 *
 * amx_emulated.h - AMX's tiles in memory, for tests of AMX kernels on processors that have AVX-512 and no AMX
 * (ATTN_EMULATE_AMX, `make test-amx`). A source that uses the tile intrinsics includes this file first.
 *
 * Sums are rounded like the instructions' sums. For bf16 (TDPBF16PS in Intel's manual), numbers of even and of odd
 * index are summed separately by fused multiply-adds, and subnormal numbers count as zero. For int8 (TDPBSSD), sums are
 * exact. The program ends if a tile is used while tiles are not configured, if they are configured twice, or if the
 * configuration is not eight tiles of 16 rows of 64 bytes. Two things are not emulated: the system's permission to use
 * tiles, and the freedom of a compiler to move code across a tile load, which is a function call here.
 */
#ifndef ATTN_TESTS_AMX_EMULATED_H
#define ATTN_TESTS_AMX_EMULATED_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMULATED_TILES = 8, EMULATED_ROWS = 16, EMULATED_UNITS = 16 /* 32-bit units in a row of a tile */ };

typedef struct emulated_tile {
    _Alignas(64) uint32_t unit[EMULATED_ROWS][EMULATED_UNITS];
} emulated_tile;

typedef struct emulated_amx {
    emulated_tile tile[EMULATED_TILES];
    bool begun;
} emulated_amx;

/* The tiles of a thread. The variable is weak, so that all sources that include this file share it. */
__attribute__((weak)) __thread emulated_amx attn_emulated_amx;

#define EMULATED static __attribute__((unused, noinline, target("avx512f,avx512bw,avx512vl,avx512vnni")))

EMULATED emulated_tile *emulated_at(int tile)
{
    if (!attn_emulated_amx.begun) {
        fputs("AMX: a tile is used before its configuration is loaded\n", stderr);
        abort();
    }
    return &attn_emulated_amx.tile[tile];
}

/* Checks that the configuration is the only one supported: palette 1, start row 0, 64 bytes per row and 16 rows in
 * each of eight tiles. */
EMULATED void emulated_begin(const void *shape)
{
    uint8_t whole[64] = {1};
    for (int tile = 0; tile < EMULATED_TILES; tile++)
        whole[16 + 2 * tile] = 64, whole[48 + tile] = EMULATED_ROWS;
    if (memcmp(shape, whole, sizeof whole) != 0) {
        fputs("AMX: another configuration than eight whole tiles\n", stderr);
        abort();
    }
    if (attn_emulated_amx.begun) {
        fputs("AMX: the configuration of a thread's tiles is loaded twice\n", stderr);
        abort();
    }
    memset(&attn_emulated_amx, 0, sizeof attn_emulated_amx);
    attn_emulated_amx.begun = true;
}

EMULATED void emulated_end(void)
{
    attn_emulated_amx.begun = false;
}

EMULATED void emulated_zero(int tile)
{
    memset(emulated_at(tile), 0, sizeof(emulated_tile));
}

EMULATED void emulated_load(int tile, const void *from, int64_t stride)
{
    emulated_tile *t = emulated_at(tile);
    for (int r = 0; r < EMULATED_ROWS; r++)
        _mm512_store_si512(t->unit[r], _mm512_loadu_si512((const char *)from + r * stride));
}

EMULATED void emulated_store(int tile, void *to, int64_t stride)
{
    const emulated_tile *t = emulated_at(tile);
    for (int r = 0; r < EMULATED_ROWS; r++)
        _mm512_storeu_si512((char *)to + r * stride, _mm512_load_si512(t->unit[r]));
}

/* Adds a product to one row of C. Products of even index and of odd index are summed separately. The sum of both is
 * added to C. */
EMULATED void emulated_bf16_row(uint32_t *c, const uint32_t *a, const emulated_tile *b)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int k = 0; k < EMULATED_ROWS; k++) {
        __m512i pairs = _mm512_load_si512(b->unit[k]), x = _mm512_set1_epi32((int)a[k]);
        even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                               _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), even);
        odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, high)),
                              _mm512_castsi512_ps(_mm512_and_si512(pairs, high)), odd);
    }
    _mm512_store_ps(c, _mm512_add_ps(_mm512_load_ps(c), _mm512_add_ps(even, odd)));
}

EMULATED void emulated_bf16(int c, int a, int b)
{
    enum { ZERO_FOR_SUBNORMAL = 0x8040, ROUNDING = 0x6000 };
    unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~(unsigned)ROUNDING) | ZERO_FOR_SUBNORMAL);
    for (int r = 0; r < EMULATED_ROWS; r++)
        emulated_bf16_row(emulated_at(c)->unit[r], emulated_at(a)->unit[r], emulated_at(b));
    _mm_setcsr(before);
}

/* Adds a product of int8 tiles to C. The vector instruction needs unsigned numbers in A. So 128 is added to A, and
 * 128 times the sums of B are subtracted from the result. */
EMULATED void emulated_int8(int c, int a, int b)
{
    const __m512i ones = _mm512_set1_epi32(0x01010101);
    __m512i excess = _mm512_setzero_si512();
    for (int k = 0; k < EMULATED_ROWS; k++)
        excess = _mm512_dpbusd_epi32(excess, ones, _mm512_load_si512(emulated_at(b)->unit[k]));
    excess = _mm512_slli_epi32(excess, 7);
    for (int r = 0; r < EMULATED_ROWS; r++) {
        __m512i sum = _mm512_sub_epi32(_mm512_load_si512(emulated_at(c)->unit[r]), excess);
        for (int k = 0; k < EMULATED_ROWS; k++)
            sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi32((int)(emulated_at(a)->unit[r][k] ^ 0x80808080u)),
                                      _mm512_load_si512(emulated_at(b)->unit[k]));
        _mm512_store_si512(emulated_at(c)->unit[r], sum);
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig(shape)         emulated_begin(shape)
#define _tile_release()                 emulated_end()
#define _tile_loadd(tile, from, stride) emulated_load(tile, from, stride)
#define _tile_stored(tile, to, stride)  emulated_store(tile, to, stride)
#define _tile_zero(tile)                emulated_zero(tile)
#define _tile_dpbf16ps(c, a, b)         emulated_bf16(c, a, b)
#define _tile_dpbssd(c, a, b)           emulated_int8(c, a, b)

#endif
