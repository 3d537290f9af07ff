/* SPDX-License-Identifier: MIT
 *
 * bf16x3.c - matrix products with AMX; see bf16x3.h.
 */
#include "kernels/bf16x3/bf16x3.h"

#include <math.h>
#include <stddef.h>

#if ATTN__COMPILES_AMX
#include "simd/vec_avx512.h"
#include "simd/exp.h"

#include "simd/amx_tiles.h"
#include "simd/isa_end.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"))),               \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#endif

#define BF16X3_FN static inline __attribute__((always_inline))

#include "kernels/bf16x3/bf16x3_split.h"
#include "kernels/bf16x3/bf16x3_softmax.h"

/* Tile registers 0 to 3 hold a square of C, 4 and 5 hold A, 6 and 7 hold B. All have the maximum size. */
#include "simd/amx.h"

/* Multiplies a pair of parts with up to four tile products. The square of C has two tiles of rows if `tall` is set, and
 * two tiles of columns if `wide` is set. Both are constants after inlining.  A register loads the next part of B as
 * soon as the last product that reads the register has begun. The order matters, because AMX does not rename registers.
 * A product takes 16 cycles, and a load takes 8. */
BF16X3_FN void multiply_then_b(const attn__bf16x3_side *b, const uint16_t *next, bool tall, bool wide)
{
    _tile_dpbf16ps(0, 4, 6);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, next, b->row * 2);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
    if (wide)
        _tile_loadd(7, next + b->block, b->row * 2);
}

BF16X3_FN void multiply_then_a(const attn__bf16x3_side *a, const uint16_t *next, bool tall, bool wide)
{
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, next, a->row * 2);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
    if (tall)
        _tile_loadd(5, next + a->block, a->row * 2);
}

BF16X3_FN void load_both(const attn__bf16x3_args *t, const uint16_t *a, const uint16_t *b, bool tall, bool wide)
{
    _tile_loadd(4, a, t->a.row * 2);
    _tile_loadd(6, b, t->b.row * 2);
    if (wide)
        _tile_loadd(7, b + t->b.block, t->b.row * 2);
    if (tall)
        _tile_loadd(5, a + t->a.block, t->a.row * 2);
}

BF16X3_FN void multiply_then_both(const attn__bf16x3_args *t, const uint16_t *a, const uint16_t *b, bool tall,
                                  bool wide)
{
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
        _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, a, t->a.row * 2);
    if (tall)
        _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, b, t->b.row * 2);
    if (tall && wide)
        _tile_dpbf16ps(3, 5, 7);
    if (wide)
        _tile_loadd(7, b + t->b.block, t->b.row * 2);
    if (tall)
        _tile_loadd(5, a + t->a.block, t->a.row * 2);
}

BF16X3_FN void begin_square(const attn__bf16x3_args *t, const float *c, bool tall, bool wide)
{
    int64_t ld = t->ldc * 4;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!t->accumulate)
        return;
    _tile_loadd(0, c, ld);
    if (wide)
        _tile_loadd(1, c + ATTN__BF16X3_SIDE, ld);
    if (tall)
        _tile_loadd(2, c + ATTN__BF16X3_SIDE * t->ldc, ld);
    if (tall && wide)
        _tile_loadd(3, c + ATTN__BF16X3_SIDE * t->ldc + ATTN__BF16X3_SIDE, ld);
}

BF16X3_FN void store_square(const attn__bf16x3_args *t, float *c, bool tall, bool wide)
{
    int64_t ld = t->ldc * 4;
    _tile_stored(0, c, ld);
    if (wide)
        _tile_stored(1, c + ATTN__BF16X3_SIDE, ld);
    if (tall)
        _tile_stored(2, c + ATTN__BF16X3_SIDE * t->ldc, ld);
    if (tall && wide)
        _tile_stored(3, c + ATTN__BF16X3_SIDE * t->ldc + ATTN__BF16X3_SIDE, ld);
}

