/* SPDX-License-Identifier: MIT
 *
 * bf16x3_feed.h - packs and unpacks for a stream of products on AMX (bf16x3.h), a portion after every fourth product:
 * the next rows of the caller become tiles of three parts, lines that are needed some tiles later are prefetched, and
 * the sums of the last product are stored to rows of the caller.
 *
 * In a step of 32 columns, numbers l and l + 16 are neighbours along k in tiles of ROWS and TRANSPOSED, which are
 * multiplied together: no number has to change its lane for that.  PAIRS have rows along k as they are.
 */
#ifndef ATTN_KERNELS_BF16X3_FEED_H
#define ATTN_KERNELS_BF16X3_FEED_H

#include "kernels/bf16x3/bf16x3.h"

enum { ATTN__FEED_STEPS = 2, ATTN__FEED_COLUMNS = ATTN__FEED_STEPS * ATTN__BF16X3_DEPTH };

typedef enum attn__feed_kind {
    ATTN__FEED_ROWS,       /* A's tiles: blocks along the rows, steps along the columns */
    ATTN__FEED_TRANSPOSED, /* B's tiles of the same, transposed */
    ATTN__FEED_PAIRS       /* B's tiles: steps along the rows, blocks along the columns */
} attn__feed_kind;

/* Rows that become packed tiles (attn__bf16x3_packed), filled up with zeros. */
typedef struct attn__feed_side {
    attn__feed_kind kind;
    const float *at[ATTN__FEED_STEPS]; /* address of the 32 adjacent columns of each step */
    const int64_t *row_at;             /* offset of each row from these addresses */
    int64_t rows, steps;
    float factor; /* TRANSPOSED only: every number is multiplied by it */
    attn__bf16x3_side to;
    /* ROWS only, NULL: none.  Sums of products with these rows are added to dots[row][16], whose 16 are to be added
     * up in the end. */
    const float *with[ATTN__FEED_STEPS];
    const int64_t *with_at;
    float *dots;
} attn__feed_side;

/* Sums that become rows: row = factor * sum + was * row. */
typedef struct attn__feed_pending {
    const float *from;
    int64_t ld;
    float *at[ATTN__FEED_STEPS],
        *next[ATTN__FEED_STEPS]; /* next: the rows after these, of the same number; NULL: none */
    const int64_t *row_at;
    int64_t rows, steps; /* rows = 0: there is nothing to store */
    const float *factor; /* [rows] */
    const float *was;    /* [rows]; below 0: the row has no value yet; NULL: no row has */
} attn__feed_pending;

typedef struct attn__bf16x3_feed {
    attn__interleaved interleaved;
    attn__feed_side side[2], next[2]; /* the current sides; the following sides, whose first lines are prefetched */
    int sides, nexts;
    attn__feed_pending drain;
    /* Where it has come to, and how much of each is due at every portion. */
    struct {
        int side;
        int64_t row, column, part; /* first row and column of the tile, and index of its portion */
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

/* `side`, `next`, `drain` and their numbers are set; `portions` calls of feed->beside follow, or fewer.  Needs
 * ATTN_ISA_AMX, as the rest of this. */
void attn__bf16x3_feed_begin(attn__bf16x3_feed *feed, int64_t portions);
/* Does the remaining work. False if a number is infinite, NaN or too large for the parts. */
bool attn__bf16x3_feed_end(attn__bf16x3_feed *feed);

#endif
