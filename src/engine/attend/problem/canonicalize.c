/* SPDX-License-Identifier: MIT
 * Resolves the defaults of a checked problem and brings it to canonical form.  It clears the fields that the problem's
 * direction does not use, so that equal problems have equal fields.  Few kernels suffice, because canonical problems
 * have few different shapes. */
#include "attend/problem/problem.h"
#include "attend/scores/score.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- defaults */

static double default_scale(const attn_problem *p)
{
    double channels = 1;
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == ATTN_ROLE_CONTRACT)
            channels *= (double)p->dims[i].n;
    return attn__score_of(p)->by_root && channels > 0 ? 1 / sqrt(channels) : 1;
}

static void resolve_windows(attn_problem *p)
{
    for (int i = 0; i < p->nwindows; i++) {
        attn_window *w = &p->windows[i];
        w->step = w->step ? w->step : 1;
        w->dilation = w->dilation ? w->dilation : 1;
    }
}

static void resolve_tables(attn_problem *p)
{
    for (int i = 0; i < p->nrelatives; i++) {
        attn_relative *r = &p->relatives[i];
        int last = attn__last_dim(p, attn__table_role(r));
        if (r->begin == 0 && r->end == 0)
            r->end = last < 0 ? 1 : p->dims[last].n;
    }
}

static void resolve_strides(attn_problem *p, attn_dim *dim)
{
    if (!p->own_grad_strides) {
        dim->dq = dim->q, dim->dk = dim->k, dim->dv = dim->v;
        dim->dout = dim->o, dim->dbias = dim->bias;
    }
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
        if (!attn__operand_used(p, op))
            *attn__stride_at(dim, op) = 0;
}

void attn__resolve_problem(attn_problem *p)
{
    const unsigned backward_only = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES |
                                   ATTN_WANT_DW | ATTN_WANT_DSINKS | ATTN_WITH_DLSE;
    p->flags &=
        p->direction == ATTN_DIRECTION_BACKWARD ? ~(unsigned)(ATTN_WANT_LSE | ATTN_WANT_WEIGHTS) : ~backward_only;
    if (!(p->flags & ATTN_WANT_WEIGHTS))
        p->npicks = 0;
    if (p->scale == 0)
        p->scale = default_scale(p);
    if (p->width == 0)
        p->width = 1;
    resolve_windows(p);
    resolve_tables(p);
    for (int i = 0; i < p->ndims; i++)
        resolve_strides(p, &p->dims[i]);
}

/* ------------------------------------------------------------------------------------- canonical form */

typedef struct builder {
    const attn_problem *p;
    attn__canonical *canonical;
    bool held[ATTN_MAX_DIMS]; /* the problem refers to the dim by its index, so the dim is neither dropped nor merged */
    bool batch_invariant;
} builder;

static void find_held(builder *b)
{
    const attn_problem *p = b->p;
    for (int i = 0; i < p->nbands; i++)
        b->held[p->bands[i].query_dim] = b->held[p->bands[i].key_dim] = true;
    for (int i = 0; i < p->nwindows; i++)
        b->held[p->windows[i].query_dim] = b->held[p->windows[i].key_dim] = true;
    for (int i = 0; i < p->npicks; i++)
        b->held[p->picks[i].dim] = true;
    if (p->flags & ATTN_WITH_LENS)
        b->held[p->lens_dim] = true;
    if (p->flags & ATTN_WITH_PACKED)
        b->held[p->packed.batch_dim] = b->held[p->packed.query_dim] = b->held[p->packed.key_dim] = true;
    if (p->flags & ATTN_WITH_BLOCKS)
        b->held[p->blocks.query_dim] = b->held[p->blocks.key_dim] = true;
    for (int i = 0; i < p->nrelatives; i++) {
        const attn_relative *r = &p->relatives[i];
        b->held[r->query_dim] = b->held[r->key_dim] = true;
        int last = attn__last_dim(p, attn__table_role(r));
        if (last >= 0 && (r->begin != 0 || r->end != p->dims[last].n))
            b->held[last] = true;
    }
}

/* Computes the factor of each dim's index in the dropout row or column number. The caller's last dim varies fastest. */
static void dropout_weights(const attn_problem *p, int64_t weights[ATTN_MAX_DIMS])
{
    uint64_t row = 1, column = 1;
    for (int i = p->ndims - 1; i >= 0; i--) {
        attn_role role = p->dims[i].role;
        uint64_t *scale = role == ATTN_ROLE_KEY ? &column : &row;
        bool counts = role == ATTN_ROLE_BATCH || role == ATTN_ROLE_QUERY || role == ATTN_ROLE_KEY;
        weights[i] = counts ? (int64_t)*scale : 0;
        if (counts)
            *scale *= (uint64_t)p->dims[i].n;
    }
}