/* Multiplies all pairs of parts except the last one. The order is chosen so that each pair shares an operand with the
 * previous pair. */
BF16X3_FN void pairs_of_parts(const attn__bf16x3_args *t, const uint16_t *a, const uint16_t *b, bool tall, bool wide,
                              attn__interleaved *interleaved)
{
    multiply_then_b(&t->b, b + 2 * t->b.part, tall, wide);
    go_on(interleaved);
    multiply_then_b(&t->b, b + t->b.part, tall, wide);
    go_on(interleaved);
    multiply_then_a(&t->a, a + t->a.part, tall, wide);
    go_on(interleaved);
    multiply_then_b(&t->b, b, tall, wide);
    go_on(interleaved);
    multiply_then_a(&t->a, a + 2 * t->a.part, tall, wide);
    go_on(interleaved);
}

BF16X3_FN void sum_square(const attn__bf16x3_args *t, const uint16_t *a, const uint16_t *b, int parts, bool tall,
                          bool wide, attn__interleaved *interleaved)
{
    load_both(t, a, b, tall, wide);
    for (int64_t k = 0; k < t->k; k++) {
        if (parts == ATTN__BF16X3_F32)
            pairs_of_parts(t, a, b, tall, wide, interleaved);
        bool more = k + 1 < t->k; /* after the last k, the loads read valid tiles that are not used */
        a += more ? t->a.step : 0;
        b += more ? t->b.step : 0;
        multiply_then_both(t, a, b, tall, wide);
        go_on(interleaved);
    }
}

BF16X3_FN void product(const attn__bf16x3_args *t, int64_t m, int64_t n, bool tall, bool wide,
                       attn__interleaved *interleaved)
{
    const uint16_t *a = t->a.data + m * t->a.block, *b = t->b.data + n * t->b.block;
    float *c = t->c + (m * t->ldc + n) * ATTN__BF16X3_SIDE;
    begin_square(t, c, tall, wide);
    if (t->k > 0 && t->parts == ATTN__BF16X3_F32)
        sum_square(t, a, b, ATTN__BF16X3_F32, tall, wide, interleaved);
    else if (t->k > 0)
        sum_square(t, a, b, 1, tall, wide, interleaved);
    store_square(t, c, tall, wide);
}

BF16X3_FN void multiply_all(const attn__bf16x3_args *t, attn__interleaved *interleaved)
{
    for (int64_t n = 0; n < t->n; n += 2) {
        bool wide = n + 1 < t->n;
        for (int64_t m = 0; m < t->m; m += 2) {
            bool tall = m + 1 < t->m;
            if (tall && wide)
                product(t, m, n, true, true, interleaved);
            else if (tall)
                product(t, m, n, true, false, interleaved);
            else if (wide)
                product(t, m, n, false, true, interleaved);
            else
                product(t, m, n, false, false, interleaved);
        }
    }
}

static void run(const attn__bf16x3_args *t)
{
    multiply_all(t, NULL);
}

#include "kernels/bf16x3/bf16x3_interleaved.h"

static void weigh(const attn__bf16x3_softmax *softmax, const attn__bf16x3_args *products, int count,
                  attn__tile_hook hook)
{
    weighing interleaved = weighing_of(softmax, hook, count > 0 ? products->parts : ATTN__BF16X3_F32);
    for (int i = 0; i < count; i++)
        multiply_all(&products[i], &interleaved.interleaved);
    if (softmax)
        finish_weighing(&interleaved);
}

static const attn__bf16x3_kernel kernel = {
    ATTN_ISA_AMX, begin, end, run, run_interleaved, split_rows, split_pairs, transpose, refer, weigh,
};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const attn__bf16x3_kernel *attn__bf16x3_for(attn__isa isa)
{
    return isa >= ATTN_ISA_AMX ? &kernel : NULL;
}
#else
const attn__bf16x3_kernel *attn__bf16x3_for(attn__isa isa)
{
    (void)isa;
    return NULL;
}
#endif
