/* SPDX-License-Identifier: MIT
 *
 * wide_head_stream.h - the products of wide heads on AMX, f32 numbers as three bf16 terms, by chunks of channels.
 * During the products of one chunk the vector units pack the next one, prefetch the one after that, and store the sums
 * of the one before (kernels/bf16x3/bf16x3_feed.h).  Done in sequence, that would take as long as the products.
 */
#ifndef ATTN_ATTEND_WIDE_HEAD_STREAM_H
#define ATTN_ATTEND_WIDE_HEAD_STREAM_H

#include "base/arena.h"
#include "attend/solve/wide_head.h"
#include "kernels/bf16x3/bf16x3_feed.h"

enum { ATTN__WIDE_HEAD_STRIPS = 32 };

/* One thread's memory. */
typedef struct attn__wide_head_stream {
    const attn__bf16x3_kernel *amx;
    uint16_t *tiles[2][2];     /* of this chunk and the next one, of two operands */
    attn__bf16x3_side weights; /* as A: [rows][depth] */
    float *sums[2];            /* [rows][chunk] */
    attn__bf16x3_feed feed;
} attn__wide_head_stream;

/* Takes memory for products of at most `rows` rows on each side. */
void attn__wide_head_stream_place(attn__wide_head_stream *stream, attn__arena *arena, int64_t rows);
/* Whether the machine has AMX and the problem has enough queries and keys to gain by it. */
bool attn__wide_head_stream_pays(const attn__canonical *canonical);
/* Whether the channels are in runs that AMX's steps divide. */
bool attn__wide_head_streams(const attn__wide_head_operand *operand, int64_t channels);

/* Computes a chunk with a number that is infinite or NaN. */
typedef void attn__wide_head_plain(void *user, int64_t first, int64_t n);

/* Columns of the scores that lie together. */
typedef struct attn__wide_head_strip {
    int64_t block, blocks; /* of 16 */
    float *c;
    int64_t ldc;
} attn__wide_head_strip;

/* c[a's row, b's row] = sum over channels of a * factor * b. */
typedef struct attn__wide_head_scores {
    attn__wide_head_rows a, b;
    float factor;
    int64_t channels;
    attn__wide_head_rows with; /* dots[a's row][16]: 16 partial sums of a . with; rows 0: none */
    float *dots;
    int strips;
    attn__wide_head_strip strip[ATTN__WIDE_HEAD_STRIPS];
    attn__wide_head_plain *plain;
    void *user;
} attn__wide_head_scores;
void attn__wide_head_stream_scores(attn__wide_head_stream *stream, const attn__wide_head_scores *scores);

/* Rows [first, first + rows) of `weights` times `in`: out = factor * (weights in) + was * out.  `first` is a multiple
 * of 16; weights, factor and was begin with row 0, out with row `first`. */
typedef struct attn__wide_head_products {
    attn__wide_head_rows in, out;
    int64_t first, channels;
    const float *factor, *was; /* as in attn__feed_pending */
    attn__wide_head_plain *plain;
    void *user;
} attn__wide_head_products;
void attn__wide_head_stream_products(attn__wide_head_stream *stream, const attn__wide_head_products *products);

/* x[depth][rows], rows of ld numbers, as weights' tiles from row `first` on, a multiple of 16; or x[rows][depth].
 * False if any is infinite or NaN. */
bool attn__wide_head_stream_weights(attn__wide_head_stream *stream, const float *x, int64_t ld, int64_t depth,
                                    int64_t first, int64_t rows);
bool attn__wide_head_stream_weights_along(attn__wide_head_stream *stream, const float *x, int64_t ld, int64_t depth,
                                          int64_t rows);

#endif
