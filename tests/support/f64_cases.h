/* SPDX-License-Identifier: MIT
 *
 * f64_cases.h - makes and runs problems in float64 for the solver `blocked`. A case is a problem's text and the
 * properties that a text cannot express.
 */
#ifndef ATTN_TESTS_F64_CASES_H
#define ATTN_TESTS_F64_CASES_H

#include "support/random_problem.h"

/* A problem with windows along 1 to 3 axes. The shape of q, k, v and o is [positions, heads, channels]. */
typedef struct f64_grid {
    int axes;
    /* number of queries, positions and taps along each axis; a size of 0 means n * step */
    int64_t n[3], size[3], taps[3];
    int64_t heads, channels, step, dilation;
    int64_t moved; /* distance by which the window is moved along each axis */
    attn_border border;
} f64_grid;

enum {
    F64_QUERY_TABLE = 1, /* adds a table of queries for each axis */
    F64_KEY_TABLE = 2,
    F64_VALUE_TABLE = 4,
    F64_TABLES = 7,
    F64_RANGES = 8,    /* tables cover only a part of the channels */
    F64_OF_HEADS = 16, /* tables have separate rows for each index of the last BATCH dim */
    F64_BIAS = 32,     /* adds a bias with one element for each key or tap and each index of the last BATCH dim */
    F64_PLACES = 64,   /* adds a mask over the positions of a window */
    F64_BAND = 128,    /* adds a band from -2 to 3 along the first axis */
    F64_SKIP_EXACT = 256
};

typedef struct f64_case {
    const char *text;     /* text for attn_problem_parse; NULL: use `grid` */
    const f64_grid *grid; /* problem with windows, used if `text` is NULL */
    unsigned add;
    double width, fill, dropout, softcap;
    unsigned with; /* further ATTN_WITH_ flags */
    attn_score score;
    bool f32;
    bool any; /* `blocked` may refuse the problem; the planner's choice then runs it */
} f64_case;

extern attn_context *f64_context;
int f64_open_context(void **state);
int f64_close_context(void **state);

/* Makes the problem of a case: a forward pass with log-sum-exp, and a backward pass with all gradients. The caller
 * frees it with random_problem_free. */
void f64_make(random_problem *r, const f64_case *c);
const char *f64_name(const f64_case *c);

/* Plans the problem for `blocked`. If `blocked` refuses it, counts a failure and returns NULL. */
attn_plan *f64_plan(attn_context *context, const attn_problem *p, int threads, const f64_case *c);
bool f64_run(attn_context *context, const attn_problem *p, const attn_arrays *arrays, const f64_case *c);

/* Counts and prints a failure without ending the test. */
__attribute__((format(printf, 1, 2))) void f64_complain(const char *format, ...);
/* Fails the test if a failure was counted since the last f64_end. */
void f64_end(void);

static inline double *f64_numbers(const random_problem *r, int id)
{
    return r->array[id].block;
}

#endif
