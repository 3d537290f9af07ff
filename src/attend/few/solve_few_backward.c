/* SPDX-License-Identifier: MIT
 *
 * solve_few_backward.c - the solver for gradients of a few queries over many keys: what it accepts, its plan.
 */
#include "attend/few/few.h"

#include "attend/flash_backward/flash_backward.h"
#include "attend/task/offsets.h"

/* Gradients larger than this many second caches will be evicted before they are read, and go past the caches.  The
 * third cache is no measure: the system may report that of the whole socket. */
enum { STREAM_L2 = 16 };

static const char *refuse(const attn__task *task)
{
    const char *why = attn__back_refuse(task);
    if (!why)
        why = attn__few_refuse(task);
    if (why)
        return why;
    if (task->problem.with & ATTN_WANT_DBIAS)
        return "wants the gradient of a bias";
    if (attn__back_sums(task))
        return "gradients summed over broadcast dims";
    if (!attn__offsets_adjacent(&task->contract, ATTN__STRIDE(dim.dk)) ||
        !attn__offsets_adjacent(&task->value, ATTN__STRIDE(dim.dv)))
        return "channels of dk or dv are not adjacent";
    return NULL;
}

/* A tile packs each key, which takes as long as multiplying by this many queries; with more of them its products share
 * loads.  (2,048 keys of 64 channels, this solver and tiles: 6.6 and 15 ms for one query, 13.3 and 17 for 8, 34 and 20
 * for 16.)  Heads of 16 and fewer channels leave most of a vector empty. */
static double cost(const attn__task *task)
{
    double keys = (double)task->batch.size * (double)task->key.size, queries = (double)task->query.size;
    double channels = (double)(task->contract.size + task->value.size);
    bool small = task->contract.size <= 16 && task->value.size <= 16;
    int64_t most = task->key.size < 64 ? 2 : 8;
    return keys * channels * queries * (small ? 20 : task->query.size <= most ? 0.9 : 2);
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    attn__few *f = attn__alloc_zero(context, sizeof *f);
    if (!f)
        return ATTN_MEMORY;
    attn__few_describe(f, task);
    f->backward = attn__backward_for(task->isa);
    double bytes = (double)task->batch.size * (double)task->key.size *
                   (double)(task->contract.size + task->value.size) * sizeof(float);
    f->stream = bytes > STREAM_L2 * (double)task->caches.l2;
    recipe->data = f;
    attn__few_settle(recipe, f, task, attn__few_backward_thread_size(f, task), attn__few_backward_part_size(f, task));
    return ATTN_OK;
}

const attn__solver attn__solver_few_backward = {
    .name = "few_backward", .refuse = refuse, .cost = cost, .plan = plan, .apply = attn__few_backward_run};
