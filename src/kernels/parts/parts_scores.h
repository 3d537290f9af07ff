/* SPDX-License-Identifier: MIT
 *
 * parts_scores.h - scores of f32 from digits, beside vector work; included by parts.c within its region of the
 * instruction set.
 *
 * A square of 16 keys by 16 queries is six products for each 64 channels, into one register for each of the weights 1
 * and 2^-8 and two for 2^-16.  One square's registers become the next one's in the order in which their sums are
 * whole, so that the unit never waits for a sum.  The sums of the square before the last become floats meanwhile.
 */

enum { DIGIT_TILE = ATTN__DIGITS_TILE, DIGIT_STEP = ATTN__DIGITS_STEP, SUMS = ATTN__DIGITS_SQUARE, AT_A_TIME = 4 };

/* A square whose sums are to become floats; `to` NULL: there is none. */
typedef struct square_rest {
    const float *unit;
    float *to;
} square_rest;

/* Rows 4 i to 4 i + 3.  The first of the sums are below 2^22 and exact; the others together are within 32 bits, of up to
 * 256 channels. */
PARTS_FN void finish_rows(const square_rest *x, int i, const int32_t *sums, int64_t ld, __m512 *top)
{
    if (!x->to)
        return;
    __m512 s[AT_A_TIME];
    sums += i * AT_A_TIME * ATTN__PARTS_SIDE;
    float *to = x->to + i * AT_A_TIME * ld;
    VF_UNROLL
    for (int j = 0; j < AT_A_TIME; j++, sums += ATTN__PARTS_SIDE) {
        __m512i low = _mm512_add_epi32(_mm512_load_si512(sums + 2 * SUMS), _mm512_load_si512(sums + 3 * SUMS));
        low = _mm512_add_epi32(low, _mm512_slli_epi32(_mm512_load_si512(sums + SUMS), 8));
        s[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), _mm512_set1_ps(0x1p16f),
                               _mm512_cvtepi32_ps(low));
        s[j] = _mm512_mul_ps(s[j], _mm512_set1_ps(x->unit[i * AT_A_TIME + j]));
        _mm512_storeu_ps(to + j * ld, s[j]);
    }
    *top = _mm512_max_ps(s[0], *top);
    VF_UNROLL
    for (int j = 1; j < AT_A_TIME; j++)
        *top = _mm512_max_ps(s[j], *top);
}

PARTS_FN void finish_square(const square_rest *x, const int32_t *sums, int64_t ld, __m512 *top)
{
    for (int i = 0; i < ATTN__PARTS_SIDE / AT_A_TIME; i++)
        finish_rows(x, i, sums, ld, top);
}

/* A register's sums go where those of its weight are; the register is free then. */
#define LEAVE(reg, weight)                                                                                             \
    do {                                                                                                               \
        _tile_stored(reg, leave + (weight)*SUMS, 64);                                                                  \
        _tile_zero(reg);                                                                                               \
    } while (0)

/* One step of a square, whose sums are in registers R0 to R3 of these weights; `first`: of the square.  The registers held
 * the weights 1, 2, 3 and 0 of the square before, in that order from R1 on. */
#define STEP_OF_SCORES(name, R0, R1, R2, R3)                                                                           \
    PARTS_FN void name(const int8_t *a, const int8_t *b, const int8_t *next_a, const int8_t *next_b, bool first,       \
                       int32_t *leave, const square_rest *rest, const int32_t *sums, int64_t ld, __m512 *top)          \
    {                                                                                                                  \
        if (first)                                                                                                     \
            LEAVE(R1, 0);                                                                                              \
        _tile_dpbssd(R1, 4, 7);                                                                                        \
        if (first)                                                                                                     \
            LEAVE(R2, 1);                                                                                              \
        _tile_dpbssd(R2, 5, 7);                                                                                        \
        _tile_loadd(7, b + 2 * DIGIT_TILE, 64);                                                                        \
        if (first)                                                                                                     \
            finish_rows(rest, 0, sums, ld, top);                                                                       \
        if (first)                                                                                                     \
            LEAVE(R0, 3);                                                                                              \
        _tile_dpbssd(R0, 4, 6);                                                                                        \
        _tile_dpbssd(R1, 5, 6);                                                                                        \
        _tile_loadd(5, a + 2 * DIGIT_TILE, 64);                                                                        \
        if (first)                                                                                                     \
            finish_rows(rest, 1, sums, ld, top);                                                                       \
        if (first)                                                                                                     \
            LEAVE(R3, 2);                                                                                              \
        _tile_dpbssd(R3, 4, 7);                                                                                        \
        _tile_loadd(4, next_a, 64);                                                                                    \
        _tile_loadd(7, next_b + DIGIT_TILE, 64);                                                                       \
        if (first)                                                                                                     \
            finish_rows(rest, 2, sums, ld, top);                                                                       \
        _tile_dpbssd(R2, 5, 6);                                                                                        \
        _tile_loadd(6, next_b, 64);                                                                                    \
        _tile_loadd(5, next_a + DIGIT_TILE, 64);                                                                       \
        if (first)                                                                                                     \
            finish_rows(rest, 3, sums, ld, top);                                                                       \
    }                                                                                                                  \
    PARTS_FN void name##_end(int32_t *leave)                                                                           \
    {                                                                                                                  \
        LEAVE(R0, 0);                                                                                                  \
        LEAVE(R1, 1);                                                                                                  \
        LEAVE(R3, 3);                                                                                                  \
        LEAVE(R2, 2);                                                                                                  \
    }

