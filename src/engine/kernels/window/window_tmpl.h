/* SPDX-License-Identifier: MIT
 *
 * window_tmpl.h - windows for one instruction set; see window.h.
 *
 * A block is two vectors wide.  `scores` keeps TAPS x 2 sums in registers and reads one shifted strip per tap for each
 * channel. `mix` keeps WINDOW_ROWS x 2 sums over all taps and reads one shifted strip per channel. In both, each
 * multiply-add needs one load that straddles cache lines. Such a load takes two accesses, and the machine can do two
 * accesses per cycle.
 *
 * Adjacent taps whose offsets differ by one element form a run. Three loads serve up to 7 taps of a run. The vectors in
 * between are assembled by shifts in registers, on units that the products do not use. The order of the sums is the
 * same, and so are the bits.
 */
#include "simd/dropout.h"
#include "simd/exp.h"
#include "simd/softmax.h"

enum { WINDOW_VECTORS = 2, WIDTH = WINDOW_VECTORS * VF_LANES };
#if VF_REGISTERS >= 32
enum { TAPS = 7, WINDOW_ROWS = 8 };
#else
enum { TAPS = 4, WINDOW_ROWS = 4 };
#endif

/* ---------------------------------------------------------------------------------------------- products */

VF_FN void score_taps(const attn__tap_block *b, int64_t first, int taps)
{
    vf sum[TAPS][WINDOW_VECTORS];
    const float *strip[TAPS];
    VF_UNROLL
    for (int e = 0; e < taps; e++) {
        strip[e] = b->strip + b->offset[first + e];
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            sum[e][n] = vf_zero();
    }
    for (int64_t c = 0; c < b->channels; c++) {
        vf x[WINDOW_VECTORS];
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            x[n] = vf_load(b->tile + c * b->tile_ld + n * VF_LANES);
        VF_UNROLL
        for (int e = 0; e < taps; e++) {
            VF_UNROLL
            for (int n = 0; n < WINDOW_VECTORS; n++)
                sum[e][n] = vf_fma(x[n], vf_load(strip[e] + c * b->ld + n * VF_LANES), sum[e][n]);
        }
    }
    VF_UNROLL
    for (int e = 0; e < taps; e++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            vf_store(b->s + (first + e) * b->s_ld + n * VF_LANES, vf_mul(sum[e][n], vf_set1(b->factor)));
    }
}

#include "kernels/window/window_steps_tmpl.h"

#ifdef VF_SHIFT
/* Returns the length of the longest run that has compiled code and at most `left` taps. */
VF_FN int shifts_of(int64_t left)
{
    return left >= 7 ? 7 : left >= 5 ? 5 : left >= 3 ? 3 : 1;
}

/* Loads the vectors of the strip for a run. The last vector has only the elements that the last taps read. */
VF_FN void load_run(const float *strip, int taps, vf x[WINDOW_VECTORS + 1])
{
    VF_UNROLL
    for (int n = 0; n < WINDOW_VECTORS; n++)
        x[n] = vf_load(strip + n * VF_LANES);
    x[WINDOW_VECTORS] = vf_load_part(strip + WINDOW_VECTORS * VF_LANES, taps - 1);
}

VF_FN void score_run(const attn__tap_block *b, int64_t first, int taps, bool down)
{
    vf sum[TAPS][WINDOW_VECTORS], x[WINDOW_VECTORS + 1];
    const float *strip = b->strip + b->offset[down ? first + taps - 1 : first];
    VF_UNROLL
    for (int e = 0; e < taps; e++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            sum[e][n] = vf_zero();
    }
    for (int64_t c = 0; c < b->channels; c++, strip += b->ld) {
        load_run(strip, taps, x);
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++) {
            vf lane = vf_load(b->tile + c * b->tile_ld + n * VF_LANES);
            VF_UNROLL
            for (int e = 0; e < taps; e++)
                sum[e][n] = vf_fma(lane, vf_shift(x[n], x[n + 1], down ? taps - 1 - e : e), sum[e][n]);
        }
    }
    VF_UNROLL
    for (int e = 0; e < taps; e++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            vf_store(b->s + (first + e) * b->s_ld + n * VF_LANES, vf_mul(sum[e][n], vf_set1(b->factor)));
    }
}

#define WINDOW_RUN(function, length, ...)                                                                              \
    if (down)                                                                                                          \
        function(__VA_ARGS__, length, true);                                                                           \
    else                                                                                                               \
        function(__VA_ARGS__, length, false)

