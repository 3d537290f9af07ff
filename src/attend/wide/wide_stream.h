/* SPDX-License-Identifier: MIT
 *
 * wide_stream.h - the products of wide heads in the matrix unit, f32 numbers as three parts, chunk after chunk of the
 * channels.  Beside the products of one chunk the next one is made tiles, the one after that is brought to the
 * cache, and the sums of the one before go to the caller's rows (kernels/parts/parts_feed.h): one after the other,
 * that takes as long as the products.
 */
#ifndef ATTN_ATTEND_WIDE_STREAM_H
#define ATTN_ATTEND_WIDE_STREAM_H

#include "attend/task/pile.h"
#include "attend/wide/wide.h"
#include "kernels/parts/parts_feed.h"

enum { ATTN__WIDE_STRIPS = 32 };

/* One thread's memory. */
typedef struct attn__wide_stream {
    const attn__parts_kernel *unit;
    uint16_t *tiles[2][2];    /* of the chunk at hand and the next one, of two operands */
    attn__parts_side weights; /* as A: [rows][depth] */
    float *sums[2];           /* [rows][chunk] */
    attn__parts_feed feed;
} attn__wide_stream;

/* Takes room for products of at most so many rows on each side. */
void attn__wide_stream_place(attn__wide_stream *stream, attn__pile *pile, int64_t rows);
/* Whether the machine has the unit, and so many queries and keys gain by it. */
bool attn__wide_stream_pays(const attn__task *task);
/* Whether the channels come in runs that the unit's steps divide. */
bool attn__wide_streams(const attn__wide_operand *operand, int64_t channels);

/* Rows of one operand. */
typedef struct attn__wide_rows {
    const attn__wide_operand *operand;
    const void *base;
    const int64_t *at;
    int64_t rows;
} attn__wide_rows;

/* A chunk whose numbers are not all finite is left to this. */
typedef void attn__wide_plain(void *user, int64_t first, int64_t n);

/* Columns of the scores that lie together. */
typedef struct attn__wide_strip {
    int64_t block, blocks; /* of 16 */
    float *c;
    int64_t ldc;
} attn__wide_strip;

/* c[a's row, b's row] = sum over channels of a * factor * b. */
typedef struct attn__wide_scores {
    attn__wide_rows a, b;
    float factor;
    int64_t channels;
    attn__wide_rows with; /* dots[a's row][16]: 16 sums that make up a . with; rows 0: not wanted */
    float *dots;
    int strips;
    attn__wide_strip strip[ATTN__WIDE_STRIPS];
    attn__wide_plain *plain;
    void *user;
} attn__wide_scores;
void attn__wide_stream_scores(attn__wide_stream *stream, const attn__wide_scores *scores);

/* Rows [first, first + rows) of `weights` times `in`: out = factor * (weights in) + was * out.  `first` is a multiple
 * of 16; weights, factor and was begin with row 0, out with row `first`. */
typedef struct attn__wide_products {
    attn__wide_rows in, out;
    int64_t first, channels;
    const float *factor, *was; /* as in attn__feed_drain */
    attn__wide_plain *plain;
    void *user;
} attn__wide_products;
void attn__wide_stream_products(attn__wide_stream *stream, const attn__wide_products *products);

/* x[depth][rows], rows of ld numbers, as weights' tiles from row `first` on, a multiple of 16; or x[rows][depth].
 * False if any is infinite or NaN. */
bool attn__wide_stream_weights(attn__wide_stream *stream, const float *x, int64_t ld, int64_t depth, int64_t first,
                               int64_t rows);
bool attn__wide_stream_weights_along(attn__wide_stream *stream, const float *x, int64_t ld, int64_t depth,
                                     int64_t rows);

#endif
