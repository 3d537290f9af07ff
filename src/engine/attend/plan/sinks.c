/* SPDX-License-Identifier: MIT
 *
 * sinks.c - the wrapper that computes the gradient of sinks, after its child.  A sink is a key of value 0. The weight
 * of a sink in a row is exp(sink - lse). The gradient of the sink is
 *
 *     dsink = sum over its rows of -exp(sink - lse) * (o . dout - dlse)
 *
 * The terms of all rows are computed in parallel and summed in a fixed order, whatever the number of threads.
 */
#include "attend/plan/plan.h"

#include "attend/block/rows.h"
#include "attend/problem/arrays.h"
#include "attend/block/gradient_sums.h"
#include "attend/block/items.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 };

typedef struct job {
    attn__items items;
    double *part;    /* each row's term of the gradient */
    double *threads; /* two rows of values per thread */
} job;

static size_t doubles_of_parts(const attn__canonical *canonical)
{
    int64_t blocks = canonical->batch.size * attn__ceil_div(canonical->query.size, BLOCK);
    return attn__size_mul((size_t)blocks, BLOCK);
}

static size_t doubles_of_threads(const attn__canonical *canonical)
{
    return attn__size_mul(2 * (size_t)canonical->threads, (size_t)canonical->value.size);
}

static attn_status plan(attn_context *context, attn__canonical *canonical, const attn__solver *solver, void **data)
{
    if (solver || !canonical->backward || !(canonical->problem.flags & ATTN_WANT_DSINKS))
        return ATTN_OK;
    attn__extent *extent = *data = attn__alloc(context, sizeof *extent);
    if (!extent)
        return ATTN_ERROR_MEMORY;
    *extent = attn__operand_extent(canonical, ATTN__OP_SINKS, NULL);
    return ATTN_OK;
}

static size_t workspace(const void *data, const attn__canonical *canonical)
{
    size_t n = attn__size_add(doubles_of_parts(canonical), doubles_of_threads(canonical));
    return attn__size_mul(attn__size_add(n, attn__extent_size(data)), sizeof(double));
}

/* Computes the gradient's terms for an item's rows. A row without a sink has the term 0. */
static void run_item(void *user, int64_t number, int thread)
{
    const job *j = user;
    attn__item t;
    int64_t o_at[BLOCK], dout_at[BLOCK], lse_at[BLOCK], sink_at[BLOCK];
    if (!attn__item_start(&t, &j->items, number))
        return;
    const attn__group *value = &t.canonical->value;
    attn_dtype dtype = t.canonical->problem.dtype, side = attn__operand_dtype(&t.canonical->problem, ATTN__OP_LSE);
    double *part = j->part + number * BLOCK, *o = j->threads + 2 * thread * value->size, *dout = o + value->size;
    attn__query_offsets(t.canonical, ATTN__STRIDE(dim.o), t.batch, t.first, t.count, o_at);
    attn__query_offsets(t.canonical, ATTN__STRIDE(dim.dout), t.batch, t.first, t.count, dout_at);
    attn__query_offsets(t.canonical, ATTN__STRIDE(dim.lse), t.batch, t.first, t.count, lse_at);
    attn__query_offsets(t.canonical, ATTN__STRIDE(dim.sinks), t.batch, t.first, t.count, sink_at);
    for (int64_t i = 0; i < t.count; i++) {
        double sink = attn__load(side, t.arrays->at.sinks, sink_at[i]);
        double delta =
            t.canonical->problem.flags & ATTN_WITH_DLSE ? -attn__load(side, t.arrays->at.dlse, lse_at[i]) : 0;
        part[i] = 0;
        if (sink == (double)-INFINITY)
            continue;
        attn__gather(value, ATTN__OP_O, dtype, t.arrays->at.o, o_at[i], o);
        attn__gather(value, ATTN__OP_DOUT, dtype, t.arrays->at.dout, dout_at[i], dout);
        for (int64_t c = 0; c < value->size; c++)
            delta += o[c] * dout[c];
        part[i] = -exp(sink - attn__load(side, t.arrays->at.lse, lse_at[i])) * delta;
    }
}

static void run(const attn__step *step, const attn__execution *arrays, char *workspace)
{
    const attn__canonical *canonical = &step->plan->canonical;
    const attn__extent *extent = step->data;
    size_t n = attn__extent_size(extent);
    attn__step_run(step->child, arrays, workspace);
    job j = {.items = attn__items_make(canonical, arrays, BLOCK)};
    j.part = (double *)(void *)(workspace + step->workspace_at);
    j.threads = j.part + doubles_of_parts(canonical);
    double *sums = j.threads + doubles_of_threads(canonical);
    memset(sums, 0, n * sizeof *sums);
    attn__parallel_items(canonical->threads, j.items.n, run_item, &j);
    for (int64_t number = 0; n > 0 && number < j.items.n; number++) {
        attn__item t;
        int64_t at[BLOCK];
        if (!attn__item_start(&t, &j.items, number))
            continue;
        attn__query_offsets(t.canonical, ATTN__STRIDE(dim.sinks), t.batch, t.first, t.count, at);
        for (int64_t i = 0; i < t.count; i++)
            sums[at[i] - extent->low] += j.part[number * BLOCK + i];
    }
    attn_dtype side = attn__operand_dtype(&canonical->problem, ATTN__OP_SINKS);
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, at = 0;
    for (bool more = n > 0; more; more = attn__extent_next(extent, extent->n, index, &at)) {
        double sum = sums[at - extent->low];
        attn__store(side, arrays->at.dsinks, at,
                    canonical->problem.accumulate ? attn__load(side, arrays->at.dsinks, at) + sum : sum);
    }
}

const attn__wrapper attn__wrapper_sinks = {.canonical = plan, .workspace = workspace, .run = run};
