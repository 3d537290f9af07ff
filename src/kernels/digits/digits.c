/* SPDX-License-Identifier: MIT
 *
 * digits.c - the products and what becomes of their sums; see digits.h.
 */
#include "kernels/digits/digits.h"

#include "kernels/digits/digits_cut.h"

#include <stddef.h>

#if ATTN__COMPILES_AMX
#include "simd/vec_avx512.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif

#define DIGITS_FN static inline __attribute__((always_inline))

enum { SIDE = ATTN__DIGITS_SIDE, TILE = ATTN__DIGITS_TILE, STEP = ATTN__DIGITS_STEP, SQUARE = ATTN__DIGITS_SQUARE };
enum { ROW = 64, NOT_FINITE = 0x99 /* what vfpclassps finds: NaN, both infinities */ };

/* Tiles 0 to 3 hold sums, 4 and 5 digits of A, 6 and 7 of B. */
#include "kernels/unit.h"

/* Two rows of the square before.  Sums are below 2^24, exact in f32, but for those of weight 2^-16 of a fine square, which
 * are below 2^25 and rounded once; with their last weight 0 rows get the bits of six products, whose last two sums are
 * rounded together. */
DIGITS_FN void sum_rows(attn__digits_rest *t)
{
    enum { ROWS = 2 };
    const __m512 small = _mm512_set1_ps(0x1p-16f), middle = _mm512_set1_ps(0x1p-8f);
    if (t->sums == t->end)
        return;
    __m512 column_unit = _mm512_loadu_ps(t->column_unit);
    VF_UNROLL
    for (int i = 0; i < ROWS; i++) {
        const int32_t *sums = t->sums + i * SIDE;
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 3 * SQUARE)), _mm512_set1_ps(t->last[i]));
        x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 2 * SQUARE)), small, x);
        x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + SQUARE)), middle, x);
        x = _mm512_add_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), x);
        x = _mm512_mul_ps(x, _mm512_set1_ps(t->row_unit[i]));
        x = _mm512_fmadd_ps(x, column_unit, _mm512_loadu_ps(t->before + i * t->before_ld));
        t->some_odd |= _mm512_fpclass_ps_mask(x, NOT_FINITE);
        _mm512_storeu_ps(t->to + i * t->ld, x);
    }
    t->sums += ROWS * SIDE;
    t->last += ROWS;
    t->row_unit += ROWS;
    t->before += ROWS * t->before_ld;
    t->to += ROWS * t->ld;
}

DIGITS_FN void sum_all(attn__digits_rest *t)
{
    while (t->sums != t->end)
        sum_rows(t);
    if (t->odd)
        *t->odd = t->some_odd != 0;
    t->odd = NULL;
}

static void finish(attn__digits_state *state)
{
    sum_all(&state->rest);
}

/* The products of a step, six or, `fine`, eight, of which those of the second and the third digits are of weight 2^-24
 * (tile 3; else it shares 2^-16 with tile 2).  Each tile is loaded as soon as the last reader of its register has begun.
 * Between, the square before becomes floats. */
DIGITS_FN void multiply_step(const int8_t *a, const int8_t *b, const int8_t *next_a, const int8_t *next_b, bool fine,
                             attn__digits_rest *rest)
{
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 7);
    _tile_loadd(7, b + 2 * TILE, ROW);
    sum_rows(rest);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 5, 6);
    if (fine)
        _tile_dpbssd(3, 5, 7);
    _tile_loadd(5, a + 2 * TILE, ROW);
    sum_rows(rest);
    if (fine)
        _tile_dpbssd(2, 4, 7);
    else
        _tile_dpbssd(3, 4, 7);
    _tile_loadd(4, next_a, ROW);
    _tile_loadd(7, (fine ? b : next_b) + TILE, ROW);
    _tile_dpbssd(2, 5, 6);
    _tile_loadd(6, next_b, ROW);
    if (fine) {
        _tile_dpbssd(3, 5, 7);
        _tile_loadd(7, next_b + TILE, ROW);
    }
    _tile_loadd(5, next_a + TILE, ROW);
}

