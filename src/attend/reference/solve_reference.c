/* SPDX-License-Identifier: MIT
 * The solver of last resort: everything that attn.h describes, in float64 inside, one pair at a time. */
#include "attend/reference/reference.h"

static const char *refuse(const attn__task *task)
{
    (void)task;
    return NULL;
}

/* Scalar float64 code with a gather for each key: about a hundred times what the machine could do. */
static double cost(const attn__task *task)
{
    double pairs = (double)task->batch.size * (double)task->query.size * (double)task->key.size;
    return 100 * pairs * (8 + (double)task->contract.size + (double)task->value.size);
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    (void)context;
    recipe->workspace = attn__size_mul(attn__pair_size(task), (size_t)task->threads);
    if (task->backward)
        recipe->workspace = attn__size_add(recipe->workspace, attn__reference_backward_size(task));
    return ATTN_OK;
}

static void apply(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace)
{
    (void)recipe;
    if (task->backward)
        attn__reference_backward(task, arrays, workspace);
    else
        attn__reference_forward(task, arrays, workspace);
}

const attn__solver attn__solver_reference = {
    .name = "reference", .refuse = refuse, .cost = cost, .plan = plan, .apply = apply};
