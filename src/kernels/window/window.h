/* SPDX-License-Identifier: MIT
 *
 * window.h - attention over local windows: each query sees the keys at a fixed list of offsets, the taps.
 *
 *     s[e,w] = factor sum_c q[c,w] k[c,w + offset e]     o[c,w] = sum_e p[e,w] v[c,w + offset e]
 *
 * Adjacent positions w are the lanes.  A tap reads the same strip of keys at another offset:
 *
 *     strip of tap e, channel c, lane w = strip[offset[e] + c * ld + w]
 *
 * Contract: tiles are [rows][width], width a multiple of the kernel's `width`; nothing needs alignment; nothing is
 * allocated.  A weight of -0 marks a tap outside the window or masked: where `marked` is set, its key and value do not
 * count even if they are infinite or NaN.
 */
#ifndef ATTN_KERNELS_WINDOW_H
#define ATTN_KERNELS_WINDOW_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* One block: lanes [0, kernel width) of everything. */
typedef struct attn__tap_block {
    int64_t taps, channels;
    int64_t run, unit; /* taps are in runs of `run`, whose offsets increase by `unit` */
    bool down;         /* offsets decrease by `unit` instead */
    const float *strip;
    const int64_t *offset; /* [taps] */
    int64_t ld;
    float *tile; /* [channels][tile_ld]; an input of `scores`, the output of `mix` */
    float *s;    /* [taps][s_ld]; the output of `scores`, the weights of `mix` */
    int64_t tile_ld, s_ld;
    float factor; /* `scores`: every sum is multiplied by it */
    bool marked;  /* `mix`: weights may be marks */
} attn__tap_block;

/* Lane w takes part in tap e if from[w + shift[e]] <= number[e] < to[w + shift[e]]. */
typedef struct attn__tap_limit {
    int64_t taps;
    const int32_t *number;
    const int64_t *shift;
    const int32_t *from, *to;
} attn__tap_limit;

/* Dropout by counter (base/rng.h): lane w of tap e has the key at w + key_at[e] and the column
 * column[e] - weight * moved[w + shift[e]], since a window that was moved inwards counts its taps from its start. */
typedef struct attn__tap_drop {
    int64_t taps, ld; /* number of taps; row stride of the weights */
    const uint32_t *column;
    uint32_t weight, threshold;
    const int32_t *moved;
    const int64_t *shift, *key_at;
    const uint32_t *key_low, *key_high;
} attn__tap_drop;

/* p = 2^(s - lse) and ds = p (dp - delta), both -0 where s is -infinity and `marked`; lse and delta are read at
 * w + shift[e].  p may be s, ds may be dp. */
typedef struct attn__tap_gradient {
    int64_t taps;
    const float *s, *dp; /* [taps][width] */
    const int64_t *shift;
    const float *lse, *delta;
    float *p, *ds; /* [taps][ld] */
    int64_t ld;
    bool marked;
} attn__tap_gradient;

/* by_tap[e * ld + w] += ds[e * ds_ld + w]; over_taps[w] = their sum. */
typedef struct attn__tap_margins {
    int64_t taps;
    const float *ds;
    float *by_tap, *over_taps;
    int64_t ds_ld, ld;
} attn__tap_margins;

/* sums[r * channels + c] += sum over the lanes of rows[r * rows_ld + w] * tile[c * tile_ld + w], r < count. */
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
    /* s[e][w] = factor * sum_c tile[c][w] * strip[offset[e] + c * ld + w] */
    void (*scores)(const attn__tap_block *block);
    /* tile[c][w] += sum_e s[e][w] * strip[offset[e] + c * ld + w] */
    void (*mix)(const attn__tap_block *block);
    /* s = -infinity outside the limits. */
    void (*limit)(float *s, const attn__tap_limit *limit);
    /* Marks dropped weights. */
    void (*drop)(float *s, const attn__tap_drop *drop);
    /* s[e][w] += factor * rows[e * ld + w], for `taps` rows of s. */
    void (*add_rows)(float *s, int64_t taps, const float *rows, int64_t ld, float factor);
    /* sum[w] += s[e][w] over `taps` rows of s. */
    void (*sum_rows)(const float *s, int64_t taps, float *sum);
    /* Scores become 2^(s - m), m the largest of the lane, l the sum; -infinity becomes the mark. */
    void (*softmax)(float *s, int64_t taps, float *m, float *l);
    void (*gradient)(const attn__tap_gradient *gradient);
    void (*margins)(const attn__tap_margins *margins);
    /* ds[e * ld + w] *= 1 - (s[e][w] / cap)^2, the softcap's derivative, but for gradients of 0 and marks. */
    void (*uncap)(float *ds, int64_t ld, const float *s, int64_t taps, float cap);
    /* out[w] = sum_c a[c * ld + w] * b[c * ld + w], w < n, a multiple of `lanes`. */
    void (*dot)(const float *a, const float *b, int64_t channels, int64_t ld, int64_t n, float *out);
    void (*outer)(const attn__tap_outer *outer);
    /* True if x[0, n) has neither infinity nor NaN; n is a multiple of `lanes`. */
    bool (*finite)(const float *x, int64_t n);
} attn__window_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__window_kernel *attn__window_kernel_for(attn__isa isa);

#endif
