/* SPDX-License-Identifier: MIT
 *
 * sinks.c - the wrapper of the sinks' gradient, which it computes after its child: a sink is a key of value 0, whose weight is exp(sink - lse), so that
 *
 *     dsink = sum over its rows of -exp(sink - lse) * (o . dout - dlse)
 *
 * Rows are independent; their parts are then summed in one order, whatever the number of threads.
 */
#include "attend/plan/plan.h"

#include "attend/block/rows.h"
#include "attend/problem/extent.h"
#include "attend/block/gradient_sums.h"
#include "attend/block/row.h"
#include "base/parallel.h"

#include <math.h>
#include <string.h>

typedef struct job {
    const attn__canonical *canonical;
    const attn_arrays *arrays;
    double *part;    /* of each row */
    double *threads; /* two rows of values each */
} job;

static int64_t rows_of(const attn__canonical *canonical)
{
    return canonical->batch.size * canonical->query.size;
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
    *extent = attn__operand_extent(canonical, ATTN__OP_SINKS);
    return ATTN_OK;
}

static size_t workspace(const void *data, const attn__canonical *canonical)
{
    size_t n = attn__size_add((size_t)rows_of(canonical), doubles_of_threads(canonical));
    return attn__size_mul(attn__size_add(n, attn__extent_size(data)), sizeof(double));
}

/* o . dout */
static double dot_of_row(const job *j, const attn__row *row, double *o, double *dout)
{
    const attn__group *value = &j->canonical->value;
    attn_dtype dtype = j->canonical->problem.dtype;
    attn__strides along_o = attn__operand_strides(value, ATTN__OP_O);
    attn__strides along_dout = attn__operand_strides(value, ATTN__OP_DOUT);
    double sum = 0;
    attn__gather(value, &along_o, dtype, j->arrays->o, row->offset[ATTN__OP_O], o);
    attn__gather(value, &along_dout, dtype, j->arrays->dout, row->offset[ATTN__OP_DOUT], dout);
    for (int64_t c = 0; c < value->size; c++)
        sum += o[c] * dout[c];
    return sum;
}

static void run_row(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__canonical *canonical = j->canonical;
    attn_dtype side = attn__operand_dtype(&canonical->problem, ATTN__OP_LSE);
    double *o = j->threads + 2 * thread * canonical->value.size;
    attn__row row;
    attn__row_at(&row, canonical, j->arrays, item / canonical->query.size, item % canonical->query.size);
    j->part[item] = 0;
    if (row.absent)
        return;
    double lse = attn__load(side, j->arrays->lse, row.offset[ATTN__OP_LSE]);
    double sink = attn__load(side, j->arrays->sinks, row.offset[ATTN__OP_SINKS]);
    if (sink == (double)-INFINITY)
        return;
    double delta = dot_of_row(j, &row, o, o + canonical->value.size);
    if (canonical->problem.flags & ATTN_WITH_DLSE)
        delta -= attn__load(side, j->arrays->dlse, row.offset[ATTN__OP_LSE]);
    j->part[item] = -exp(sink - lse) * delta;
}

static void run(const attn__step *step, const attn_arrays *arrays, char *workspace)
{
    const attn__canonical *canonical = &step->plan->canonical;
    const attn__extent *extent = step->data;
    size_t n = attn__extent_size(extent);
    int64_t rows = rows_of(canonical);
    attn__step_run(step->child, arrays, workspace);
    double *part = (double *)(void *)(workspace + step->workspace_at);
    job j = {canonical, arrays, part, part + rows};
    double *sums = j.threads + doubles_of_threads(canonical);
    memset(sums, 0, n * sizeof *sums);
    attn__parallel_items(canonical->threads, rows, run_row, &j);
    for (int64_t i = 0; n > 0 && i < rows; i++) {
        int64_t at = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.sinks), i / canonical->query.size) +
                     attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.sinks), i % canonical->query.size);
        sums[at - extent->low] += j.part[i];
    }
    attn__sums_store_extent(n ? sums - extent->low : sums, extent,
                            attn__operand_dtype(&canonical->problem, ATTN__OP_SINKS), arrays->dsinks,
                            canonical->problem.accumulate);
}

const attn__wrapper attn__wrapper_sinks = {.canonical = plan, .workspace = workspace, .run = run};
