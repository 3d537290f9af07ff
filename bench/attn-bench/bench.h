/* SPDX-License-Identifier: MIT
 *
 * bench.h - code that the benchmarks share: lists of thread counts, comparison with the reference solver.
 */
#ifndef BENCH_H
#define BENCH_H

#include "command.h"
#include "problem_arrays.h"

extern const cli_command bench_sets, bench_attend, bench_products, bench_train;

enum { BENCH_MOST_THREADS = 16 };

double bench_median(double *values, int n);

/* Measures the machine's peak rate of f32 multiply-adds, and raises *peak to it. A single measurement may be too low,
 * because the clock rate changes and other processes run. With `seconds` 0, where speeds say little, once is enough. */
void bench_raise_peak(double *peak, attn_context *context, int threads, double seconds);

/* Converts the option --threads, such as "1,2,4", into thread counts. "" means two runs, with 1 thread and with the
 * context's number of threads. If the exit code is not CLI_OK, the error has been printed. */
int bench_thread_counts(const cli_call *cli, int counts[BENCH_MOST_THREADS], int *n);

/* ------------------------------------------------------------------------------------ verify.c */

/* Compares the outputs of an execution with the reference solver in float64. *error is the largest difference
 * divided by the largest element of its output. *bound is the largest *error that rounding can cause. */
attn_status bench_verify(attn_context *context, const attn_problem *problem, const cli_arrays *done, double *error,
                         double *bound);

#endif
