/* SPDX-License-Identifier: MIT
 *
 * solve_short_backward.c - the solver for gradients of heads with few queries and keys: what it accepts, its cost.
 */
#include "attend/short/short.h"

static const char *refuse(const attn__task *task)
{
    const char *why = attn__back_refuse(task);
    if (!why)
        why = attn__short_refuse(task);
    if (why)
        return why;
    if (task->problem.with & ATTN_WANT_DBIAS)
        return "wants the gradient of a bias";
    return attn__back_sums(task) ? "gradients summed over broadcast dims" : NULL;
}

/* Heads of up to 4 channels are quicker in `narrow` where there are keys for all of its lanes; the cost of that one
 * says so for heads of 8. */
static double cost(const attn__task *task)
{
    double pairs = (double)task->batch.size * (double)task->query.size * (double)task->key.size;
    bool slim = task->contract.size <= 4 && task->value.size <= 4 && task->key.size <= 32;
    return (slim ? 0.4 : 0.8) * pairs * (double)(task->contract.size + task->value.size);
}

extern const attn__solver attn__solver_short_backward;
const attn__solver attn__solver_short_backward = {.name = "short_backward",
                                                  .refuse = refuse,
                                                  .cost = cost,
                                                  .plan = attn__short_plan_make,
                                                  .apply = attn__short_backward};
