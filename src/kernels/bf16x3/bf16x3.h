/* SPDX-License-Identifier: MIT
 *
 * bf16x3.h - matrix products in the machine's AMX, which multiplies bf16 numbers and sums in f32:
 *
 *     C[m,n] (+)= sum_k A[m,k] * B[k,n]
 *
 * An f32 number x is taken as a sum of three: x1 = bf16(x), x2 = bf16(x - x1), x3 = x - x1 - x2, 8 bits each, so that
 * nothing of its 24 is lost; of the nine products of parts the six largest are summed.  The rest is at most 2^-23 and
 * typically 2^-27 of |a b|: results are as exact as those of f32 multiply-adds, at about twice their speed.  A bf16
 * number is one part.  (Henry, Tang and Heinecke 2019, arXiv:1904.06376.)
 *
 * The unit takes subnormal numbers as zero, so that numbers below 1e-33 have fewer than three parts; numbers that round
 * to more than bf16 has (above 3.39e38) count as infinite.
 *
 * Operands are tiles of 1 KiB.  A tile of A is 16 rows of 32 numbers along k; a tile of B 16 rows, each of 16 columns'
 * pairs (B[2k,n], B[2k+1,n]).  So either is the other's transpose in units of 32 bits.
 */
#ifndef ATTN_KERNELS_BF16X3_H
#define ATTN_KERNELS_BF16X3_H

#include "attn/attn.h"
#include "base/cpu.h"
#include "kernels/tile_hook.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ATTN__BF16X3_SIDE = 16,  /* rows of a tile; columns of C */
    ATTN__BF16X3_DEPTH = 32, /* of a tile, along k */
    ATTN__BF16X3_TILE = ATTN__BF16X3_SIDE * ATTN__BF16X3_DEPTH,
    ATTN__BF16X3_F32 = 3, /* parts of an f32 number */
    /* `weigh` runs the side work (`hook`) after every so many times four products, and at the end */
    ATTN__BF16X3_HOOK_EVERY = 3
};

/* Layout of the tiles of an operand; all distances in numbers.  Packed ones are whole tiles with `row` 32, but any
 * rows do that hold what a tile holds. */
typedef struct attn__bf16x3_side {
    uint16_t *data;
    int64_t block; /* stride to the next 16 rows of A, or columns of B */
    int64_t step;  /* stride to the next 32 values of k */
    int64_t part;  /* stride to the next part of the same numbers */
    int64_t row;   /* stride to the next row of a tile */
} attn__bf16x3_side;

/* Packed tiles in order: the parts of a tile, then the steps of a block, then the blocks. */
static inline attn__bf16x3_side attn__bf16x3_packed(uint16_t *data, int64_t steps, int parts)
{
    int64_t step = (int64_t)parts * ATTN__BF16X3_TILE;
    return (attn__bf16x3_side){data, steps * step, step, ATTN__BF16X3_TILE, ATTN__BF16X3_DEPTH};
}

typedef struct attn__bf16x3_args {
    int64_t m, n, k; /* counted in tiles of 16 rows, 16 columns and 32 values of k; k = 0 gives zeros */
    int parts;       /* parts of each number of both operands, 1 or 3 */
    attn__bf16x3_side a, b;
    float *c;
    int64_t ldc;
    bool accumulate; /* add to C instead of overwriting it */
} attn__bf16x3_args;

/* The caller's rows of numbers, which become tiles. */
typedef struct attn__bf16x3_rows {
    const void *data;
    attn_dtype dtype;          /* ATTN_F32, or ATTN_BF16 with one part and factor 1 */
    const int64_t *row_at;     /* offset of each row; NULL: rows are `ld` apart */
    int64_t ld, rows, columns; /* columns are adjacent */
    float factor;              /* every number is multiplied by it */
    int parts;
} attn__bf16x3_rows;

/* One step of the running softmax over a tile of scores (kernels/online_softmax), whose weights 2^(factor * s - m)
 * become B's tiles: steps along the rows, blocks along the lanes.  Rows are filled up with zeros. */
typedef struct attn__bf16x3_softmax {
    const float *s;
    int64_t rows, width; /* width a multiple of 16 */
    float factor;        /* scores are multiplied by it; above 0 */
    int parts;           /* parts of each weight; with 1 part the weight is rounded before it is summed */
    float *m, *l;        /* running maximum and sum of each lane; begin with -inf and 0 */
    float *shrink;       /* out: the factor for earlier sums of the lane */
    attn__bf16x3_side to;
} attn__bf16x3_softmax;

/* Work on vectors, called for a portion of it after every fourth product or so: the first member of what it works
 * on. */
typedef struct attn__interleaved {
    void (*portion)(struct attn__interleaved *interleaved);
} attn__interleaved;

typedef struct attn__bf16x3_kernel {
    attn__isa isa;
    /* Each thread calls these before its first product and after its last one (the state of the unit belongs to the
     * thread; other code that uses AMX must not come between). */
    void (*begin)(void);
    void (*end)(void);
    void (*run)(const attn__bf16x3_args *args);
    /* The same, interleaved with other work of the caller's (NULL: none) that touches none of its arrays. */
    void (*run_interleaved)(const attn__bf16x3_args *args, attn__interleaved *interleaved);
    /* A's tiles from A's rows: blocks along the rows, steps along the columns.  Both are filled up with zeros.  False
     * if any number is infinite or NaN. */
    bool (*split_rows)(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);
    /* B's tiles from B's rows: steps along the rows, blocks along the columns. */
    bool (*split_pairs)(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);
    /* Transposes whole tiles, so that rows of what will be B's columns serve as B, and B's rows as A's columns. */
    void (*transpose)(uint16_t *tiles, int64_t count);
    /* A step of the softmax: references and what earlier sums are to be multiplied by, true if any of that is not 1;
     * ... */
    bool (*refer)(const attn__bf16x3_softmax *softmax);
    /* ... then all weights and their sums (NULL: none), interleaved with products of other arrays: exponentials keep
     * the vector units busy while AMX works.  The same bits as one after the other.
     * `hook` is done now and then. */
    void (*weigh)(const attn__bf16x3_softmax *softmax, const attn__bf16x3_args *products, int count,
                  attn__tile_hook hook);
} attn__bf16x3_kernel;

/* NULL below ATTN_ISA_AMX. */
const attn__bf16x3_kernel *attn__bf16x3_for(attn__isa isa);

#endif
