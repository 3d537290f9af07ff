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

/* Two rows of the square before.  Sums of a chunk of 384 are below 2^24, exact in f32, but for those of weight 2^-16 of
 * a fine square, which are below 2^25 and rounded once, as longer ones of convolutions are; with their last weight 0
 * rows get the bits of six products, whose last two sums are rounded together. */
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

/* Bytes to the next row of a tile of A, to the next digit, to the next step. */
typedef struct strides {
    int64_t row, digit, step;
} strides;

/* The products of a step, six or, `fine`, eight, of which those of the second and the third digits are of weight 2^-24
 * (tile 3; else it shares 2^-16 with tile 2).  Each tile is loaded as soon as the last reader of its register has
 * begun. Between, the square before becomes floats. */
DIGITS_FN void multiply_step(const int8_t *a, const int8_t *b, const int8_t *next_a, const int8_t *next_b, strides s,
                             bool fine, attn__digits_rest *rest)
{
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 7);
    _tile_loadd(7, b + 2 * TILE, ROW);
    sum_rows(rest);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 5, 6);
    if (fine)
        _tile_dpbssd(3, 5, 7);
    _tile_loadd(5, a + 2 * s.digit, s.row);
    sum_rows(rest);
    if (fine)
        _tile_dpbssd(2, 4, 7);
    else
        _tile_dpbssd(3, 4, 7);
    _tile_loadd(4, next_a, s.row);
    _tile_loadd(7, (fine ? b : next_b) + TILE, ROW);
    _tile_dpbssd(2, 5, 6);
    _tile_loadd(6, next_b, ROW);
    if (fine) {
        _tile_dpbssd(3, 5, 7);
        _tile_loadd(7, next_b + TILE, ROW);
    }
    _tile_loadd(5, next_a + s.digit, s.row);
}