static void scores_by_shifts(const attn__tap_block *b)
{
    bool down = b->down;
    for (int64_t e = 0, end = 0, run; e < b->taps; e += run) {
        end = run_end(b, e, end);
        run = shifts_of(end - e);
        if (run == 7)
            WINDOW_RUN(score_run, 7, b, e);
        else if (run == 5)
            WINDOW_RUN(score_run, 5, b, e);
        else if (run == 3)
            WINDOW_RUN(score_run, 3, b, e);
        else
            score_taps(b, e, 1);
    }
}
#endif

static void scores_by_groups(const attn__tap_block *b)
{
    int64_t e = 0;
    for (; e + TAPS <= b->taps; e += TAPS)
        score_taps(b, e, TAPS);
    for (; e + 2 <= b->taps; e += 2)
        score_taps(b, e, 2);
    if (e < b->taps)
        score_taps(b, e, 1);
}

static void scores(const attn__tap_block *b)
{
    if (b->unit == VF_LANES)
        by_steps(scores_by_vectors, b);
    else if (b->unit == VF_LANES / 2)
        by_steps(scores_by_halves, b);
#if VF_LANES > 8
    else if (b->unit == VF_LANES / 4)
        by_steps(scores_by_quarters, b);
#endif
#ifdef VF_SHIFT
    else if (b->unit == 1)
        scores_by_shifts(b);
#endif
    else
        scores_by_groups(b);
}

/* Returns which lanes are the mark -0. The bits of -0 are the smallest integer. */
VF_FN vm is_mark(vf x)
{
    return vi_lt(vf_bits(x), vi_set1(INT32_MIN + 1));
}

VF_FN void mix_rows(const attn__tap_block *b, int64_t first, int rows, bool marked)
{
    vf sum[WINDOW_ROWS][WINDOW_VECTORS];
    float *to = b->tile + first * b->tile_ld;
    VF_UNROLL
    for (int c = 0; c < rows; c++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            sum[c][n] = vf_load(to + c * b->tile_ld + n * VF_LANES);
    }
    for (int64_t e = 0; e < b->taps; e++) {
        const float *strip = b->strip + b->offset[e] + first * b->ld;
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++) {
            vf p = vf_load(b->s + e * b->s_ld + n * VF_LANES);
            vm out = is_mark(p);
            VF_UNROLL
            for (int c = 0; c < rows; c++) {
                vf x = vf_load(strip + c * b->ld + n * VF_LANES);
                sum[c][n] = vf_fma(p, marked ? vf_select(out, vf_zero(), x) : x, sum[c][n]);
            }
        }
    }
    VF_UNROLL
    for (int c = 0; c < rows; c++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            vf_store(to + c * b->tile_ld + n * VF_LANES, sum[c][n]);
    }
}

#ifdef VF_SHIFT
/* Channels of a run that are processed at once. Their sums and the weights of the run fill the registers. */
enum { RUN_ROWS = 4 };

VF_FN void mix_run(const attn__tap_block *b, int64_t e, int64_t row, vf sum[RUN_ROWS][WINDOW_VECTORS], int rows,
                   int taps, bool down)
{
    vf p[TAPS][WINDOW_VECTORS], x[WINDOW_VECTORS + 1];
    const float *strip = b->strip + b->offset[down ? e + taps - 1 : e] + row * b->ld;
    VF_UNROLL
    for (int t = 0; t < taps; t++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            p[t][n] = vf_load(b->s + (e + t) * b->s_ld + n * VF_LANES);
    }
    VF_UNROLL
    for (int c = 0; c < rows; c++) {
        load_run(strip + c * b->ld, taps, x);
        VF_UNROLL
        for (int t = 0; t < taps; t++) {
            VF_UNROLL
            for (int n = 0; n < WINDOW_VECTORS; n++)
                sum[c][n] = vf_fma(p[t][n], vf_shift(x[n], x[n + 1], down ? taps - 1 - t : t), sum[c][n]);
        }
    }
}

VF_FN void mix_tap(const attn__tap_block *b, int64_t e, int64_t row, vf sum[RUN_ROWS][WINDOW_VECTORS], int rows)
{
    const float *strip = b->strip + b->offset[e] + row * b->ld;
    VF_UNROLL
    for (int n = 0; n < WINDOW_VECTORS; n++) {
        vf p = vf_load(b->s + e * b->s_ld + n * VF_LANES);
        VF_UNROLL
        for (int c = 0; c < rows; c++)
            sum[c][n] = vf_fma(p, vf_load(strip + c * b->ld + n * VF_LANES), sum[c][n]);
    }
}

