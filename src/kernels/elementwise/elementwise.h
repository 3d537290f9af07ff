/* SPDX-License-Identifier: MIT
 *
 * elementwise.h - the loops of the tensor operations other than matrix products: elementwise y[i] = f(x[i], ...), row by row
 * (softmax, layer normalization, loss), and sums over rows.
 *
 * All have one signature, so that one launcher and one table serve them: run(args, begin, end) computes the part
 * [begin, end) of its range of elements, rows or columns; threads may compute parts at once.  The list below has the
 * formulas.
 *
 * Contract: pointers are to float or double, as the table is that the kernel comes from; rows are contiguous and `n`
 * long; nothing needs alignment.  y may be x (in place) unless the list says otherwise.  Nothing is allocated.  How the
 * range is divided does not change the bits of a result.
 */
#ifndef ATTN_KERNELS_ELEMENTWISE_H
#define ATTN_KERNELS_ELEMENTWISE_H

#include "base/rng.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* The kernels: the range that is divided, and what one part of it computes.
 *
 *   ADD: elements: y = x + x2
 *   AFFINE: elements: y = x * s[0] + s[1]
 *   ROUND: elements: y = x rounded to bf16; of float alone
 *   ACTIVATE: elements: y = kind(x), an activation
 *   ACTIVATE_BACKWARD: elements: y = x * kind'; x2 is the input or the output (attn__activation_keeps_input)
 *   BIAS_ACTIVATE: rows: y = kind(y + x) for a row y; x NULL: no bias
 *   STRIDED: outer indices of `shape`, all axes but the last (elements if it is the only one): y = s[0] * x (+ y if
 *       `add`), all strided; not in place
 *   BINARY: the same: y contiguous = x (kind) x2, kind an attn__binary; y may be x or x2 if that is contiguous too
 *   REDUCE: elements of y [outer, n]: y = s[0] * sum of x [outer, rows, n] over rows (+ y if `add`)
 *   SOFTMAX: rows: y = softmax of x where column < lens[row / lens_rows], else 0, or the score s[0] if that is not 0
 *   LARGEST: rows: y = the largest of x, y2 = their sum, which is NaN or infinite if one of them is
 *   SOFTMAX_BACKWARD: rows: y = x2 * (x - sum(x * x2)), x2 the softmax, x the gradient
 *   LAYER_NORM: rows: t = x + dropout(x2); y = normalized t * x3 + x4; s[0] = eps; y2 = normalized t, may be NULL; y3 =
 *       1/sqrt(var + eps), one number a row, may be NULL
 *   LAYER_NORM_BACKWARD: rows: y = gradient of t; y2, if not NULL, = its gradient through dropout; x = gradient; x2 =
 *       normalized t or, if x4 is not NULL, the output, with x6 = 1 / x3; x3, x4 as above; x5 = y3; `add`: y += (y2
 *       never)
 *   LAYER_NORM_PARAMETERS: columns: y (x3's gradient) and y2 (x4's), += if add, add2; x, x2, x4, x6 as above, over `rows`
 *       rows
 *   DROPOUT: rows: y = dropout(x)
 *   EMBED: rows: y = table x [ids[row]] * s[0] (+ position x2 [row mod period + first])
 *   EMBED_BACKWARD: columns: y [ids[row]] += s[0] * x [row] for each of `rows` rows, in order; where x2[row] (int32_t;
 *       x2 NULL: nowhere) is not negative, it is moved to the sum y2 [x2[row]] (double), which y [x3[sum]] gets at the
 *       end, for each of `period` sums
 *   CROSS_ENTROPY: rows: y = the loss of the row; y2, if not NULL, = its log-sum-exp; y3 [row,2], if not NULL, = the
 *       largest of x and what the log-sum-exp is above it; all 0 if ids[row] == ignore; s[0] label smoothing
 *   CROSS_ENTROPY_BACKWARD: rows: y = s[1] * d loss / d x; x2 = y3 of the forward pass; y may be x
 *   GRU: rows: y [row,n] = new state; x [row,3n] = input gates with bias; x2 [row,3n] = recurrent gates without bias;
 *       x3 [3n] = their bias; x4 [row,n] = old state or NULL; y2 [row,3n], if not NULL (may be x) = r, z, n; y3 [row,n]
 *       = the recurrent part of n
 *   GRU_BACKWARD: rows: x = gradient of the state; x2, x3 = y2, y3 of the forward pass; x4 = old state or NULL; y
 *       [row,3n] = gradient of the input gates (may be x2); y2 [row,n] = that of the recurrent part of n (may be x3);
 *       y3 = that of the old state, the direct part (may be x)
 *   ADAM: elements: y = parameters, y2, y3 = moments, from x2, x3, x4 (the same memory or other); x = gradient (may be
 *       y). s: 0 step size, 1 and 2 betas, 3 eps, 4 scale of the gradient, 5 decoupled decay of the parameters, 6 scale
 *       of y3 before its square root, 7 decay added to the gradient
 *   SQUARES: blocks of ATTN__ELEMENTWISE_BLOCK elements of x, `n` in all: partial sums of squares into doubles y */
