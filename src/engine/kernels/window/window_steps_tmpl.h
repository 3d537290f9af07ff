/* SPDX-License-Identifier: MIT
 *
 * window_steps_tmpl.h - runs of taps whose offsets differ by a whole, half or quarter vector, for one instruction set.
 * Such taps occur if heads share the lanes. Included by window_tmpl.h.
 *
 * Vector n of tap e is read from the strip at step e + n * per, where `per` steps make a vector. One load serves all
 * pairs (e, n) with the same step. Every first, second or fourth load is within one cache line.
 */

/* The taps of a run, which begins with the tap of the lowest offset. `strip` and `s` are the rows of that tap. `ld` is
 * the distance to the next row of s. */
typedef struct steps {
    const float *strip;
    float *s;
    int64_t ld;
} steps;

VF_FN steps steps_at(const attn__tap_block *b, int64_t first, int taps, bool down)
{
    int64_t lowest = down ? first + taps - 1 : first;
    return (steps){b->strip + b->offset[lowest], b->s + lowest * b->s_ld, down ? -b->s_ld : b->s_ld};
}

/* Returns the end of the run that contains tap `tap`. `end` is the end of the previous run. */
VF_FN int64_t run_end(const attn__tap_block *b, int64_t tap, int64_t end)
{
    return tap == end ? tap + b->run : end;
}

VF_FN void score_steps(const attn__tap_block *b, int64_t first, int taps, int per, bool down)
{
    vf sum[TAPS][WINDOW_VECTORS];
    steps t = steps_at(b, first, taps, down);
    VF_UNROLL
    for (int i = 0; i < taps * WINDOW_VECTORS; i++)
        sum[i / WINDOW_VECTORS][i % WINDOW_VECTORS] = vf_zero();
    for (int64_t c = 0; c < b->channels; c++, t.strip += b->ld) {
        vf x[WINDOW_VECTORS];
        VF_UNROLL
        for (int n = 0; n < WINDOW_VECTORS; n++)
            x[n] = vf_load(b->tile + c * b->tile_ld + n * VF_LANES);
        VF_UNROLL
        for (int j = 0; j < taps + per * (WINDOW_VECTORS - 1); j++) {
            vf k = vf_load_once(t.strip + j * (VF_LANES / per));
            VF_UNROLL
            for (int n = 0; n < WINDOW_VECTORS; n++)
                if (j >= per * n && j - per * n < taps)
                    sum[j - per * n][n] = vf_fma(x[n], k, sum[j - per * n][n]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < taps * WINDOW_VECTORS; i++)
        vf_store(t.s + (i / WINDOW_VECTORS) * t.ld + (i % WINDOW_VECTORS) * VF_LANES,
                 vf_mul(sum[i / WINDOW_VECTORS][i % WINDOW_VECTORS], vf_set1(b->factor)));
}

/* Channels that are processed at once. Their sums and the weights of the run fill the registers. */
enum { STEP_ROWS = VF_REGISTERS >= 32 ? 4 : 2 };

VF_FN void mix_steps(const attn__tap_block *b, int64_t first, int64_t row, int rows, int taps, int per, bool down)
{
    vf p[TAPS][WINDOW_VECTORS], sum[STEP_ROWS][WINDOW_VECTORS];
    const float *strip[STEP_ROWS];
    float *to = b->tile + row * b->tile_ld;
    steps t = steps_at(b, first, taps, down);
    VF_UNROLL
    for (int i = 0; i < rows * WINDOW_VECTORS; i++)
        sum[i / WINDOW_VECTORS][i % WINDOW_VECTORS] =
            vf_load(to + (i / WINDOW_VECTORS) * b->tile_ld + (i % WINDOW_VECTORS) * VF_LANES);
    VF_UNROLL
    for (int i = 0; i < taps * WINDOW_VECTORS; i++)
        p[i / WINDOW_VECTORS][i % WINDOW_VECTORS] =
            vf_load(t.s + (i / WINDOW_VECTORS) * t.ld + (i % WINDOW_VECTORS) * VF_LANES);
    VF_UNROLL
    for (int c = 0; c < rows; c++)
        strip[c] = t.strip + (row + c) * b->ld;
    /* Each step processes all channels in turn, so that the sums of a channel do not wait for each other. */
    VF_UNROLL
    for (int j = 0; j < taps + per * (WINDOW_VECTORS - 1); j++) {
        VF_UNROLL
        for (int c = 0; c < rows; c++) {
            vf x = vf_load_once(strip[c] + j * (VF_LANES / per));
            VF_UNROLL
            for (int n = 0; n < WINDOW_VECTORS; n++)
                if (j >= per * n && j - per * n < taps)
                    sum[c][n] = vf_fma(p[j - per * n][n], x, sum[c][n]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < rows * WINDOW_VECTORS; i++)
        vf_store(to + (i / WINDOW_VECTORS) * b->tile_ld + (i % WINDOW_VECTORS) * VF_LANES,
                 sum[i / WINDOW_VECTORS][i % WINDOW_VECTORS]);
}

/* Each length of a run has its own function. In a single function, compilers would compute the addresses for all
 * lengths in advance. */
typedef void part(const attn__tap_block *b, int64_t first);

#define PARTS(taps, per)                                                                                               \
    static __attribute__((noinline)) void scores_##taps##_##per(const attn__tap_block *b, int64_t first)               \
    {                                                                                                                  \
        score_steps(b, first, taps, per, b->down);                                                                     \
    }                                                                                                                  \
    static __attribute__((noinline)) void mix_##taps##_##per(const attn__tap_block *b, int64_t first)                  \
    {                                                                                                                  \
        int64_t c = 0;                                                                                                 \
        for (; c + STEP_ROWS <= b->channels; c += STEP_ROWS)                                                           \
            mix_steps(b, first, c, STEP_ROWS, taps, per, b->down);                                                     \
        for (; c < b->channels; c++)                                                                                   \
            mix_steps(b, first, c, 1, taps, per, b->down);                                                             \
    }
#define PARTS_UP_TO_4(per)       PARTS(1, per) PARTS(2, per) PARTS(3, per) PARTS(4, per)
#define NAMES_UP_TO_4(name, per) name##_1_##per, name##_2_##per, name##_3_##per, name##_4_##per
#if VF_REGISTERS >= 32
#define ALL_PARTS(per)   PARTS_UP_TO_4(per) PARTS(5, per) PARTS(6, per) PARTS(7, per)
#define NAMES(name, per) NAMES_UP_TO_4(name, per), name##_5_##per, name##_6_##per, name##_7_##per
#else
#define ALL_PARTS(per)   PARTS_UP_TO_4(per)
#define NAMES(name, per) NAMES_UP_TO_4(name, per)
#endif

ALL_PARTS(1)
static part *const scores_by_vectors[TAPS] = {NAMES(scores, 1)}, *const mix_by_vectors[TAPS] = {NAMES(mix, 1)};
ALL_PARTS(2)
static part *const scores_by_halves[TAPS] = {NAMES(scores, 2)}, *const mix_by_halves[TAPS] = {NAMES(mix, 2)};

#if VF_LANES > 8
ALL_PARTS(4)
static part *const scores_by_quarters[TAPS] = {NAMES(scores, 4)}, *const mix_by_quarters[TAPS] = {NAMES(mix, 4)};
#endif

static void by_steps(part *const *parts, const attn__tap_block *b)
{
    for (int64_t e = 0, end = 0, run; e < b->taps; e += run) {
        end = run_end(b, e, end);
        run = end - e < TAPS ? end - e : TAPS;
        parts[run - 1](b, e);
    }
}
