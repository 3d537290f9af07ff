/* SPDX-License-Identifier: MIT
 *
 * slices_portable.c - products by int8 slices (slices.h) in plain C, with the same bits as slices_quantize.c and
 * slices_amx.c. With this file, tests can check the error bound on every machine.
 */
#include "support/slices_portable.h"

#include <math.h>
#include <string.h>

enum { SIDE = ATTN__SLICES_SIDE, DEPTH = ATTN__SLICES_DEPTH, TILE = ATTN__SLICES_TILE, STEP = ATTN__SLICES_STEP };
enum { LEVELS = ATTN__SLICES_LEVELS, ROW = 64, EACH = 4, C_TILE = ATTN__SLICES_C_TILE };

static void nothing(void)
{
}

/* -------------------------------------------------------------------------------------------------- quantize */

static uint32_t size_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

static attn__slices_scale scale(const float *x, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t size = size_of(x[i]);
        largest = size > largest ? size : largest;
    }
    return attn__slices_scale_of(largest);
}

/* Writes the three slices of x. If the scale is 0, the slices are zeros. No row that passes the test has scale 0,
 * unless all its numbers are zero. */
static void quantize_one(float x, float by, int8_t *to)
{
    uint32_t bytes = (uint32_t)(by == 0 ? 0 : (int32_t)lrintf(x * by)) + 0x808080u;
    for (int i = 0; i < ATTN__SLICES; i++)
        to[i * TILE] = (int8_t)((int)(bytes >> (16 - 8 * i) & 0xff) - 128);
}

static void quantize(const float *x, float by, int64_t n, int8_t *row)
{
    int64_t whole = (n + DEPTH - 1) / DEPTH * DEPTH;
    for (int64_t i = 0; i < whole; i++)
        quantize_one(i < n ? x[i] : 0, by, row + i / DEPTH * STEP + i % DEPTH);
}

static void transpose(int8_t *tiles, int64_t count)
{
    for (int64_t i = 0; i < count; i++, tiles += TILE) {
        int8_t from[TILE];
        memcpy(from, tiles, sizeof from);
        for (int r = 0; r < SIDE; r++)
            for (int c = 0; c < SIDE; c++)
                memcpy(tiles + r * ROW + c * EACH, from + c * ROW + r * EACH, EACH);
    }
}

static void store(const float *x, float *y, int64_t n, bool add)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = add ? y[i] + x[i] : x[i];
}

/* --------------------------------------------------------------------------------------------------- measure */

static void tally(const int8_t *slices, int32_t count[LEVELS], int32_t sums[ATTN__SLICES])
{
    for (int i = 0; i < ATTN__SLICES; i++) {
        int size = slices[i * TILE] < 0 ? -slices[i * TILE] : slices[i * TILE];
        sums[i] += size * (size < 127 ? size : 127);
        for (int j = 0; j < LEVELS && i == 0; j++)
            count[j] += size >= attn__slices_level[j];
    }
}

static void measure(const int8_t *row, int64_t n, attn__slices_scale by, attn__slices_rows *rows, int64_t lane)
{
    int32_t count[LEVELS] = {0}, sums[ATTN__SLICES] = {0};
    for (int64_t i = 0; i < n; i++)
        tally(row + i / DEPTH * STEP + i % DEPTH, count, sums);
    attn__slices_note(rows, lane, by, n, count, sums);
}

/* ---------------------------------------------------------------------------------------------------- decide */

static attn__slices_choice decide(const attn__slices_rows *rows, const attn__slices_panel *panel, float limit)
{
    attn__slices_choice choice = {0, 0};
    for (int i = 0; i < SIDE; i++) {
        float bound = rows->lift[i];
        for (int j = 0; j < LEVELS; j++)
            bound = fmaf(attn__slices_rise[j], panel->table[rows->count[j][i] >> ATTN__SLICES_FINE], bound);
        bound *= limit;
        float eight = fmaf(rows->q[i] + panel->q, 0.5f, ATTN__SLICES_ROUNDING + 0.25f);
        eight = fmaf(rows->d2[i], panel->d2, eight);
        float six = fmaf(rows->d1[i], 256 * panel->d2, eight);
        six = fmaf(rows->d2[i], 256 * panel->d1, six);
        if (six <= bound)
            continue;
        if (eight <= bound)
            choice.eight |= (uint16_t)(1u << i);
        else
            choice.multiply_adds |= (uint16_t)(1u << i);
    }
    return choice;
}

/* --------------------------------------------------------------------------------------------------- product */

static int32_t dot(const int8_t *a, const int8_t *b, int64_t steps)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < steps * DEPTH; k++)
        sum += a[k / DEPTH * STEP + k % DEPTH] * b[k / DEPTH * STEP + k % DEPTH / EACH * ROW + k % EACH];
    return sum;
}

static float sum_of(const attn__slices_args *t, const int8_t *a, const int8_t *b, bool eight)
{
    int32_t s[ATTN__SLICES][ATTN__SLICES];
    for (int i = 0; i < ATTN__SLICES; i++)
        for (int j = 0; j < ATTN__SLICES; j++)
            s[i][j] = i + j < (eight ? 4 : 3) ? dot(a + i * TILE, b + j * TILE, t->steps) : 0;
    float x = eight ? (float)(s[1][2] + s[2][1]) * 0x1p-24f : 0;
    x = fmaf((float)(s[0][2] + s[1][1] + s[2][0]), 0x1p-16f, x);
    x = fmaf((float)(s[0][1] + s[1][0]), 0x1p-8f, x);
    return (float)s[0][0] + x;
}

static void run_tile(const attn__slices_args *t, int64_t m)
{
    attn__slices_choice choice = decide(t->rows + m, t->panel, t->limit);
    for (int64_t i = 0; i < C_TILE; i++) {
        int64_t r = i / SIDE, c = i % SIDE;
        const int8_t *a = t->a + m * t->block + r * ROW, *b = t->b + c * EACH;
        float x = sum_of(t, a, b, choice.eight >> r & 1) * t->rows[m].inverse[r];
        float *to = t->to + (m * SIDE + r) * t->ld + c;
        *to = fmaf(x, t->panel->inverse[c], t->add ? *to : 0);
    }
}

static void run(const attn__slices_args *t, attn__slices_state *state, attn__slices_hook *hook)
{
    (void)state;
    for (int64_t m = 0; m < t->m; m++) {
        run_tile(t, m);
        for (int64_t k = 0; k < t->steps; k++)
            hook->portion(hook);
    }
}

static void finish(attn__slices_state *state)
{
    (void)state;
}

const attn__slices_kernel *attn__slices_portable(void)
{
    static const attn__slices_kernel kernel = {nothing, nothing,  run,     finish,    decide,
                                               scale,   quantize, measure, transpose, store};
    return &kernel;
}
