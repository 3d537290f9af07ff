/* SPDX-License-Identifier: MIT
 *
 * random_problem.h - a problem made from a number, with all its arrays, each ending at a guard page: any mix of
 * what attn.h can say, odd sizes above all.
 */
#ifndef ATTN_TESTS_RANDOM_PROBLEM_H
#define ATTN_TESTS_RANDOM_PROBLEM_H

#include "attn/attn.h"

typedef enum array_id {
    ARRAY_Q,
    ARRAY_K,
    ARRAY_V,
    ARRAY_BIAS,
    ARRAY_MASK,
    ARRAY_LENS,
    ARRAY_Q_OFFSETS,
    ARRAY_K_OFFSETS,
    ARRAY_BIAS_INDEX,
    ARRAY_W,
    ARRAY_W2,
    ARRAY_SINKS,
    ARRAY_BLOCKS,
    ARRAY_DOUT,
    ARRAY_DLSE,
    ARRAY_TABLE,
    ARRAY_O = ARRAY_TABLE + ATTN_MAX_RELATIVE, /* from here on: written */
    ARRAY_LSE,
    ARRAY_WEIGHTS,
    ARRAY_DQ,
    ARRAY_DK,
    ARRAY_DV,
    ARRAY_DBIAS,
    ARRAY_DW,
    ARRAY_DW2,
    ARRAY_DSINKS,
    ARRAY_DTABLE,
    ARRAY_COUNT = ARRAY_DTABLE + ATTN_MAX_RELATIVE
} array_id;

typedef struct array {
    const char *name;
    attn_dtype dtype;
    int64_t low, n; /* lowest offset, number of elements; n = 0: the array is absent */
    void *block;
    size_t bytes;
} array;

typedef struct random_problem {
    uint64_t number;
    attn_problem forward, backward; /* the same problem in both directions */
    attn_arrays arrays;
    array array[ARRAY_COUNT];
    int64_t pick_index[ATTN_MAX_PICKS][8];
} random_problem;

void random_problem_make(random_problem *r, uint64_t number);
/* Arrays for problems that a test fills in itself (forward and backward, the same dims), with normal numbers. */
void random_problem_arrays(random_problem *r, uint64_t number);
/* Gives an f32 problem keys and values in bf16, for one more check forward.  False: it has other types, or requests
 * weights, which are not available then. */
bool random_problem_narrow_keys(random_problem *r);
void random_problem_free(random_problem *r);

/* The address of offset 0. */
void *array_base(const array *a);
double array_get(const array *a, int64_t offset);
void array_set(const array *a, int64_t offset, double x);
/* Fills the outputs of a direction with a pattern that no solver writes. */
void random_problem_poison(random_problem *r);

/* One line about the problem, for a failing test's message. */
void random_problem_describe(const random_problem *r, char *text, size_t size);

#endif