#define ATTN__ELEMENTWISE_MAP(X)                                                                                       \
    X(ADD, add)                                                                                                        \
    X(AFFINE, affine)                                                                                                  \
    X(ROUND, round)                                                                                                    \
    X(ACTIVATE, activate)                                                                                              \
    X(ACTIVATE_BACKWARD, activate_backward)                                                                            \
    X(BIAS_ACTIVATE, bias_activate)                                                                                    \
    X(STRIDED, strided)                                                                                                \
    X(BINARY, binary)                                                                                                  \
    X(REDUCE, reduce)                                                                                                  \
    X(SOFTMAX, softmax)                                                                                                \
    X(LARGEST, largest)                                                                                                \
    X(SOFTMAX_BACKWARD, softmax_backward)                                                                              \
    X(LAYER_NORM, layer_norm)                                                                                          \
    X(LAYER_NORM_BACKWARD, layer_norm_backward)                                                                        \
    X(LAYER_NORM_PARAMETERS, layer_norm_parameters)                                                                    \
    X(DROPOUT, dropout)                                                                                                \
    X(EMBED, embed)                                                                                                    \
    X(EMBED_BACKWARD, embed_backward)                                                                                  \
    X(CROSS_ENTROPY, cross_entropy)                                                                                    \
    X(CROSS_ENTROPY_BACKWARD, cross_entropy_backward)                                                                  \
    X(GRU, gru)                                                                                                        \
    X(GRU_BACKWARD, gru_backward)                                                                                      \
    X(ADAM, adam)                                                                                                      \
    X(SQUARES, squares)

typedef enum attn__elementwise_kernel {
#define ATTN_X(NAME, name) ATTN__ELEMENTWISE_##NAME,
    ATTN__ELEMENTWISE_MAP(ATTN_X)
#undef ATTN_X
        ATTN__ELEMENTWISE_COUNT
} attn__elementwise_kernel;

enum { ATTN__ELEMENTWISE_BLOCK = 4096, ATTN__ELEMENTWISE_RANK = 8 };

/* In the order of attn_activation. */
typedef enum attn__act {
    ATTN__ACT_IDENTITY = 0,
    ATTN__ACT_RELU,
    ATTN__ACT_LEAKY_RELU,
    ATTN__ACT_GELU_ERF,
    ATTN__ACT_GELU_TANH,
    ATTN__ACT_GELU_SIGMOID,
    ATTN__ACT_TANH,
    ATTN__ACT_SIGMOID,
    ATTN__ACT_SILU
} attn__act;

static inline bool attn__activation_exists(int kind)
{
    return kind >= ATTN__ACT_IDENTITY && kind <= ATTN__ACT_SILU;
}

/* Whether the gradient is computed from the input, rather than from the output. */
static inline bool attn__activation_keeps_input(int kind)
{
    return (kind >= ATTN__ACT_GELU_ERF && kind <= ATTN__ACT_GELU_SIGMOID) || kind == ATTN__ACT_SILU;
}

typedef enum attn__binary { ATTN__BINARY_ADD, ATTN__BINARY_SUB, ATTN__BINARY_MUL } attn__binary;

typedef struct attn__elementwise_args {
    const void *x, *x2, *x3, *x4, *x5, *x6;
    void *y, *y2, *y3;
    int64_t n, rows;
    double s[8];
    int kind;
    bool add, add2;
    bool past; /* the output is not read soon, so stores may bypass the cache */
    /* For strided operands. */
    int rank;
    int64_t shape[ATTN__ELEMENTWISE_RANK], stride_x[ATTN__ELEMENTWISE_RANK], stride_x2[ATTN__ELEMENTWISE_RANK],
        stride_y[ATTN__ELEMENTWISE_RANK];
    /* For operations with indices. */
    const int32_t *ids; /* labels, or row numbers of a table */
    const int32_t *lens;
    int64_t lens_rows; /* number of rows that share one length */
    int64_t period, first;
    bool has_ignore;
    int64_t ignore;
    /* Dropout of element (row, column), see base/rng.h; threshold 0: none. */
    uint64_t seed, stream;
    uint32_t threshold;
    double keep_scale; /* 1 / (1 - p) */
    attn__drop_rows drop_rows;
} attn__elementwise_args;

typedef void (*attn__elementwise_fn)(const attn__elementwise_args *args, int64_t begin, int64_t end);

typedef struct attn__elementwise_table {
    attn__isa isa;
    attn__elementwise_fn run[ATTN__ELEMENTWISE_COUNT];
} attn__elementwise_table;

/* The table for float, of this instruction set or the best below it, or the one for double. */
const attn__elementwise_table *attn__elementwise_for(bool is_double, attn__isa isa);

#endif
