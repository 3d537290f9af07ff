/* SPDX-License-Identifier: MIT
 *
 * solver.h - defines solvers.  A solver is a file solve/NAME.c with one `const attn__solver`, and a line in
 * solvers.inc. The reference is last in the table and accepts every problem.
 */
#ifndef ATTN_ATTEND_SOLVER_H
#define ATTN_ATTEND_SOLVER_H

#include "attend/problem/canonical.h"
#include "base/context.h"

/* A solver's plan for one problem. `plan` makes it, and it is constant afterwards. */
typedef struct attn__recipe {
    size_t workspace; /* bytes of scratch memory of one execution, for all threads */
    void *data;       /* data of the solver from attn__alloc, which the planner frees */
    char text[96];    /* description for the plan, such as tile sizes and loop order; may be "" */
} attn__recipe;

typedef struct attn__solver {
    const char *name;
    /* Returns NULL if the solver can run the problem, else a short reason ("keys have a window"). */
    const char *(*refuse)(const attn__canonical *canonical);
    /* Returns a rough time in multiply-adds at the machine's peak. The planner takes the solver with the smallest
     * number, and the first of them in the table on a tie. NULL: the number of multiply-adds of the problem. */
    double (*cost)(const attn__canonical *canonical);
    /* Plans an execution. NULL: the solver needs neither workspace nor data. */
    attn_status (*plan)(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe);
    /* Computes o and lse, or the requested gradients. The arrays are already checked. It must not allocate memory.
     * Requested weights, a bias index and gradients of sinks are computed by other steps (plan.h). */
    void (*apply)(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace);
    /* Returns the gradients (ATTN_WANT_...) that the solver adds to several times. With `accumulate` they are summed in
     * the workspace and added to the caller's values once, so that they are rounded once (private_gradients.c).  NULL:
     * none. */
    unsigned (*adds_often)(const attn__canonical *canonical);
    unsigned extras; /* bits of attn__canonical.extras that the solver supports */
} attn__solver;

/* Returns NULL if the problem is attention in f32 or bf16 by dot products and a softmax over whole key axes. Fast
 * solvers support only such problems. Otherwise returns the reason. */
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
