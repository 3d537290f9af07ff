/* SPDX-License-Identifier: MIT
 *
 * problem_arrays.h - the arrays of one plan, for `attn run --problem` and the benchmarks.
 */
#ifndef CLI_PROBLEM_ARRAYS_H
#define CLI_PROBLEM_ARRAYS_H

#include <attn/attn.h>

/* Inputs have numbers that depend only on their index. */
typedef struct cli_arrays {
    attn_arrays arrays;
    attn_span spans[ATTN_ARRAY_COUNT];
    void *blocks[ATTN_ARRAY_COUNT]; /* array number i (attn_array); NULL if the plan does not use it */
} cli_arrays;

/* Returns a pseudo-random number that depends only on `array` and `i`. It is computed by the last steps of
 * splitmix64. */
uint64_t cli_arrays_scatter(uint64_t array, uint64_t i);
/* Allocates a large array, which the caller frees. If the system allows it, the array is on huge pages, like the
 * library's tensors. */
void *cli_arrays_take(size_t bytes);
/* Allocates the arrays of a plan and fills the inputs. Input numbers are rounded to the type `rounded`, even if the
 * plan's type is wider. Returns false if there is no memory. */
bool cli_arrays_create(cli_arrays *made, const attn_plan *plan, const attn_problem *problem, attn_dtype rounded);
void cli_arrays_destroy(cli_arrays *made);
double cli_arrays_element(const void *block, attn_dtype dtype, int64_t i);
/* Runs the forward pass of a backward problem and stores its o and log-sum-exp, which the backward pass reads. For a
 * forward problem, does nothing and returns ATTN_OK. */
attn_status cli_arrays_run_before(attn_context *context, const attn_problem *problem, const char *solver,
                                  cli_arrays *a);

#endif