DIGITS_FN void begin_square(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

DIGITS_FN bool is_fine(const attn__digits_args *t, int64_t m)
{
    if (t->all_fine || !t->fine)
        return t->all_fine;
    __m128i rows = _mm_loadu_si128((const __m128i *)(const void *)(t->fine + m * SIDE));
    return !_mm_testz_si128(rows, rows);
}

/* The weights of a square's last sums. */
DIGITS_FN const float *last_weights(const attn__digits_args *t, int64_t m, bool fine, float *mixed)
{
#define SIXTEEN(x)                                                                                                     \
    {                                                                                                                  \
        x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x                                                                 \
    }
    static const float of_six[SIDE] = SIXTEEN(0x1p-16f), of_eight[SIDE] = SIXTEEN(0x1p-24f);
#undef SIXTEEN
    if (!fine || t->all_fine)
        return fine ? of_eight : of_six;
    for (int64_t i = 0; i < SIDE; i++)
        mixed[i] = t->fine[m * SIDE + i] ? 0x1p-24f : 0.0f;
    return mixed;
}

/* What square m is to become. */
DIGITS_FN attn__digits_rest leave(const attn__digits_args *t, int64_t m, bool fine, attn__digits_state *state)
{
    static const float _Alignas(64) zeros[SIDE];
    int32_t *sums = state->sums;
    int64_t row = m * SIDE;
    _tile_stored(0, sums, ROW);
    _tile_stored(1, sums + SQUARE, ROW);
    _tile_stored(2, sums + 2 * SQUARE, ROW);
    _tile_stored(3, sums + 3 * SQUARE, ROW);
    return (attn__digits_rest){.sums = sums,
                               .end = sums + SQUARE,
                               .row_unit = t->row_unit + row,
                               .column_unit = t->column_unit,
                               .before = t->before ? t->before + row * t->before_ld : zeros,
                               .to = t->to + row * t->ld,
                               .before_ld = t->before ? t->before_ld : 0,
                               .ld = t->ld,
                               .odd = t->odd ? t->odd + m * t->odd_step : NULL,
                               .last = last_weights(t, m, fine, state->last)};
}

/* All steps of a square whose operands begin at a and b; then the first tiles of the next one are loaded. */
DIGITS_FN void multiply(const attn__digits_args *t, const int8_t *a, const int8_t *next_a, const int8_t *next_b,
                        bool fine, attn__digits_rest *rest, attn__digits_beside *beside)
{
    const int8_t *b = t->b;
    begin_square();
    for (int64_t k = 0; k < t->steps; k++, a += STEP, b += STEP) {
        const int8_t *then_a = k + 1 < t->steps ? a + STEP : next_a, *then_b = k + 1 < t->steps ? b + STEP : next_b;
        multiply_step(a, b, then_a, then_b, fine, rest);
        beside->portion(beside);
    }
}

static void run(const attn__digits_args *t, attn__digits_state *state, attn__digits_beside *beside)
{
    const int8_t *a = t->a;
    if (!state->loaded) {
        _tile_loadd(4, a, ROW);
        _tile_loadd(6, t->b, ROW);
        _tile_loadd(7, t->b + TILE, ROW);
        _tile_loadd(5, a + TILE, ROW);
    }
    attn__digits_rest rest = state->rest;
    const int8_t *after_a = t->next_a ? t->next_a : a, *after_b = t->next_b ? t->next_b : t->b;
    for (int64_t m = 0; m < t->m; m++, a += t->block) {
        bool more = m + 1 < t->m;
        bool fine = is_fine(t, m);
        if (fine)
            multiply(t, a, more ? a + t->block : after_a, more ? t->b : after_b, true, &rest, beside);
        else
            multiply(t, a, more ? a + t->block : after_a, more ? t->b : after_b, false, &rest, beside);
        sum_all(&rest);
        rest = leave(t, m, fine, state);
    }
    state->rest = rest;
    state->loaded = t->next_a != NULL;
}

static const attn__digits_kernel kernel = {
    begin,
    end,
    run,
    finish,
    attn__digits_scale_of_row,
    attn__digits_cut_row,
    attn__digits_scale_columns,
    attn__digits_cut_columns,
    attn__digits_turn,
    attn__digits_put,
    attn__digits_exponents,
    attn__digits_exponents_of_row,
};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const attn__digits_kernel *attn__digits_for(attn__isa isa)
{
    return isa >= ATTN_ISA_AMX ? &kernel : NULL;
}
#else
const attn__digits_kernel *attn__digits_for(attn__isa isa)
{
    (void)isa;
    return NULL;
}
#endif
