/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares the kernels online_softmax and softmax_backward of every instruction set of the machine with loops over
 * single numbers that follow the contracts in their headers, for every combination of optional arguments.
 */
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/rng.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/softmax_backward/softmax_backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INF ((float)INFINITY)
enum { ROWS = 5, MOST_LANES = 16, WIDTH = 3 * MOST_LANES, TILE = ROWS * WIDTH };

typedef struct tile {
    _Alignas(64) float at[TILE];
} tile;

static float number(attn__rng *g, double size)
{
    return (float)(size * attn__rng_normal(g));
}

static void assert_near(float got, double want, double size, int isa, const char *what, int64_t i)
{
    if ((isnan(got) && isnan(want)) || (double)got == want || fabs((double)got - want) <= 1e-5 * (size + fabs(want)))
        return;
    fail_msg("%s: %s[%lld] is %.9g, not %.9g", attn__isa_text((attn__isa)isa), what, (long long)i, (double)got, want);
}

/* Advances to the next instruction set of the machine; begin with -1. Returns false after the last one. */
static bool next_isa(int *isa)
{
    while (++*isa < ATTN_ISA_COUNT)
        if (attn__isa_runs_here((attn__isa)*isa))
            return true;
    return false;
}

/* ------------------------------------------------------------------------------------- softmax, backward */

/* The optional arguments. FULL rows attend to all keys, PART rows to some; if MASK is set, a mask hides some. */
enum {
    DP = 1,
    MASK = 2,
    SOFTCAP = 4,
    BIAS = 8,
    DBIAS = 16,
    FILL = 32,
    DROPOUT = 64,
    ALIVE = 128,
    PART = 256,
    COMBINATIONS = 512
};

typedef struct backward {
    attn__softmax_backward_args args;
    tile s, dp, bias, dbias;
    uint8_t mask[TILE], alive[TILE];
    float lse[ROWS], delta[ROWS], fill[ROWS];
    int32_t from[ROWS], to[ROWS], column[WIDTH];
    uint64_t key[ROWS];
    unsigned with;
} backward;

/* Scores are so small that many weights are 0. Some biases are -infinity, and dP of some pairs is NaN. */
static void make_backward(backward *b, unsigned with, int64_t keys, int lanes, uint64_t seed)
{
    attn__rng g = {.seed = seed};
    int64_t ld = (keys + lanes - 1) / lanes * lanes;
    memset(b, 0, sizeof *b);
    b->with = with;
    for (int64_t i = 0; i < TILE; i++) {
        b->s.at[i] = attn__rng_below(&g, 3) ? number(&g, 3) : -900;
        b->dp.at[i] = attn__rng_below(&g, 6) ? number(&g, 1) : (float)NAN;
        b->bias.at[i] = attn__rng_below(&g, 4) ? number(&g, 1) : -INF;
        b->mask[i] = attn__rng_below(&g, 3) ? (uint8_t)(1 + attn__rng_below(&g, 255)) : 0;
        b->dbias.at[i] = 77, b->alive[i] = 77;
    }
    for (int r = 0; r < ROWS; r++) {
        b->lse[r] = 5 + number(&g, 1), b->delta[r] = number(&g, 1);
        b->fill[r] = r % 2 ? -3 : -INF;
        b->from[r] = with & PART ? (int32_t)attn__rng_below(&g, (uint64_t)keys + 4) + 98 : 0;
        b->to[r] = with & PART ? b->from[r] + (int32_t)attn__rng_below(&g, (uint64_t)keys + 2) : (int32_t)keys + 100;
        b->to[r] = b->to[r] < (int32_t)keys + 100 ? b->to[r] : (int32_t)keys + 100;
        b->key[r] = attn__mix64(seed + (uint64_t)r);
    }
    for (int j = 0; j < WIDTH; j++)
        b->column[j] = 3 + 7 * j;
    b->args = (attn__softmax_backward_args){.rows = ROWS,
                                            .keys = keys,
                                            .ld = ld,
                                            .s = b->s.at,
                                            .dp = with & DP ? b->dp.at : NULL,
                                            .lse = b->lse,
                                            .delta = b->delta,
                                            .from = b->from,
                                            .to = b->to,
                                            .first = 100,
                                            .mask = with & MASK ? b->mask : NULL,
                                            .softcap = with & SOFTCAP ? 4.0f : 0.0f,
                                            .bias = with & BIAS ? b->bias.at : NULL,
                                            .dbias = with & DBIAS ? b->dbias.at : NULL,
                                            .fill = with & FILL ? b->fill : NULL,
                                            .drop_key = with & DROPOUT ? b->key : NULL,
                                            .drop_column = with & DROPOUT ? b->column : NULL,
                                            .drop_below = attn__dropout_threshold(0.4),
                                            .drop_scale = 1 / 0.6f,
                                            .alive = with & ALIVE ? b->alive : NULL};
}

