/* SPDX-License-Identifier: MIT
 *
 * bench.h - code that the benchmarks share: lists of thread counts, the arrays of a plan, comparison with the reference
 * solver.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "command.h"

enum { BENCH_MOST_THREADS = 16 };

double bench_median(double *values, int n);

/* Converts the option --threads, such as "1,2,4", into thread counts. "" means two runs, with 1 thread and with the
 * context's number of threads. If the exit code is not CLI_OK, the error has been printed. */
int bench_thread_counts(const cli_call *cli, int counts[BENCH_MOST_THREADS], int *n);

/* ------------------------------------------------------------------------------------ bench_arrays.c */

/* The arrays of a plan. Inputs have numbers that depend only on their index. */
typedef struct bench_arrays {
    attn_arrays arrays;
    attn_span spans[ATTN_ARRAY_COUNT];
    void *blocks[ATTN_ARRAY_COUNT]; /* array number i (attn_array); NULL if the plan does not use it */
} bench_arrays;

/* Returns a pseudo-random number that depends only on `array` and `i`. It is computed by the last steps of
 * splitmix64. */
uint64_t bench_scatter(uint64_t array, uint64_t i);
/* Allocates a large array, which the caller frees. If the system allows it, the array is on huge pages, like the
 * library's tensors. */
void *bench_take(size_t bytes);
/* Allocates the arrays of a plan and fills the inputs. Input numbers are rounded to the type `rounded`, even if the
 * plan's type is wider. Returns false if there is no memory. */
bool bench_arrays_create(bench_arrays *made, const attn_plan *plan, const attn_problem *problem, attn_dtype rounded);
void bench_arrays_destroy(bench_arrays *made);
/* Converts a number to bf16, the upper 16 bits of a float. Rounds to nearest, ties to even. */
uint16_t bench_to_bf16(float x);
double bench_element(const void *block, attn_dtype dtype, int64_t i);

/* ------------------------------------------------------------------------------------ bench_verify.c */

/* Runs the forward pass of a backward problem and stores its o and log-sum-exp, which the backward pass reads. For a
 * forward problem, does nothing and returns ATTN_OK. */
attn_status bench_run_before(attn_context *context, const attn_problem *problem, const char *solver, bench_arrays *a);
/* Compares the outputs of an execution with the reference solver in float64. *error is the largest difference
 * divided by the largest element of its output. *bound is the largest *error that rounding can cause. */
attn_status bench_verify(attn_context *context, const attn_problem *problem, const bench_arrays *done, double *error,
                         double *bound);

#endif
