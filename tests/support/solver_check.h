/* SPDX-License-Identifier: MIT
 *
 * solver_check.h - runs a solver on a random problem and compares its outputs with the float64 evaluation.
 */
#ifndef ATTN_TESTS_SOLVER_CHECK_H
#define ATTN_TESTS_SOLVER_CHECK_H

#include "support/attend_ref.h"
#include "support/random_problem.h"

/* The float64 evaluation of a random problem: values and error bounds of each output. The bound of an element that
 * is not written is -1. */
typedef struct truth {
    double *value[ARRAY_COUNT], *bound[ARRAY_COUNT];
} truth;

void truth_make(truth *t, const random_problem *r);
void truth_free(truth *t, const random_problem *r);

/* Plans and runs one direction with the named solver, or with the planner's choice if `solver` is NULL. Outputs are
 * filled with a pattern before the run and compared with the truth after it. *worst is raised to the largest error
 * divided by its bound. Returns false if the solver refuses the problem. Any other failure fails the test. */
bool solver_check(attn_context *context, const char *solver, random_problem *r, const truth *t,
                  attn_direction direction, double *worst);

bool solver_run(attn_context *context, const char *solver, int threads, const attn_problem *problem,
                const attn_arrays *arrays);

/* Computes o and the log-sum-exp of the forward problem, which the backward pass reads. */
void solver_prepare_backward(attn_context *context, random_problem *r);

/* Fails the test unless 1, 2, 3 and 7 threads give bit-identical outputs. */
void solver_check_threads(attn_context *context, const char *solver, random_problem *r, attn_direction direction);

#endif