/* The results for one pair by the contract. */
typedef struct pair {
    double weight, dscore, dbias, size; /* size: of the terms of dscore */
    bool alive, counted;                /* terms in dS and in dV */
} pair;

static pair pair_of(const backward *before, int r, int64_t j)
{
    const attn__softmax_backward_args *a = &before->args;
    int64_t i = r * a->ld + j, key = a->first + j;
    bool kept = !a->drop_key || attn__dropout_bits(a->drop_key[r], (uint32_t)a->drop_column[j]) >= a->drop_below;
    double keep = !a->drop_key ? 1 : kept ? (double)a->drop_scale : 0, slope = 1, score = (double)before->s.at[i];
    if (key < a->from[r] || key >= a->to[r] || (a->mask && !a->mask[i])) {
        double fill = a->fill ? exp2((double)a->fill[r]) : 0;
        return (pair){.weight = fill * keep, .counted = kept && fill != 0};
    }
    if (a->softcap != 0) {
        double t = tanh(score / (double)a->softcap);
        score = (double)a->softcap * t, slope = 1 - t * t;
    }
    score += a->bias ? (double)a->bias[i] * 1.4426950408889634 : 0;
    if (score == (double)-INFINITY)
        return (pair){0};
    double weight = exp2(fmin(0, score - (double)a->lse[r]));
    if (weight < 0x1p-126)
        weight = 0;
    double dweight = a->dp && kept ? (double)before->dp.at[i] * keep : 0, delta = (double)a->delta[r];
    return (pair){.weight = weight * keep,
                  .dscore = weight * (dweight - delta) * slope,
                  .dbias = weight * (dweight - delta),
                  .size = weight * (isnan(dweight) ? 0 : fabs(dweight) + fabs(delta)),
                  .alive = true,
                  .counted = kept};
}

static void compare_backward(const backward *before, const backward *after, int isa)
{
    const attn__softmax_backward_args *a = &before->args;
    char what[64];
    for (int r = 0; r < ROWS; r++)
        for (int64_t j = 0; j < a->ld; j++) {
            int64_t i = r * a->ld + j;
            pair p = j < a->keys ? pair_of(before, r, j) : (pair){0};
            snprintf(what, sizeof what, "with 0x%x, %d keys, weight", before->with, (int)a->keys);
            assert_near(after->s.at[i], p.weight, 0.1 * p.weight, isa, what, i);
            snprintf(what, sizeof what, "with 0x%x, %d keys, dS", before->with, (int)a->keys);
            if (a->dp)
                assert_near(after->dp.at[i], p.dscore, 8 * p.size, isa, what, i);
            snprintf(what, sizeof what, "with 0x%x, %d keys, dbias", before->with, (int)a->keys);
            if (a->dbias && j < a->keys)
                assert_near(after->dbias.at[i], p.dbias, 8 * p.size, isa, what, i);
            if (a->alive && j < a->keys && after->alive[i] != (p.alive ? 1 : 0) + (p.counted ? 2 : 0))
                fail_msg("%s: with 0x%x, %d keys: alive[%d] is %d, not %d", attn__isa_text((attn__isa)isa),
                         before->with, (int)a->keys, (int)i, after->alive[i], (p.alive ? 1 : 0) + (p.counted ? 2 : 0));
        }
}

/* Runs `check` on the kernel's results for every combination of optional arguments. A gradient of the bias needs dS. */
static void each_backward(void (*check)(const backward *before, const backward *after, int isa))
{
    for (int isa = -1; next_isa(&isa);) {
        const attn__softmax_backward_kernel *kernel = attn__softmax_backward_for((attn__isa)isa);
        int64_t sizes[] = {1, kernel->lanes, kernel->lanes + 3, 2 * kernel->lanes};
        for (unsigned with = 0; with < COMBINATIONS; with++)
            for (int n = 0; n < 4 && (!(with & DBIAS) || with & DP); n++) {
                static backward before, after;
                make_backward(&before, with, sizes[n], kernel->lanes, with * 4 + (unsigned)n);
                make_backward(&after, with, sizes[n], kernel->lanes, with * 4 + (unsigned)n);
                kernel->weights(&after.args);
                check(&before, &after, isa);
            }
    }
}

