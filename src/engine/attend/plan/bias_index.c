/* SPDX-License-Identifier: MIT
 *
 * bias_index.c - the wrapper for a bias that is stored as a table and read through an index.  Before the child runs,
 * the wrapper expands the table to an ordinary bias with one number per entry of the index. Solvers therefore need no
 * code for an index.  In the backward pass, after the child has run, the wrapper sums the gradients of the expanded
 * bias per row of the table.  Each element of the table's gradient is one float64 sum in the order of the index,
 * whatever the number of threads.
 */
#include "attend/plan/plan.h"

#include "attend/block/rows.h"
#include "attend/problem/arrays.h"
#include "base/parallel.h"

#include <string.h>

typedef struct bias_index {
    bool learned; /* whether the gradient of the table is requested */
    attn_dtype dtype;
    attn__extent table; /* the table's BATCH axes, then its rows */
    int64_t copies;     /* number of BATCH indices of the table; each has one expanded bias in the workspace */
    int64_t low, high;  /* lowest and highest offset of an entry of the index */
} bias_index;

static int64_t entries_of(const bias_index *x)
{
    return x->high - x->low + 1;
}

static int64_t rows_of(const bias_index *x)
{
    return x->table.length[x->table.n - 1];
}

/* ------------------------------------------------------------------------------------------------ plan */

static void add_axis(attn__extent *e, int64_t length, int64_t stride)
{
    int64_t reach = length > 0 ? (length - 1) * stride : 0;
    e->length[e->n] = length;
    e->stride[e->n++] = stride;
    *(reach < 0 ? &e->low : &e->high) += reach;
}

static void measure_entries(bias_index *x, const attn_problem *p)
{
    bool empty = false;
    for (int i = 0; i < p->ndims; i++) {
        const attn_dim *dim = &p->dims[i];
        if (dim->role != ATTN_ROLE_QUERY && dim->role != ATTN_ROLE_KEY)
            continue;
        empty = empty || dim->n == 0;
        if (dim->n > 1)
            *(dim->bias < 0 ? &x->low : &x->high) += (dim->n - 1) * dim->bias;
    }
    if (empty)
        x->low = 0, x->high = -1;
}

/* Replaces the table's strides in the problem by the strides of the expanded bias. */
static attn_status resolve(attn_context *context, attn_problem *p, void **data)
{
    if (!(p->flags & ATTN_WITH_BIAS_INDEX))
        return ATTN_OK;
    bias_index *x = *data = attn__alloc_zero(context, sizeof *x);
    if (!x)
        return ATTN_ERROR_MEMORY;
    x->learned = p->flags & ATTN_WANT_DBIAS;
    x->copies = 1;
    x->dtype = attn__operand_dtype(p, ATTN__OP_BIAS);
    measure_entries(x, p);
    for (int i = 0; i < p->ndims; i++) {
        attn_dim *dim = &p->dims[i];
        if (dim->role != ATTN_ROLE_BATCH || dim->bias == 0)
            continue;
        add_axis(&x->table, dim->n, dim->bias);
        x->copies *= dim->n;
    }
    int64_t stride = entries_of(x);
    for (int i = p->ndims - 1; i >= 0; i--) {
        attn_dim *dim = &p->dims[i];
        if (dim->role == ATTN_ROLE_BATCH && dim->bias != 0) {
            dim->bias = stride;
            stride *= dim->n > 0 ? dim->n : 1;
        }
        dim->dbias = x->learned ? dim->bias : 0;
    }
    add_axis(&x->table, p->bias_index.rows, p->bias_index.row_stride);
    return ATTN_OK;
}

static size_t spread_bytes(const bias_index *x)
{
    size_t n = attn__size_mul((size_t)entries_of(x), (size_t)x->copies);
    size_t bytes = attn__size_add(attn__size_mul(n, attn_dtype_size(x->dtype)), 63);
    return bytes == SIZE_MAX ? bytes : bytes / 64 * 64;
}

/* Returns the bytes of the expanded bias. If the table is learned, adds the bytes of the gradient and of `sums`. */
static size_t workspace(const void *data, const attn__canonical *canonical)
{
    const bias_index *x = data;
    size_t sums = attn__size_mul(attn__size_mul((size_t)rows_of(x), (size_t)canonical->threads), sizeof(double));
    return x->learned ? attn__size_add(attn__size_mul(2, spread_bytes(x)), sums) : spread_bytes(x);
}

