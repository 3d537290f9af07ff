/* SPDX-License-Identifier: MIT
 *
 * bench.h - what the benchmarks share: lists of thread counts, arrays for a plan, comparison with the reference.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "command.h"

enum { BENCH_MOST_THREADS = 16 };

double bench_median(double *values, int n); /* sorts them */

/* "1,2,4" of the option --threads into counts; "": 1 and the context's.  If the exit code is not CLI_OK, the error has
 * been printed. */
int bench_thread_counts(const cli_call *cli, int counts[BENCH_MOST_THREADS], int *n);

/* ------------------------------------------------------------------------------------ bench_arrays.c */

/* Arrays as a plan requires them, inputs filled with numbers that depend on nothing but their place. */
typedef struct bench_arrays {
    attn_arrays arrays;
    attn_span spans[ATTN_ARRAY_COUNT];
    void *blocks[ATTN_ARRAY_COUNT]; /* NULL where the plan uses none */
} bench_arrays;

/* A number that depends on nothing but its place: splitmix64's last steps. */
uint64_t bench_scatter(uint64_t array, uint64_t i);
/* Large arrays on huge pages where the system leaves that to the program, as the library's own tensors are; to be freed. */
void *bench_take(size_t bytes);
/* `rounded`: inputs are numbers of this type, whatever the plan's.  False: no memory. */
bool bench_arrays_create(bench_arrays *made, const attn_plan *plan, const attn_problem *problem, attn_dtype rounded);
void bench_arrays_destroy(bench_arrays *made);
/* The upper half of the number, to the nearest, halves to even. */
uint16_t bench_to_bf16(float x);
/* Element i of a block of a real type. */
double bench_element(const void *block, attn_dtype dtype, int64_t i);

/* ------------------------------------------------------------------------------------ bench_verify.c */

/* The forward pass whose o and log-sum-exp the backward one reads; ATTN_OK at once for a forward problem. */
attn_status bench_run_before(attn_context *context, const attn_problem *problem, const char *solver, bench_arrays *a);
/* The largest difference between the outputs of an execution and those of the reference solver in float64, relative to
 * the largest element of the same output.  *bound: what rounding explains. */
attn_status bench_verify(attn_context *context, const attn_problem *problem, const bench_arrays *done, double *error,
                         double *bound);

#endif