static attn__axis make_axis(const attn_problem *p, int dim, int64_t drop)
{
    attn__axis axis = {.dim = p->dims[dim], .drop = drop, .pick = -1, .source = dim};
    axis.packed = (p->flags & ATTN_WITH_PACKED) && p->packed.batch_dim == dim;
    for (int i = 0; i < p->nrelatives; i++)
        axis.table[i] = p->relatives[i].stride[dim];
    for (int i = 0; i < p->npicks; i++)
        if (p->picks[i].dim == dim)
            axis.pick = i;
    return axis;
}

/* Reports whether the dim only repeats queries: k, v, w and the tables have stride 0 along it.  Returns false for a
 * batch-invariant backward pass, except in bf16. Otherwise blocks of queries would cross the ends of repetitions at
 * places that depend on the length. */
static bool repeats_queries(const builder *b, const attn__axis *axis)
{
    const attn_dim *d = &axis->dim;
    if (b->batch_invariant && b->p->direction == ATTN_DIRECTION_BACKWARD && b->p->dtype != ATTN_BF16)
        return false;
    bool still =
        d->role == ATTN_ROLE_BATCH && !axis->packed && d->k == 0 && d->v == 0 && d->dk == 0 && d->dv == 0 && d->w == 0;
    for (int i = 0; i < b->p->nrelatives; i++)
        still = still && axis->table[i] == 0;
    return still;
}

static void push(attn__group *group, attn__axis axis, attn_role role)
{
    axis.dim.role = role;
    group->axis[group->n++] = axis;
}

static void place_dims(builder *b, bool repeating)
{
    int64_t drop[ATTN_MAX_DIMS];
    dropout_weights(b->p, drop);
    for (int i = 0; i < b->p->ndims; i++) {
        attn__axis axis = make_axis(b->p, i, drop[i]);
        if (axis.dim.n == 1 && !b->held[i])
            continue;
        bool repeats = repeats_queries(b, &axis);
        if (repeats == repeating)
            push(attn__group_at(b->canonical, repeats ? ATTN_ROLE_QUERY : axis.dim.role), axis,
                 repeats ? ATTN_ROLE_QUERY : axis.dim.role);
    }
}

