/* SPDX-License-Identifier: MIT
 *
 * solve_few.c - the solver for a few queries over many keys: which problems it accepts, its cost, its plan.
 */
#include "attend/few/few.h"

#include "attend/flash/flash.h"
#include "attend/task/offsets.h"
#include "base/integers.h"

static const char *refuse(const attn__task *task)
{
    const char *why = attn__few_refuse(task);
    return why ? why : attn__flash_refuse(task);
}

/* Reading keys and values from memory takes as long as multiplying by this many queries.  Each further query needs a
 * load per product, which a tile would share.  Long rows and large blocks read faster.  Heads of 16 and fewer channels
 * leave most of a vector empty, so that any other solver is faster. */
static int64_t most_queries(const attn__task *task)
{
    return (task->contract.size + task->value.size >= 192 ? 8 : 4) - (task->key.size < 128 ? 2 : 0);
}

static double cost(const attn__task *task)
{
    double keys = (double)task->batch.size * (double)task->key.size, queries = (double)task->query.size;
    bool small = task->contract.size <= 16 && task->value.size <= 16;
    double each = small ? 20 : task->query.size <= most_queries(task) ? 0.9 : 2;
    return keys * (double)(task->contract.size + task->value.size) * queries * each;
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    attn__few *f = attn__alloc_zero(context, sizeof *f);
    if (!f)
        return ATTN_MEMORY;
    attn__few_describe(f, task);
    recipe->data = f;
    attn__few_settle(recipe, f, task, attn__few_thread_size(f, task), attn__few_sums_size(f, task));
    return ATTN_OK;
}

const attn__solver attn__solver_few = {
    .name = "few", .refuse = refuse, .cost = cost, .plan = plan, .apply = attn__few_run};
