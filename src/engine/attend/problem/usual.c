/* SPDX-License-Identifier: MIT
 * Sets up problems of common kinds of attention: heads, an axis of an array, tied rows of an alignment, and a window
 * over an image. */
#include "attn/attn.h"

#include "base/context.h"
#include "base/integers.h"

#include <math.h>
#include <stdio.h>

/* ----------------------------------------------------------------------------------------------------- checks */

typedef struct size_of {
    const char *name;
    int64_t n, least;
} size_of;

/* Checks sizes, and that the product of the first `nproduct` of them, the number of elements, cannot overflow. Sizes of
 * 0 count as 1, because strides are products of some of the sizes. */
static attn_status check_sizes(const char *what, const size_of *sizes, int n, int nproduct)
{
    const int64_t most = INT64_C(1) << 40;
    double product = 1;
    for (int i = 0; i < n; i++) {
        if (sizes[i].n < sizes[i].least || sizes[i].n > most)
            return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "%s: %s is %lld; it must be %lld to 2^40", what, sizes[i].name,
                              (long long)sizes[i].n, (long long)sizes[i].least);
        product *= i < nproduct && sizes[i].n ? (double)sizes[i].n : 1;
    }
    return product <= 0x1p60
               ? ATTN_OK
               : attn__fail(NULL, ATTN_ERROR_ARGUMENT,
                            "%s: an array would have %g elements; at most 2^60 are supported", what, product);
}

static attn_status check_enum(const char *what, const char *name, int value, int last)
{
    char text[64];
    snprintf(text, sizeof text, "%s: %s", what, name);
    return attn__check_choice(NULL, text, value, last);
}

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

static attn_status check_heads(const attn_heads *h)
{
    static const char what[] = "attn_heads";
    const int64_t furthest = INT64_C(1) << 40;
    int64_t queries = attn__max(h->queries, h->packed_queries), keys = attn__max(h->keys, h->packed_keys);
    int64_t dim = attn__max(h->dim, h->dim_value);
    const size_of sizes[] = {
        {"batch", h->batch, 0},
        {"heads", h->heads, 1},
        {"dim", h->dim, 1},
        {"queries", h->queries, 0},
        {"keys", h->keys, 0},
        {"kv_heads", h->kv_heads, 0},
        {"dim_value", h->dim_value, 0},
        {"packed_queries", h->packed_queries, 0},
        {"packed_keys", h->packed_keys, 0},
        {"q_row", h->q_row, -furthest},
        {"k_row", h->k_row, -furthest},
        {"v_row", h->v_row, -furthest},
        {"o_row", h->o_row, -furthest},
    };
    /* The largest arrays: tokens of heads * dim numbers, or of rows of the caller's length, and the weights. */
    int64_t row = 0, given[] = {h->q_row, h->k_row, h->v_row, h->o_row};
    for (int i = 0; i < 4; i++)
        row = attn__max(row, given[i] < 0 && given[i] >= -furthest ? -given[i] : given[i]);
    const size_of tokens[] = {
        {"batch", h->batch, 0}, {"heads", h->heads, 0}, {"tokens", attn__max(queries, keys), 0}, {"dim", dim, 0}};
    const size_of rows[] = {{"batch", h->batch, 0}, {"tokens", attn__max(queries, keys), 0}, {"row", row, 0}};
    const size_of weights[] = {
        {"batch", h->batch, 0}, {"heads", h->heads, 0}, {"queries", queries, 0}, {"keys", keys, 0}};
    attn_status status = check_sizes(what, sizes, sizeof sizes / sizeof *sizes, 0);
    if (status == ATTN_OK)
        status = check_sizes(what, tokens, 4, 4);
    if (status == ATTN_OK)
        status = check_sizes(what, rows, 3, 3);
    if (status == ATTN_OK)
        status = check_sizes(what, weights, 4, 4);
    if (status == ATTN_OK)
        status = check_enum(what, "lens_per", h->lens_per, 2);
    if (status == ATTN_OK)
        status = check_enum(what, "causal", (int)h->causal, ATTN_CAUSAL_BOTTOM_RIGHT);
    if (status == ATTN_OK)
        status = check_enum(what, "layout", (int)h->layout, ATTN_LAYOUT_BHTD);
    if (status == ATTN_OK)
        status = attn__check_reserved(NULL, h->reserved, sizeof h->reserved, what);
    if (status == ATTN_OK && h->kv_heads && h->heads % h->kv_heads)
        status = attn__fail(NULL, ATTN_ERROR_SHAPE, "attn_heads: kv_heads %lld does not divide heads %lld",
                            (long long)h->kv_heads, (long long)h->heads);
    return status;
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
    ATTN__CALL(NULL);
    *problem = (attn_problem){0};
    attn_status status = check_heads(heads);
    if (status != ATTN_OK)
        return status;
    fill_heads(problem, heads);
    if (heads->lens_per)
        problem->flags |= ATTN_WITH_LENS;
    if (heads->key_padding)
        problem->flags |= ATTN_WITH_MASK;
    return ATTN_OK;
}