static void backward_weights_follow_the_formulas(void **state)
{
    (void)state;
    each_backward(compare_backward);
}

static void assert_plain_is_the_same(const backward *before, const backward *after, int isa)
{
    const attn__softmax_backward_args *a = &before->args;
    static backward plain;
    if (before->with & ~(unsigned)DP)
        return;
    make_backward(&plain, before->with, a->keys, (int)a->ld, before->with);
    memcpy(&plain.s, &before->s, sizeof plain.s);
    memcpy(&plain.dp, &before->dp, sizeof plain.dp);
    memcpy(plain.lse, before->lse, sizeof plain.lse);
    memcpy(plain.delta, before->delta, sizeof plain.delta);
    plain.args.full = true;
    plain.args.from = plain.args.to = NULL;
    attn__softmax_backward_for((attn__isa)isa)->weights(&plain.args);
    assert_memory_equal(&plain.s, &after->s, sizeof plain.s);
    assert_memory_equal(&plain.dp, &after->dp, sizeof plain.dp);
}

static void plain_rows_have_the_bits_of_rows_with_ranges(void **state)
{
    (void)state;
    each_backward(assert_plain_is_the_same);
}

static void rows_whose_lse_is_infinite_become_zeros(void **state)
{
    (void)state;
    for (int isa = -1; next_isa(&isa);) {
        static backward b;
        const attn__softmax_backward_kernel *kernel = attn__softmax_backward_for((attn__isa)isa);
        for (unsigned with = 0; with < COMBINATIONS; with++) {
            if (with & FILL || (with & DBIAS && !(with & DP)))
                continue;
            make_backward(&b, with, kernel->lanes + 1, kernel->lanes, with);
            for (int64_t i = 0; i < TILE; i++)
                b.dp.at[i] = isnan(b.dp.at[i]) ? 1 : b.dp.at[i];
            b.lse[2] = INF;
            kernel->weights(&b.args);
            for (int64_t i = 2 * b.args.ld; i < 3 * b.args.ld; i++) {
                assert_true(b.s.at[i] == 0);
                assert_true(!b.args.dp || b.dp.at[i] == 0);
            }
        }
    }
}

/* ----------------------------------------------------------------------------------------- online softmax */

static void online_softmax_keeps_weights_and_sums(void **state)
{
    (void)state;
    for (int isa = -1; next_isa(&isa);) {
        const attn__online_softmax_kernel *kernel = attn__online_softmax_for((attn__isa)isa);
        int64_t width = 2 * kernel->lanes;
        attn__rng g = {.seed = 7};
        float m[WIDTH], l[WIDTH], shrink[WIDTH];
        double sum[WIDTH], most[WIDTH];
        for (int64_t i = 0; i < width; i++)
            m[i] = -INF, l[i] = 0, sum[i] = 0, most[i] = (double)-INFINITY;
        for (int step = 0; step < 6; step++) {
            static tile s, p, other;
            float top[WIDTH], m_was[WIDTH], m_other[WIDTH], l_other[WIDTH], shrink_other[WIDTH];
            bool changed = false, changed_other = false, any = false;
            for (int64_t i = 0; i < ROWS * width; i++)
                s.at[i] = i % width == 0 || (step == 0 && i % width == 1) ? -INF : number(&g, 4) + 8 * (float)step;
            p = s, other = s;
            for (int64_t i = 0; i < width; i++) {
                m_was[i] = m_other[i] = m[i], l_other[i] = l[i], top[i] = -INF;
                for (int64_t r = 0; r < ROWS; r++)
                    top[i] = fmaxf(top[i], s.at[r * width + i]);
                double before = most[i];
                most[i] = fmax(most[i], (double)top[i]);
                sum[i] *= before > (double)-INFINITY ? exp2(before - most[i]) : 0;
                for (int64_t r = 0; r < ROWS && most[i] > (double)-INFINITY; r++)
                    sum[i] += exp2((double)s.at[r * width + i] - most[i]);
            }
            kernel->softmax(&(attn__online_softmax_args){p.at, ROWS, width, NULL, m, l, shrink, &changed});
            kernel->softmax(&(attn__online_softmax_args){other.at, ROWS, width, top, m_other, l_other, shrink_other,
                                                         &changed_other});
            assert_memory_equal(p.at, other.at, sizeof p.at);
            assert_memory_equal(m, m_other, (size_t)width * sizeof *m);
            assert_memory_equal(l, l_other, (size_t)width * sizeof *l);
            assert_memory_equal(shrink, shrink_other, (size_t)width * sizeof *shrink);
            for (int64_t i = 0; i < width; i++) {
                bool none = most[i] == (double)-INFINITY;
                any = any || shrink[i] != 1;
                assert_near(shrink[i], m_was[i] > -INF ? exp2((double)(m_was[i] - m[i])) : (double)shrink[i], 0, isa,
                            "shrink", i);
                assert_near(l[i], none ? 0 : sum[i] * exp2(most[i] - (double)m[i]), 0, isa, "l", i);
                for (int64_t r = 0; r < ROWS; r++)
                    assert_near(p.at[r * width + i], none ? 0 : exp2((double)(s.at[r * width + i] - m[i])), 0, isa, "p",
                                r * width + i);
            }
            assert_int_equal(changed, any);
            assert_int_equal(changed_other, any);
        }
    }
}