VF_FN void mix_runs(const attn__tap_block *b, int64_t row, int rows)
{
    vf sum[RUN_ROWS][WINDOW_VECTORS];
    float *to = b->tile + row * b->tile_ld;
    bool down = b->down;
    VF_UNROLL
    for (int i = 0; i < rows * WINDOW_VECTORS; i++)
        sum[i / WINDOW_VECTORS][i % WINDOW_VECTORS] =
            vf_load(to + (i / WINDOW_VECTORS) * b->tile_ld + (i % WINDOW_VECTORS) * VF_LANES);
    for (int64_t e = 0, end = 0, run; e < b->taps; e += run) {
        end = run_end(b, e, end);
        run = shifts_of(end - e);
        if (run == 7)
            WINDOW_RUN(mix_run, 7, b, e, row, sum, rows);
        else if (run == 5)
            WINDOW_RUN(mix_run, 5, b, e, row, sum, rows);
        else if (run == 3)
            WINDOW_RUN(mix_run, 3, b, e, row, sum, rows);
        else
            mix_tap(b, e, row, sum, rows);
    }
    VF_UNROLL
    for (int i = 0; i < rows * WINDOW_VECTORS; i++)
        vf_store(to + (i / WINDOW_VECTORS) * b->tile_ld + (i % WINDOW_VECTORS) * VF_LANES,
                 sum[i / WINDOW_VECTORS][i % WINDOW_VECTORS]);
}

static void mix_by_shifts(const attn__tap_block *b)
{
    int64_t c = 0;
    for (; c + RUN_ROWS <= b->channels; c += RUN_ROWS)
        mix_runs(b, c, RUN_ROWS);
    for (; c < b->channels; c++)
        mix_runs(b, c, 1);
}
#endif

VF_FN void mix_all(const attn__tap_block *b, bool marked)
{
    int64_t c = 0;
    for (; c + WINDOW_ROWS <= b->channels; c += WINDOW_ROWS)
        mix_rows(b, c, WINDOW_ROWS, marked);
    for (; c + 2 <= b->channels; c += 2)
        mix_rows(b, c, 2, marked);
    if (c < b->channels)
        mix_rows(b, c, 1, marked);
}

static void mix(const attn__tap_block *b)
{
    if (b->marked)
        mix_all(b, true);
    else if (b->unit == VF_LANES)
        by_steps(mix_by_vectors, b);
    else if (b->unit == VF_LANES / 2)
        by_steps(mix_by_halves, b);
#if VF_LANES > 8
    else if (b->unit == VF_LANES / 4)
        by_steps(mix_by_quarters, b);
#endif
#ifdef VF_SHIFT
    else if (b->unit == 1)
        mix_by_shifts(b);
#endif
    else
        mix_all(b, false);
}

/* --------------------------------------------------------------------------------------------- in between */

static void window_limit(float *s, const attn__tap_limit *t)
{
    vf none = vf_set1(-INFINITY);
    for (int64_t e = 0; e < t->taps; e++) {
        vi number = vi_set1(t->number[e]);
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++) {
            int64_t at = t->shift[e] + n * VF_LANES;
            vm inside = vm_and(vm_not(vi_lt(number, vi_load(t->from + at))), vi_lt(number, vi_load(t->to + at)));
            float *row = s + e * WIDTH + n * VF_LANES;
            vf_store(row, vf_select(inside, vf_load(row), none));
        }
    }
}

static void drop(float *s, const attn__tap_drop *t)
{
    vi weight = vi_set1((int32_t)t->weight), threshold = vi_set1((int32_t)t->threshold);
    for (int64_t e = 0; e < t->taps; e++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++) {
            int64_t key = t->key_at[e] + n * VF_LANES;
            vi moved = vi_mul(vi_load(t->moved + t->shift[e] + n * VF_LANES), weight);
            vi bits = vi_dropout_bits(vi_sub(vi_set1((int32_t)t->column[e]), moved), vi_load(t->key_low + key),
                                      vi_load(t->key_high + key));
            float *at = s + e * t->ld + n * VF_LANES;
            vf_store(at, vf_select(vi_ltu(bits, threshold), vf_set1(-0.0f), vf_load(at)));
        }
    }
}

