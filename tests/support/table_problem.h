/* SPDX-License-Identifier: MIT
 *
 * table_problem.h - problems with relative tables over whole axes, and attention in double straight from attn.h's
 * formulas: no windows, packed sequences, fills or sinks; plain products and the softmax.
 */
#ifndef ATTN_TESTS_TABLE_PROBLEM_H
#define ATTN_TESTS_TABLE_PROBLEM_H

#include "support/solver_check.h"

typedef struct table_part {
    bool there;
    attn_relative_kind kind;
    int axis;
    int64_t begin, end, gap; /* gap: between rows */
    bool per_head, per_batch;
    int64_t slack; /* rows in front and behind that no pair can reach */
} table_part;

typedef struct table_shape {
    int64_t q[2], k[2]; /* the second axis: 0 none */
    int64_t dim, dim_value;
    table_part tables[5];
    int64_t batch, heads, group; /* 0: 1 */
    bool no_batch;               /* a batch of 0 */
    bool banded;
    int64_t lo, hi; /* of each axis */
    unsigned with, want;
    bool lens_by_query, accumulate, causal_mask; /* a mask, of each query's own key and those before */
    int64_t gap, step;                           /* between heads and tokens; the stride of channels, 0: 1 */
    double scale, softcap, dropout;
} table_shape;

/* The problem shapes; table_shapes.c has the list. */
enum { TABLE_SHAPES = 47 };
extern const table_shape table_shapes[TABLE_SHAPES + 4];
/* By direction: the planner's choice, and the solver that multiplies tables with tiles. */
extern const char *const table_solvers[2][2];
/* A context of two threads, from the start of a test group to its end. */
extern attn_context *table_context;
int table_start(void **state);
int table_end(void **state);
/* From one shape to the next that is tried: 1, or ATTN_TEST_STEP where a sanitizer makes all of them take minutes. */
int table_step(void);

/* The dims, in order: batch, heads, group, QUERY axes, KEY axes, CONTRACT, VALUE. */
enum { TABLE_BATCH, TABLE_HEAD, TABLE_GROUP, TABLE_QUERY };

/* Fills both directions and the arrays.  Tables have the rows that are reachable. */
void table_problem(random_problem *r, const table_shape *s, attn_dtype dtype);
/* Operands of normal numbers, seen or not. */
void table_fill(random_problem *r, uint64_t seed);
/* Elements that no visible pair reads become x: elements of tables, rows of q and dout (k and v have NaN there). */
void table_spoil(random_problem *r, double x);
/* reads[row * keys + key]: 1 where the pair is seen; rows are counted over the BATCH and QUERY dims. */
void table_pairs(const random_problem *r, unsigned char *reads);
/* Replaces the outputs by the values of the formulas; returns the largest difference in units of its bound. */
double table_truth(const random_problem *r, truth *t);

/* The outputs of a direction: the problem, numbers that gradients may be added to, a copy of all of it, and whether the
 * arrays have the same bits still; failing the test if not. */
typedef struct table_results {
    void *copy[ARRAY_COUNT];
} table_results;

const attn_problem *table_direction(const random_problem *r, attn_direction direction);
void table_clear(const random_problem *r, attn_direction direction);
void table_results_take(table_results *x, const random_problem *r, attn_direction direction);
void table_results_assert_same(const table_results *x, const random_problem *r, const char *what, int number);
void table_results_drop(table_results *x);

#endif
