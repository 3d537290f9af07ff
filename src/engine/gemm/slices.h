/* SPDX-License-Identifier: MIT
 *
 * slices.h - f32 products by int8 slices (the Ozaki scheme; Ootomo, Ozaki and Yokota 2024, arXiv:2306.11975), with a
 * bound of the error that is proved for every row and panel:
 *
 *     C[m,n] = sum_k A[m,k] * B[k,n],   a * scale = 65536 d0 + 256 d1 + d2 + r,   |r| <= 1/2,   d in [-128, 127]
 *
 * A row of A has one scale, a power of two, for each K block. A column of B has one too.  Of the nine products of
 * slices, six or eight are summed in integers, without rounding. If eight products are not exact enough, the row is
 * computed by multiply-adds.  `decide` chooses six products, eight products or multiply-adds. It compares an upper
 * bound of the error with a lower bound of sum |a||b| (docs/numerics.md proves both bounds). The choice depends only on
 * the numbers of one row and one panel, not on neighbouring rows.  sliced.h multiplies whole matrices.
 *
 * Tiles have 1 KiB. A tile of A has 16 rows of 64 slices along k. A tile of B has 16 rows, and each row has 4 slices
 * along k of each of 16 columns. In units of 32 bits, this is the transpose of a tile of A.  For each 64 of k there are
 * three tiles, with d0, d1 and d2.
 */
#ifndef ATTN_GEMM_SLICES_H
#define ATTN_GEMM_SLICES_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ATTN__SLICES_SIDE = 16,  /* rows and columns of a C tile */
    ATTN__SLICES_DEPTH = 64, /* length of a tile along k */
    ATTN__SLICES_TILE = ATTN__SLICES_SIDE * ATTN__SLICES_DEPTH,
    ATTN__SLICES = 3,
    ATTN__SLICES_STEP = ATTN__SLICES * ATTN__SLICES_TILE,
    ATTN__SLICES_C_TILE = ATTN__SLICES_SIDE * ATTN__SLICES_SIDE,
    ATTN__SLICES_K_BLOCK = 384, /* panels of this length fit in the L1 cache two at a time, and sums stay below 2^24 */
    ATTN__SLICES_LEVELS = 12,   /* number of levels; a level is a threshold of |d0| */
    ATTN__SLICES_SHARES = 32,   /* entries of a panel's table, for shares 0/31 to 31/31 of the numbers of a K block */
    ATTN__SLICES_FINE = 7,      /* counts are stored as floor(31 * 2^7 * share of a K block's numbers) */
};

typedef struct attn__slices_scale {
    float scale, inverse; /* inverse is 0 if all numbers are 0, and NaN if only multiply-adds are exact enough */
} attn__slices_scale;

/* Inputs of `decide` for 16 rows in a K block.  q, d1 and d2 are upper bounds of root mean squares: of x * scale, of
 * its second slice and of its third slice. */
typedef struct attn__slices_rows {
    float inverse[ATTN__SLICES_SIDE];
    float q[ATTN__SLICES_SIDE]; /* NaN if the row must use multiply-adds */
    float d1[ATTN__SLICES_SIDE], d2[ATTN__SLICES_SIDE];
    float lift[ATTN__SLICES_SIDE]; /* infinity for a row of zeros, which makes the row pass every test; otherwise 0 */
    int32_t count[ATTN__SLICES_LEVELS][ATTN__SLICES_SIDE]; /* [level]: share of the numbers that reach the level */
} attn__slices_rows;

/* Inputs of `decide` for 16 columns together: the largest norms of any column and the smallest counts of any column. q
 * is NaN if multiply-adds must be used. */
typedef struct attn__slices_panel {
    float inverse[ATTN__SLICES_SIDE];
    float table[ATTN__SLICES_SHARES]; /* [t]: factor of attn__slices_rise in the lower bound, for a count of t * 2^7 */
    float q, d1, d2;
} attn__slices_panel;

/* How each row of a C tile is computed, as bit masks of rows. Rows in neither mask use six products. */
typedef struct attn__slices_choice {
    uint16_t eight, multiply_adds;
} attn__slices_choice;

/* A callback that a run calls between products, for packing, storing and prefetching. It must be the first member of
 * the caller's struct. */
typedef struct attn__slices_hook {
    void (*portion)(struct attn__slices_hook *hook);
} attn__slices_hook;

