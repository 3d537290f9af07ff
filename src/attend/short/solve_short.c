/* SPDX-License-Identifier: MIT
 *
 * solve_short.c - the solver for heads with few queries and keys: what it accepts, its cost.
 */
#include "attend/short/short.h"

#include "attend/flash/flash.h"
#include "base/integers.h"

static const char *refuse(const attn__task *task)
{
    const char *why = attn__flash_refuse(task);
    return why ? why : attn__short_refuse(task);
}

/* A single query leaves nothing to multiply an element by twice, and `few` reads it once.  Heads of up to 8 channels
 * leave half of a vector of values empty, and `narrow` is the quicker as soon as it can fill its lanes with queries. */
static double cost(const attn__task *task)
{
    double keys = (double)task->batch.size * (double)task->key.size, queries = (double)task->query.size + 0.2;
    int64_t most = attn__most(task->contract.size, task->value.size), filled = most <= 4 ? 32 : 16;
    double each = most > 8 ? 0.8 : task->query.size > filled ? 0.99 : 0.4;
    return each * keys * queries * (double)(task->contract.size + task->value.size);
}

extern const attn__solver attn__solver_short;
const attn__solver attn__solver_short = {
    .name = "short", .refuse = refuse, .cost = cost, .plan = attn__short_plan_make, .apply = attn__short_forward};