/* -------------------------------------------------------------------------------------------------- one axis */

static attn_status check_axis(const attn_axis *a)
{
    static const char what[] = "attn_axis";
    size_of sizes[8];
    if (a->rank < 2 || a->rank > 8)
        return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "attn_axis: rank is %d; it must be 2 to 8", a->rank);
    attn_status status = check_enum(what, "axis", a->axis, a->rank - 1);
    if (status == ATTN_OK)
        status = check_enum(what, "channel_axis", a->channel_axis, a->rank - 1);
    if (status == ATTN_OK)
        status = check_enum(what, "causal", (int)a->causal, ATTN_CAUSAL_BOTTOM_RIGHT);
    if (status != ATTN_OK)
        return status;
    if (a->axis == a->channel_axis)
        return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "attn_axis: axis and channel_axis are both %d; they must differ",
                          a->axis);
    for (int i = 0; i < a->rank; i++)
        sizes[i] = (size_of){i == a->channel_axis ? "the channels of shape" : "a length of shape", a->shape[i],
                             i == a->channel_axis};
    status = check_sizes(what, sizes, a->rank, a->rank);
    if (status == ATTN_OK && a->heads < 1)
        return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "attn_axis: heads is %lld; it must be at least 1",
                          (long long)a->heads);
    if (status == ATTN_OK && a->shape[a->channel_axis] % a->heads)
        return attn__fail(NULL, ATTN_ERROR_SHAPE, "attn_axis: heads %lld does not divide the %lld channels",
                          (long long)a->heads, (long long)a->shape[a->channel_axis]);
    return status;
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
    ATTN__CALL(NULL);
    *problem = (attn_problem){0};
    attn_status status = check_axis(axis);
    if (status == ATTN_OK)
        status = ATTN__CHECK_RESERVED(NULL, axis, attn_axis);
    if (status != ATTN_OK)
        return status;
    int64_t stride[8] = {0}, next = 1;
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
    const size_of sizes[] = {
        {"rows", rows, 0}, {"cols", cols, 0}, {"batch", batch, 0}, {"heads", heads, 1}, {"dim", dim, 1}};
    ATTN__CALL(NULL);
    *problem = (attn_problem){0};
    attn_status status = check_sizes("attn_problem_tied_rows", sizes, 5, 5);
    if (status != ATTN_OK)
        return status;
    int64_t head = heads * dim, token = batch * head, row = cols * token;
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

static attn_status check_window(const attn_window2d *w)
{
    static const char what[] = "attn_window2d";
    const size_of sizes[] = {{"batch", w->batch, 0},       {"height", w->height, 0},     {"width", w->width, 0},
                             {"heads", w->heads, 1},       {"dim", w->dim, 1},           {"window_y", w->window_y, 1},
                             {"window_x", w->window_x, 1}, {"dilation", w->dilation, 0}, {"step", w->step, 0}};
    attn_status status = check_sizes(what, sizes, 9, 7);
    return status == ATTN_OK ? check_enum(what, "border", (int)w->border, ATTN_BORDER_SHIFT) : status;
}

attn_status attn_problem_window2d(attn_problem *problem, const attn_window2d *w)
{
    ATTN__CALL(NULL);
    *problem = (attn_problem){0};
    attn_status status = check_window(w);
    if (status == ATTN_OK)
        status = ATTN__CHECK_RESERVED(NULL, w, attn_window2d);
    if (status != ATTN_OK)
        return status;
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