/* The arguments of a run, which computes `m` C tiles of one column over a K block. */
typedef struct attn__slices_args {
    int64_t m, steps; /* steps: number of steps of 64 along k, at least 1 */
    const int8_t *a, *b;
    int64_t block;                 /* bytes between groups of 16 rows of A */
    const int8_t *next_a, *next_b; /* operands of the next run, or NULL */
    const attn__slices_rows *rows; /* [m]: measures of the rows */
    const attn__slices_panel *panel;
    float limit; /* result of attn__slices_limit for all of k */
    bool add;    /* add to the values in `to` instead of overwriting them */
    float *to;   /* [16 m][ld]: the result */
    int64_t ld;
} attn__slices_args;

/* A C tile that is not yet converted to floats. It has four integer sums with the weights 1, 2^-8, 2^-16, and 2^-16 or
 * 2^-24. */
typedef struct attn__slices_rest {
    const int32_t *sums, *end;
    const float *row_inverse, *column_inverse, *before;
    const float *last; /* [16]: weight of the fourth sum for each row */
    float *to;
    int64_t before_ld, ld;
} attn__slices_rest;

/* State of a thread between consecutive runs.  It must be zero before the first run. */
typedef struct attn__slices_state {
    int32_t _Alignas(64) sums[4 * ATTN__SLICES_C_TILE];
    float last[ATTN__SLICES_SIDE]; /* weights of the fourth sums, if the rows have different weights */
    bool loaded;                   /* the registers hold the first tiles of the next run */
    attn__slices_rest rest;
} attn__slices_state;

typedef struct attn__slices_kernel {
    /* Each thread calls `begin` before its first product and `end` after its last product. */
    void (*begin)(void);
    void (*end)(void);
    /* Computes C tiles. The last C tile is converted to floats by the next run or by `finish`. `hook` must not be
     * NULL. */
    void (*run)(const attn__slices_args *args, attn__slices_state *state, attn__slices_hook *hook);
    void (*finish)(attn__slices_state *state);
    attn__slices_choice (*decide)(const attn__slices_rows *rows, const attn__slices_panel *panel, float limit);
    attn__slices_scale (*scale)(const float *x, int64_t n);
    /* Quantizes n numbers to a row of A's tiles. Pads the row with zeros to whole steps. */
    void (*quantize)(const float *x, float scale, int64_t n, int8_t *row);
    /* Measures one row of A's tiles, which has n numbers, and writes the measures to lane `lane` of `rows`. */
    void (*measure)(const int8_t *row, int64_t n, attn__slices_scale scale, attn__slices_rows *rows, int64_t lane);
    /* Transposes tiles of A to tiles of B, or tiles of B to tiles of A. */
    void (*transpose)(int8_t *tiles, int64_t count);
    /* Stores y[i] = x[i]. If `add` is set, computes y[i] += x[i] instead. */
    void (*store)(const float *x, float *y, int64_t n, bool add);
} attn__slices_kernel;

/* Returns the kernel, or NULL if `isa` is below ATTN_ISA_AMX. */
const attn__slices_kernel *attn__slices_for(attn__isa isa);

/* Returns the limit of the test in `decide`. A row passes a K block if its error is at most limit * the lower bound of
 * sum |a||b|. */
float attn__slices_limit(int64_t k);
/* Returns the scale of numbers x. `largest` has the bits of the largest |x|. */
attn__slices_scale attn__slices_scale_of(uint32_t largest);
/* Sets the measures of n numbers in lane `lane`. `sums` has the sum of d0^2, and the sums of |d| min(|d|, 127) for d1
 * and for d2. */
void attn__slices_note(attn__slices_rows *rows, int64_t lane, attn__slices_scale scale, int64_t n,
                       const int32_t count[ATTN__SLICES_LEVELS], const int32_t sums[ATTN__SLICES]);
/* Sets a lane that has no numbers. The lane passes the test and is not computed. */
void attn__slices_note_none(attn__slices_rows *rows, int64_t lane);
void attn__slices_copy_lane(attn__slices_rows *to, int64_t to_lane, const attn__slices_rows *from, int64_t lane);
void attn__slices_panel_of(const attn__slices_rows *columns, attn__slices_panel *panel);
/* Merges `panel` into `all`, which begins as a copy of one panel. A row that passes the test for `all` passes it for
 * every merged panel. */
void attn__slices_panel_join(attn__slices_panel *all, const attn__slices_panel *panel);
extern const uint8_t attn__slices_level[ATTN__SLICES_LEVELS];
/* [level]: increase of the lower bound of |x| from the level before */
extern const float attn__slices_rise[ATTN__SLICES_LEVELS];

/* The part of the error bound that does not depend on norms (slices_bound.c). */
#define ATTN__SLICES_ROUNDING 34000.0f

#endif
