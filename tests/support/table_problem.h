/* SPDX-License-Identifier: MIT
 *
 * table_problem.h - problems with relative tables over whole axes, and a double precision evaluation that follows the
 * formulas of attn.h. The score is the dot product, and the normalization is the softmax. There are no windows, packed
 * sequences, fills or sinks.
 */
#ifndef ATTN_TESTS_TABLE_PROBLEM_H
#define ATTN_TESTS_TABLE_PROBLEM_H

#include "support/solver_check.h"

typedef struct table_part {
    bool there;
    attn_relative_kind kind;
    int axis;
    int64_t begin, end, gap; /* gap: number of unused elements between rows of the table */
    bool per_head, per_batch;
    int64_t slack; /* number of rows at each end of the table that no pair reaches */
} table_part;

typedef struct table_shape {
    int64_t q[2], k[2]; /* lengths of up to two axes; the second length is 0 if there is one axis */
    int64_t dim, dim_value;
    table_part tables[5];
    int64_t batch, heads, group; /* 0 means 1 */
    bool no_batch;               /* true: the batch has length 0 */
    bool banded;
    int64_t lo, hi; /* limits of the band along each axis */
    unsigned with, want;
    /* causal_mask: if true, each query attends to its own key and to earlier keys */
    bool lens_by_query, accumulate, causal_mask;
    /* gap: unused elements between heads and between tokens; step: stride of channels, where 0 means 1 */
    int64_t gap, step;
    double scale, softcap, dropout;
} table_shape;

/* Number of shapes in table_shapes.c. Four more shapes follow for the solver `window`. */
enum { TABLE_SHAPES = 47 };
extern const table_shape table_shapes[TABLE_SHAPES + 4];
/* For each direction: NULL, which is the planner's choice, and the solver that multiplies tables with tiles. */
extern const char *const table_solvers[2][2];
/* A context with two threads, which exists while a test program runs. */
extern attn_context *table_context;
int table_start(void **state);
int table_end(void **state);

/* Indices of dims. Their order is batch, heads, group, QUERY axes, KEY axes, CONTRACT, VALUE. */
enum { TABLE_BATCH, TABLE_HEAD, TABLE_GROUP, TABLE_QUERY };

/* Makes the problem of a shape for both directions, and allocates its arrays. Tables have the rows that a pair can
 * reach, and `slack` more rows at each end. */
void table_problem(random_problem *r, const table_shape *s, attn_dtype dtype);
/* Fills all operands with normal numbers, including elements that no pair reads. */
void table_fill(random_problem *r, uint64_t seed);
/* Sets all elements of tables, q and dout that no visible pair reads to x. Such rows of k and v are NaN already. */
void table_spoil(random_problem *r, double x);
/* Sets reads[row * keys + key] to 1 if the row attends to the key. Rows are counted over the BATCH and QUERY dims. */
void table_pairs(const random_problem *r, unsigned char *reads);
/* Compares the outputs in `t` with the formulas, and replaces them by the values of the formulas. Returns the
 * largest difference divided by its bound. */
double table_truth(const random_problem *r, truth *t);

/* Copy of the outputs of one direction, with which later outputs are compared bit by bit. */
typedef struct table_results {
    void *copy[ARRAY_COUNT];
} table_results;

const attn_problem *table_direction(const random_problem *r, attn_direction direction);
void table_clear(const random_problem *r, attn_direction direction);
void table_results_take(table_results *x, const random_problem *r, attn_direction direction);
void table_results_assert_same(const table_results *x, const random_problem *r, const char *what, int number);
void table_results_drop(table_results *x);

#endif
