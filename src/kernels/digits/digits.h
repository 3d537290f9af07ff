/* SPDX-License-Identifier: MIT
 *
 * digits.h - products of f32 matrices in the integers of the machine's matrix unit (AMX), which multiplies 8-bit
 * numbers and sums them exactly:
 *
 *     C[m,n] = sum_k A[m,k] * B[k,n]
 *
 * The numbers of a row of A along a chunk of k are fixed-point numbers of one unit, a power of two: 24 bits with the
 * sign of the largest of them.  So are those of a column of B.  Each has three digits of -128 to 127,
 * x = unit * (d0 * 2^16 + d1 * 2^8 + d2); of the nine products of digits the six largest are summed, those of one
 * weight together, without rounding, and only their sum over a chunk becomes a float.  (Ootomo, Ozaki and Yokota 2024,
 * arXiv:2306.11975, of whom the scheme is; f64 there.)
 *
 * What a chunk's sum is off by is, typically, sqrt(k) times 2^-25 to 2^-22.6 of the largest |a| times the largest |b|:
 * for numbers of one size as much as what rounding each partial sum makes, as multiply-adds do, or two to three times
 * that.  A row with a number 12 times as large as the mean of its others that are not zero (`fine`), and 16 columns one
 * of which has, sum eight products, all but the last digits', a quarter of that error.  The unit computes them for all
 * 16 rows of a square; those that are not fine leave them out, so that a row's bits do not depend on the rows beside
 * it. Digits will not do for a row of at least 32 of these where that is 1,024 times, or with one that is not finite
 * (or above 3.38e38): its unit is NaN.  Of rows below 2^-106 digits are lost.  `spread` serves operands whose large
 * numbers stand where the other's are small: powers of two for each k, by which A is divided and B multiplied.
 *
 * Tiles are of 1 KiB: of A 16 rows of 64 digits along k, of B 16 rows of 4 digits along k of each of 16 columns, the
 * other's transpose in units of 32 bits.  For each 64 of k three tiles follow each other, d0 to d2.
 */
#ifndef ATTN_KERNELS_DIGITS_H
#define ATTN_KERNELS_DIGITS_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ATTN__DIGITS_SIDE = 16,  /* rows and columns of a square of C */
    ATTN__DIGITS_DEPTH = 64, /* of a tile, along k */
    ATTN__DIGITS_TILE = ATTN__DIGITS_SIDE * ATTN__DIGITS_DEPTH,
    ATTN__DIGITS = 3,
    ATTN__DIGITS_STEP = ATTN__DIGITS * ATTN__DIGITS_TILE,
    ATTN__DIGITS_SQUARE = ATTN__DIGITS_SIDE * ATTN__DIGITS_SIDE,
    ATTN__DIGITS_CHUNK = 384, /* most of k with one unit: two of the first cache's panels */
    ATTN__DIGITS_COPIED = 64, /* columns that are looked at together */
};

/* Work on vectors done beside the products, a small portion a call; the first member of what it works on. */
typedef struct attn__digits_beside {
    void (*portion)(struct attn__digits_beside *beside);
} attn__digits_beside;

/* `m` squares below each other, over a chunk of k.  All units are as `cut` and `scale_columns` give them. */
typedef struct attn__digits_args {
    int64_t m, steps; /* steps: of 64 of k, at least one */
    const int8_t *a, *b;
    int64_t block;                 /* from 16 rows of A to the next, bytes */
    const int8_t *next_a, *next_b; /* of the next run; NULL: there is none */
    const float *row_unit, *column_unit;
    const bool *fine;    /* [16 m]: sum a row's eight products, whatever the others of its square do; NULL: none's */
    bool all_fine;       /* all rows' */
    const float *before; /* what is added to each row; NULL: nothing */
    int64_t before_ld;   /* 0: to all rows the same */
    float *to;           /* [16 m][ld]; may be `before` */
    int64_t ld;
    bool *odd;        /* of each square, whether some sum is not finite; NULL: not wanted */
    int64_t odd_step; /* from one to the next */
} attn__digits_args;

/* What is left of a square: sums by their weights, 1, 2^-8, 2^-16 and 2^-16 again or 2^-24, that are not yet floats. */
typedef struct attn__digits_rest {
    const int32_t *sums, *end;
    const float *row_unit, *column_unit, *before;
    const float *last; /* the weight of the last of the sums, of each row */
    float *to;
    int64_t before_ld, ld;
    bool *odd;
    uint16_t some_odd;
} attn__digits_rest;

/* Of a thread's runs, one after the other. */
typedef struct attn__digits_state {
    int32_t _Alignas(64) sums[4 * ATTN__DIGITS_SQUARE];
    float last[ATTN__DIGITS_SIDE]; /* where it is not the same for all rows */
    bool loaded;                   /* the first tiles are in their registers */
    attn__digits_rest rest;        /* of the last square */
} attn__digits_state;

/* Of the numbers of a row, or a column, within a chunk. */
typedef struct attn__digits_scale {
    float cut, unit; /* to fixed point; of the result, NaN where digits will not do */
    bool fine;       /* one is far above the others */
} attn__digits_scale;

