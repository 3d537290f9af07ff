/* SPDX-License-Identifier: MIT
 * Checks relative tables: strides, range of channels, and that every relative position has its row. */
#include "attend/problem/problem.h"
#include "attend/block/window_base.h"

static attn_status check_strides(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    for (int d = 0; d < p->ndims; d++) {
        attn_role role = p->dims[d].role;
        if (r->stride[d] != 0 && role != ATTN_ROLE_BATCH && role != attn__table_role(r))
            return attn__fail(context, ATTN_ERROR_SHAPE,
                              "relative table %d has stride %lld along dim %d, but it does not "
                              "move along %s dims",
                              i, (long long)r->stride[d], d, attn__role_name(role));
    }
    return ATTN_OK;
}

static attn_status check_range(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    int last = attn__last_dim(p, attn__table_role(r));
    int64_t n = last < 0 ? 1 : p->dims[last].n;
    if ((unsigned)r->kind > ATTN_RELATIVE_VALUE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "relative table %d: kind %d is not one of the three", i,
                          (int)r->kind);
    if (r->rows < 0)
        return attn__fail(context, ATTN_ERROR_SHAPE, "relative table %d has %lld rows", i, (long long)r->rows);
    if ((r->begin == 0 && r->end == 0) || (r->begin >= 0 && r->begin <= r->end && r->end <= n))
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_SHAPE,
                      "relative table %d serves channels %lld to %lld of a dim of length %lld", i, (long long)r->begin,
                      (long long)r->end, (long long)n);
}

typedef struct range {
    int64_t low, high; /* empty if low > high */
} range;

static range window_range(const attn_problem *p, attn_window w)
{
    range r;
    w.step = w.step ? w.step : 1;
    w.dilation = w.dilation ? w.dilation : 1;
    attn__window_reach(&w, p->dims[w.key_dim].n, p->dims[w.query_dim].n, &r.low, &r.high);
    return r;
}

/* Where masked keys are left out, a band keeps what lies outside it from being read; but a band that goes by the ends of
 * packed sequences lies elsewhere in each. */
static void cut_by_bands(const attn_problem *p, const attn_relative *r, range *reach)
{
    for (int i = 0; p->mask_fill == 0 && i < p->nbands; i++) {
        const attn_band *band = &p->bands[i];
        bool moves = (p->flags & ATTN_WITH_PACKED) && p->packed.align_ends && band->query_dim == p->packed.query_dim &&
                     band->key_dim == p->packed.key_dim;
        if (moves || band->query_dim != r->query_dim || band->key_dim != r->key_dim)
            continue;
        if (band->lo > reach->low)
            reach->low = band->lo;
        if (band->hi < reach->high)
            reach->high = band->hi;
    }
}

static attn_status check_rows(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    int64_t queries = p->dims[r->query_dim].n, keys = p->dims[r->key_dim].n;
    if (queries == 0 || keys == 0)
        return ATTN_OK;
    const attn_window *w = attn__window_of(p, r->key_dim);
    range reach = {1 - queries, keys - 1};
    if (w)
        reach = window_range(p, *w);
    cut_by_bands(p, r, &reach);
    int64_t low, high;
    if (reach.low > reach.high)
        return ATTN_OK;
    if (__builtin_add_overflow(reach.low, r->offset, &low) || __builtin_add_overflow(reach.high, r->offset, &high) ||
        low < 0 || high >= r->rows)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "relative table %d has %lld rows, but positions from %lld to %lld with "
                          "offset %lld are read (query dim %d, key dim %d)",
                          i, (long long)r->rows, (long long)reach.low, (long long)reach.high, (long long)r->offset,
                          r->query_dim, r->key_dim);
    return ATTN_OK;
}

attn_status attn__check_tables(attn_context *context, const attn_problem *p)
{
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < p->nrelatives; i++) {
        status = check_range(context, p, i);
        if (status == ATTN_OK)
            status = check_strides(context, p, i);
    }
    return status;
}

attn_status attn__check_table_rows(attn_context *context, const attn_problem *p)
{
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < p->nrelatives; i++)
        status = check_rows(context, p, i);
    return status;
}