static int64_t size_of(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static bool stands_outside(const attn__axis *a, const attn__axis *b)
{
    if (size_of(a->dim.o) != size_of(b->dim.o))
        return size_of(a->dim.o) > size_of(b->dim.o);
    return size_of(a->dim.k) > size_of(b->dim.k);
}

static void sort_by_stride(attn__group *group)
{
    for (int i = 1; i < group->n; i++) {
        attn__axis axis = group->axis[i];
        int at = i;
        for (; at > 0 && stands_outside(&axis, &group->axis[at - 1]); at--)
            group->axis[at] = group->axis[at - 1];
        group->axis[at] = axis;
    }
}

static bool continues(int64_t outer, int64_t inner, int64_t n)
{
    int64_t whole;
    return !__builtin_mul_overflow(inner, n, &whole) && outer == whole;
}

static bool can_merge(const builder *b, const attn__axis *outer, const attn__axis *inner)
{
    if ((outer->source >= 0 && b->held[outer->source]) || (inner->source >= 0 && b->held[inner->source]))
        return false;
    int64_t n = inner->dim.n;
    bool can = b->p->dropout == 0 || continues(outer->drop, inner->drop, n);
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
        can = can && continues(attn__stride(&outer->dim, op), attn__stride(&inner->dim, op), n);
    for (int i = 0; i < b->p->nrelatives; i++)
        can = can && continues(outer->table[i], inner->table[i], n);
    return can;
}

static void merge_neighbours(const builder *b, attn__group *group)
{
    int n = 0;
    for (int i = 0; i < group->n; i++) {
        attn__axis axis = group->axis[i];
        if (n > 0 && can_merge(b, &group->axis[n - 1], &axis)) {
            axis.dim.n *= group->axis[n - 1].dim.n;
            axis.source = -1;
            group->axis[n - 1] = axis;
        } else {
            group->axis[n++] = axis;
        }
    }
    group->n = n;
}

static void finish_group(attn__group *group, attn_role role)
{
    if (group->n == 0)
        push(group, (attn__axis){.dim.n = 1, .pick = -1, .source = -1}, role);
    bool empty = false;
    for (int i = 0; i < group->n; i++)
        empty = empty || group->axis[i].dim.n == 0;
    group->size = empty ? 0 : 1;
    for (int i = 0; i < group->n && !empty; i++)
        group->size *= group->axis[i].dim.n;
}

static int axis_of(const attn__group *group, int source)
{
    for (int i = 0; i < group->n; i++)
        if (group->axis[i].source == source)
            return i;
    return -1;
}

/* Limits the size of a block to the length of its dim. */
static int64_t at_most_all(int64_t size, int64_t n)
{
    return size <= n ? size : n > 0 ? n : 1;
}

static void renumber(attn__canonical *canonical)
{
    attn_problem *p = &canonical->problem;
    const attn__group *q = &canonical->query, *k = &canonical->key;
    for (int i = 0; i < p->nbands; i++) {
        p->bands[i].query_dim = axis_of(q, p->bands[i].query_dim);
        p->bands[i].key_dim = axis_of(k, p->bands[i].key_dim);
    }
    for (int i = 0; i < p->nwindows; i++) {
        p->windows[i].query_dim = axis_of(q, p->windows[i].query_dim);
        p->windows[i].key_dim = axis_of(k, p->windows[i].key_dim);
    }
    for (int i = 0; i < p->nrelatives; i++) {
        attn_relative *r = &p->relatives[i];
        const attn__group *channels = attn__group_of(canonical, attn__table_role(r));
        int last = attn__last_dim(p, attn__table_role(r));
        if (last < 0 || !(r->begin != 0 || r->end != p->dims[last].n))
            r->end = channels->axis[channels->n - 1].dim.n; /* a table of all channels ends at the last channel */
        r->query_dim = axis_of(q, r->query_dim);
        r->key_dim = axis_of(k, r->key_dim);
    }
    p->lens_dim = p->flags & ATTN_WITH_LENS ? axis_of(k, p->lens_dim) : 0;
    if (p->flags & ATTN_WITH_PACKED) {
        p->packed.batch_dim = axis_of(&canonical->batch, p->packed.batch_dim);
        p->packed.query_dim = axis_of(q, p->packed.query_dim);
        p->packed.key_dim = axis_of(k, p->packed.key_dim);
    }
    if (p->flags & ATTN_WITH_BLOCKS) {
        p->blocks.query_dim = axis_of(q, p->blocks.query_dim);
        p->blocks.key_dim = axis_of(k, p->blocks.key_dim);
        p->blocks.queries = at_most_all(p->blocks.queries, q->axis[p->blocks.query_dim].dim.n);
        p->blocks.keys = at_most_all(p->blocks.keys, k->axis[p->blocks.key_dim].dim.n);
    }
}

/* Returns the features of the problem as bits. Sinks are a feature only in the forward pass. In the backward pass the
 * log-sum-exp includes them, and a wrapper computes their gradient. */
static unsigned extras_of(const attn_problem *p)
{
    bool backward = p->direction == ATTN_DIRECTION_BACKWARD;
    return (p->flags & ATTN_WITH_PACKED ? ATTN__PACKED : 0u) | (p->softcap != 0 ? ATTN__SOFTCAP : 0u) |
           (!backward && (p->flags & ATTN_WITH_SINKS) ? ATTN__SINKS : 0u) |
           (backward && (p->flags & ATTN_WITH_DLSE) ? ATTN__DLSE : 0u) |
           (p->flags & ATTN_WITH_BLOCKS ? ATTN__BLOCKS : 0u) | (p->flags & ATTN_WITH_BF16_KEYS ? ATTN__BF16_KEYS : 0u) |
           (p->top_k != 0 ? ATTN__TOP_K : 0u) | (backward && attn__bias_gradient_meets(p) ? ATTN__BIAS_MEETS : 0u);
}

static void note_features(attn__canonical *canonical)
{
    attn_problem *p = &canonical->problem;
    p->top_k = p->top_k < canonical->key.size ? p->top_k : 0;
    if (p->normalization == ATTN_NORMALIZATION_HARDMAX)
        p->top_k = 1;
    canonical->backward = p->direction == ATTN_DIRECTION_BACKWARD;
    canonical->has_bias = p->flags & ATTN_WITH_BIAS;
    canonical->has_mask = p->flags & ATTN_WITH_MASK;
    canonical->has_lens = p->flags & ATTN_WITH_LENS;
    canonical->has_blocks = p->flags & ATTN_WITH_BLOCKS;
    canonical->has_dropout = p->dropout > 0;
    canonical->extras = extras_of(p);
    canonical->needs_row_scan = canonical->has_mask || canonical->has_lens || canonical->has_blocks || p->nbands > 0 ||
                                canonical->key.size == 0 || (canonical->extras & ATTN__PACKED);
    for (int i = 0; i < p->nwindows; i++)
        canonical->needs_row_scan = canonical->needs_row_scan || p->windows[i].border == ATTN_BORDER_MASK;
}

void attn__canonical_make(attn__canonical *canonical, const attn_problem *resolved, bool batch_invariant)
{
    builder b = {.p = resolved, .canonical = canonical, .batch_invariant = batch_invariant};
    canonical->problem = *resolved;
    canonical->batch.n = canonical->query.n = canonical->key.n = canonical->contract.n = canonical->value.n = 0;
    find_held(&b);
    place_dims(&b, true); /* dims that repeat queries come first, so that they are the outermost QUERY axes */
    place_dims(&b, false);
    sort_by_stride(&canonical->batch);
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++) {
        merge_neighbours(&b, attn__group_at(canonical, role));
        finish_group(attn__group_at(canonical, role), role);
    }
    renumber(canonical);
    note_features(canonical);
    canonical->extras |= batch_invariant ? ATTN__BATCH_INVARIANT : 0u;
}