static bool span(const void *data, attn_array array, attn_span *span)
{
    const bias_index *x = data;
    bool table = array == ATTN_ARRAY_BIAS || array == ATTN_ARRAY_DBIAS, empty = attn__extent_size(&x->table) == 0;
    if (array == ATTN_ARRAY_BIAS_INDEX)
        span->low = x->low, span->high = x->high + 1;
    else if (table)
        span->low = empty ? 0 : x->table.low, span->high = empty ? 0 : x->table.high + 1;
    return true;
}

/* ------------------------------------------------------------------------------------------------- run */

/* Checks that every entry of the index is a row of the table. */
static attn_status check(attn_context *context, const void *data, const attn_arrays *arrays)
{
    const bias_index *x = data;
    for (int64_t at = x->low; arrays->bias_index && x->copies > 0 && at <= x->high; at++)
        if (arrays->bias_index[at] < 0 || arrays->bias_index[at] >= rows_of(x))
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "bias_index[%lld] is %d; the table has the rows 0 to %lld",
                              (long long)at, (int)arrays->bias_index[at], (long long)rows_of(x) - 1);
    return ATTN_OK;
}

typedef struct job {
    const bias_index *x;
    const int32_t *index; /* the first entry of the index in memory */
    const void *table;
    void *dtable;
    char *spread; /* the expanded bias; after the child has run, its gradient */
    double *sums; /* [threads, rows]: each thread's sums of gradients per table row */
} job;

/* Returns the offset in the table of the first row for BATCH index `copy`. */
static int64_t copy_offset(const attn__extent *table, int64_t copy)
{
    int64_t offset = 0;
    for (int i = table->n - 2; i >= 0; i--) {
        offset += copy % table->length[i] * table->stride[i];
        copy /= table->length[i];
    }
    return offset;
}

static void spread_copy(void *user, int64_t copy, int thread)
{
    const job *j = user;
    const attn__extent *table = &j->x->table;
    int64_t from = copy_offset(table, copy), n = entries_of(j->x), to = copy * n;
    int64_t stride = table->stride[table->n - 1];
    (void)thread;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = from + j->index[i] * stride;
        if (j->x->dtype == ATTN_F64)
            ((double *)(void *)j->spread)[to + i] = ((const double *)j->table)[at];
        else
            ((float *)(void *)j->spread)[to + i] = ((const float *)j->table)[at];
    }
}

static void sum_copy(void *user, int64_t copy, int thread)
{
    const job *j = user;
    const attn__extent *table = &j->x->table;
    int64_t to = copy_offset(table, copy), n = entries_of(j->x), from = copy * n, rows = rows_of(j->x);
    double *sums = j->sums + thread * rows;
    memset(sums, 0, (size_t)rows * sizeof *sums);
    for (int64_t i = 0; i < n; i++)
        sums[j->index[i]] += attn__load(j->x->dtype, j->spread, from + i);
    for (int64_t row = 0; row < rows; row++)
        attn__store(j->x->dtype, j->dtable, to + row * table->stride[table->n - 1], sums[row]);
}

static void run(const attn__step *step, const attn__execution *given, char *workspace)
{
    const bias_index *x = step->data;
    if (x->copies == 0) {
        attn__step_run(step->child, given, workspace);
        return;
    }
    attn__execution mine = *given;
    int threads = step->plan->canonical.threads;
    int64_t origin = -x->low * (int64_t)attn_dtype_size(x->dtype);
    job j = {.x = x,
             .index = given->at.bias_index ? given->at.bias_index + x->low : NULL,
             .table = given->at.bias,
             .dtable = given->at.dbias,
             .spread = workspace + step->workspace_at};
    attn__parallel_items(threads, x->copies, spread_copy, &j);
    mine.at.bias = j.spread + origin;
    j.spread += spread_bytes(x);
    if (x->learned) {
        memset(j.spread, 0, spread_bytes(x)); /* an entry that no pair reads keeps the gradient 0 */
        mine.at.dbias = j.spread + origin;
    }
    attn__step_run(step->child, &mine, workspace);
    j.sums = (double *)(void *)(j.spread + spread_bytes(x));
    if (x->learned && given->at.dbias)
        attn__parallel_items(threads, x->copies, sum_copy, &j);
}

const attn__wrapper attn__wrapper_bias_index = {
    .resolve = resolve, .workspace = workspace, .span = span, .check = check, .run = run};
