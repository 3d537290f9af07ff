/* SPDX-License-Identifier: MIT
 * Sets up problems of common kinds of attention: heads, an axis of an array, tied rows of an alignment, and a window
 * over an image. */
#include "attn/attn.h"

#include "base/integers.h"

#include <math.h>

/* ----------------------------------------------------------------------------------------------------- heads */

static attn_dim *add_dim(attn_problem *p, attn_role role, int64_t n)
{
    attn_dim *dim = &p->dims[p->ndims++];
    *dim = (attn_dim){.role = role, .n = n};
    return dim;
}

/* Strides of an operand in elements, per batch index, head and token. */
typedef struct steps {
    int64_t batch, head, row;
} steps;

static steps steps_of(const attn_heads *h, int64_t heads, int64_t tokens, int64_t dim, int64_t row)
{
    if (h->layout == ATTN_LAYOUT_BHTD)
        return (steps){heads * tokens * dim, tokens * dim, dim};
    row = row ? row : heads * dim;
    return (steps){tokens * row, dim, row};
}

static bool heads_are_sound(const attn_heads *h)
{
    const int64_t most = INT64_C(1) << 40;
    const int64_t sizes[] = {h->batch,    h->heads,     h->queries,        h->keys,       h->dim,
                             h->kv_heads, h->dim_value, h->packed_queries, h->packed_keys};
    double product = 1;
    for (int i = 0; i < 9; i++) {
        if (sizes[i] < 0 || sizes[i] > most)
            return false;
        product *= i < 5 && sizes[i] ? (double)sizes[i] : 1;
    }
    return h->lens_per >= 0 && h->lens_per <= 2 && product < 0x1p100 &&
           (unsigned)h->causal <= ATTN_CAUSAL_BOTTOM_RIGHT && (unsigned)h->layout <= ATTN_LAYOUT_BHTD;
}

static void add_rows(attn_problem *p, const attn_heads *h, steps q, steps o, int query)
{
    attn_dim *dim = &p->dims[query];
    *dim = (attn_dim){.role = ATTN_ROLE_QUERY, .n = h->queries, .q = q.row, .o = o.row, .lse = 1, .weights = h->keys};
    dim->lens = h->lens_per == 2 ? 1 : 0;
}

static void add_causal(attn_problem *p, const attn_heads *h, int query)
{
    if (h->causal == ATTN_CAUSAL_NONE)
        return;
    int64_t hi = h->causal == ATTN_CAUSAL_TOP_LEFT || h->packed ? 0 : h->keys - h->queries;
    p->bands[p->nbands++] = (attn_band){query, query + 1, INT64_MIN, hi};
}

static void fill_heads(attn_problem *p, const attn_heads *h)
{
    int64_t kv_heads = h->kv_heads ? h->kv_heads : h->heads, group = kv_heads ? h->heads / kv_heads : 1;
    int64_t dv = h->dim_value ? h->dim_value : h->dim, rows = h->packed ? h->packed_queries : h->queries;
    int64_t keys = h->packed ? h->packed_keys : h->keys;
    steps q = steps_of(h, h->heads, rows, h->dim, h->q_row), o = steps_of(h, h->heads, rows, dv, h->o_row);
    steps k = steps_of(h, kv_heads, keys, h->dim, h->k_row), v = steps_of(h, kv_heads, keys, dv, h->v_row);

    attn_dim *dim = add_dim(p, ATTN_ROLE_BATCH, h->batch);
    if (!h->packed) {
        dim->q = q.batch, dim->k = k.batch, dim->v = v.batch, dim->o = o.batch;
        dim->lse = h->heads * rows;
    }
    dim->weights = h->heads * h->queries * h->keys;
    dim->lens = h->lens_per == 2 ? h->queries : h->lens_per;
    dim->mask = h->key_padding ? h->keys : 0;

    dim = add_dim(p, ATTN_ROLE_BATCH, kv_heads);
    dim->q = group * q.head, dim->k = k.head, dim->v = v.head, dim->o = group * o.head;
    dim->lse = group * rows, dim->weights = group * h->queries * h->keys;
    if (group != 1) {
        dim = add_dim(p, ATTN_ROLE_BATCH, group);
        dim->q = q.head, dim->o = o.head, dim->lse = rows, dim->weights = h->queries * h->keys;
    }
    int query = p->ndims++;
    add_rows(p, h, q, o, query);
    dim = add_dim(p, ATTN_ROLE_KEY, h->keys);
    dim->k = k.row, dim->v = v.row, dim->weights = 1, dim->mask = h->key_padding ? 1 : 0;
    dim = add_dim(p, ATTN_ROLE_CONTRACT, h->dim);
    dim->q = dim->k = 1;
    dim = add_dim(p, ATTN_ROLE_VALUE, dv);
    dim->v = dim->o = 1;
    p->lens_dim = query + 1;
    add_causal(p, h, query);
    if (h->packed) {
        p->flags |= ATTN_WITH_PACKED;
        p->packed = (attn_packed){.query_dim = query, .key_dim = query + 1, .queries = rows, .keys = keys};
        p->packed.align_ends = h->causal == ATTN_CAUSAL_BOTTOM_RIGHT;
    }
}