static void add_rows(float *s, int64_t taps, const float *rows, int64_t ld, float factor)
{
    vf f = vf_set1(factor);
    for (int64_t e = 0; e < taps; e++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++) {
            float *at = s + e * WIDTH + n * VF_LANES;
            vf_store(at, vf_fma(vf_load(rows + e * ld + n * VF_LANES), f, vf_load(at)));
        }
    }
}

static void window_sum_rows(const float *s, int64_t taps, float *sum)
{
    VF_UNROLL
    for (int n = 0; n < WINDOW_VECTORS; n++) {
        vf x = vf_load(sum + n * VF_LANES);
        for (int64_t e = 0; e < taps; e++)
            x = vf_add(x, vf_load(s + e * WIDTH + n * VF_LANES));
        vf_store(sum + n * VF_LANES, x);
    }
}

/* The maximum may ignore a NaN, but the exponential of the NaN is NaN. */
static void window_softmax(float *s, int64_t taps, float *m, float *l)
{
    vf none = vf_set1(-INFINITY), mark = vf_set1(-0.0f);
    VF_UNROLL
    for (int n = 0; n < WINDOW_VECTORS; n++) {
        float *column = s + n * VF_LANES;
        vf top = none, sum[2] = {vf_zero(), vf_zero()};
        for (int64_t e = 0; e < taps; e++)
            top = vf_max(vf_load(column + e * WIDTH), top);
        vf reference = vf_select(vf_eq(top, none), vf_zero(), top);
        for (int64_t e = 0; e < taps; e++) {
            vf x = vf_load(column + e * WIDTH), p = vf_exp2(vf_sub(x, reference));
            p = vf_select(vf_eq(x, none), mark, p);
            sum[e & 1] = vf_add(sum[e & 1], p);
            vf_store(column + e * WIDTH, p);
        }
        vf_store(m + n * VF_LANES, reference);
        vf_store(l + n * VF_LANES, vf_add(sum[0], sum[1]));
    }
}

VF_FN void gradient_rows(const attn__tap_gradient *t, bool marked)
{
    vf none = vf_set1(-INFINITY), mark = vf_set1(-0.0f);
    for (int64_t e = 0; e < t->taps; e++) {
        const float *lse = t->lse + t->shift[e], *delta = t->delta + t->shift[e];
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++) {
            int64_t at = e * WIDTH + n * VF_LANES, to = e * t->ld + n * VF_LANES;
            vf x = vf_load(t->s + at), p = vf_exp2(vf_log_weight(x, vf_load(lse + n * VF_LANES)));
            vf d = vf_score_gradient(p, vf_load(t->dp + at), vf_load(delta + n * VF_LANES));
            vm out = vf_eq(x, none);
            vf_store(t->p + to, marked ? vf_select(out, mark, p) : p);
            vf_store(t->ds + to, marked ? vf_select(out, mark, d) : d);
        }
    }
}

static void gradient(const attn__tap_gradient *t)
{
    if (t->marked)
        gradient_rows(t, true);
    else
        gradient_rows(t, false);
}

/* Sums gradients of scores over pairs (by_tap) and over taps (over_taps), for relative tables. */
static void margins(const attn__tap_margins *t)
{
    VF_UNROLL
    for (int n = 0; n < WINDOW_VECTORS; n++) {
        vf sum = vf_set1(-0.0f);
        for (int64_t e = 0; e < t->taps; e++) {
            float *to = t->by_tap + e * t->ld + n * VF_LANES;
            vf x = vf_load(t->ds + e * t->ds_ld + n * VF_LANES);
            sum = vf_add(sum, x);
            vf_store(to, vf_add(vf_load(to), x));
        }
        vf_store(t->over_taps + n * VF_LANES, sum);
    }
}

static void window_uncap(float *ds, int64_t ld, const float *s, int64_t taps, float cap)
{
    vf inverse = vf_set1(1.0f / cap), one = vf_set1(1.0f), zero = vf_zero();
    for (int64_t e = 0; e < taps; e++) {
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++) {
            float *to = ds + e * ld + n * VF_LANES;
            vf d = vf_load(to), t = vf_mul(vf_load(s + e * WIDTH + n * VF_LANES), inverse);
            vf_store(to, vf_select(vf_eq(d, zero), d, vf_fma(d, vf_fnma(t, t, one), zero)));
        }
    }
}

