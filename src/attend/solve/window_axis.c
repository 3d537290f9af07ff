/* SPDX-License-Identifier: MIT
 * Windows as virtual taps, cells and phases. */
#include "attend/solve/window_solver.h"

#include "attend/block/window_base.h"
#include "base/integers.h"

int64_t attn__window_cell(const attn__window_axis *axis, int64_t tap)
{
    return attn__floor_div(axis->window.offset + tap * axis->window.dilation, axis->window.step);
}

int64_t attn__window_phase(const attn__window_axis *axis, int64_t tap)
{
    return axis->window.offset + tap * axis->window.dilation - attn__window_cell(axis, tap) * axis->window.step;
}

attn__window_range attn__window_range_at(const attn__window_axis *axis, int64_t query)
{
    const attn_window *w = &axis->window;
    int64_t start = query * w->step + w->offset;
    int64_t moved = (attn__window_base(w, axis->taps, query) - start) / w->dilation;
    attn__window_range r = {attn__most(moved, axis->low), attn__least(moved + axis->taps, axis->high), moved};
    if (w->border == ATTN_BORDER_MASK) {
        r.from = attn__most(r.from, attn__ceil_div(-start, w->dilation));
        r.to = attn__least(r.to, attn__floor_div(w->size - 1 - start, w->dilation) + 1);
    }
    return r;
}

/* lo <= position - i * step <= hi is a range of taps. */
static void find_bands(attn__window_axis *axis, const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    axis->low = INT64_MIN;
    axis->high = INT64_MAX;
    for (int i = 0; i < p->nbands; i++) {
        const attn_band *b = &p->bands[i];
        int64_t offset = axis->window.offset, dilation = axis->window.dilation, lo, hi;
        if (b->key_dim != axis->key)
            continue;
        if (b->lo != INT64_MIN)
            axis->low =
                attn__most(axis->low, __builtin_sub_overflow(b->lo, offset, &lo) ? (b->lo < 0 ? INT64_MIN : INT64_MAX)
                                                                                 : attn__ceil_div(lo, dilation));
        if (b->hi != INT64_MAX)
            axis->high = attn__least(axis->high, __builtin_sub_overflow(b->hi, offset, &hi) || hi == INT64_MAX
                                                     ? (b->hi < 0 ? INT64_MIN : INT64_MAX)
                                                     : attn__floor_div(hi, dilation) + 1);
    }
}

static bool is_taken(const attn_window *windows, int n, int query)
{
    for (int i = 0; i < n; i++)
        if (windows[i].query_dim == query)
            return true;
    return false;
}

/* The QUERY axis that a table or a band relates to the keys, or -1. */
static int related_query(const attn_problem *p, int key)
{
    for (int i = 0; i < p->nrelatives; i++)
        if (p->relatives[i].key_dim == key)
            return p->relatives[i].query_dim;
    for (int i = 0; i < p->nbands; i++)
        if (p->bands[i].key_dim == key)
            return p->bands[i].query_dim;
    return -1;
}

static attn_window whole_axis(const attn__canonical *canonical, int query, int key)
{
    return (attn_window){.query_dim = query,
                         .key_dim = key,
                         .size = canonical->key.axis[key].dim.n,
                         .step = 1,
                         .dilation = 1,
                         .border = ATTN_BORDER_SHIFT};
}

int attn__window_windows(const attn__canonical *canonical, attn_window windows[ATTN__WINDOW_AXES])
{
    const attn_problem *p = &canonical->problem;
    bool done[ATTN_MAX_DIMS] = {false};
    int n = 0;
    for (int i = 0; i < p->nwindows; i++) {
        windows[n++] = p->windows[i];
        done[p->windows[i].key_dim] = true;
    }
    if (canonical->key.n > ATTN__WINDOW_AXES)
        return n;
    for (int round = 0; round < 2; round++) /* those that are bound to a QUERY axis choose first */
        for (int key = 0; key < canonical->key.n; key++) {
            int query = related_query(p, key);
            if (done[key] || (query < 0 && round == 0))
                continue;
            for (int q = 0; query < 0 && q < canonical->query.n; q++)
                query = is_taken(windows, n, q) ? -1 : q;
            if (query < 0)
                continue;
            windows[n++] = whole_axis(canonical, query, key);
            done[key] = true;
        }
    return n;
}

attn__window_axis attn__window_axis_make(const attn__canonical *canonical, const attn_window *window)
{
    attn__window_axis axis = {.window = *window, .query = window->query_dim, .key = window->key_dim};
    axis.n = canonical->query.axis[axis.query].dim.n;
    axis.taps = canonical->key.axis[axis.key].dim.n;
    find_bands(&axis, canonical);
    bool any = false;
    for (int64_t i = 0; i < axis.n; i++) {
        attn__window_range r = attn__window_range_at(&axis, i);
        if (r.from >= r.to)
            continue;
        axis.first = any ? attn__least(axis.first, r.from) : r.from;
        axis.last = any ? attn__most(axis.last, r.to) : r.to;
        any = true;
    }
    return axis;
}
