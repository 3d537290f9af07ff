/* SPDX-License-Identifier: MIT
 *
 * online_softmax.h - the online softmax between the two products of attention: masks, exponentials, running sums,
 * dropout.
 *
 *     m' = max(m, max_j s[j])     p[j] = 2^(s[j] - m')     l' = l 2^(m - m') + sum_j p[j]
 *
 * Each lane is a query (or another position), so that no operation crosses lanes. Tiles have the shape [rows][width].
 * Rows are keys or channels, and width is a multiple of the kernel's `lanes`.
 *
 * Contract: tiles are aligned to a vector. Arrays of the caller need no alignment. Nothing is allocated.
 */
#ifndef ATTN_KERNELS_ONLINE_SOFTMAX_H
#define ATTN_KERNELS_ONLINE_SOFTMAX_H

#include "attn/attn.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* A view of a caller's array as a tile. If row_offset is NULL, element (row, lane) is base[lane_offset[lane] + row].
 * Otherwise it is base[lane_offset[lane] + row_offset[row]]. */
typedef struct attn__lane_view {
    void *base;
    attn_dtype dtype; /* ATTN_F32 or ATTN_BF16; `gather` also takes ATTN_U8, and reads nonzero bytes as 1 */
    const int64_t *lane_offset;
    const int64_t *row_offset;
    int64_t rows, lanes; /* lanes <= width */
} attn__lane_view;

/* One step of the online softmax over a tile of scores, in base 2. */
typedef struct attn__online_softmax_args {
    float *s; /* input: scores; output: 2^(s - m) */
    int64_t rows, width;
    const float *top; /* largest score of each lane, or NULL if unknown */
    float *m, *l;     /* running reference and sum of each lane; at first -inf and 0 */
    float *shrink;    /* output: factor of each lane for earlier sums */
    bool *changed;    /* output: true if any factor is not 1 */
} attn__online_softmax_args;

/* Weights that do not depend on other keys: the scores themselves, or their sigmoids. */
typedef struct attn__lane_weights {
    float *s; /* input: scores in base 2; output: weights */
    int64_t rows, width;
    bool squash;  /* true: the sigmoid of score + bias; false: the score in base e */
    float bias;   /* base 2 */
    float *m, *l; /* set to 0 and 1 in lanes with a score that is not -infinity */
} attn__lane_weights;

/* The first of the largest scores of each lane. */
typedef struct attn__lane_largest {
    const float *s;
    int64_t rows, width;
    float *m;      /* largest score so far; at first -infinity; NaN after a NaN */
    int32_t *at;   /* its number, which is not set while m is -infinity */
    int32_t first; /* number of row 0 */
} attn__lane_largest;

/* Counter-based dropout (base/rng.h). Each lane has a 64-bit key, stored as two halves. */
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
    /* Computes tile = factor * view. Lanes from view->lanes on become 0. If all lanes of the view have the same offset,
     * they may become copies instead. */
    void (*gather)(const attn__lane_view *view, float *tile, int64_t width, float factor);
    /* Writes view = tile * factor[lane]. */
    void (*scatter)(const attn__lane_view *view, const float *tile, int64_t width, const float *factor);
    /* Copies rows of f32 or bf16 to f32: out[row * ld + c] = base[row_offset[row] + (column_offset ? column_offset[c] :
     * c)]. Returns false if any number is infinite or NaN. */
    bool (*copy)(const void *base, attn_dtype dtype, const int64_t *row_offset, const int64_t *column_offset,
                 int64_t rows, int64_t columns, float *out, int64_t ld);
    /* Adds factor * bias to s. */
    void (*add)(float *s, const float *bias, int64_t count, float factor);
    /* Computes s = cap * tanh(s / cap). */
    void (*softcap)(float *s, int64_t count, float cap);
    /* Sets s to `fill` where `flag` is 0. */
    void (*hide)(float *s, const float *flag, int64_t count, float fill);
    /* Sets s to `fill` in each lane and row where the row's `index` is outside of [from, to) of the lane. */
    void (*limit)(float *s, int64_t rows, int64_t width, const int32_t *index, const int32_t *from, const int32_t *to,
                  float fill);
    void (*softmax)(const attn__online_softmax_args *args);
    void (*separate)(const attn__lane_weights *args);
    void (*largest)(const attn__lane_largest *args);
    /* Sets dropped weights to -0. Other weights are never -0. */
    void (*dropout)(const attn__lane_dropout *args);
    /* Multiplies each lane of the tile by factor[lane]. */
    void (*scale)(float *tile, int64_t rows, int64_t width, const float *factor);
} attn__online_softmax_kernel;

/* Returns the kernel of the best instruction set that is not above `isa`. */
const attn__online_softmax_kernel *attn__online_softmax_for(attn__isa isa);

#endif
