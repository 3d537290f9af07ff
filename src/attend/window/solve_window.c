/* SPDX-License-Identifier: MIT
 * Windows over one to three axes, at a cost linear in the positions: neighbouring queries in the lanes, what a tap
 * reaches is a strip read a few positions further.  local.h says how. */
#include "attend/window/local.h"

/* Each multiply-add has a load of its own, and backward computes scores twice. */
static double cost(const attn__task *task)
{
    double pairs = (double)task->batch.size * (double)task->query.size * (double)task->key.size;
    double channels = (double)(task->contract.size + task->value.size);
    return pairs * (task->backward ? 2 : 1) * (30 + channels);
}

static void apply(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace)
{
    attn__local_run(task, recipe->data, arrays, workspace);
}

const attn__solver attn__solver_window = {
    .name = "window", .refuse = attn__local_refuse, .cost = cost, .plan = attn__local_plan, .apply = apply};
