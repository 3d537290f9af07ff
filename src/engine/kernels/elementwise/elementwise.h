/* SPDX-License-Identifier: MIT
 *
 * elementwise.h - the loops of all tensor operations except matrix products: elementwise functions y[i] = f(x[i], ...),
 * operations on rows (softmax, layer normalization, loss), and sums over rows.
 *
 * All loops have one signature, so that one launcher and one table serve all of them. run(args, begin, end) computes
 * the part [begin, end) of a range of elements, rows or columns. Threads may compute different parts at the same time.
 * The list below has the formulas.
 *
 * Contract: pointers are to float or to double, depending on the table of the kernel. Rows are contiguous and have `n`
 * numbers. Nothing needs alignment.  y may be x (in place) unless the list forbids it.  Nothing is allocated.  The bits
 * of a result do not depend on how the range is divided.
 */
#ifndef ATTN_KERNELS_ELEMENTWISE_H
#define ATTN_KERNELS_ELEMENTWISE_H

#include "base/rng.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* The kernels. Each entry has the kind of range that is divided, and what one part of the range computes.
 *
 *   ADD: elements: y = x + x2
 *   AFFINE: elements: y = x * s[0] + s[1]
 *   ROUND: elements: y = x rounded to bf16; only for float
 *   ACTIVATE: elements: y = kind(x), where kind is an activation
 *   ACTIVATE_BACKWARD: elements: y = x * kind'; x2 is the input or the output (attn__activation_keeps_input)
 *   BIAS_ACTIVATE: rows: y = kind(y + x) for a row y; x NULL: no bias
 *   STRIDED: outer indices of `shape`, that is, all axes except the last (or elements if there is only one axis): y
 *       = s[0] * x (+ y if `add`); all arrays are strided; not in place
 *   BINARY: ranges as for STRIDED: y = x (kind) x2, where kind is an attn__binary and y is contiguous; y may be x or
 *       x2 if that array is contiguous too
 *   REDUCE: elements of y [outer, n]: y = s[0] * sum of x [outer, rows, n] over rows (+ y if `add`)
 *   SOFTMAX: rows: y = softmax of x for columns < lens[row / lens_rows]; other columns have a weight of 0, or the
 *       score s[0] if s[0] is not 0
 *   LARGEST: rows: y = the largest of x; y2 = the sum of x, which is NaN or infinite if a number is
 *   SOFTMAX_BACKWARD: rows: y = x2 * (x - sum(x * x2)), where x2 is the softmax and x its gradient
 *   LAYER_NORM: rows: y = normalized t * x3 + x4 with t = x + dropout(x2); s[0] = eps; y2 = normalized t, may be
 *       NULL; y3 = 1/sqrt(var + eps), one number per row, may be NULL; kind is an attn__normalize
 *   LAYER_NORM_BACKWARD: rows: y = gradient of t; y2, if not NULL, = gradient of x2; x = gradient of the output; x2
 *       = normalized t or, if x4 is not NULL, the output, with x6 = 1 / x3; x3, x4 as for LAYER_NORM; x5 = y3 of
 *       LAYER_NORM; `add` adds to y, but never to y2; kind as for LAYER_NORM
 *   LAYER_NORM_PARAMETERS: columns: y = gradient of x3, y2 = gradient of x4, added if `add`, `add2`; sums over
 *       `rows` rows; x, x2, x4, x6 as for LAYER_NORM_BACKWARD
 *   DROPOUT: rows: y = dropout(x)
 *   EMBED: rows: y = table x [ids[row]] * s[0] (+ position x2 [row mod period + first])
 *   EMBED_BACKWARD: columns: y [ids[row]] += s[0] * x [row] for each of `rows` rows, in order. If x2 (int32_t, may
 *       be NULL) has x2[row] >= 0, y [ids[row]] is then moved to the sum y2 [x2[row]] (double). In the end, each of
 *       `period` sums is added to its row y [x3[sum]]
 *   CROSS_ENTROPY: rows: y = the loss of the row; y2, if not NULL, = log-sum-exp of the row; y3 [row,2], if not
 *       NULL, = the largest of x, and log-sum-exp minus the largest; all are 0 if ids[row] == ignore; s[0] = label
 *       smoothing
 *   CROSS_ENTROPY_BACKWARD: rows: y = s[1] * d loss / d x; x2 = y3 of CROSS_ENTROPY; y may be x
 *   GRU: rows: y [row,n] = new state; x [row,3n] = input gates with bias; x2 [row,3n] = recurrent gates without
 *       bias; x3 [3n] = bias of x2; x4 [row,n] = old state or NULL; y2 [row,3n], if not NULL (may be x) = r, z, n;
 *       y3 [row,n] = the recurrent part of n
 *   GRU_BACKWARD: rows: x = gradient of the state; x2, x3 = y2, y3 of GRU; x4 = old state or NULL; y [row,3n] =
 *       gradient of the input gates (may be x2); y2 [row,n] = gradient of the recurrent part of n (may be x3); y3 =
 *       direct part of the gradient of the old state (may be x)
 *   ADAM: elements: y = parameters, y2 and y3 = moments, computed from x2, x3, x4 (may be the same arrays); x =
 *       gradient (may be y); s[0] = step size, s[1], s[2] = betas, s[3] = eps, s[4] = scale of the gradient, s[5] =
 *       decoupled decay of the parameters, s[6] = scale of y3 before its square root, s[7] = decay added to the
 *       gradient
 *   SQUARES: blocks of ATTN__ELEMENTWISE_BLOCK of the `n` elements of x: partial sums of squares into doubles y */
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

/* Activations, in the order of attn_activation. */
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

/* Reports whether the gradient needs the input of the activation. If not, it needs the output. */
static inline bool attn__activation_keeps_input(int kind)
{
    return (kind >= ATTN__ACT_GELU_ERF && kind <= ATTN__ACT_GELU_SIGMOID) || kind == ATTN__ACT_SILU;
}

/* What LAYER_NORM divides by: the standard deviation, after the mean was subtracted, or the root mean square. */
typedef enum attn__normalize { ATTN__NORMALIZE_DEVIATION, ATTN__NORMALIZE_ROOT_MEAN_SQUARE } attn__normalize;

typedef enum attn__binary { ATTN__BINARY_ADD, ATTN__BINARY_SUB, ATTN__BINARY_MUL } attn__binary;

typedef struct attn__elementwise_args {
    const void *x, *x2, *x3, *x4, *x5, *x6;
    void *y, *y2, *y3;
    int64_t n, rows;
    double s[8];
    int kind;
    bool add, add2;
    bool past; /* the output is not read soon, so that stores may bypass the cache */
    /* Fields for strided operands. */
    int rank;
    int64_t shape[ATTN__ELEMENTWISE_RANK], stride_x[ATTN__ELEMENTWISE_RANK], stride_x2[ATTN__ELEMENTWISE_RANK],
        stride_y[ATTN__ELEMENTWISE_RANK];
    /* Fields for operations with indices. */
    const int32_t *ids; /* labels, or row indices of the table */
    const int32_t *lens;
    int64_t lens_rows; /* number of consecutive rows with the same length */
    int64_t period, first;
    bool has_ignore;
    int64_t ignore;
    /* Dropout of element (row, column), see base/rng.h. A threshold of 0 means no dropout. */
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

/* Returns the table for double, or the table for float of the best instruction set that is not above `isa`. */
const attn__elementwise_table *attn__elementwise_for(bool is_double, attn__isa isa);

#endif
