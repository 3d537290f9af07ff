/* SPDX-License-Identifier: MIT
 * Checks what refers to dims: windows, bands, lengths and picks. */
#include "attend/problem/problem.h"

#include <stdio.h>

static int64_t or_one(int64_t x)
{
    return x ? x : 1;
}

static bool fits(const attn_problem *p, const attn_window *w)
{
    /* Every position, inside or out, must be a number with room to spare. */
    const int64_t limit = INT64_MAX / 4;
    int64_t span, reach;
    return !__builtin_mul_overflow(p->dims[w->query_dim].n, or_one(w->step), &span) && span < limit &&
           !__builtin_mul_overflow(p->dims[w->key_dim].n, or_one(w->dilation), &reach) && reach < limit &&
           w->offset > -limit && w->offset < limit && w->size < limit;
}

static attn_status check_window_numbers(attn_context *context, const attn_problem *p, int i)
{
    const attn_window *w = &p->windows[i];
    if ((unsigned)w->border > ATTN_BORDER_SHIFT)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "window %d: border %d is not one of the three", i,
                          (int)w->border);
    if (w->size < 0 || w->step < 0 || w->dilation < 0)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "window %d: size %lld, step %lld and dilation %lld must not be negative", i,
                          (long long)w->size, (long long)w->step, (long long)w->dilation);
    if (!fits(p, w))
        return attn__fail(context, ATTN_ERROR_SHAPE, "window %d: its positions overflow", i);
    int64_t taps = p->dims[w->key_dim].n, dilation = or_one(w->dilation);
    if (w->border == ATTN_BORDER_SHIFT && p->dims[w->query_dim].n > 0 && w->size < taps * dilation)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "window %d: %lld taps with dilation %lld do not fit inside %lld "
                          "positions, so it cannot be shifted inwards (dim %d)",
                          i, (long long)taps, (long long)dilation, (long long)w->size, w->key_dim);
    return ATTN_OK;
}

attn_status attn__check_windows(attn_context *context, const attn_problem *p)
{
    for (int i = 0; i < p->nwindows; i++) {
        char what[32];
        snprintf(what, sizeof what, "window %d", i);
        const attn_window *w = &p->windows[i];
        attn_status status = attn__check_role(context, p, w->query_dim, ATTN_ROLE_QUERY, what);
        if (status == ATTN_OK)
            status = attn__check_role(context, p, w->key_dim, ATTN_ROLE_KEY, what);
        if (status == ATTN_OK)
            status = check_window_numbers(context, p, i);
        if (status != ATTN_OK)
            return status;
        for (int other = 0; other < i; other++)
            if (p->windows[other].key_dim == w->key_dim)
                return attn__fail(context, ATTN_ERROR_ARGUMENT, "windows %d and %d both place the taps of dim %d",
                                  other, i, w->key_dim);
    }
    return ATTN_OK;
}

/* A pair of dims that a band or a table speaks of: right roles, and the window of the key dim, if it has one,
 * belongs to the same query dim (otherwise "the position" would have no meaning for the pair). */
static attn_status check_pair(attn_context *context, const attn_problem *p, int query_dim, int key_dim,
                              const char *what)
{
    attn_status status = attn__check_role(context, p, query_dim, ATTN_ROLE_QUERY, what);
    if (status == ATTN_OK)
        status = attn__check_role(context, p, key_dim, ATTN_ROLE_KEY, what);
    if (status != ATTN_OK)
        return status;
    const attn_window *w = attn__window_of(p, key_dim);
    if (w && w->query_dim != query_dim)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s pairs key dim %d with query dim %d, but its window slides along "
                          "query dim %d",
                          what, key_dim, query_dim, w->query_dim);
    return ATTN_OK;
}

static attn_status check_pick(attn_context *context, const attn_problem *p, int i)
{
    const attn_pick *pick = &p->picks[i];
    if (pick->dim < 0 || pick->dim >= p->ndims ||
        (p->dims[pick->dim].role != ATTN_ROLE_BATCH && p->dims[pick->dim].role != ATTN_ROLE_QUERY))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "pick %d: dim %d is not a BATCH or QUERY dim", i, pick->dim);
    for (int other = 0; other < i; other++)
        if (p->picks[other].dim == pick->dim)
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "picks %d and %d both choose along dim %d", other, i,
                              pick->dim);
    if (pick->n < 0 || (pick->n > 0 && !pick->index))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "pick %d: %lld indices, %s", i, (long long)pick->n,
                          pick->index ? "a negative number" : "but no array of them");
    for (int64_t j = 0; j < pick->n; j++)
        if (pick->index[j] < 0 || pick->index[j] >= p->dims[pick->dim].n)
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "pick %d: index %lld lies outside dim %d of length %lld", i,
                              (long long)pick->index[j], pick->dim, (long long)p->dims[pick->dim].n);
    return ATTN_OK;
}

attn_status attn__check_relations(attn_context *context, const attn_problem *p)
{
    char what[32];
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < p->nbands; i++) {
        snprintf(what, sizeof what, "band %d", i);
        status = check_pair(context, p, p->bands[i].query_dim, p->bands[i].key_dim, what);
    }
    for (int i = 0; status == ATTN_OK && i < p->nrelatives; i++) {
        snprintf(what, sizeof what, "relative table %d", i);
        status = check_pair(context, p, p->relatives[i].query_dim, p->relatives[i].key_dim, what);
    }
    for (int i = 0; status == ATTN_OK && i < p->npicks; i++)
        status = check_pick(context, p, i);
    if (status == ATTN_OK && (p->flags & ATTN_WITH_LENS))
        status = attn__check_role(context, p, p->lens_dim, ATTN_ROLE_KEY, "lens_dim");
    return status;
}
