/* SPDX-License-Identifier: MIT
 *
 * online_softmax.h - the online softmax between the two products of attention: masks, exponentials, running sums,
 * dropout.
 *
 *     m' = max(m, max_j s[j])     p[j] = 2^(s[j] - m')     l' = l 2^(m - m') + sum_j p[j]
 *
 * Each lane is a query (or another position), so that no operation crosses lanes.  Tiles are [rows][width]:
 * rows are keys or channels, width is a multiple of the kernel's `lanes`.
 *
 * Contract: tiles are aligned to a vector; arrays of the caller need no alignment; nothing is allocated.
 */
#ifndef ATTN_KERNELS_ONLINE_SOFTMAX_H
#define ATTN_KERNELS_ONLINE_SOFTMAX_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* A tile's elements in an array of the caller: element (row, lane) is base[lane_offset[lane] + row], or
 * base[lane_offset[lane] + row_offset[row]] if row_offset is set. */
typedef struct attn__lane_view {
    void *base;
    attn_dtype dtype; /* ATTN_F32, ATTN_BF16; gather also takes ATTN_U8, whose nonzero bytes count as 1 */
    const int64_t *lane_offset;
    const int64_t *row_offset;
    int64_t rows, lanes; /* lanes <= width */
} attn__lane_view;

/* One step of the online softmax over a tile of scores, in powers of two. */
typedef struct attn__online_softmax_args {
    float *s; /* in: scores; out: 2^(s - m) */
    int64_t rows, width;
    const float *top; /* the largest score of each lane; NULL: not known */
    float *m, *l;     /* running reference and sum of each lane; start with -inf and 0 */
    float *shrink;    /* out: the factor for earlier sums of the lane */
    bool *changed;    /* out: whether any factor is not 1 */
} attn__online_softmax_args;

/* Dropout by counter (base/rng.h); the lane's key is in two halves. */
typedef struct attn__lane_dropout {
    float *p;
    int64_t rows, width;
    const uint32_t *key_low, *key_high; /* [width] */
    const uint32_t *column;             /* [rows] */
    uint32_t threshold;
} attn__lane_dropout;

typedef struct attn__online_softmax_kernel {
    attn__isa isa;
    int lanes;
    /* tile = factor * view; lanes from view->lanes to width become 0 or copies of a lane. */
    void (*gather)(const attn__lane_view *view, float *tile, int64_t width, float factor);
    /* view = tile * factor[lane]. */
    void (*scatter)(const attn__lane_view *view, const float *tile, int64_t width, const float *factor);
    /* out[row * ld + c] = base[row_offset[row] + (column_offset ? column_offset[c] : c)], f32 or bf16 to f32.
     * False if any of it is infinite or NaN. */
    bool (*copy)(const void *base, attn_dtype dtype, const int64_t *row_offset, const int64_t *column_offset,
                 int64_t rows, int64_t columns, float *out, int64_t ld);
    /* s += factor * bias. */
    void (*add)(float *s, const float *bias, int64_t count, float factor);
    /* s = cap * tanh(s / cap). */
    void (*softcap)(float *s, int64_t count, float cap);
    /* s = fill where the flag is 0. */
    void (*hide)(float *s, const float *flag, int64_t count, float fill);
    /* s = fill where the row's index is outside [from, to) of the lane. */
    void (*limit)(float *s, int64_t rows, int64_t width, const int32_t *index, const int32_t *from, const int32_t *to,
                  float fill);
    void (*softmax)(const attn__online_softmax_args *args);
    void (*dropout)(const attn__lane_dropout *args);
    /* tile *= factor[lane]. */
    void (*scale)(float *tile, int64_t rows, int64_t width, const float *factor);
} attn__online_softmax_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__online_softmax_kernel *attn__online_softmax_for(attn__isa isa);

#endif
