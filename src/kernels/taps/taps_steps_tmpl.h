/* SPDX-License-Identifier: MIT
 *
 * taps_steps_tmpl.h - runs of taps for one instruction set that lie half a vector or a whole one apart, as they do where
 * heads share the lanes; included by taps_tmpl.h.
 *
 * Vector n at tap e is the strip at (e + n * per) steps, `per` steps being a vector: one load serves all tap and
 * vector numbers with that sum, and at most every second one straddles lines of the cache.
 */

/* The taps of the run from the one with the lowest offset on: where its first row is, and how far the next ones. */
typedef struct steps {
    const float *strip;
    float *s;
    int64_t ld;
} steps;

VF_FN steps steps_at(const attn__taps_block *b, int64_t first, int taps, bool down)
{
    int64_t lowest = down ? first + taps - 1 : first;
    return (steps){b->strip + b->offset[lowest], b->s + lowest * b->s_ld, down ? -b->s_ld : b->s_ld};
}

/* The end of the run that starts at a tap, and how much of what is left of one there is code for. */
VF_FN int64_t run_end(const attn__taps_block *b, int64_t tap, int64_t end)
{
    return tap == end ? tap + b->run : end;
}

VF_FN int64_t steps_of(int64_t left)
{
    return left < TAPS ? left : TAPS;
}

VF_FN void score_steps(const attn__taps_block *b, int64_t first, int taps, int per, bool down)
{
    vf sum[TAPS][VECTORS];
    steps t = steps_at(b, first, taps, down);
    VF_UNROLL
    for (int i = 0; i < taps * VECTORS; i++)
        sum[i / VECTORS][i % VECTORS] = vf_zero();
    for (int64_t c = 0; c < b->channels; c++, t.strip += b->ld) {
        vf x[VECTORS];
        VF_UNROLL
        for (int n = 0; n < VECTORS; n++)
            x[n] = vf_load(b->tile + c * b->tile_ld + n * VF_LANES);
        VF_UNROLL
        for (int j = 0; j < taps + per * (VECTORS - 1); j++) {
            vf k = vf_load_once(t.strip + j * (VF_LANES / per));
            VF_UNROLL
            for (int n = 0; n < VECTORS; n++) {
                if (j >= per * n && j - per * n < taps)
                    sum[j - per * n][n] = vf_fma(x[n], k, sum[j - per * n][n]);
            }
        }
    }
    VF_UNROLL
    for (int i = 0; i < taps * VECTORS; i++)
        vf_store(t.s + (i / VECTORS) * t.ld + (i % VECTORS) * VF_LANES,
                 vf_mul(sum[i / VECTORS][i % VECTORS], vf_set1(b->factor)));
}

/* Channels at once: their sums and the run's weights fill the registers. */
enum { STEP_ROWS = VF_REGISTERS >= 32 ? 4 : 2 };

VF_FN void mix_steps(const attn__taps_block *b, int64_t first, int64_t row, vf sum[STEP_ROWS][VECTORS], int rows, int taps,
                     int per, bool down)
{
    vf p[TAPS][VECTORS];
    const float *strip[STEP_ROWS];
    steps t = steps_at(b, first, taps, down);
    VF_UNROLL
    for (int i = 0; i < taps * VECTORS; i++)
        p[i / VECTORS][i % VECTORS] = vf_load(t.s + (i / VECTORS) * t.ld + (i % VECTORS) * VF_LANES);
    VF_UNROLL
    for (int c = 0; c < rows; c++)
        strip[c] = t.strip + (row + c) * b->ld;
    /* Channel after channel a step: their sums need not wait for each other. */
    VF_UNROLL
    for (int j = 0; j < taps + per * (VECTORS - 1); j++) {
        VF_UNROLL
        for (int c = 0; c < rows; c++) {
            vf x = vf_load_once(strip[c] + j * (VF_LANES / per));
            VF_UNROLL
            for (int n = 0; n < VECTORS; n++) {
                if (j >= per * n && j - per * n < taps)
                    sum[c][n] = vf_fma(p[j - per * n][n], x, sum[c][n]);
            }
        }
    }
}

#if VF_REGISTERS >= 32
#define STEP_CASES(function, ...)                                                                                      \
    case 7: function(7, __VA_ARGS__); break;                                                                           \
    case 6: function(6, __VA_ARGS__); break;                                                                           \
    case 5: function(5, __VA_ARGS__); break;                                                                           \
    case 4: function(4, __VA_ARGS__); break;
#else
#define STEP_CASES(function, ...) case 4: function(4, __VA_ARGS__); break;
#endif
#define STEP_SWITCH(run, function, ...)                                                                                \
    switch (run) {                                                                                                     \
        STEP_CASES(function, __VA_ARGS__)                                                                              \
    case 3: function(3, __VA_ARGS__); break;                                                                           \
    case 2: function(2, __VA_ARGS__); break;                                                                           \
    default: function(1, __VA_ARGS__);                                                                                 \
    }

VF_FN void scores_by_steps(const attn__taps_block *b, int per)
{
    for (int64_t e = 0, end = 0, run; e < b->taps; e += run) {
        end = run_end(b, e, end);
        run = steps_of(end - e);
#define SCORES(taps, per) score_steps(b, e, taps, per, b->down)
        STEP_SWITCH(run, SCORES, per)
#undef SCORES
    }
}

VF_FN void mix_rows_by_steps(const attn__taps_block *b, int64_t row, int rows, int per)
{
    vf sum[STEP_ROWS][VECTORS];
    float *to = b->tile + row * b->tile_ld;
    VF_UNROLL
    for (int i = 0; i < rows * VECTORS; i++)
        sum[i / VECTORS][i % VECTORS] = vf_load(to + (i / VECTORS) * b->tile_ld + (i % VECTORS) * VF_LANES);
    for (int64_t e = 0, end = 0, run; e < b->taps; e += run) {
        end = run_end(b, e, end);
        run = steps_of(end - e);
#define MIX(taps, per) mix_steps(b, e, row, sum, rows, taps, per, b->down)
        STEP_SWITCH(run, MIX, per)
#undef MIX
    }
    VF_UNROLL
    for (int i = 0; i < rows * VECTORS; i++)
        vf_store(to + (i / VECTORS) * b->tile_ld + (i % VECTORS) * VF_LANES, sum[i / VECTORS][i % VECTORS]);
}

VF_FN void mix_by_steps(const attn__taps_block *b, int per)
{
    int64_t c = 0;
    for (; c + STEP_ROWS <= b->channels; c += STEP_ROWS)
        mix_rows_by_steps(b, c, STEP_ROWS, per);
    for (; c < b->channels; c++)
        mix_rows_by_steps(b, c, 1, per);
}

static void scores_by_vectors(const attn__taps_block *b)
{
    scores_by_steps(b, 1);
}

static void mix_by_vectors(const attn__taps_block *b)
{
    mix_by_steps(b, 1);
}

#if VF_LANES > 2
static void scores_by_halves(const attn__taps_block *b)
{
    scores_by_steps(b, 2);
}

static void mix_by_halves(const attn__taps_block *b)
{
    mix_by_steps(b, 2);
}
#endif
