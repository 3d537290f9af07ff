/* SPDX-License-Identifier: MIT
 *
 * plan.h - what a plan holds, shared by the files of the planner.
 */
#ifndef ATTN_ATTEND_PLAN_H
#define ATTN_ATTEND_PLAN_H

#include "attend/plan/private_gradients.h"
#include "attend/plan/solver.h"
#include "attend/plan/bias_index.h"

#include <stdatomic.h>

struct attn_plan {
    attn_context *context;
    attn__canonical canonical;
    const attn__solver *solver;
    attn__recipe recipe;
    const char *how;                /* "by rule", "measured", "asked for", "remembered" */
    int64_t *picks[ATTN_MAX_PICKS]; /* own copies */
    bool own_lse;                   /* weights are requested, the log-sum-exp is not: it is in the workspace */
    attn__private_gradients private_gradients; /* gradients that are summed in the workspace */
    attn__bias_index bias_index;
    size_t lse_at, weights_at, sinks_at, sums_at, bias_at; /* offsets of those parts of the workspace */
    size_t workspace_size;
    void *workspace;
    atomic_flag busy; /* the one thing that changes: somebody runs in `workspace` */
};

/* Why a solver does not run a problem, NULL if it does. */
const char *attn__solver_refusal(const attn__solver *solver, const attn__canonical *canonical);
double attn__solver_cost(const attn__solver *solver, const attn__canonical *canonical);
const attn__solver *attn__solver_by_name(const char *name);

/* NULL, or the name of the first array that the problem needs and `arrays` lacks. */
const char *attn__missing_array(const attn__canonical *canonical, const attn_arrays *arrays);

/* Multiplications and additions, see attn_plan_flops. */
double attn__canonical_flops(const attn__canonical *canonical);

/* The fastest of the solvers that accept the problem, timed on scratch arrays; NULL if memory runs out. */
const attn__solver *attn__measure(attn_context *context, const attn__canonical *canonical);

/* Results of measuring; one number identifies a problem. */
uint64_t attn__canonical_signature(const attn__canonical *canonical);
const attn__solver *attn__wisdom_find(const attn_context *context, uint64_t signature);
attn_status attn__wisdom_note(attn_context *context, uint64_t signature, const attn__solver *solver);

/* Computes the requested weights from the log-sum-exp in `arrays`. */
size_t attn__weights_size(const attn__canonical *canonical);
void attn__weights_run(const attn__canonical *canonical, const attn_arrays *arrays, void *workspace);

/* Computes the requested gradient of the sinks from o, dout and the log-sum-exp. */
size_t attn__sink_gradients_size(const attn__canonical *canonical);
void attn__sink_gradients_run(const attn__canonical *canonical, const attn_arrays *arrays, void *workspace);

#endif