attn_status attn_problem_heads(attn_problem *problem, const attn_heads *heads)
{
    *problem = (attn_problem){0};
    if (!heads_are_sound(heads) || !attn__all_zero(heads->reserved, sizeof heads->reserved))
        return ATTN_ERROR_ARGUMENT;
    if (heads->kv_heads && heads->heads % heads->kv_heads)
        return ATTN_ERROR_SHAPE;
    fill_heads(problem, heads);
    if (heads->lens_per)
        problem->flags |= ATTN_WITH_LENS;
    if (heads->key_padding)
        problem->flags |= ATTN_WITH_MASK;
    return ATTN_OK;
}

/* -------------------------------------------------------------------------------------------------- one axis */

static bool axis_is_sound(const attn_axis *a)
{
    if (a->rank < 2 || a->rank > 8 || a->axis < 0 || a->axis >= a->rank || a->channel_axis < 0 ||
        a->channel_axis >= a->rank || a->axis == a->channel_axis || (unsigned)a->causal > ATTN_CAUSAL_BOTTOM_RIGHT)
        return false;
    int64_t elements = 1;
    for (int i = 0; i < a->rank; i++) {
        if (a->shape[i] < 0 || __builtin_mul_overflow(elements, a->shape[i] ? a->shape[i] : 1, &elements))
            return false;
    }
    return a->heads > 0;
}

static void add_moving(attn_problem *p, attn_role role, int64_t n, int64_t stride)
{
    attn_dim dim = {.role = role, .n = n};
    if (role == ATTN_ROLE_BATCH || role == ATTN_ROLE_QUERY)
        dim.q = dim.o = stride;
    if (role == ATTN_ROLE_BATCH || role == ATTN_ROLE_KEY)
        dim.k = dim.v = stride;
    if (role == ATTN_ROLE_CONTRACT)
        dim.q = dim.k = stride;
    if (role == ATTN_ROLE_VALUE)
        dim.v = dim.o = stride;
    p->dims[p->ndims++] = dim;
}

/* Gives lse and weights contiguous strides in the order of the dims: BATCH, QUERY, KEY. */
static void number_rows(attn_problem *p)
{
    uint64_t lse = 1, weights = 1; /* unsigned products may wrap; planning then refuses the problem */
    for (int i = p->ndims - 1; i >= 0; i--) {
        attn_dim *dim = &p->dims[i];
        if (dim->role > ATTN_ROLE_KEY)
            continue;
        dim->weights = (int64_t)weights;
        weights *= (uint64_t)dim->n;
        if (dim->role == ATTN_ROLE_KEY)
            continue;
        dim->lse = (int64_t)lse;
        lse *= (uint64_t)dim->n;
    }
}

attn_status attn_problem_axis(attn_problem *problem, const attn_axis *axis)
{
    *problem = (attn_problem){0};
    if (!axis_is_sound(axis))
        return ATTN_ERROR_ARGUMENT;
    if (axis->shape[axis->channel_axis] % axis->heads)
        return ATTN_ERROR_SHAPE;
    int64_t stride[8], next = 1;
    for (int i = axis->rank - 1; i >= 0; i--) {
        stride[i] = next;
        next *= axis->shape[i];
    }
    int64_t n = axis->shape[axis->axis], channel = stride[axis->channel_axis];
    int64_t dim = axis->shape[axis->channel_axis] / axis->heads;
    for (int i = 0; i < axis->rank; i++)
        if (i != axis->axis && i != axis->channel_axis)
            add_moving(problem, ATTN_ROLE_BATCH, axis->shape[i], stride[i]);
    add_moving(problem, ATTN_ROLE_BATCH, axis->heads, dim * channel);
    int query = problem->ndims;
    add_moving(problem, ATTN_ROLE_QUERY, n, stride[axis->axis]);
    add_moving(problem, ATTN_ROLE_KEY, n, stride[axis->axis]);
    add_moving(problem, ATTN_ROLE_CONTRACT, dim, channel);
    add_moving(problem, ATTN_ROLE_VALUE, dim, channel);
    number_rows(problem);
    if (axis->causal != ATTN_CAUSAL_NONE) /* there are as many queries as keys, so both causal alignments are equal */
        problem->bands[problem->nbands++] = (attn_band){query, query + 1, INT64_MIN, 0};
    return ATTN_OK;
}

