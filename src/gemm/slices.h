/* SPDX-License-Identifier: MIT
 *
 * slices.h - f32 products by int8 slices (the Ozaki scheme; Ootomo, Ozaki and Yokota 2024, arXiv:2306.11975), with a
 * proof for every row and panel:
 *
 *     C[m,n] = sum_k A[m,k] * B[k,n],   a * scale = 65536 d0 + 256 d1 + d2 + r,   |r| <= 1/2,   d in [-128, 127]
 *
 * A row of A has one scale, a power of two, for each K block; so has a column of B.  Six of the nine products of slices
 * are summed in integers, without rounding, or eight, or the row is computed by multiply-adds.  `decide` compares an
 * upper bound of the error with a lower bound of sum |a||b|; docs/numerics.md has the proof.  It reads one row's
 * numbers and one panel's, never the neighbours' of that row.  sliced.h multiplies whole matrices so.
 *
 * Tiles are of 1 KiB: of A 16 rows of 64 slices along k, of B 16 rows of 4 slices along k of each of 16 columns, the
 * other's transpose in units of 32 bits.  For each 64 of k three tiles follow each other, d0 to d2.
 */
#ifndef ATTN_GEMM_SLICES_H
#define ATTN_GEMM_SLICES_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ATTN__SLICES_SIDE = 16,  /* rows and columns of a C tile */
    ATTN__SLICES_DEPTH = 64, /* of a tile, along k */
    ATTN__SLICES_TILE = ATTN__SLICES_SIDE * ATTN__SLICES_DEPTH,
    ATTN__SLICES = 3,
    ATTN__SLICES_STEP = ATTN__SLICES * ATTN__SLICES_TILE,
    ATTN__SLICES_C_TILE = ATTN__SLICES_SIDE * ATTN__SLICES_SIDE,
    ATTN__SLICES_K_BLOCK = 384, /* two panels of this length fill the first cache; sums stay below 2^24 */
    ATTN__SLICES_LEVELS = 12,   /* sizes at which numbers are counted */
    ATTN__SLICES_SHARES = 32,   /* shares of a K block for which a panel has a table, 0 to 31 of 31 */
    ATTN__SLICES_FINE = 7,      /* a count is floor(31 * 2^7 * its share of the K block) */
};

/* Of one row, or column, within a K block. */
typedef struct attn__slices_scale {
    float scale, inverse; /* inverse: 0 where all numbers are 0, NaN where only multiply-adds will do */
} attn__slices_scale;

/* Inputs of `decide` for 16 rows within a K block.  q, d1, d2: upper bounds of root mean squares. */
typedef struct attn__slices_rows {
    float inverse[ATTN__SLICES_SIDE];
    float q[ATTN__SLICES_SIDE]; /* NaN: multiply-adds */
    float d1[ATTN__SLICES_SIDE], d2[ATTN__SLICES_SIDE];
    float lift[ATTN__SLICES_SIDE]; /* infinity for a row of zeros, which always passes; else 0 */
    int32_t count[ATTN__SLICES_LEVELS][ATTN__SLICES_SIDE]; /* numbers of at least that level */
} attn__slices_rows;

/* The bounds for 16 columns together: the largest of their norms and the smallest of their counts. q NaN: use
 * multiply-adds. */
typedef struct attn__slices_panel {
    float inverse[ATTN__SLICES_SIDE];
    float table[ATTN__SLICES_SHARES]; /* [t]: what a rise of 1 at a row's count of t 2^7 adds to the lower bound */
    float q, d1, d2;
} attn__slices_panel;

/* A bit for each row of a C tile. */
typedef struct attn__slices_choice {
    uint16_t eight, multiply_adds;
} attn__slices_choice;

/* A hook that runs between the products, for packing, storing and prefetching. Its struct begins with this member. */
typedef struct attn__slices_hook {
    void (*portion)(struct attn__slices_hook *hook);
} attn__slices_hook;

/* `m` C tiles below each other, over a K block. */
typedef struct attn__slices_args {
    int64_t m, steps; /* steps: of 64 of k, at least one */
    const int8_t *a, *b;
    int64_t block;                 /* from 16 rows of A to the next, bytes */
    const int8_t *next_a, *next_b; /* of the next run; NULL: there is none */
    const attn__slices_rows *rows; /* [m] */
    const attn__slices_panel *panel;
    float limit; /* attn__slices_limit of the whole k */
    bool add;    /* to what is there */
    float *to;   /* [16 m][ld] */
    int64_t ld;
} attn__slices_args;

