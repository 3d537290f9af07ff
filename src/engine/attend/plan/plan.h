/* SPDX-License-Identifier: MIT
 *
 * plan.h - defines plans and their steps, for the files of the planner.  A plan is a chain of steps: some wrappers, and
 * the solver as the innermost step.  A wrapper handles one feature of the problem, so that no solver needs code for it.
 * Its child, the next step, runs a problem without the feature. The wrapper computes the rest before or after its
 * child. A plan has only the steps that its problem needs.
 */
#ifndef ATTN_ATTEND_PLAN_H
#define ATTN_ATTEND_PLAN_H

#include "attend/plan/solver.h"
#include "base/rng.h"

#include <stdatomic.h>

typedef struct attn__step {
    void (*run)(const struct attn__step *step, const attn__execution *arrays, char *workspace);
    const struct attn__step *child; /* the next inner step; NULL in the solver's step */
    const attn_plan *plan;
    const void *data;
    size_t workspace_at; /* offset of the step's part of the workspace */
} attn__step;

static inline void attn__step_run(const attn__step *step, const attn__execution *arrays, char *workspace)
{
    step->run(step, arrays, workspace);
}

/* The functions of a wrapper. A function pointer is NULL if the wrapper has nothing to do in it. */
typedef struct attn__wrapper {
    /* These functions decide whether the problem needs the wrapper.  If so, they set *data to the data of the wrapper's
     * step, in one block from attn__alloc, and change the problem to the one that the child runs. Otherwise *data stays
     * NULL.  `resolve` changes a resolved problem before it is made canonical.  `canonical` changes the canonical
     * problem, once before a solver is chosen (solver NULL) and once after. */
    attn_status (*resolve)(attn_context *context, attn_problem *resolved, void **data);
    attn_status (*canonical)(attn_context *context, attn__canonical *canonical, const attn__solver *solver,
                             void **data);
    size_t (*workspace)(const void *data, const attn__canonical *canonical); /* returns bytes, SIZE_MAX on overflow */
    /* Converts a span of the child's array to a span of the caller's. Returns false if the caller lacks the array. */
    bool (*span)(const void *data, attn_array array, attn_span *span);
    /* Checks that the contents of the arrays are valid for the step. An error is stored in the context. */
    attn_status (*check)(attn_context *context, const void *data, const attn_arrays *arrays);
    void (*run)(const attn__step *step, const attn__execution *arrays, char *workspace);
} attn__wrapper;

extern const attn__wrapper attn__wrapper_bias_index, attn__wrapper_weights, attn__wrapper_private_gradients,
    attn__wrapper_sinks;
enum { ATTN__WRAPPERS = 4 };

struct attn_plan {
    attn_context *context;
    attn__canonical canonical;
    const attn__solver *solver;
    attn__recipe recipe;
    const char *how;            /* how the solver was chosen: "by rule", "measured", "asked for" or "remembered" */
    void *data[ATTN__WRAPPERS]; /* data of each wrapper; NULL if the plan has no step for the wrapper */
    attn__step steps[ATTN__WRAPPERS + 1];
    int nsteps; /* number of steps; the last one is the solver */
    size_t workspace_size;
    void *workspace;
    atomic_flag *busy; /* whether `workspace` is in use; the only mutable member */
};

/* Executes the plan as attn_plan_execute does, for a shard of a larger batch. Dropout uses the rows of the larger
 * batch. */
attn_status attn__plan_execute(const attn_plan *plan, const attn_arrays *arrays, const attn__drop_rows *rows,
                               void *workspace);

/* Sets the plan's solver and `how`. Lowers the number of threads if the problem is too small for all of them. */
attn_status attn__choose_solver(attn_plan *plan, const attn_plan_options *options);

#endif