static void nan_stays_in_its_lane(void **state)
{
    (void)state;
    for (int isa = -1; next_isa(&isa);) {
        const attn__online_softmax_kernel *kernel = attn__online_softmax_for((attn__isa)isa);
        int64_t width = kernel->lanes;
        tile s;
        float m[WIDTH], l[WIDTH], shrink[WIDTH];
        bool changed = false;
        for (int64_t i = 0; i < TILE; i++)
            s.at[i] = (float)(i % 5);
        for (int64_t i = 0; i < width; i++)
            m[i] = -INF, l[i] = 0;
        s.at[2 * width] = (float)NAN;
        kernel->softmax(&(attn__online_softmax_args){s.at, ROWS, width, NULL, m, l, shrink, &changed});
        for (int64_t i = 0; i < width; i++)
            assert_int_equal(isnan(l[i]) != 0, i == 0);
    }
}

static void hide_limit_add_cap_and_scale_follow_their_loops(void **state)
{
    (void)state;
    const float fills[] = {-INF, -2.5f, 0};
    for (int isa = -1; next_isa(&isa);) {
        const attn__online_softmax_kernel *kernel = attn__online_softmax_for((attn__isa)isa);
        int64_t width = 2 * kernel->lanes, count = ROWS * width;
        attn__rng g = {.seed = 11};
        tile was, x, flag;
        int32_t index[ROWS] = {0, 3, 4, 9, 10}, from[WIDTH], to[WIDTH];
        float factor[WIDTH];
        for (int64_t i = 0; i < TILE; i++)
            was.at[i] = number(&g, 3), flag.at[i] = (float)attn__rng_below(&g, 2);
        for (int64_t i = 0; i < width; i++) {
            from[i] = (int32_t)attn__rng_below(&g, 6);
            to[i] = (int32_t)attn__rng_below(&g, 12);
            factor[i] = number(&g, 1);
        }
        was.at[3] = (float)NAN, was.at[width] = INF;
        for (int f = 0; f < 3; f++) {
            x = was;
            kernel->hide(x.at, flag.at, count, fills[f]);
            for (int64_t i = 0; i < count; i++)
                assert_near(x.at[i], (double)(flag.at[i] == 0 ? fills[f] : was.at[i]), 0, isa, "hide", i);
            x = was;
            kernel->limit(x.at, ROWS, width, index, from, to, fills[f]);
            for (int64_t i = 0; i < count; i++) {
                int32_t at = index[i / width];
                assert_near(x.at[i], (double)(at < from[i % width] || at >= to[i % width] ? fills[f] : was.at[i]), 0,
                            isa, "limit", i);
            }
        }
        x = was;
        kernel->add(x.at, flag.at, count, 2.5f);
        for (int64_t i = 0; i < count; i++)
            assert_near(x.at[i], (double)was.at[i] + 2.5 * (double)flag.at[i], 1, isa, "add", i);
        x = was;
        kernel->softcap(x.at, count, 4);
        for (int64_t i = 0; i < count; i++)
            assert_near(x.at[i], 4 * tanh((double)was.at[i] / 4), 0, isa, "softcap", i);
        x = was;
        kernel->scale(x.at, ROWS, width, factor);
        for (int64_t i = 0; i < count; i++)
            assert_near(x.at[i], (double)was.at[i] * (double)factor[i % width], 0, isa, "scale", i);
    }
}