/* The pending epilogue: sums of a C tile by weights, 1, 2^-8, 2^-16 and 2^-16 again or 2^-24, that are not yet floats. */
typedef struct attn__slices_rest {
    const int32_t *sums, *end;
    const float *row_inverse, *column_inverse, *before;
    const float *last; /* the weight of the last of the sums, of each row */
    float *to;
    int64_t before_ld, ld;
} attn__slices_rest;

/* State of a thread's consecutive runs.  The first is all zeros. */
typedef struct attn__slices_state {
    int32_t _Alignas(64) sums[4 * ATTN__SLICES_C_TILE];
    float last[ATTN__SLICES_SIDE]; /* where it is not the same for all rows */
    bool loaded;                   /* the first tiles are in their registers */
    attn__slices_rest rest;        /* of the last C tile */
} attn__slices_state;

typedef struct attn__slices_kernel {
    /* Each thread calls these before its first product and after its last one. */
    void (*begin)(void);
    void (*end)(void);
    /* Computes tiles, but leaves the epilogue of the last C tile to the next run or to `finish`. `hook` is not NULL. */
    void (*run)(const attn__slices_args *args, attn__slices_state *state, attn__slices_hook *hook);
    void (*finish)(attn__slices_state *state);
    attn__slices_choice (*decide)(const attn__slices_rows *rows, const attn__slices_panel *panel, float limit);
    attn__slices_scale (*scale)(const float *x, int64_t n);
    /* n numbers to a row of A's tiles, whole steps, filled up with zeros. */
    void (*quantize)(const float *x, float scale, int64_t n, int8_t *row);
    /* Fills lane `lane` of `rows` from one row of A's tiles, n numbers long. */
    void (*measure)(const int8_t *row, int64_t n, attn__slices_scale scale, attn__slices_rows *rows, int64_t lane);
    /* Transposes tiles: A's to B's, and the other way round. */
    void (*transpose)(int8_t *tiles, int64_t count);
    /* y[i] = x[i], or y + x. */
    void (*store)(const float *x, float *y, int64_t n, bool add);
} attn__slices_kernel;

/* NULL below ATTN_ISA_AMX. */
const attn__slices_kernel *attn__slices_for(attn__isa isa);
/* The functions in plain C. Tests compare their bits with those of the vector code. */
const attn__slices_kernel *attn__slices_portable(void);

/* slices_bound.c */

/* A row passes a K block where its error is at most `limit` times the lower bound of sum |a||b|. */
float attn__slices_limit(int64_t k);
/* The scale for numbers of which `largest` has the largest size, as bits. */
attn__slices_scale attn__slices_scale_of(uint32_t largest);
/* Measures lane `lane` of n numbers: the counts, the sums of d0^2, and the sums of |d| min(|d|, 127) for d1 and d2. */
void attn__slices_note(attn__slices_rows *rows, int64_t lane, attn__slices_scale scale, int64_t n,
                       const int32_t count[ATTN__SLICES_LEVELS], const int32_t sums[ATTN__SLICES]);
/* A lane without numbers: it passes and is not computed. */
void attn__slices_note_none(attn__slices_rows *rows, int64_t lane);
void attn__slices_copy_lane(attn__slices_rows *to, int64_t to_lane, const attn__slices_rows *from, int64_t lane);
void attn__slices_panel_of(const attn__slices_rows *columns, attn__slices_panel *panel);
/* Merges a panel into `all`, which begins as a copy of a panel. A row that passes `all` passes every merged panel. */
void attn__slices_panel_join(attn__slices_panel *all, const attn__slices_panel *panel);
extern const uint8_t attn__slices_level[ATTN__SLICES_LEVELS];
/* By how much the bound of |x| rises from level to level. */
extern const float attn__slices_rise[ATTN__SLICES_LEVELS];

/* Terms of the error bound in addition to products of norms; see slices_bound.c. */
#define ATTN__SLICES_ROUNDING 34000.0f

#endif
