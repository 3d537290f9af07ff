/* SPDX-License-Identifier: MIT
 *
 * window.h - attention over local windows: each query attends the keys at a fixed list of offsets, which are called
 * taps.
 *
 *     s[e,w] = factor sum_c q[c,w] k[c,w + offset e]     o[c,w] = sum_e p[e,w] v[c,w + offset e]
 *
 * The lanes are adjacent positions w. Every tap reads the same strip of keys at a different offset:
 *
 *     strip of tap e, channel c, lane w = strip[offset[e] + c * ld + w]
 *
 * Contract: tiles have the shape [rows][width], where width is a multiple of the kernel's `width`. Nothing needs
 * alignment. Nothing is allocated. A weight of -0 is a mark: the tap is outside the window or masked. If `marked` is
 * set, the key and the value of a marked tap are ignored, even if they are infinite or NaN.
 */
#ifndef ATTN_KERNELS_WINDOW_H
#define ATTN_KERNELS_WINDOW_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* A block of `width` lanes (attn__window_kernel) and the taps that the lanes attend. */
typedef struct attn__tap_block {
    int64_t taps, channels;
    int64_t run, unit; /* each run has `run` taps; offsets in a run increase by `unit` */
    bool down;         /* offsets in a run decrease by `unit` instead */
    const float *strip;
    const int64_t *offset; /* [taps] */
    int64_t ld;
    float *tile; /* [channels][tile_ld]; input of `scores`, output of `mix` */
    float *s;    /* [taps][s_ld]; output of `scores`; input of `mix`, as weights */
    int64_t tile_ld, s_ld;
    float factor; /* `scores`: factor of every sum */
    bool marked;  /* `mix`: some weights may be marks */
} attn__tap_block;

/* Limits of taps. Lane w attends tap e if from[w + shift[e]] <= number[e] < to[w + shift[e]]. */
typedef struct attn__tap_limit {
    int64_t taps;
    const int32_t *number;
    const int64_t *shift;
    const int32_t *from, *to;
} attn__tap_limit;

/* Counter-based dropout (base/rng.h). Lane w of tap e has the key with index w + key_at[e]. Its column is column[e] -
 * weight * moved[w + shift[e]]. `moved` is for windows that are shifted inwards, because taps count from the window's
 * start. */
typedef struct attn__tap_drop {
    int64_t taps, ld; /* number of taps; row stride of the weights */
    const uint32_t *column;
    uint32_t weight, threshold;
    const int32_t *moved;
    const int64_t *shift, *key_at;
    const uint32_t *key_low, *key_high;
} attn__tap_drop;

/* Arguments of `gradient`, which computes p = 2^(s - lse) and ds = p (dp - delta). If `marked` is set and s is
 * -infinity, p and ds become -0. lse and delta are read at w + shift[e]. p may be s, and ds may be dp. */
typedef struct attn__tap_gradient {
    int64_t taps;
    const float *s, *dp; /* [taps][width] */
    const int64_t *shift;
    const float *lse, *delta;
    float *p, *ds; /* [taps][ld] */
    int64_t ld;
    bool marked;
} attn__tap_gradient;

/* Arguments of `margins`, which adds ds[e * ds_ld + w] to by_tap[e * ld + w] and sets over_taps[w] to the sum of ds
 * over all taps e. */
typedef struct attn__tap_margins {
    int64_t taps;
    const float *ds;
    float *by_tap, *over_taps;
    int64_t ds_ld, ld;
} attn__tap_margins;

/* Arguments of `outer`. For r < count, it adds to sums[r * channels + c] the sum over lanes w of rows[r * rows_ld + w]
 * * tile[c * tile_ld + w]. */
typedef struct attn__tap_outer {
    int64_t count, channels;
    const float *rows, *tile;
    int64_t rows_ld, tile_ld;
    double *sums;
} attn__tap_outer;

typedef struct attn__window_kernel {
    attn__isa isa;
    int width; /* lanes of a block */
    int lanes;
    /* Computes s[e][w] = factor * sum_c tile[c][w] * strip[offset[e] + c * ld + w]. */
    void (*scores)(const attn__tap_block *block);
    /* Adds sum_e s[e][w] * strip[offset[e] + c * ld + w] to tile[c][w]. */
    void (*mix)(const attn__tap_block *block);
    /* Sets s to -infinity where a lane does not attend the tap. */
    void (*limit)(float *s, const attn__tap_limit *limit);
    /* Replaces the weights that dropout drops by marks. */
    void (*drop)(float *s, const attn__tap_drop *drop);
    /* Adds factor * rows[e * ld + w] to s[e][w], for `taps` rows of s. */
    void (*add_rows)(float *s, int64_t taps, const float *rows, int64_t ld, float factor);
    /* Adds the sum of s[e][w] over `taps` rows of s to sum[w]. */
    void (*sum_rows)(const float *s, int64_t taps, float *sum);
    /* Replaces scores by weights 2^(s - m). Writes the largest score of each lane to m, and the sum of its weights to
     * l. Scores of -infinity become marks. */
    void (*softmax)(float *s, int64_t taps, float *m, float *l);
    void (*gradient)(const attn__tap_gradient *gradient);
    void (*margins)(const attn__tap_margins *margins);
    /* Multiplies ds[e * ld + w] by the derivative of the softcap, 1 - (s[e][w] / cap)^2. Gradients that are 0 or marks
     * are unchanged. */
    void (*uncap)(float *ds, int64_t ld, const float *s, int64_t taps, float cap);
    /* Computes out[w] = sum_c a[c * ld + w] * b[c * ld + w] for w < n. n is a multiple of `lanes`. */
    void (*dot)(const float *a, const float *b, int64_t channels, int64_t ld, int64_t n, float *out);
    void (*outer)(const attn__tap_outer *outer);
    /* Reports whether x[0, n) has neither infinity nor NaN. n must be a multiple of `lanes`. */
    bool (*finite)(const float *x, int64_t n);
} attn__window_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__window_kernel *attn__window_kernel_for(attn__isa isa);

#endif