/* Small scores beside a large one take another path through the kernel than small scores alone. */
static void capped_scores_do_not_depend_on_the_scores_beside_them(void **state)
{
    (void)state;
    for (int isa = -1; next_isa(&isa);) {
        const attn__online_softmax_kernel *kernel = attn__online_softmax_for((attn__isa)isa);
        const float large[] = {30, -INF, (float)NAN};
        int64_t count = 9 * kernel->lanes;
        attn__rng g = {.seed = 13};
        tile small, alone, beside;
        for (int64_t i = 0; i < TILE; i++)
            small.at[i] = 2.4f * (float)(2 * attn__rng_uniform(&g) - 1);
        alone = small;
        kernel->softcap(alone.at, count, 4);
        for (int64_t i = 0; i < count; i++) {
            beside = small;
            beside.at[i] = large[i % 3];
            kernel->softcap(beside.at, count, 4);
            assert_true(beside.at[i] != alone.at[i]);
            beside.at[i] = alone.at[i];
            assert_memory_equal(beside.at, alone.at, sizeof alone.at);
        }
    }
}

/* Gradients of each length are stored or added in f32 and in bf16, and nothing is written after them. */
static void gradients_are_stored_and_added_in_both_types(void **state)
{
    (void)state;
    for (int isa = -1; next_isa(&isa);)
        for (int n = 0; n < 3 * MOST_LANES; n++)
            for (int add = 0; add < 2; add++) {
                const attn__softmax_backward_kernel *kernel = attn__softmax_backward_for((attn__isa)isa);
                attn__rng g = {.seed = (uint64_t)n};
                float x[WIDTH], y[WIDTH + 1];
                uint16_t half[WIDTH + 1];
                for (int i = 0; i < WIDTH; i++)
                    x[i] = number(&g, 1);
                for (int i = 0; i <= WIDTH; i++)
                    y[i] = 2, half[i] = 0x4000; /* 2 */
                kernel->store(y, x, n, 3, add);
                kernel->store_bf16(half, x, n, 3, add);
                for (int i = 0; i <= WIDTH; i++) {
                    uint32_t bits = (uint32_t)half[i] << 16;
                    float got;
                    memcpy(&got, &bits, sizeof got);
                    double want = i < n ? 3 * (double)x[i] + 2 * add : 2;
                    assert_near(y[i], want, i < n ? 1 : 0, isa, "stored", i);
                    assert_near(got, want, i < n ? 400 * fabs(want) : 0, isa, "stored as bf16", i);
                }
            }
}

/* Views with and without row offsets, in each type. */
static void tiles_are_gathered_and_scattered(void **state)
{
    (void)state;
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_U8};
    for (int isa = -1; next_isa(&isa);) {
        const attn__online_softmax_kernel *kernel = attn__online_softmax_for((attn__isa)isa);
        int64_t width = 2 * kernel->lanes, lanes = width - 1, across[WIDTH], down[ROWS];
        float numbers[TILE], factor[WIDTH];
        uint16_t halves[TILE];
        uint8_t bytes[TILE];
        for (int i = 0; i < TILE; i++) {
            uint32_t bits;
            numbers[i] = (float)(i % 100) - 50;
            memcpy(&bits, &numbers[i], sizeof bits);
            halves[i] = (uint16_t)(bits >> 16), bytes[i] = (uint8_t)(i % 3);
        }
        for (int64_t i = 0; i < width; i++)
            across[i] = i * ROWS, factor[i] = 1 + (float)i;
        for (int64_t r = 0; r < ROWS; r++)
            down[r] = ROWS - 1 - r;
        for (int t = 0; t < 3; t++)
            for (int moved = 0; moved < 2; moved++) {
                tile x;
                void *base = t == 0 ? (void *)numbers : t == 1 ? (void *)halves : (void *)bytes;
                attn__lane_view view = {base, types[t], across, moved ? down : NULL, ROWS, lanes};
                kernel->gather(&view, x.at, width, 2);
                for (int64_t i = 0; i < ROWS * width; i++) {
                    int64_t lane = i % width, r = i / width, at = lane * ROWS + (moved ? down[r] : r);
                    double want = t == 2 ? (double)(bytes[at] != 0) : (double)numbers[at];
                    assert_near(x.at[i], lane < lanes ? 2 * want : 0, 0, isa, "gather", i);
                }
                if (t == 2)
                    continue;
                view.base = calloc(TILE, sizeof(float));
                assert_non_null(view.base);
                kernel->scatter(&view, x.at, width, factor);
                for (int64_t i = 0; i < ROWS * width; i++) {
                    int64_t lane = i % width, r = i / width, at = lane * ROWS + (moved ? down[r] : r);
                    uint32_t bits = t == 1 ? (uint32_t)((uint16_t *)view.base)[at] << 16 : 0;
                    float got;
                    memcpy(&got, &bits, sizeof got);
                    got = t == 1 ? got : ((float *)view.base)[at];
                    double want = lane < lanes ? (double)x.at[i] * (double)factor[lane] : 0;
                    assert_near(got, want, t == 1 ? 400 * fabs(want) : 0, isa, "scatter", i);
                }
                free(view.base);
            }
    }
}