/* One square of a list.  A's tiles are any rows of 64 digits, as far apart as the list says. */
typedef struct attn__digits_square {
    const int8_t *a, *b;
    const float *row_unit, *column_unit;
    const bool *fine; /* [16], of the rows */
    bool all_fine;
    const float *before; /* as in attn__digits_args */
    int64_t before_ld;
    float *to;
    bool *odd;
} attn__digits_square;

/* Squares of as many steps one after the other; each may add to one before it. */
typedef struct attn__digits_list {
    const attn__digits_square *squares;
    int64_t count, steps;           /* at least one */
    int64_t a_row, a_digit, a_step; /* bytes to the next row of a tile of A, to the next digit, to the next 64 of k */
    int64_t ld;                     /* of `to` */
} attn__digits_list;

/* Numbers of the caller with columns adjacent. */
typedef struct attn__digits_columns {
    const float *x;
    int64_t ld, k, n;    /* rows along k */
    const float *spread; /* [k]: of each row; NULL: 1 */
    float *copy;         /* [k][ATTN__DIGITS_COPIED]: of as many columns at most, spread; NULL: not wanted.  Of a block
                          * [k][n, filled up with zeros to whole 16] */
} attn__digits_columns;

/* Some taps of a kernel, which are adjacent in w, for up to 16 results and some channels. */
typedef struct attn__digits_taps {
    const float *w;
    int64_t result_stride, channel_stride; /* in w */
    int64_t results, taps, channels, padded;
    bool flipped;        /* from the last tap to the first */
    const float *spread; /* [channels]; NULL: 1 */
} attn__digits_taps;

/* Bytes: rows of a digit, of which columns [begin, end) count. */
typedef struct attn__digits_rows {
    const int8_t *x;
    int64_t ld, rows, begin, end;
} attn__digits_rows;

typedef struct attn__digits_kernel {
    /* What a thread does before its first product and after its last one; see parts.h. */
    void (*begin)(void);
    void (*end)(void);
    /* Leaves its last square to the next run, or to `finish`; `beside` is not NULL.  The first state is all zeros. */
    void (*run)(const attn__digits_args *args, attn__digits_state *state, attn__digits_beside *beside);
    void (*finish)(attn__digits_state *state);
    /* As `run`, and begins anew: nothing of another run is in registers. */
    void (*run_list)(const attn__digits_list *list, attn__digits_state *state, attn__digits_beside *beside);
    /* Of n numbers, each times its `spread` (NULL: 1). */
    attn__digits_scale (*scale)(const float *x, const float *spread, int64_t n);
    /* n of them to a row of A's tiles, whole steps, filled up with zeros. */
    void (*cut)(const float *x, const float *spread, float cut, int64_t n, int8_t *row);
    /* Of every column, which are copied if so wanted. */
    void (*scale_columns)(const attn__digits_columns *from, attn__digits_scale *scale);
    /* Up to 16 columns to B's tiles, whole steps, filled up with zeros. */
    void (*cut_columns)(const attn__digits_columns *from, const attn__digits_scale *scale, int8_t *tiles);
    /* Transposes tiles: A's to B's, and the other way round. */
    void (*turn)(int8_t *tiles, int64_t count);
    /* Of all of them together, which are copied if so wanted. */
    attn__digits_scale (*scale_block)(const attn__digits_columns *from);
    /* Up to 16 columns become rows of k bytes, whole 32, filled up with zeros: `pitch` bytes from one to the next, and
     * `plane` to the next digit. */
    void (*cut_across)(const attn__digits_columns *from, float cut, int64_t pitch, int64_t plane, int8_t *out);
    /* n numbers become n bytes for each digit, whole 64, filled up with zeros. */
    void (*cut_line)(const float *x, float cut, int64_t n, int64_t plane, int8_t *out);
    /* Rows of `width` bytes one after the other, zeros where the columns do not count. */
    void (*move)(const attn__digits_rows *from, int64_t width, int8_t *to);
    /* Weights as [tap][channel, filled up with zeros to `padded`][16]. */
    void (*gather)(const attn__digits_taps *from, float *to);
    /* k rows of 16 numbers: the scale of each of the columns, and their tiles as cut_columns makes them. */
    void (*cut_sixteen)(const float *rows, int64_t k, attn__digits_scale *scale, int8_t *tiles);
    /* to[r][c] = from[c][r], or to + from, for the first rows and columns of a square. */
    void (*put_turned)(const float *const from[ATTN__DIGITS_SIDE], int64_t rows, int64_t columns, float *to, int64_t ld,
                       bool add);
    /* y[i] = x[i], or y + x. */
    void (*put)(const float *x, float *y, int64_t n, bool add);
    /* Adds floor(log2 |x|) of what is neither 0 nor subnormal, infinite or NaN, and how many these are, and keeps
     * the largest in `most`: of each number in its own place; and, in one, of 16 numbers every `apart`, at least 16. */
    void (*exponents)(const float *x, int64_t n, float *sum, float *count, float *most);
    void (*exponents_of_row)(const float *x, int64_t n, int64_t apart, float *sum, float *count, float *most);
} attn__digits_kernel;

/* NULL below ATTN_ISA_AMX. */
const attn__digits_kernel *attn__digits_for(attn__isa isa);

#endif
