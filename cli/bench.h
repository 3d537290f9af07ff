/* SPDX-License-Identifier: MIT
 *
 * bench.h - code that the benchmarks share: lists of thread counts, arrays for a plan, comparison with the
 * reference. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "command.h"

enum { BENCH_MOST_THREADS = 16 };

double bench_median(double *values, int n); /* Returns the median. Sorts `values`. */

/* Converts the option --threads, such as "1,2,4", into counts. "" means 1 and the context's count. If the exit code is
 * not CLI_OK, the error has been printed. */
int bench_thread_counts(const cli_call *cli, int counts[BENCH_MOST_THREADS], int *n);

/* ------------------------------------------------------------------------------------ bench_arrays.c */

/* The arrays of a plan. Inputs have numbers that depend only on their index. */
typedef struct bench_arrays {
    attn_arrays arrays;
    attn_span spans[ATTN_ARRAY_COUNT];
    void *blocks[ATTN_ARRAY_COUNT]; /* array by number; NULL if the plan does not use it */
} bench_arrays;

/* Returns a number that depends only on `array` and `i`, by the last steps of splitmix64. */
uint64_t bench_scatter(uint64_t array, uint64_t i);
/* Allocates a large array. If the system lets the program choose, the array is on huge pages, like the library's
 * tensors. The caller frees it. */
void *bench_take(size_t bytes);
/* Allocates the arrays of a plan. Inputs are rounded to the type `rounded`, whatever the plan's type. Returns false
 * if there is no memory. */
bool bench_arrays_create(bench_arrays *made, const attn_plan *plan, const attn_problem *problem, attn_dtype rounded);
void bench_arrays_destroy(bench_arrays *made);
/* Rounds to the upper 16 bits of the number: to nearest, ties to even. */
uint16_t bench_to_bf16(float x);
/* Returns element i of an array of real numbers. */
double bench_element(const void *block, attn_dtype dtype, int64_t i);

/* ------------------------------------------------------------------------------------ bench_verify.c */

/* Runs the forward pass whose o and log-sum-exp a backward problem reads. For a forward problem it does nothing and
 * returns ATTN_OK. */
attn_status bench_run_before(attn_context *context, const attn_problem *problem, const char *solver, bench_arrays *a);
/* Compares the outputs of an execution with the outputs of the reference solver in float64. Returns the largest
 * difference relative to the largest element of each output. *bound gets the difference that rounding can cause. */
attn_status bench_verify(attn_context *context, const attn_problem *problem, const bench_arrays *done, double *error,
                         double *bound);

#endif
