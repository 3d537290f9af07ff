/* SPDX-License-Identifier: MIT
 *
 * slices_amx.c - the micro-kernel of products by int8 slices on AMX, and its epilogue (slices.h).
 */
#include "gemm/slices.h"

#include "gemm/slices_quantize.h"

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

#define SLICES_FN static inline __attribute__((always_inline))

enum { SIDE = ATTN__SLICES_SIDE, TILE = ATTN__SLICES_TILE, STEP = ATTN__SLICES_STEP, C_TILE = ATTN__SLICES_C_TILE };
enum { ROW = 64 };

/* Tiles 0 to 3 hold sums, tiles 4 and 5 hold slices of A, and tiles 6 and 7 hold slices of B. */
#include "simd/amx.h"

/* Converts two rows of the previous C tile to floats.  The sums of a K block are exact in f32, because they are below
 * 2^24. With eight products, sums of weight 2^-16 are below 2^25 and are rounded once. If the last weight of a row is
 * 0, the row gets the same bits as with six products, whose last two sums are rounded together. */
SLICES_FN void sum_rows(attn__slices_rest *t)
{
    enum { ROWS = 2 };
    const __m512 small = _mm512_set1_ps(0x1p-16f), middle = _mm512_set1_ps(0x1p-8f);
    if (t->sums == t->end)
        return;
    __m512 column_inverse = _mm512_loadu_ps(t->column_inverse);
    VF_UNROLL
    for (int i = 0; i < ROWS; i++) {
        const int32_t *sums = t->sums + i * SIDE;
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 3 * C_TILE)), _mm512_set1_ps(t->last[i]));
        x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 2 * C_TILE)), small, x);
        x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + C_TILE)), middle, x);
        x = _mm512_add_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), x);
        x = _mm512_mul_ps(x, _mm512_set1_ps(t->row_inverse[i]));
        x = _mm512_fmadd_ps(x, column_inverse, _mm512_loadu_ps(t->before + i * t->before_ld));
        _mm512_storeu_ps(t->to + i * t->ld, x);
    }
    t->sums += ROWS * SIDE;
    t->last += ROWS;
    t->row_inverse += ROWS;
    t->before += ROWS * t->before_ld;
    t->to += ROWS * t->ld;
}

SLICES_FN void sum_all(attn__slices_rest *t)
{
    while (t->sums != t->end)
        sum_rows(t);
}

static void finish(attn__slices_state *state)
{
    sum_all(&state->rest);
}

/* Computes the six or eight products of a step. With eight products, tile 3 sums the products of second and third
 * slices, whose weight is 2^-24. With six products, tile 3 has weight 2^-16, like tile 2.  A tile is loaded as soon as
 * the last product that reads its register has begun. In between, the previous C tile is converted to floats. */
SLICES_FN void multiply_step(const int8_t *a, const int8_t *b, const int8_t *next_a, const int8_t *next_b, bool eight,
                             attn__slices_rest *rest)
{
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 7);
    _tile_loadd(7, b + 2 * TILE, ROW);
    sum_rows(rest);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 5, 6);
    if (eight)
        _tile_dpbssd(3, 5, 7);
    _tile_loadd(5, a + 2 * TILE, ROW);
    sum_rows(rest);
    if (eight)
        _tile_dpbssd(2, 4, 7);
    else
        _tile_dpbssd(3, 4, 7);
    _tile_loadd(4, next_a, ROW);
    _tile_loadd(7, (eight ? b : next_b) + TILE, ROW);
    _tile_dpbssd(2, 5, 6);
    _tile_loadd(6, next_b, ROW);
    if (eight) {
        _tile_dpbssd(3, 5, 7);
        _tile_loadd(7, next_b + TILE, ROW);
    }
    _tile_loadd(5, next_a + TILE, ROW);
}

