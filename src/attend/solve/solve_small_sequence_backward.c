/* SPDX-License-Identifier: MIT
 *
 * solve_small_sequence_backward.c - the solver for gradients of heads with few queries and keys: what it accepts, its
 * cost.
 */
#include "attend/solve/small_sequence_plan.h"

static bool moves(const attn__group *group)
{
    for (int a = 0; a < group->n; a++)
        if (group->axis[a].dim.n != 1 && group->axis[a].dim.dbias == 0)
            return false;
    return true;
}

/* Whether each pair of a head has an element of the gradient of the bias to itself. */
static bool each_pair_apart(const attn__canonical *canonical)
{
    return moves(&canonical->query) && moves(&canonical->key) && canonical->batch.size > 0;
}

static const char *refuse(const attn__canonical *canonical)
{
    const char *why = attn__flash_backward_refuse(canonical);
    if (!why)
        why = attn__small_sequence_refuse(canonical);
    if (why)
        return why;
    if ((canonical->problem.flags & ATTN_WANT_DBIAS) && !each_pair_apart(canonical))
        return "several pairs of a head add to one element of the bias's gradient";
    return attn__flash_backward_sums(canonical) ? "gradients summed over broadcast dims" : NULL;
}

/* Heads of up to 4 channels are quicker in `narrow` where there are keys for all of its lanes; the cost of that one
 * says so for heads of 8. */
static double cost(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    bool slim = canonical->contract.size <= 4 && canonical->value.size <= 4 && canonical->key.size <= 32;
    return (slim ? 0.4 : 0.8) * pairs * (double)(canonical->contract.size + canonical->value.size);
}

extern const attn__solver attn__solver_small_sequence_backward;
const attn__solver attn__solver_small_sequence_backward = {.name = "small_sequence_backward",
                                                           .refuse = refuse,
                                                           .cost = cost,
                                                           .plan = attn__small_sequence_plan_make,
                                                           .apply = attn__small_sequence_backward};
