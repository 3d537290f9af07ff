/* SPDX-License-Identifier: MIT
 *
 * solve_flash_backward.c - softmax attention backwards in one fused pass, the weights recomputed tile by tile
 * from the log-sum-exp (Dao et al. 2022, arXiv:2205.14135).  flash_backward.h says how.
 */
#include "attend/solve/flash_backward.h"

static bool broadcast(const attn__group *group, bool q, bool k, bool v)
{
    for (int a = 0; a < group->n; a++) {
        const attn_dim *dim = &group->axis[a].dim;
        if (dim->n > 1 && !group->axis[a].packed && ((q && dim->dq == 0) || (k && dim->dk == 0) || (v && dim->dv == 0)))
            return true;
    }
    return false;
}

/* True if an element of a gradient may have several batch items, rows or channels to come from. */
bool attn__flash_backward_sums(const attn__canonical *canonical)
{
    unsigned with = canonical->problem.flags;
    bool q = with & ATTN_WANT_DQ, k = with & ATTN_WANT_DK, v = with & ATTN_WANT_DV;
    return broadcast(&canonical->batch, q, k, v) || broadcast(&canonical->query, q, false, false) ||
           broadcast(&canonical->key, false, k, v) || broadcast(&canonical->contract, q, k, false) ||
           broadcast(&canonical->value, false, false, v);
}

static const char *refuse_usual(const attn__canonical *canonical)
{
    const attn_problem *problem = &canonical->problem;
    if (!canonical->backward)
        return "backward only";
    if (problem->dtype != ATTN_F32 && problem->dtype != ATTN_BF16)
        return "neither f32 nor bf16";
    if (problem->score != ATTN_SCORE_DOT)
        return "the score is not a dot product";
    if (problem->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return "not a softmax";
    if (problem->nwindows)
        return "keys have a window";
    if (canonical->key.size >= INT32_MAX / 2)
        return "too many keys for 32-bit positions";
    if (problem->dtype == ATTN_BF16 && attn__flash_backward_sums(canonical)) /* which cannot hold partial sums */
        return "bf16 gradients summed over broadcast dims";
    return NULL;
}

const char *attn__flash_backward_refuse(const attn__canonical *canonical)
{
    const char *why = refuse_usual(canonical);
    return !why && canonical->problem.nrelatives ? "relative tables" : why;
}

static const char *refuse(const attn__canonical *canonical)
{
    if (canonical->contract.size > 512 || canonical->value.size > 512)
        return "heads of more than 512 channels";
    const char *why = refuse_usual(canonical);
    return why ? why : attn__table_panels_refuse(canonical);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace)
{
    attn__flash_backward_execute(canonical, recipe->data, arrays, workspace);
}

extern const attn__solver attn__solver_flash_backward;
const attn__solver attn__solver_flash_backward = {
    .name = "flash_backward",
    .refuse = refuse,
    .adds_often = attn__flash_backward_adds_often,
    .plan = attn__flash_backward_plan_make,
    .apply = apply,
    .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__DLSE | ATTN__BIAS_MEETS | ATTN__BLOCKS | ATTN__BATCH_INVARIANT,
};