/* ---------------------------------------- tied rows: rows are summed in the score, and carried to the output */

attn_status attn_problem_tied_rows(attn_problem *problem, int64_t rows, int64_t cols, int64_t batch, int64_t heads,
                                   int64_t dim)
{
    *problem = (attn_problem){0};
    int64_t head, token, row, elements;
    if (rows < 0 || cols < 0 || batch < 0 || heads < 0 || dim < 0 || __builtin_mul_overflow(heads, dim, &head) ||
        __builtin_mul_overflow(batch, head, &token) || __builtin_mul_overflow(cols, token, &row) ||
        __builtin_mul_overflow(rows, row, &elements))
        return ATTN_ERROR_ARGUMENT;
    add_moving(problem, ATTN_ROLE_BATCH, heads, dim);
    add_moving(problem, ATTN_ROLE_BATCH, batch, head);
    add_moving(problem, ATTN_ROLE_QUERY, cols, token);
    add_moving(problem, ATTN_ROLE_KEY, cols, token);
    add_moving(problem, ATTN_ROLE_CONTRACT, rows, row);
    add_moving(problem, ATTN_ROLE_CONTRACT, dim, 1);
    add_moving(problem, ATTN_ROLE_VALUE, rows, row);
    add_moving(problem, ATTN_ROLE_VALUE, dim, 1);
    number_rows(problem);
    if (dim > 0 && rows > 0)
        problem->scale = 1 / sqrt((double)dim * (double)rows);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------ a window over an image */

static bool window_is_sound(const attn_window2d *w)
{
    int64_t elements = 1;
    const int64_t sizes[] = {w->batch, w->height, w->width, w->heads, w->dim, w->window_y, w->window_x};
    for (int i = 0; i < 7; i++)
        if (sizes[i] < 0 || __builtin_mul_overflow(elements, sizes[i] ? sizes[i] : 1, &elements))
            return false;
    return w->step >= 0 && w->dilation >= 0 && (unsigned)w->border <= ATTN_BORDER_SHIFT;
}

attn_status attn_problem_window2d(attn_problem *problem, const attn_window2d *w)
{
    *problem = (attn_problem){0};
    if (!window_is_sound(w))
        return ATTN_ERROR_ARGUMENT;
    int64_t step = w->step ? w->step : 1, dilation = w->dilation ? w->dilation : 1;
    int64_t ny = w->height / step + (w->height % step != 0), nx = w->width / step + (w->width % step != 0);
    int64_t token = w->heads * w->dim, row = w->width * token, q_row = nx * token;
    add_moving(problem, ATTN_ROLE_BATCH, w->batch, w->height * row);
    problem->dims[0].q = problem->dims[0].o = ny * q_row;
    add_moving(problem, ATTN_ROLE_BATCH, w->heads, w->dim);
    add_moving(problem, ATTN_ROLE_QUERY, ny, q_row);
    add_moving(problem, ATTN_ROLE_QUERY, nx, token);
    add_moving(problem, ATTN_ROLE_KEY, w->window_y, row);
    add_moving(problem, ATTN_ROLE_KEY, w->window_x, token);
    add_moving(problem, ATTN_ROLE_CONTRACT, w->dim, 1);
    add_moving(problem, ATTN_ROLE_VALUE, w->dim, 1);
    number_rows(problem);
    problem->nwindows = 2;
    for (int i = 0; i < 2; i++)
        problem->windows[i] = (attn_window){.query_dim = 2 + i,
                                            .key_dim = 4 + i,
                                            .size = i ? w->width : w->height,
                                            .step = step,
                                            .dilation = dilation,
                                            .offset = -((i ? w->window_x : w->window_y) / 2) * dilation,
                                            .border = w->border};
    return ATTN_OK;
}