DIGITS_FN void begin_square(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

DIGITS_FN bool is_fine(bool all_fine, const bool *of_rows)
{
    if (all_fine || !of_rows)
        return all_fine;
    __m128i rows = _mm_loadu_si128((const __m128i *)(const void *)of_rows);
    return !_mm_testz_si128(rows, rows);
}

/* The weights of a square's last sums. */
DIGITS_FN const float *last_weights(const attn__digits_square *square, bool fine, float *mixed)
{
#define SIXTEEN(x)                                                                                                     \
    {                                                                                                                  \
        x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x                                                                 \
    }
    static const float of_six[SIDE] = SIXTEEN(0x1p-16f), of_eight[SIDE] = SIXTEEN(0x1p-24f);
#undef SIXTEEN
    if (!fine || square->all_fine)
        return fine ? of_eight : of_six;
    for (int64_t i = 0; i < SIDE; i++)
        mixed[i] = square->fine[i] ? 0x1p-24f : 0.0f;
    return mixed;
}

/* What a square is to become. */
DIGITS_FN attn__digits_rest leave(const attn__digits_square *t, int64_t ld, bool fine, attn__digits_state *state)
{
    static const float _Alignas(64) zeros[SIDE];
    int32_t *sums = state->sums;
    _tile_stored(0, sums, ROW);
    _tile_stored(1, sums + SQUARE, ROW);
    _tile_stored(2, sums + 2 * SQUARE, ROW);
    _tile_stored(3, sums + 3 * SQUARE, ROW);
    return (attn__digits_rest){.sums = sums,
                               .end = sums + SQUARE,
                               .row_unit = t->row_unit,
                               .column_unit = t->column_unit,
                               .before = t->before ? t->before : zeros,
                               .to = t->to,
                               .before_ld = t->before ? t->before_ld : 0,
                               .ld = ld,
                               .odd = t->odd,
                               .last = last_weights(t, fine, state->last)};
}

/* All steps of a square whose operands begin at a and b; then the first tiles of the next one are loaded. */
DIGITS_FN void multiply(const attn__digits_square *t, int64_t steps, const int8_t *next_a, const int8_t *next_b,
                        strides s, bool fine, attn__digits_rest *rest, attn__digits_beside *beside)
{
    const int8_t *a = t->a, *b = t->b;
    begin_square();
    for (int64_t k = 0; k < steps; k++, a += s.step, b += STEP) {
        const int8_t *then_a = k + 1 < steps ? a + s.step : next_a, *then_b = k + 1 < steps ? b + STEP : next_b;
        multiply_step(a, b, then_a, then_b, s, fine, rest);
        beside->portion(beside);
    }
}

/* A square, while the one before becomes floats. */
DIGITS_FN void run_square(const attn__digits_square *t, int64_t steps, const int8_t *next_a, const int8_t *next_b,
                          strides s, int64_t ld, attn__digits_state *state, attn__digits_rest *rest,
                          attn__digits_beside *beside)
{
    bool fine = is_fine(t->all_fine, t->fine);
    if (fine)
        multiply(t, steps, next_a, next_b, s, true, rest, beside);
    else
        multiply(t, steps, next_a, next_b, s, false, rest, beside);
    sum_all(rest);
    *rest = leave(t, ld, fine, state);
}

DIGITS_FN void load_first(const int8_t *a, const int8_t *b, strides s)
{
    _tile_loadd(4, a, s.row);
    _tile_loadd(6, b, ROW);
    _tile_loadd(7, b + TILE, ROW);
    _tile_loadd(5, a + s.digit, s.row);
}

DIGITS_FN attn__digits_square square_of(const attn__digits_args *t, int64_t m)
{
    int64_t row = m * SIDE;
    return (attn__digits_square){.a = t->a + m * t->block,
                                 .b = t->b,
                                 .row_unit = t->row_unit + row,
                                 .column_unit = t->column_unit,
                                 .fine = t->fine ? t->fine + row : NULL,
                                 .all_fine = t->all_fine,
                                 .before = t->before ? t->before + row * t->before_ld : NULL,
                                 .before_ld = t->before_ld,
                                 .to = t->to + row * t->ld,
                                 .odd = t->odd ? t->odd + m * t->odd_step : NULL};
}

static void run(const attn__digits_args *t, attn__digits_state *state, attn__digits_beside *beside)
{
    const strides packed = {ROW, TILE, STEP};
    if (!state->loaded)
        load_first(t->a, t->b, packed);
    attn__digits_rest rest = state->rest;
    const int8_t *after_a = t->next_a ? t->next_a : t->a, *after_b = t->next_b ? t->next_b : t->b;
    for (int64_t m = 0; m < t->m; m++) {
        bool more = m + 1 < t->m;
        attn__digits_square square = square_of(t, m);
        run_square(&square, t->steps, more ? square.a + t->block : after_a, more ? t->b : after_b, packed, t->ld, state,
                   &rest, beside);
    }
    state->rest = rest;
    state->loaded = t->next_a != NULL;
}

static void run_list(const attn__digits_list *t, attn__digits_state *state, attn__digits_beside *beside)
{
    const strides s = {t->a_row, t->a_digit, t->a_step};
    const attn__digits_square *square = t->squares, *last = square + t->count - 1;
    load_first(square->a, square->b, s);
    attn__digits_rest rest = state->rest;
    for (; square <= last; square++) {
        const attn__digits_square *next = square < last ? square + 1 : square;
        run_square(square, t->steps, next->a, next->b, s, t->ld, state, &rest, beside);
    }
    state->rest = rest;
    state->loaded = false;
}

static const attn__digits_kernel kernel = {
    begin,
    end,
    run,
    finish,
    run_list,
    attn__digits_scale_of_row,
    attn__digits_cut_row,
    attn__digits_scale_columns,
    attn__digits_cut_columns,
    attn__digits_turn,
    attn__digits_scale_block,
    attn__digits_cut_across,
    attn__digits_cut_line,
    attn__digits_move,
    attn__digits_gather,
    attn__digits_cut_sixteen,
    attn__digits_put_turned,
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
