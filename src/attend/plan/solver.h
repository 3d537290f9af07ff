/* SPDX-License-Identifier: MIT
 *
 * solver.h - what a solver is: solve/NAME.c with one `const attn__solver` and a line in solvers.inc, best first; the
 * reference is last and accepts everything.
 */
#ifndef ATTN_ATTEND_SOLVER_H
#define ATTN_ATTEND_SOLVER_H

#include "attend/problem/canonical.h"
#include "base/context.h"

/* A solver's plan for one problem: made by `plan`, constant afterwards. */
typedef struct attn__recipe {
    size_t workspace; /* bytes of scratch memory for one execution, threads included */
    void *data;       /* data of the solver, from attn__alloc; the planner frees it */
    char text[96];    /* tile sizes and loop order for the plan's line, "" if there is nothing to say */
} attn__recipe;

typedef struct attn__solver {
    const char *name;
    /* NULL if the solver can run the problem, else a short reason ("keys have a window"). */
    const char *(*refuse)(const attn__canonical *canonical);
    /* A rough time, in multiply-adds at the machine's peak. The planner takes the smallest; the order of the table
     * breaks ties. NULL: the number of multiply-adds of the problem. */
    double (*cost)(const attn__canonical *canonical);
    /* NULL: no workspace and no data. */
    attn_status (*plan)(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe);
    /* Runs the problem: o and lse, or the gradients requested.  Arrays are checked already.  Must not allocate.
     * Requested weights, a bias index and gradients of sinks are not its work: steps around it do it (plan.h). */
    void (*apply)(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace);
    /* Gradients (ATTN_WANT_...) that it sums in several steps: with `accumulate` they are summed in the workspace and
     * added to the caller's once (private_gradients.c), so that they are rounded once.  NULL: none. */
    unsigned (*adds_often)(const attn__canonical *canonical);
    unsigned extras; /* the attn__canonical.extras it supports; the planner refuses others for it */
} attn__solver;

/* Why a problem is not attention in f32 or bf16 by dot products and a softmax over whole key axes, which the fast
 * solvers have in common; NULL: it is. */
static inline const char *attn__refuse_unusual(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    if (p->dtype != ATTN_F32 && p->dtype != ATTN_BF16)
        return "f32 and bf16 only";
    if (p->score != ATTN_SCORE_DOT)
        return "dot-product scores only";
    if (p->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return "softmax only";
    return p->nwindows ? "keys have a window" : NULL;
}

#endif
