/* SPDX-License-Identifier: MIT
 *
 * solver_check.h - runs a solver on a random problem and compares what it wrote with the float64 evaluation.
 */
#ifndef ATTN_TESTS_SOLVER_CHECK_H
#define ATTN_TESTS_SOLVER_CHECK_H

#include "support/attend_ref.h"
#include "support/random_problem.h"

/* The evaluation of one random problem: values and bounds for each written array (bound -1: not written). */
typedef struct truth {
    double *value[ARRAY_COUNT], *bound[ARRAY_COUNT];
} truth;

void truth_make(truth *t, const random_problem *r);
void truth_free(truth *t, const random_problem *r);

/* Plans and runs one direction with the solver named (NULL: the planner's choice), after poisoning what is
 * written.  False if the solver does not take the problem; any other failure fails the test.  Writes are
 * compared with the truth; *worst grows to the largest error in units of its bound. */
bool solver_check(attn_context *context, const char *solver, random_problem *r, const truth *t,
                  attn_direction direction, double *worst);

/* Runs without comparing. */
bool solver_run(attn_context *context, const char *solver, int threads, const attn_problem *problem,
                const attn_arrays *arrays);

/* Leaves o and the log-sum-exp of the forward problem in the arrays, for a backward run. */
void solver_prepare_backward(attn_context *context, random_problem *r);

/* Fails the test unless 1, 2, 3 and 7 threads give the same bits. */
void solver_check_threads(attn_context *context, const char *solver, random_problem *r, attn_direction direction);

#endif
