/* SPDX-License-Identifier: MIT
 *
 * solve_few.c - a few queries against many keys: what it accepts, and its plan.  few.h has the algorithm.
 */
#include "attend/few.h"

#include "attend/flash.h"
#include "attend/integers.h"
#include "attend/offsets.h"

#include <stdio.h>

static const char *refuse(const attn__task *task)
{
    if (task->query.size > ATTN__FEW_QUERIES)
        return "more than 16 queries";
    if (task->has_bias || task->has_mask || task->has_dropout)
        return "has a bias, mask or dropout";
    if ((task->has_lens || task->problem.nbands) && (task->key.n > 1 || task->problem.mask_fill != 0.0))
        return "has bands or lengths on one of several key axes, or masked keys take part";
    if (!attn__offsets_adjacent(&task->contract, ATTN__STRIDE(dim.k)) ||
        !attn__offsets_adjacent(&task->value, ATTN__STRIDE(dim.v)))
        return "channels of k or v are not adjacent";
    return attn__flash_refuse(task);
}

/* Keys and values come from memory, which takes as long as multiplying by this many queries; further ones have a load
 * for each product, where a tile shares it.  Long rows and blocks of many keys come faster; of heads of 16 and less most of a vector is
 * empty, and any other solver is quicker. */
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
    f->kernel = attn__few_for(task->isa);
    f->channels = attn__round_up(task->contract.size, f->kernel->lanes);
    f->values = attn__round_up(task->value.size, f->kernel->lanes);
    int64_t keys = task->key.size, wanted = (ATTN__FEW_ITEMS + task->batch.size - 1) / task->batch.size;
    f->parts = attn__most(1, attn__least(wanted, keys / ATTN__FEW_PART));
    f->part = attn__round_up((keys + f->parts - 1) / f->parts, ATTN__FEW_BLOCK);
    f->parts = (keys + f->part - 1) / f->part;
    recipe->data = f;
    size_t sums = attn__size_mul((size_t)(task->batch.size * f->parts), attn__few_sums_size(f, task));
    recipe->workspace = attn__size_mul((size_t)task->threads, attn__few_thread_size(f, task));
    if (f->parts > 1)
        recipe->workspace = attn__size_add(recipe->workspace, sums);
    snprintf(recipe->text, sizeof recipe->text, "%s %d queries, keys in %d parts", attn__isa_text(f->kernel->isa),
             (int)task->query.size, (int)f->parts);
    return ATTN_OK;
}

const attn__solver attn__solver_few = {"few", refuse, cost, plan, attn__few_run};
