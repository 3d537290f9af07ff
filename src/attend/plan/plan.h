/* SPDX-License-Identifier: MIT
 *
 * plan.h - what a plan holds, shared by the files of the planner.
 *
 * A plan is a chain of steps, made when it is planned: wrappers, and innermost the solver.  A wrapper takes one feature
 * out of the problem, so that no solver has to handle it: its child, the next step, runs a problem without the feature,
 * and the wrapper computes the rest before or after it.  A plan has only the steps that its problem needs.
 */
#ifndef ATTN_ATTEND_PLAN_H
#define ATTN_ATTEND_PLAN_H

#include "attend/plan/solver.h"
#include "base/rng.h"

#include <stdatomic.h>

typedef struct attn__step {
    void (*run)(const struct attn__step *step, const attn_arrays *arrays, char *workspace);
    const struct attn__step *child; /* the step inside this one; NULL: this is the solver's step */
    const attn_plan *plan;
    const void *data;    /* data of the wrapper */
    size_t workspace_at; /* offset of the step's part of the workspace */
} attn__step;

static inline void attn__step_run(const attn__step *step, const attn_arrays *arrays, char *workspace)
{
    step->run(step, arrays, workspace);
}

/* Functions may be NULL: there is nothing to do. */
typedef struct attn__wrapper {
    /* If the problem needs the wrapper: *data is what its step needs, one block from attn__alloc, and the problem
     * becomes the child's.  `resolve` changes a resolved problem before it is made canonical; `canonical` the canonical
     * problem, once before a solver is chosen (solver NULL) and once after.  *data stays NULL where the plan needs no
     * such step. */
    attn_status (*resolve)(attn_context *context, attn_problem *resolved, void **data);
    attn_status (*canonical)(attn_context *context, attn__canonical *canonical, const attn__solver *solver,
                             void **data);
    size_t (*workspace)(const void *data, const attn__canonical *canonical); /* bytes; SIZE_MAX: too many */
    /* Converts a span of the child's array to a span of the caller's array; false: the caller has no such array. */
    bool (*span)(const void *data, attn_array array, attn_span *span);
    /* Whether the contents of the arrays are valid for the step; if not, the context has the error. */
    attn_status (*check)(attn_context *context, const void *data, const attn_arrays *arrays);
    void (*run)(const attn__step *step, const attn_arrays *arrays, char *workspace);
} attn__wrapper;

/* The wrappers. */
extern const attn__wrapper attn__wrapper_bias_index, attn__wrapper_weights, attn__wrapper_private_gradients,
    attn__wrapper_sinks;
enum { ATTN__WRAPPERS = 4 };

struct attn_plan {
    attn_context *context;
    attn__canonical canonical;
    const attn__solver *solver;
    attn__recipe recipe;
    const char *how;            /* "by rule", "measured", "asked for", "remembered" */
    void *data[ATTN__WRAPPERS]; /* NULL: the plan has no such step */
    attn__step steps[ATTN__WRAPPERS + 1];
    int nsteps; /* number of steps; the last step is the solver's */
    size_t workspace_size;
    void *workspace;
    atomic_flag *busy; /* whether `workspace` is in use; the only mutable member */
};

/* Executes the plan as attn_plan_execute does, for a batch that is one shard of a larger batch. Dropout uses `rows`. */
attn_status attn__plan_execute(const attn_plan *plan, const attn_arrays *arrays, const attn__drop_rows *rows,
                               void *workspace);

/* Sets the plan's solver and `how`. Lowers its threads to a number that pays for this problem. */
attn_status attn__choose_solver(attn_plan *plan, const attn_plan_options *options);

#endif
