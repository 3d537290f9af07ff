/* SPDX-License-Identifier: MIT
 *
 * solver.h - defines solvers.  A solver is a file solve/NAME.c with one `const attn__solver`, and a line in
 * solvers.inc. The reference is last in the table and accepts every problem.
 */
#ifndef ATTN_ATTEND_SOLVER_H
#define ATTN_ATTEND_SOLVER_H

#include "attend/problem/canonical.h"
#include "base/context.h"

/* A solver's plan for one problem. It does not change after `plan` has made it. */
typedef struct attn__recipe {
    size_t workspace; /* bytes of scratch memory of one execution, for all threads */
    void *data;       /* data of the solver from attn__alloc, which the planner frees */
    char text[96];    /* description for the plan, such as tile sizes and loop order; may be "" */
} attn__recipe;

typedef struct attn__solver {
    const char *name;
    /* Returns NULL if the solver can run the problem, else a short reason ("keys have a window"). */
    const char *(*refuse)(const attn__canonical *canonical);
    /* Returns a rough time, of which only the ratio to the times of other solvers counts. The planner chooses the
     * solver with the smallest time, and on a tie the first one in the table. If NULL, the time is the problem's number
     * of multiply-adds. */
    double (*cost)(const attn__canonical *canonical);
    /* Plans an execution. It is NULL if the solver needs neither workspace nor data. */
    attn_status (*plan)(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe);
    /* Computes o and lse, or the requested gradients. The arrays are already checked. It must not allocate memory.
     * Requested weights, a bias index and gradients of sinks are computed by other steps (plan.h). */
    void (*apply)(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace);
    /* Returns the gradients (ATTN_WANT_...) that the solver adds to several times. With `accumulate`,
     * private_gradients.c sums these gradients in the workspace and adds them to the caller's values once, so that they
     * are rounded once.  NULL: there are none. */
    unsigned (*adds_often)(const attn__canonical *canonical);
    unsigned extras; /* attn__canonical.extras that the solver supports */
} attn__solver;

/* Sets of normalizations, with bits 1 << attn_normalization. */
enum {
    ATTN__SOFTMAX_ONLY = 1 << ATTN_NORMALIZATION_SOFTMAX,
    ATTN__WEIGHTS_KINDS = ATTN__SOFTMAX_ONLY | 1 << ATTN_NORMALIZATION_NONE | 1 << ATTN_NORMALIZATION_SIGMOID,
    ATTN__HARDMAX_TOO = ATTN__WEIGHTS_KINDS | 1 << ATTN_NORMALIZATION_HARDMAX,
    ATTN__SUMS_TOO = ATTN__HARDMAX_TOO | 1 << ATTN_NORMALIZATION_MEAN | 1 << ATTN_NORMALIZATION_SUM
};

static inline const char *attn__refuse_normalization(const attn__canonical *canonical, unsigned normalizations)
{
    if (normalizations >> canonical->problem.normalization & 1)
        return NULL;
    return normalizations == ATTN__SOFTMAX_ONLY ? "supports softmax only" : "does not support this normalization";
}

/* Returns a reason if the problem has top_k and is no hardmax, for solvers of hardmax. */
static inline const char *attn__refuse_top_k(const attn__canonical *canonical)
{
    bool chooses = canonical->problem.normalization == ATTN_NORMALIZATION_HARDMAX;
    return (canonical->extras & ATTN__TOP_K) && !chooses ? "does not support top_k" : NULL;
}

/* Returns NULL if the problem is attention in f32 or bf16 by dot products over whole key axes, with one of the given
 * normalizations. Otherwise returns a reason. Most fast solvers support only such problems. */
static inline const char *attn__refuse_unusual(const attn__canonical *canonical, unsigned normalizations)
{
    const attn_problem *p = &canonical->problem;
    if (p->dtype != ATTN_F32 && p->dtype != ATTN_BF16)
        return "supports f32 and bf16 only";
    if (p->score != ATTN_SCORE_DOT)
        return "supports dot-product scores only";
    const char *reason = attn__refuse_normalization(canonical, normalizations);
    return !reason && p->nwindows ? "does not support windows" : reason;
}

#endif
