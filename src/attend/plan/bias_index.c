/* SPDX-License-Identifier: MIT
 * Biases through an index: out of the table before a solver runs, gradients back into it afterwards.  Each row of a
 * gradient is one float64 sum in the order of the index, whatever the number of threads. */
#include "attend/plan/bias_index.h"

#include "attend/block/element.h"
#include "base/context.h"
#include "base/parallel.h"

#include <string.h>

static int64_t entries_of(const attn__bias_index *x)
{
    return x->high - x->low + 1;
}

static void add_axis(attn__extent *e, int64_t length, int64_t stride)
{
    int64_t reach = length > 0 ? (length - 1) * stride : 0;
    e->length[e->n] = length;
    e->stride[e->n++] = stride;
    *(reach < 0 ? &e->low : &e->high) += reach;
}

static void measure_entries(attn__bias_index *x, const attn_problem *p)
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

void attn__bias_index_make(attn__bias_index *x, attn_problem *p)
{
    *x =
        (attn__bias_index){.used = p->flags & ATTN_WITH_BIAS_INDEX, .learned = p->flags & ATTN_WANT_DBIAS, .copies = 1};
    if (!x->used)
        return;
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
}

/* ------------------------------------------------------------------------------------------- workspace */

static size_t spread_bytes(const attn__bias_index *x)
{
    size_t n = attn__size_mul((size_t)entries_of(x), (size_t)x->copies);
    size_t bytes = attn__size_add(attn__size_mul(n, attn_dtype_size(x->dtype)), 63);
    return bytes == SIZE_MAX ? bytes : bytes / 64 * 64;
}

static int64_t rows_of(const attn__bias_index *x)
{
    return x->table.length[x->table.n - 1];
}

size_t attn__bias_index_size(const attn__bias_index *x)
{
    if (!x->used)
        return 0;
    size_t sums = attn__size_mul(attn__size_mul((size_t)rows_of(x), (size_t)x->threads), sizeof(double));
    return x->learned ? attn__size_add(attn__size_mul(2, spread_bytes(x)), sums) : spread_bytes(x);
}

/* Number `place` of a copy: the bias, or its gradient, of the entry low + place. */
static int64_t place_at(const attn__bias_index *x, int64_t copy)
{
    return copy * entries_of(x);
}

/* ------------------------------------------------------------------------------------------------- run */

bool attn__bias_index_fault(const attn__bias_index *x, const attn_arrays *arrays, int64_t *at)
{
    for (*at = x->low; x->used && x->copies > 0 && *at <= x->high; ++*at)
        if (arrays->bias_index[*at] < 0 || arrays->bias_index[*at] >= rows_of(x))
            return true;
    return false;
}

typedef struct job {
    const attn__bias_index *x;
    const int32_t *index; /* from the lowest entry on */
    const void *table;
    void *dtable;
    char *spread; /* of the bias, or of its gradient */
    double *sums; /* [threads, rows] */
} job;

/* Where the rows of one copy begin in the table. */
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
    int64_t from = copy_offset(table, copy), to = place_at(j->x, copy), n = entries_of(j->x);
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
    int64_t to = copy_offset(table, copy), from = place_at(j->x, copy), n = entries_of(j->x), rows = rows_of(j->x);
    double *sums = j->sums + thread * rows;
    memset(sums, 0, (size_t)rows * sizeof *sums);
    for (int64_t i = 0; i < n; i++)
        sums[j->index[i]] += attn__load(j->x->dtype, j->spread, from + i);
    for (int64_t row = 0; row < rows; row++)
        attn__store(j->x->dtype, j->dtable, to + row * table->stride[table->n - 1], sums[row]);
}

static job job_of(const attn__bias_index *x, const attn_arrays *arrays, void *workspace)
{
    return (job){.x = x,
                 .index = arrays->bias_index ? arrays->bias_index + x->low : NULL,
                 .table = arrays->bias,
                 .dtable = arrays->dbias,
                 .spread = workspace};
}

void attn__bias_index_begin(const attn__bias_index *x, attn_arrays *mine, void *workspace)
{
    if (!x->used || x->copies == 0)
        return;
    job j = job_of(x, mine, workspace);
    int64_t origin = -x->low * (int64_t)attn_dtype_size(x->dtype);
    attn__parallel_items(x->threads, x->copies, spread_copy, &j);
    mine->bias = j.spread + origin;
    if (!x->learned)
        return;
    memset(j.spread + spread_bytes(x), 0, spread_bytes(x)); /* entries that no pair reads stay 0 */
    mine->dbias = j.spread + spread_bytes(x) + origin;
}

void attn__bias_index_end(const attn__bias_index *x, const attn_arrays *given, void *workspace)
{
    if (!x->used || !x->learned || x->copies == 0 || !given->dbias)
        return;
    job j = job_of(x, given, workspace);
    j.spread += spread_bytes(x);
    j.sums = (double *)(void *)(j.spread + spread_bytes(x));
    attn__parallel_items(x->threads, x->copies, sum_copy, &j);
}
