/* SPDX-License-Identifier: MIT
 *
 * bf16x3.h - matrix products in the machine's AMX, which multiplies bf16 numbers and sums in f32:
 *
 *     C[m,n] (+)= sum_k A[m,k] * B[k,n]
 *
 * An f32 number x is the sum of three bf16 parts: x1 = bf16(x), x2 = bf16(x - x1), x3 = x - x1 - x2. Each part has 8
 * bits, so that all 24 bits of x are kept. The product of two numbers consists of nine products of parts. The six
 * largest are summed. The other three together are at most 2^-23, and typically 2^-27, of |a b|. Results are as exact
 * as those of f32 multiply-adds, at about twice their speed.  A bf16 number is one part.  (Henry, Tang and Heinecke
 * 2019, arXiv:1904.06376.)
 *
 * AMX treats subnormal numbers as zero, so that numbers below 1e-33 have fewer than three parts. Numbers above 3.39e38
 * round to infinity in bf16 and count as infinite.
 *
 * Operands are stored as tiles of 1 KiB. A tile of A has 16 rows of 32 numbers along k. A tile of B has 16 rows, and
 * row k holds the pairs (B[2k,n], B[2k+1,n]) of 16 columns n. In units of 32 bits, a tile of B is laid out like the
 * transpose of a tile of A.
 */
#ifndef ATTN_KERNELS_BF16X3_H
#define ATTN_KERNELS_BF16X3_H

#include "attn/attn.h"
#include "base/cpu.h"
#include "kernels/tile_hook.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ATTN__BF16X3_SIDE = 16,  /* rows of a tile; also columns of a tile of C */
    ATTN__BF16X3_DEPTH = 32, /* numbers of a tile along k */
    ATTN__BF16X3_TILE = ATTN__BF16X3_SIDE * ATTN__BF16X3_DEPTH,
    ATTN__BF16X3_F32 = 3, /* bf16 parts of an f32 number */
    /* `weigh` runs `hook` once per this many groups of four tile products. When all weights are done, it runs `hook`
     * after every group. */
    ATTN__BF16X3_HOOK_EVERY = 3
};

/* The layout of an operand's tiles. Strides are counted in numbers. Packed tiles are contiguous and have row stride 32.
 * Rows with other strides are allowed if each has the numbers of a tile's row. */
typedef struct attn__bf16x3_side {
    uint16_t *data;
    int64_t block; /* stride to the next 16 rows of A, or to the next 16 columns of B */
    int64_t step;  /* stride to the next 32 numbers along k */
    int64_t part;  /* stride to the next part of the same numbers */
    int64_t row;   /* row stride of a tile */
} attn__bf16x3_side;

/* Returns the layout of packed tiles. In memory, the parts of a tile are adjacent. They are followed by the next step
 * of the block, and the last step by the next block. */
static inline attn__bf16x3_side attn__bf16x3_packed(uint16_t *data, int64_t steps, int parts)
{
    int64_t step = (int64_t)parts * ATTN__BF16X3_TILE;
    return (attn__bf16x3_side){data, steps * step, step, ATTN__BF16X3_TILE, ATTN__BF16X3_DEPTH};
}

typedef struct attn__bf16x3_args {
    int64_t m, n, k; /* number of tiles along rows, columns and k; k = 0 gives zeros */
    int parts;       /* number of parts of each number of A and B: 1 or 3 */
    attn__bf16x3_side a, b;
    float *c;
    int64_t ldc;
    bool accumulate; /* add to C instead of overwriting it */
} attn__bf16x3_args;

/* Rows of numbers in the caller's memory, from which tiles are made. */
typedef struct attn__bf16x3_rows {
    const void *data;
    attn_dtype dtype;          /* ATTN_F32, or ATTN_BF16 if `parts` and `factor` are 1 */
    const int64_t *row_at;     /* offset of each row; NULL: rows are `ld` apart */
    int64_t ld, rows, columns; /* the numbers of a row are adjacent */
    float factor;
    int parts;
} attn__bf16x3_rows;

/* One step of the running softmax over a tile of scores s (see kernels/online_softmax). The weights 2^(factor * s - m)
 * are stored as tiles of B. The steps of the tiles are along the rows of s, and the blocks along the lanes. Missing
 * rows become zeros. */
typedef struct attn__bf16x3_softmax {
    const float *s;
    int64_t rows, width; /* width is a multiple of 16 */
    float factor;        /* factor of the scores; above 0 */
    int parts;           /* number of parts of each weight; if it is 1, weights are rounded before they are summed */
    float *m, *l;        /* running maximum and sum of each lane; at first -inf and 0 */
    float *shrink;       /* output: factor of each lane for earlier sums */
    attn__bf16x3_side to;
} attn__bf16x3_softmax;

/* Vector work that runs between AMX products. `portion` is called after about every fourth product. This struct must be
 * the first member of the struct with the state of the work. */
typedef struct attn__interleaved {
    void (*portion)(struct attn__interleaved *interleaved);
} attn__interleaved;

typedef struct attn__bf16x3_kernel {
    attn__isa isa;
    /* Each thread calls `begin` before its first product and `end` after its last product, because the state of AMX
     * belongs to the thread. No other code that uses AMX may run in between. */
    void (*begin)(void);
    void (*end)(void);
    void (*run)(const attn__bf16x3_args *args);
    /* Does the same as `run`. After about every fourth product, runs a portion of `interleaved`, which may be NULL and
     * must not use the arrays of `args`. */
    void (*run_interleaved)(const attn__bf16x3_args *args, attn__interleaved *interleaved);
    /* Writes tiles of A from rows of A. The blocks are along the rows, and the steps along the columns. Tiles are
     * padded with zeros. Returns false if any number is infinite or NaN. */
    bool (*split_rows)(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);
    /* Writes tiles of B from rows of B. The steps are along the rows, and the blocks along the columns. */
    bool (*split_pairs)(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);
    /* Transposes whole tiles in place. It turns tiles that split_rows made from rows of B^T into tiles of B, and tiles
     * that split_pairs made from rows of A^T into tiles of A. */
    void (*transpose)(uint16_t *tiles, int64_t count);
    /* Computes the references m and the factors `shrink` of a step. Returns true if some factor is not 1. */
    bool (*refer)(const attn__bf16x3_softmax *softmax);
    /* Computes all weights and their sums, after `refer`. `softmax` may be NULL. Also computes `count` products of
     * other arrays, interleaved with the weights, because exponentials keep the vector units busy while AMX works. The
     * bits of the results are the same as without interleaving. `hook` is called from time to time. */
    void (*weigh)(const attn__bf16x3_softmax *softmax, const attn__bf16x3_args *products, int count,
                  attn__tile_hook hook);
} attn__bf16x3_kernel;

/* Returns the AMX kernel, or NULL if `isa` is below ATTN_ISA_AMX. */
const attn__bf16x3_kernel *attn__bf16x3_for(attn__isa isa);

#endif
