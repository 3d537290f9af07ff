/* SPDX-License-Identifier: MIT
 * Pairs one by one with channels in the lanes: for what has no matrix product to be fast with - windows, relative
 * tables, additive and concatenation scores, other normalizations than the softmax. */
#include "attend/solve/pairwise_rows.h"

static const char *refuse(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    if (p->dtype == ATTN_F64)
        return "f64 is for the solver of blocks";
    if (p->score > ATTN_SCORE_CONCAT)
        return "kernels of the distance are for the solver of blocks";
    if (canonical->backward && p->dtype != ATTN_F32)
        return "gradients in bf16";
    return canonical->backward && p->accumulate ? attn__pairwise_refuse_adding(canonical) : NULL;
}

/* The walk to a key costs as much as a few hundred multiply-adds, a tanh as ten.  Dot products are sums across the
 * lanes, and twice as slow as that says. */
static double cost(const attn__canonical *canonical)
{
    bool dot = canonical->problem.score == ATTN_SCORE_DOT;
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    double channels = (double)canonical->contract.size * (canonical->problem.score == ATTN_SCORE_ADDITIVE ? 10 : 1);
    double each = 400 + 4 * (channels + (double)canonical->value.size);
    return pairs * each * (!dot ? 1 : canonical->backward ? 3.5 : 2);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn_status status = attn__pairwise_plan_make(context, canonical, recipe);
    if (status != ATTN_OK)
        return status;
    const attn__pairwise_plan *made = recipe->data;
    recipe->workspace = canonical->backward ? attn__pairwise_backward_size(canonical, made)
                                            : attn__size_mul(made->share, (size_t)canonical->threads);
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace)
{
    if (canonical->backward)
        attn__pairwise_backward(canonical, recipe->data, arrays, workspace);
    else
        attn__pairwise_forward(canonical, recipe->data, arrays, workspace);
}

const attn__solver attn__solver_pairwise = {
    .name = "pairwise", .refuse = refuse, .cost = cost, .plan = plan, .apply = apply};
