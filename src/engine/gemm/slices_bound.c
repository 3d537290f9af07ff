/* SPDX-License-Identifier: MIT
 *
 * slices_bound.c - the bounds that `decide` uses. docs/numerics.md proves them.
 *
 * In units of the last slice, the error of a K block, divided by the number of its terms, is at most
 *
 *     (q_a + q_b)/2 + 1/4 + d2_a d2_b + ROUNDING + [256 (d1_a d2_b + d2_a d1_b): six products only]
 *
 * by the Cauchy-Schwarz inequality. q, d1 and d2 are root mean squares. ROUNDING bounds the three roundings of the
 * epilogue before the sum of the highest slices.  If a share N_a(s) of the |a| is at least s, and a share N_b(t) of the
 * |b| is at least t, then both hold for a share of at least N_a + N_b - 1 of the pairs. The mean of |a||b| is therefore
 * at least the sum of rise_s rise_t max(0, N_a + N_b - 1) over all levels s and t.
 */
#include "gemm/slices.h"

#include <math.h>
#include <string.h>

enum { SIDE = ATTN__SLICES_SIDE, LEVELS = ATTN__SLICES_LEVELS, SHARES = ATTN__SLICES_SHARES };
enum { ALL = (SHARES - 1) << ATTN__SLICES_FINE }; /* the count if all numbers of a K block reach a level */
enum { LEAST_EXPONENT = 31, MOST_EXPONENT = 175, SCALE_BIAS = 276, INVERSE_BIAS = 6, MANTISSA = 23 };

const uint8_t attn__slices_level[LEVELS] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

/* If |d0| >= c, then |x| >= 65536 c - 32896 - 1/2, which is at least 65536 (c - 0.502). */
#define RISE(c) (65536.0f * (c))
const float attn__slices_rise[LEVELS] = {RISE(0.498f), RISE(1), RISE(1), RISE(1), RISE(2),  RISE(2),
                                         RISE(4),      RISE(4), RISE(8), RISE(8), RISE(16), RISE(16)};

/* Adding up the K blocks and rounding their last sums subtracts at most 2 per block + 4 from k. 2^-8 covers the
 * roundings of the bounds themselves. */
float attn__slices_limit(int64_t k)
{
    int64_t blocks = (k + ATTN__SLICES_K_BLOCK - 1) / ATTN__SLICES_K_BLOCK;
    return (float)(k - 2 * blocks - 4) * (0x1p-24f * (1 - 0x1p-8f));
}

/* If the largest |x| is below 2^e / margin, the scale is 2^(23-e), so that the first slice is at most 127. If the
 * largest |x| is below 2^-96 or above 2^48, multiply-adds are used, because a sum could be subnormal or overflow. */
attn__slices_scale attn__slices_scale_of(uint32_t largest)
{
    const float margin = 1.00395f;
    attn__slices_scale s = {0, 0};
    float x;
    if (largest == 0)
        return s;
    memcpy(&x, &largest, sizeof x);
    x *= margin;
    memcpy(&largest, &x, sizeof largest);
    uint32_t e = largest >> MANTISSA;
    if (e < LEAST_EXPONENT || e > MOST_EXPONENT)
        return (attn__slices_scale){0, NAN};
    uint32_t scale = (SCALE_BIAS - e) << MANTISSA, inverse = (e - INVERSE_BIAS) << MANTISSA;
    memcpy(&s.scale, &scale, sizeof scale);
    memcpy(&s.inverse, &inverse, sizeof inverse);
    return s;
}

void attn__slices_note_none(attn__slices_rows *rows, int64_t lane)
{
    rows->inverse[lane] = rows->q[lane] = rows->d1[lane] = rows->d2[lane] = 0;
    rows->lift[lane] = INFINITY;
    for (int i = 0; i < LEVELS; i++)
        rows->count[i][lane] = 0;
}

void attn__slices_copy_lane(attn__slices_rows *to, int64_t to_lane, const attn__slices_rows *from, int64_t lane)
{
    to->inverse[to_lane] = from->inverse[lane];
    to->q[to_lane] = from->q[lane];
    to->d1[to_lane] = from->d1[lane];
    to->d2[to_lane] = from->d2[lane];
    to->lift[to_lane] = from->lift[lane];
    for (int i = 0; i < LEVELS; i++)
        to->count[i][to_lane] = from->count[i][lane];
}

/* Counts are rounded down after adding 2^-10. The addition only undoes the rounding of 1/n: since n <= 384, a fraction
 * is at least 1/384 below the next integer. */
void attn__slices_note(attn__slices_rows *rows, int64_t lane, attn__slices_scale scale, int64_t n,
                       const int32_t count[LEVELS], const int32_t sums[ATTN__SLICES])
{
    const float one_more = 1 + 0x1p-10f, not_full = 128.0f / 127; /* not_full: the sums of squares take 128 as 127 */
    float each = 1.0f / (float)n;
    if (scale.inverse == 0) {
        attn__slices_note_none(rows, lane);
        return;
    }
    rows->inverse[lane] = scale.inverse;
    rows->q[lane] = isnan(scale.inverse) ? NAN : 65536.0f * one_more * sqrtf((float)sums[0] * each) + 32900.0f;
    rows->d1[lane] = one_more * sqrtf((float)sums[1] * each * not_full);
    rows->d2[lane] = one_more * sqrtf((float)sums[2] * each * not_full);
    rows->lift[lane] = 0;
    for (int i = 0; i < LEVELS; i++)
        rows->count[i][lane] = (int32_t)((float)(ALL * count[i]) * each + 0x1p-10f);
}

void attn__slices_panel_of(const attn__slices_rows *columns, attn__slices_panel *panel)
{
    int32_t least[LEVELS];
    bool none = true, adds = false;
    *panel = (attn__slices_panel){.q = 0};
    for (int i = 0; i < LEVELS; i++)
        least[i] = ALL;
    for (int c = 0; c < SIDE; c++) {
        panel->inverse[c] = columns->inverse[c];
        if (columns->inverse[c] == 0) /* a sum of zeros is exact, so no bound is needed */
            continue;
        none = false;
        adds = adds || isnan(columns->q[c]);
        panel->q = fmaxf(panel->q, columns->q[c]);
        panel->d1 = fmaxf(panel->d1, columns->d1[c]);
        panel->d2 = fmaxf(panel->d2, columns->d2[c]);
        for (int i = 0; i < LEVELS; i++)
            least[i] = columns->count[i][c] < least[i] ? columns->count[i][c] : least[i];
    }
    panel->q = adds ? NAN : panel->q;
    for (int t = 0; t < SHARES; t++) {
        float sum = none ? INFINITY : 0;
        for (int i = 0; i < LEVELS; i++) {
            int32_t both = (t << ATTN__SLICES_FINE) + least[i] - ALL;
            sum += attn__slices_rise[i] * ((float)(both > 0 ? both : 0) / ALL);
        }
        panel->table[t] = sum;
    }
}

void attn__slices_panel_join(attn__slices_panel *all, const attn__slices_panel *panel)
{
    all->q = fmaxf(all->q, panel->q);
    all->d1 = fmaxf(all->d1, panel->d1);
    all->d2 = fmaxf(all->d2, panel->d2);
    for (int t = 0; t < SHARES; t++)
        all->table[t] = fminf(all->table[t], panel->table[t]);
}