static void window_dot(const float *a, const float *b, int64_t channels, int64_t ld, int64_t n, float *out)
{
    for (int64_t w = 0; w < n; w += VF_LANES) {
        vf sum = vf_zero();
        for (int64_t c = 0; c < channels; c++)
            sum = vf_fma(vf_load(a + c * ld + w), vf_load(b + c * ld + w), sum);
        vf_store(out + w, sum);
    }
}

/* Computes the sums without lanes whose weight is a mark (-0), because they do not attend the tap and may read NaN. */
static void outer_guarded(const attn__tap_outer *t)
{
    for (int64_t r = 0; r < t->count; r++) {
        const float *row = t->rows + r * t->rows_ld;
        vf a = vf_load(row), b = vf_load(row + VF_LANES), zero = vf_zero();
        vm no_a = is_mark(a), no_b = is_mark(b);
        for (int64_t c = 0; c < t->channels; c++) {
            vf x = vf_select(no_a, zero, vf_load(t->tile + c * t->tile_ld));
            vf y = vf_select(no_b, zero, vf_load(t->tile + c * t->tile_ld + VF_LANES));
            t->sums[r * t->channels + c] += (double)vf_sum(vf_fma(b, y, vf_mul(a, x)));
        }
    }
}

static bool all_finite(const float *x, int64_t n)
{
    vf check = vf_zero();
    for (int64_t i = 0; i < n; i += VF_LANES)
        check = vf_fma(vf_load(x + i), vf_zero(), check); /* becomes NaN for NaN and for infinity */
    return !vm_any(vm_not(vf_eq(check, check)));
}

/* Transposes a tile: transposed[w][c] = tile[c][w]. If channels are fewer than a vector, the others become 0. */
VF_FN void window_transpose(const float *tile, int64_t ld, int64_t channels, float transposed[WIDTH][VF_LANES])
{
    for (int n = 0; n < WINDOW_VECTORS; n++) {
        vf square[VF_LANES];
        VF_UNROLL
        for (int c = 0; c < VF_LANES; c++)
            square[c] = c < channels ? vf_load(tile + c * ld + n * VF_LANES) : vf_zero();
        vf_transpose(square);
        VF_UNROLL
        for (int w = 0; w < VF_LANES; w++)
            vf_store(transposed[n * VF_LANES + w], square[w]);
    }
}

/* Adds the sums for channels [c, c + n) and rows [r, r + count). */
VF_FN void outer_rows(const attn__tap_outer *t, int64_t r, int count, float transposed[WIDTH][VF_LANES], int64_t c,
                      int64_t n)
{
    vf sum[4];
    float out[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < count; i++)
        sum[i] = vf_zero();
    for (int w = 0; w < WIDTH; w++) {
        vf x = vf_load(transposed[w]);
        VF_UNROLL
        for (int i = 0; i < count; i++)
            sum[i] = vf_fma(vf_set1(t->rows[(r + i) * t->rows_ld + w]), x, sum[i]);
    }
    VF_UNROLL
    for (int i = 0; i < count; i++) {
        vf_store(out, sum[i]);
        for (int64_t k = 0; k < n; k++)
            t->sums[(r + i) * t->channels + c + k] += (double)out[k];
    }
}

/* Computes the sums. For many rows, it multiplies by the transposed tile, because a sum across the lanes for each
 * element takes six times as long. If the tile has infinity or NaN, weights of 0 must hide it, and outer_guarded runs
 * instead. */
static void outer(const attn__tap_outer *t)
{
    float transposed[WIDTH][VF_LANES];
    bool finite = t->count >= 4;
    for (int64_t c = 0; finite && c < t->channels; c++)
        finite = all_finite(t->tile + c * t->tile_ld, WIDTH);
    if (!finite) {
        outer_guarded(t);
        return;
    }
    for (int64_t c = 0; c < t->channels; c += VF_LANES) {
        int64_t n = t->channels - c < VF_LANES ? t->channels - c : VF_LANES, r = 0;
        window_transpose(t->tile + c * t->tile_ld, t->tile_ld, n, transposed);
        for (; r + 4 <= t->count; r += 4)
            outer_rows(t, r, 4, transposed, c, n);
        for (; r < t->count; r++)
            outer_rows(t, r, 1, transposed, c, n);
    }
}

const attn__window_kernel VF_NAME(attn__window_kernel) = {
    VF_ISA,          WIDTH,          VF_LANES, scores,  mix,          window_limit, drop,  add_rows,
    window_sum_rows, window_softmax, gradient, margins, window_uncap, window_dot,   outer, all_finite};
