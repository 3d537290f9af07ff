/* SPDX-License-Identifier: MIT
 *
 * random_problem.h - makes a problem from a number: any mix of the features of attn.h, with odd sizes. Each array ends
 * at a guard page.
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
    ARRAY_O = ARRAY_TABLE + ATTN_MAX_RELATIVE, /* ARRAY_O and the following arrays are outputs */
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
    int64_t low, n; /* lowest offset and number of elements; n = 0 means that there is no array */
    void *block;
    size_t bytes;
} array;

typedef struct random_problem {
    uint64_t number;
    attn_problem forward, backward;
    attn_arrays arrays;
    array array[ARRAY_COUNT];
    int64_t pick_index[ATTN_MAX_PICKS][8];
} random_problem;

void random_problem_make(random_problem *r, uint64_t number);
/* Allocates arrays for problems that the test describes itself, and fills them with normal numbers. The forward and
 * the backward problem have the same dims. */
void random_problem_arrays(random_problem *r, uint64_t number);
/* Converts keys and values of an f32 problem to bf16, so that a test can run its forward pass with them. Returns
 * false if the problem has another type, or requests weights, which bf16 keys do not allow. */
bool random_problem_narrow_keys(random_problem *r);
void random_problem_free(random_problem *r);

/* Returns the address of the element of offset 0. */
void *array_base(const array *a);
double array_get(const array *a, int64_t offset);
void array_set(const array *a, int64_t offset, double x);
/* Fills the outputs of a direction with a pattern that no solver computes. */
void random_problem_poison(random_problem *r);

/* Writes one line that describes the problem, for the message of a failing test. */
void random_problem_describe(const random_problem *r, char *text, size_t size);

#endif