SLICES_FN void begin_tile(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* Returns the weights of a C tile's fourth sums. `eight` marks the rows with eight products. */
SLICES_FN const float *last_weights(uint16_t eight, float *mixed)
{
    const __m512 six_weight = _mm512_set1_ps(0x1p-16f), eight_weight = _mm512_set1_ps(0x1p-24f);
    _mm512_storeu_ps(mixed, eight ? _mm512_maskz_mov_ps(eight, eight_weight) : six_weight);
    return mixed;
}

/* Stores the integer sums of C tile m. Returns the C tile, which is not yet converted to floats. */
SLICES_FN attn__slices_rest leave(const attn__slices_args *t, int64_t m, uint16_t eight, attn__slices_state *state)
{
    static const float _Alignas(64) zeros[SIDE];
    float *to = t->to + m * SIDE * t->ld;
    int32_t *sums = state->sums;
    _tile_stored(0, sums, ROW);
    _tile_stored(1, sums + C_TILE, ROW);
    _tile_stored(2, sums + 2 * C_TILE, ROW);
    _tile_stored(3, sums + 3 * C_TILE, ROW);
    return (attn__slices_rest){.sums = sums,
                               .end = sums + C_TILE,
                               .row_inverse = t->rows[m].inverse,
                               .column_inverse = t->panel->inverse,
                               .before = t->add ? to : zeros,
                               .to = to,
                               .before_ld = t->add ? t->ld : 0,
                               .ld = t->ld,
                               .last = last_weights(eight, state->last)};
}

/* Computes all steps of a C tile whose operands begin at a and b. Also loads the first tiles of the next C tile. */
SLICES_FN void multiply(const int8_t *a, const int8_t *b, int64_t steps, const int8_t *next_a, const int8_t *next_b,
                        bool eight, attn__slices_rest *rest, attn__slices_hook *hook)
{
    begin_tile();
    for (int64_t k = 0; k < steps; k++, a += STEP, b += STEP) {
        const int8_t *then_a = k + 1 < steps ? a + STEP : next_a, *then_b = k + 1 < steps ? b + STEP : next_b;
        multiply_step(a, b, then_a, then_b, eight, rest);
        hook->portion(hook);
    }
}

/* Computes C tile m, and converts the previous C tile to floats meanwhile. */
SLICES_FN void run_tile(const attn__slices_args *t, int64_t m, const int8_t *next_a, const int8_t *next_b,
                        attn__slices_state *state, attn__slices_rest *rest, attn__slices_hook *hook)
{
    const int8_t *a = t->a + m * t->block;
    attn__slices_choice choice = attn__slices_decide(t->rows + m, t->panel, t->limit);
    if (choice.eight)
        multiply(a, t->b, t->steps, next_a, next_b, true, rest, hook);
    else
        multiply(a, t->b, t->steps, next_a, next_b, false, rest, hook);
    sum_all(rest);
    *rest = leave(t, m, choice.eight, state);
}

static void run(const attn__slices_args *t, attn__slices_state *state, attn__slices_hook *hook)
{
    if (!state->loaded) {
        _tile_loadd(4, t->a, ROW);
        _tile_loadd(6, t->b, ROW);
        _tile_loadd(7, t->b + TILE, ROW);
        _tile_loadd(5, t->a + TILE, ROW);
    }
    attn__slices_rest rest = state->rest;
    const int8_t *after_a = t->next_a ? t->next_a : t->a, *after_b = t->next_b ? t->next_b : t->b;
    for (int64_t m = 0; m < t->m; m++) {
        bool more = m + 1 < t->m;
        run_tile(t, m, more ? t->a + (m + 1) * t->block : after_a, more ? t->b : after_b, state, &rest, hook);
    }
    state->rest = rest;
    state->loaded = t->next_a != NULL;
}

static const attn__slices_kernel kernel = {
    .begin = begin,
    .end = end,
    .run = run,
    .finish = finish,
    .decide = attn__slices_decide,
    .scale = attn__slices_scale_row,
    .quantize = attn__slices_quantize_row,
    .measure = attn__slices_measure_row,
    .transpose = attn__slices_transpose,
    .store = attn__slices_store,
};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const attn__slices_kernel *attn__slices_for(attn__isa isa)
{
    return isa >= ATTN_ISA_AMX ? &kernel : NULL;
}
#else
const attn__slices_kernel *attn__slices_for(attn__isa isa)
{
    (void)isa;
    return NULL;
}
#endif
