/* SPDX-License-Identifier: MIT
 *
 * bf16x3_feed.h - packs operands and unpacks results for a stream of AMX products (bf16x3.h). After every fourth
 * product, it does a portion of three tasks. It makes tiles of three parts from the caller's next rows. It prefetches
 * lines that are needed some tiles later. It stores the sums of the last product to the caller's rows.
 *
 * In a step of 32 columns, numbers l and l + 16 are adjacent along k in tiles of ROWS and TRANSPOSED, which are
 * multiplied together. No number has to change its lane for this order. PAIRS keep the order of the rows along k.
 */
#ifndef ATTN_KERNELS_BF16X3_FEED_H
#define ATTN_KERNELS_BF16X3_FEED_H

#include "kernels/bf16x3/bf16x3.h"

enum { ATTN__FEED_STEPS = 2, ATTN__FEED_COLUMNS = ATTN__FEED_STEPS * ATTN__BF16X3_DEPTH };

typedef enum attn__feed_kind {
    ATTN__FEED_ROWS,       /* tiles of A, with blocks along the rows and steps along the columns */
    ATTN__FEED_TRANSPOSED, /* tiles of B, made from the transposed rows */
    ATTN__FEED_PAIRS       /* tiles of B, with steps along the rows and blocks along the columns */
} attn__feed_kind;

/* Rows of the caller from which packed tiles are made (attn__bf16x3_packed). Tiles are padded with zeros. */
typedef struct attn__feed_side {
    attn__feed_kind kind;
    const float *at[ATTN__FEED_STEPS]; /* per step: address of its 32 adjacent columns */
    const int64_t *row_at;             /* offset of each row from these addresses */
    int64_t rows, steps;
    float factor; /* TRANSPOSED only: factor of every number */
    attn__bf16x3_side to;
    /* ROWS only; NULL if not requested. Rows `with` are multiplied by the rows, and the products are summed in
     * dots[row][16]. The caller adds up the 16 partial sums. */
    const float *with[ATTN__FEED_STEPS];
    const int64_t *with_at;
    float *dots;
} attn__feed_side;

/* Sums to be stored in rows of the caller: row = factor * sum + was * row. */
typedef struct attn__feed_pending {
    const float *from;
    int64_t ld;
    float *at[ATTN__FEED_STEPS], *next[ATTN__FEED_STEPS]; /* rows that are stored after the rows in `at`; NULL: none */
    const int64_t *row_at;
    int64_t rows, steps; /* rows = 0: there is nothing to store */
    const float *factor; /* [rows] */
    const float *was;    /* [rows]; negative: ignore the row's old value; NULL: ignore all old values */
} attn__feed_pending;

typedef struct attn__bf16x3_feed {
    attn__interleaved interleaved;
    /* `side`: operands that are packed now. `next`: operands that follow, whose first lines are prefetched. */
    attn__feed_side side[2], next[2];
    int sides, nexts;
    attn__feed_pending drain;
    /* Progress of splitting, prefetching and storing. `due` and `rate` give how much of each a portion must do. */
    struct {
        int side;
        int64_t row, column, part; /* first row of the tile; index of the tile's column; portion within the tile */
        uint16_t *out;
    } split;
    struct {
        int side;
        int64_t row, step, line;
    } prefetch;
    int64_t drained;
    struct {
        int64_t due, rate;
    } splits, prefetches, drains;
    float _Alignas(64) odd[ATTN__BF16X3_SIDE];
    float _Alignas(64) stage[ATTN__BF16X3_DEPTH][ATTN__BF16X3_SIDE];
} attn__bf16x3_feed;

/* The caller must have set `side`, `next`, `drain` and their counts. Afterwards feed->interleaved.portion may be called
 * at most `portions` times. Needs ATTN_ISA_AMX, like attn__bf16x3_feed_end. */
void attn__bf16x3_feed_begin(attn__bf16x3_feed *feed, int64_t portions);
/* Does the remaining work. Returns false if a number is infinite, NaN or too large for three bf16 parts. */
bool attn__bf16x3_feed_end(attn__bf16x3_feed *feed);

#endif