/* ---------------------------------------------------------------------------------------- marks of dead pairs */

/* A weight that dropout drops is -0, and a weight of 0 that it keeps is +0, so that a product can tell them apart. */
static void dropped_weights_are_minus_zero(void **state)
{
    (void)state;
    for (int isa = -1; next_isa(&isa);) {
        const attn__online_softmax_kernel *kernel = attn__online_softmax_for((attn__isa)isa);
        int64_t width = 2 * kernel->lanes;
        uint32_t low[WIDTH], high[WIDTH], column[ROWS], threshold = attn__dropout_threshold(0.4);
        int64_t dropped = 0;
        tile was, p;
        for (int64_t i = 0; i < TILE; i++)
            p.at[i] = was.at[i] = i % 3 ? 0.25f : 0;
        for (int64_t i = 0; i < width; i++)
            low[i] = (uint32_t)(i * 2654435761), high[i] = (uint32_t)(i * 40503 + 1);
        for (int64_t r = 0; r < ROWS; r++)
            column[r] = (uint32_t)(5 + 3 * r);
        was.at[1] = p.at[1] = (float)NAN;
        kernel->dropout(&(attn__lane_dropout){p.at, ROWS, width, low, high, column, threshold});
        for (int64_t i = 0; i < ROWS * width; i++) {
            uint64_t key = (uint64_t)high[i % width] << 32 | low[i % width];
            bool drops = attn__dropout_bits(key, column[i / width]) < threshold;
            dropped += drops;
            assert_near(p.at[i], drops ? 0 : (double)was.at[i], 0, isa, "dropout", i);
            if (p.at[i] == 0 && (signbit(p.at[i]) != 0) != drops)
                fail_msg("%s: p[%d] is %g and is %s", attn__isa_text((attn__isa)isa), (int)i, (double)p.at[i],
                         drops ? "dropped" : "kept");
        }
        assert_in_range(dropped, ROWS * width / 5, ROWS * width * 3 / 5);
    }
}

static void assert_marks(const backward *before, const backward *after, int isa)
{
    const attn__softmax_backward_args *a = &before->args;
    for (int r = 0; r < ROWS; r++)
        for (int64_t j = 0; j < a->keys; j++) {
            int64_t i = r * a->ld + j;
            pair p = pair_of(before, r, j);
            if (after->s.at[i] == 0 && (signbit(after->s.at[i]) != 0) == p.counted)
                fail_msg("%s: with 0x%x, %d keys: weight[%d] is %g and %s", attn__isa_text((attn__isa)isa),
                         before->with, (int)a->keys, (int)i, (double)after->s.at[i],
                         p.counted ? "counts" : "does not count");
            if (a->dp && after->dp.at[i] == 0 && (signbit(after->dp.at[i]) != 0) == p.alive)
                fail_msg("%s: with 0x%x, %d keys: dS[%d] is %g and %s", attn__isa_text((attn__isa)isa), before->with,
                         (int)a->keys, (int)i, (double)after->dp.at[i], p.alive ? "counts" : "does not count");
        }
}

/* The weight of a pair without a term in dV is -0, and so is the dS of a pair without a term in dS; zeros of other
 * pairs are +0. */
static void dead_pairs_of_the_backward_pass_are_minus_zero(void **state)
{
    (void)state;
    each_backward(assert_marks);
}

RUN_TESTS(TEST(backward_weights_follow_the_formulas), TEST(plain_rows_have_the_bits_of_rows_with_ranges),
          TEST(rows_whose_lse_is_infinite_become_zeros), TEST(online_softmax_keeps_weights_and_sums),
          TEST(nan_stays_in_its_lane), TEST(hide_limit_add_cap_and_scale_follow_their_loops),
          TEST(capped_scores_do_not_depend_on_the_scores_beside_them),
          TEST(gradients_are_stored_and_added_in_both_types), TEST(tiles_are_gathered_and_scattered),
          TEST(dropped_weights_are_minus_zero), TEST(dead_pairs_of_the_backward_pass_are_minus_zero))
