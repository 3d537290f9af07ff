/* SPDX-License-Identifier: MIT
 *
 * f64_cases.h - problems in float64 for the solver `blocked`, from a text and what a text cannot say, and running them.
 */
#ifndef ATTN_TESTS_F64_CASES_H
#define ATTN_TESTS_F64_CASES_H

#include "support/random_problem.h"

/* Windows of 1 to 3 axes: q, k, v and o are [positions, heads, channels]. */
typedef struct f64_grid {
    int axes;
    int64_t n[3], size[3], taps[3]; /* queries, positions and taps along each axis; size 0: n * step */
    int64_t heads, channels, step, dilation;
    int64_t moved; /* shift from the window's usual position, along each axis */
    attn_border border;
} f64_grid;

enum {
    F64_QUERY_TABLE = 1, /* one for each axis */
    F64_KEY_TABLE = 2,
    F64_VALUE_TABLE = 4,
    F64_TABLES = 7,
    F64_RANGES = 8,    /* tables are for a part of the channels */
    F64_OF_HEADS = 16, /* separate tables for the last BATCH dim */
    F64_BIAS = 32,     /* a number for each key or tap of each index of the last BATCH dim */
    F64_PLACES = 64,   /* a mask over the positions */
    F64_BAND = 128,    /* -2 .. 3 along the first axis */
    F64_SKIP_EXACT = 256
};

typedef struct f64_case {
    const char *text;     /* for attn_problem_parse; NULL: a grid */
    const f64_grid *grid; /* with a text, too, where it is NULL */
    unsigned add;
    double width, fill, dropout, softcap;
    unsigned with; /* more of ATTN_WITH_ */
    attn_score score;
    bool f32; /* the same in f32 */
    bool any; /* `blocked` may refuse it; the planner's choice runs it */
} f64_case;

extern attn_context *f64_context;
int f64_open_context(void **state);
int f64_close_context(void **state);

/* Forward with the log-sum-exp and backward with every gradient; the caller frees it with random_problem_free. */
void f64_make(random_problem *r, const f64_case *c);
/* The name of the case in a message. */
const char *f64_name(const f64_case *c);

/* The plan of `blocked`; if it refuses, NULL and a counted failure. */
attn_plan *f64_plan(attn_context *context, const attn_problem *p, int threads, const f64_case *c);
/* False if `blocked` refused the problem. */
bool f64_run(attn_context *context, const attn_problem *p, const attn_arrays *arrays, const f64_case *c);

/* Counts and prints a failure; the test goes on. */
__attribute__((format(printf, 1, 2))) void f64_complain(const char *format, ...);
/* Fails the test if a failure was counted since the last f64_end. */
void f64_end(void);

static inline double *f64_numbers(const random_problem *r, int id)
{
    return r->array[id].block;
}

#endif