STEP_OF_SCORES(step_0, 0, 1, 2, 3)
STEP_OF_SCORES(step_1, 3, 0, 1, 2)
STEP_OF_SCORES(step_2, 2, 3, 0, 1)
STEP_OF_SCORES(step_3, 1, 2, 3, 0)

/* Where it has come to: the square in the registers, its operands, and what becomes floats meanwhile and after that. */
typedef struct scoring {
    int64_t i, count;
    square_rest rest, before, now;
    const int8_t *a, *b;
} scoring;

/* Square i: keys below each other, of each up to two columns of queries. */
PARTS_FN square_rest score_at(const attn__parts_scores *t, int64_t i, const int8_t **a, const int8_t **b)
{
    int64_t m = t->n == 2 ? i / 2 : i, n = t->n == 2 ? i % 2 : 0, block = t->steps * DIGIT_STEP;
    *a = t->keys + m * block;
    *b = t->queries + n * block;
    return (square_rest){t->unit + m * ATTN__PARTS_SIDE, t->s + (m * t->ld + n) * ATTN__PARTS_SIDE};
}

/* All steps of a square; the first tiles of the next one are loaded last.  The lanes' largest and the places of sums stay
 * what they are in an even, or an odd, turn. */
#define SCORE_SQUARE(turn)                                                                                             \
    do {                                                                                                               \
        const int8_t *after_a, *after_b, *a = x.a, *b = x.b;                                                           \
        square_rest next = score_at(t, x.i + 1 < x.count ? x.i + 1 : x.i, &after_a, &after_b);                         \
        for (int64_t k = 0; k < t->steps; k++, a += DIGIT_STEP, b += DIGIT_STEP) {                                     \
            bool more = k + 1 < t->steps;                                                                              \
            const int8_t *next_a = more ? a + DIGIT_STEP : after_a, *next_b = more ? b + DIGIT_STEP : after_b;         \
            if (k == 0)                                                                                                \
                step_##turn(a, b, next_a, next_b, true, sums[(turn + 1) % 2], &x.rest, sums[turn % 2], t->ld,          \
                            turn % 2 ? &top1 : &top0);                                                                 \
            else                                                                                                       \
                step_##turn(a, b, next_a, next_b, false, NULL, NULL, NULL, 0, NULL);                                   \
            go_on(beside);                                                                                             \
        }                                                                                                              \
        x.rest = x.before;                                                                                             \
        x.before = x.now;                                                                                              \
        x.now = next;                                                                                                  \
        x.a = after_a;                                                                                                 \
        x.b = after_b;                                                                                                 \
        if (++x.i == x.count) {                                                                                        \
            step_##turn##_end(sums[turn % 2]);                                                                         \
            finish_square(&x.rest, sums[(turn + 1) % 2], t->ld, turn % 2 ? &top0 : &top1);                             \
            finish_square(&x.before, sums[turn % 2], t->ld, turn % 2 ? &top1 : &top0);                                 \
            goto end;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Called, not inlined: the products of parts beside it were 4 % slower. */
static __attribute__((noinline)) void score_all(const attn__parts_scores *t, attn__parts_beside *beside)
{
    int32_t _Alignas(64) sums[2][4 * SUMS]; /* by weights, of two squares in turns */
    scoring x = {.count = t->m * t->n};
    __m512 top0 = _mm512_set1_ps(-INFINITY), top1 = top0;
    x.now = score_at(t, 0, &x.a, &x.b);
    _tile_loadd(4, x.a, 64);
    _tile_loadd(6, x.b, 64);
    _tile_loadd(7, x.b + DIGIT_TILE, 64);
    _tile_loadd(5, x.a + DIGIT_TILE, 64);
    for (;;) {
        SCORE_SQUARE(0);
        SCORE_SQUARE(1);
        SCORE_SQUARE(2);
        SCORE_SQUARE(3);
    }
end:
    _mm512_storeu_ps(t->top, t->n == 1 ? _mm512_max_ps(top0, top1) : top0);
    if (t->n > 1)
        _mm512_storeu_ps(t->top + ATTN__PARTS_SIDE, top1);
}
