/* SPDX-License-Identifier: MIT
 *
 * lanes.h - what attention does between its two tile products, with queries (or other positions) in the
 * lanes: tiles are [rows][width] with width a multiple of the kernel's `lanes`, rows are channels or keys.
 *
 * Never allocates.  Tiles are aligned to the lanes; arrays of the caller need no alignment.
 */
#ifndef ATTN_KERNELS_LANES_H
#define ATTN_KERNELS_LANES_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* Between a tile and an array of the caller: element (row, lane) lies at base[lane_offset[lane] + row], or
 * with row_offset at base[lane_offset[lane] + row_offset[row]]. */
typedef struct attn__lanes_view {
    void *base;
    attn_dtype dtype; /* ATTN_F32, ATTN_BF16; gather also takes ATTN_U8, whose nonzero bytes count as 1 */
    const int64_t *lane_offset;
    const int64_t *row_offset;
    int64_t rows, lanes; /* lanes <= width */
} attn__lanes_view;

/* One step of the running softmax over a tile of scores, in powers of two. */
typedef struct attn__lanes_softmax {
    float *s; /* scores, becomes 2^(s - m) */
    int64_t rows, width;
    const float *top; /* the largest score of each lane, where that is known; else NULL */
    float *m, *l;     /* running reference and sum of each lane; start with -inf and 0 */
    float *shrink;    /* out: what earlier sums of the lane are to be multiplied by */
    bool *changed;    /* out: whether any of them is not 1 */
} attn__lanes_softmax;

/* Dropout's bits (base/rng.h), the lane's key in two halves. */
typedef struct attn__lanes_dropout {
    float *p;
    int64_t rows, width;
    const uint32_t *key_low, *key_high; /* [width] */
    const uint32_t *column;             /* [rows] */
    uint32_t threshold;
} attn__lanes_dropout;

typedef struct attn__lanes_kernel {
    attn__isa isa;
    int lanes;
    /* tile = factor * view; lanes from view->lanes to width become 0 or copies of a lane. */
    void (*gather)(const attn__lanes_view *view, float *tile, int64_t width, float factor);
    /* view = tile * factor[lane]. */
    void (*scatter)(const attn__lanes_view *view, const float *tile, int64_t width, const float *factor);
    /* out[row * ld + c] = base[row_offset[row] + (column_offset ? column_offset[c] : c)], f32 or bf16 to f32.
     * False if any of it is infinite or NaN. */
    bool (*copy)(const void *base, attn_dtype dtype, const int64_t *row_offset, const int64_t *column_offset,
                 int64_t rows, int64_t columns, float *out, int64_t ld);
    /* s += factor * bias. */
    void (*add)(float *s, const float *bias, int64_t count, float factor);
    /* s = fill where the flag is 0. */
    void (*hide)(float *s, const float *flag, int64_t count, float fill);
    /* s = fill where the row's index is outside [from, to) of the lane. */
    void (*limit)(float *s, int64_t rows, int64_t width, const int32_t *index, const int32_t *from, const int32_t *to,
                  float fill);
    void (*softmax)(const attn__lanes_softmax *args);
    void (*dropout)(const attn__lanes_dropout *args);
    /* tile *= factor[lane]. */
    void (*scale)(float *tile, int64_t rows, int64_t width, const float *factor);
} attn__lanes_kernel;

/* The kernel for this instruction set, or the best below it. */
const attn__lanes_kernel *attn__lanes_for(attn__isa isa);

#endif
