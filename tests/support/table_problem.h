/* SPDX-License-Identifier: MIT
 *
 * table_problem.h - problems with relative tables over whole axes, and a double precision evaluation that follows the
 * formulas of attn.h. The score is the dot product and the normalization the softmax. There are no windows, packed
 * sequences, fills or sinks.
 */
#ifndef ATTN_TESTS_TABLE_PROBLEM_H
#define ATTN_TESTS_TABLE_PROBLEM_H

#include "support/solver_check.h"

typedef struct table_part {
    bool there;
    attn_relative_kind kind;
    int axis;
    int64_t begin, end, gap; /* gap: unused elements between rows */
    bool per_head, per_batch;
    int64_t slack; /* rows in front and at the end that no pair can reach */
} table_part;

typedef struct table_shape {
    int64_t q[2], k[2]; /* the second length is 0 if there is only one axis */
    int64_t dim, dim_value;
    table_part tables[5];
    int64_t batch, heads, group; /* 0 means 1 */
    bool no_batch;               /* true: the batch has length 0 */
    bool banded;
    int64_t lo, hi; /* limits of the band along each axis */
    unsigned with, want;
    /* causal_mask: each query attends to its own key and to earlier keys */
    bool lens_by_query, accumulate, causal_mask;
    /* gap: unused elements between heads and between tokens; step: stride of channels (0 means 1) */
    int64_t gap, step;
    double scale, softcap, dropout;
} table_shape;

/* The number of problem shapes, which are listed in table_shapes.c. */
enum { TABLE_SHAPES = 47 };
extern const table_shape table_shapes[TABLE_SHAPES + 4];
/* For each direction: NULL for the planner's choice, and the solver that multiplies tables with tiles. */
extern const char *const table_solvers[2][2];
/* A context with two threads. It exists while a test group runs. */
extern attn_context *table_context;
int table_start(void **state);
int table_end(void **state);
/* Returns the step between the shapes that are tested. It is 1, or ATTN_TEST_STEP, since all shapes take minutes
 * with a sanitizer. */
int table_step(void);

/* The indices of dims. The order is batch, heads, group, QUERY axes, KEY axes, CONTRACT, VALUE. */
enum { TABLE_BATCH, TABLE_HEAD, TABLE_GROUP, TABLE_QUERY };

/* Makes the problem of a shape for both directions, and allocates its arrays. Tables have the rows that a pair can
 * reach. */
void table_problem(random_problem *r, const table_shape *s, attn_dtype dtype);
/* Fills all operands with normal numbers, including elements that no pair reads. */
void table_fill(random_problem *r, uint64_t seed);
/* Sets elements that no visible pair reads to x: elements of tables, and rows of q and dout. Rows of k and v that no
 * pair reads have NaN already. */
void table_spoil(random_problem *r, double x);
/* Sets reads[row * keys + key] to 1 if the row attends to the key. Rows are counted over the BATCH and QUERY dims. */
void table_pairs(const random_problem *r, unsigned char *reads);
/* Compares the outputs with the values of the formulas. Returns the largest difference in units of its bound, and
 * writes the values to the outputs. */
double table_truth(const random_problem *r, truth *t);

/* A copy of the outputs of one direction. A test compares later outputs with it, bit by bit. */
typedef struct table_results {
    void *copy[ARRAY_COUNT];
} table_results;

const attn_problem *table_direction(const random_problem *r, attn_direction direction);
void table_clear(const random_problem *r, attn_direction direction);
void table_results_take(table_results *x, const random_problem *r, attn_direction direction);
void table_results_assert_same(const table_results *x, const random_problem *r, const char *what, int number);
void table_results_drop(table_results *x);

#endif
