/* SPDX-License-Identifier: MIT
 * Pairs one by one with channels in the lanes: for what has no matrix product to be fast with - windows, relative
 * tables, additive and concatenation scores, other normalisations than the softmax. */
#include "attend/rows/rows.h"

static const char *refuse(const attn__task *task)
{
    const attn_problem *p = &task->problem;
    if (p->dtype == ATTN_F64)
        return "f64 is the reference's";
    if (p->score > ATTN_SCORE_CONCAT)
        return "kernels of the distance are the reference's";
    if (task->backward && p->dtype != ATTN_F32)
        return "gradients in bf16";
    return task->backward && p->accumulate ? attn__rows_refuse_adding(task) : NULL;
}

/* The walk to a key costs as much as a few hundred multiply-adds, a tanh as ten. */
static double cost(const attn__task *task)
{
    double pairs = (double)task->batch.size * (double)task->query.size * (double)task->key.size;
    double channels = (double)task->contract.size * (task->problem.score == ATTN_SCORE_ADDITIVE ? 10 : 1);
    return pairs * (400 + 4 * (channels + (double)task->value.size));
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    attn_status status = attn__rows_plan_make(context, task, recipe);
    if (status != ATTN_OK)
        return status;
    const attn__rows_plan *made = recipe->data;
    recipe->workspace =
        task->backward ? attn__rows_backward_size(task, made) : attn__size_mul(made->share, (size_t)task->threads);
    return ATTN_OK;
}

static void apply(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace)
{
    if (task->backward)
        attn__rows_backward(task, recipe->data, arrays, workspace);
    else
        attn__rows_forward(task, recipe->data, arrays, workspace);
}

const attn__solver attn__solver_rows = {.name = "rows", .refuse = refuse, .cost = cost, .plan = plan, .apply = apply};
