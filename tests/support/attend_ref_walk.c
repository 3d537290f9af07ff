/* SPDX-License-Identifier: MIT */
#include "support/attend_ref_walk.h"

#include "base/rng.h"

#include <string.h>

static bool in(const attn_problem *p, int dim, int roles)
{
    return roles >> p->dims[dim].role & 1;
}

bool walk_start(walk *w, int roles)
{
    bool any = true;
    for (int d = 0; d < w->p->ndims; d++) {
        if (!in(w->p, d, roles))
            continue;
        w->at[d] = w->pos[d] = 0;
        any = any && w->p->dims[d].n > 0;
    }
    return any;
}

bool walk_next(walk *w, int roles)
{
    for (int d = w->p->ndims - 1; d >= 0; d--) {
        if (!in(w->p, d, roles))
            continue;
        w->pos[d] = ++w->at[d];
        if (w->at[d] < w->p->dims[d].n)
            return true;
        w->pos[d] = w->at[d] = 0;
    }
    return false;
}

int64_t walk_count(const attn_problem *p, int roles)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndims; d++)
        if (in(p, d, roles))
            n *= p->dims[d].n;
    return n;
}

int64_t walk_offset(const walk *w, size_t field, bool positions)
{
    int64_t offset = 0;
    for (int d = 0; d < w->p->ndims; d++) {
        int64_t stride;
        memcpy(&stride, (const char *)&w->p->dims[d] + field, sizeof stride);
        if (stride)
            offset += stride * (positions ? w->pos[d] : w->at[d]);
    }
    return offset;
}

double walk_load(attn_dtype dtype, const void *array, int64_t i)
{
    if (dtype == ATTN_F64)
        return ((const double *)array)[i];
    if (dtype == ATTN_F32)
        return (double)((const float *)array)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return (double)x;
}

attn_dtype walk_side(const attn_problem *p)
{
    return p->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

static int64_t or_one(int64_t x)
{
    return x ? x : 1;
}

static const attn_window *window_on(const attn_problem *p, int key_dim)
{
    for (int i = 0; i < p->nwindows; i++)
        if (p->windows[i].key_dim == key_dim)
            return &p->windows[i];
    return NULL;
}

/* Tap by tap in words: where the whole window would stick out, move it one dilation at a time. */
static int64_t tap_position(const walk *w, const attn_window *window)
{
    int64_t dilation = or_one(window->dilation), taps = w->p->dims[window->key_dim].n;
    int64_t first = w->at[window->query_dim] * or_one(window->step) + window->offset;
    if (window->border == ATTN_BORDER_SHIFT) {
        while (first + (taps - 1) * dilation >= window->size)
            first -= dilation;
        while (first < 0)
            first += dilation;
    }
    return first + w->at[window->key_dim] * dilation;
}

/* j - i as bands and tables see it. */
static int64_t relative(const walk *w, int query_dim, int key_dim)
{
    const attn_window *window = window_on(w->p, key_dim);
    return w->pos[key_dim] - w->at[query_dim] * (window ? or_one(window->step) : 1);
}

static bool is_masked(const walk *w, const attn_arrays *a)
{
    const attn_problem *p = w->p;
    for (int i = 0; i < p->nbands; i++) {
        int64_t d = relative(w, p->bands[i].query_dim, p->bands[i].key_dim);
        if (d < p->bands[i].lo || d > p->bands[i].hi)
            return true;
    }
    if (w->inside && (p->with & ATTN_WITH_LENS) && w->pos[p->lens_dim] >= a->lens[OFFSET(w, lens)])
        return true;
    return w->inside && (p->with & ATTN_WITH_MASK) && a->mask[POSITION_OFFSET(w, mask)] == 0;
}

walk_state walk_place(walk *w, const attn_arrays *a)
{
    w->inside = true;
    for (int i = 0; i < w->p->nwindows; i++) {
        const attn_window *window = &w->p->windows[i];
        int64_t position = tap_position(w, window);
        w->pos[window->key_dim] = position;
        if (position >= 0 && position < window->size)
            continue;
        if (window->border == ATTN_BORDER_MASK)
            return WALK_ABSENT;
        w->inside = false;
    }
    if (is_masked(w, a))
        return w->p->mask_fill != 0 ? WALK_MASKED : WALK_ABSENT;
    return WALK_PRESENT;
}

bool walk_table(const walk *w, int r, int64_t *offset)
{
    const attn_problem *p = w->p;
    const attn_relative *table = &p->relatives[r];
    attn_role role = table->kind == ATTN_RELATIVE_VALUE ? ATTN_VALUE : ATTN_CONTRACT;
    bool part = table->begin != 0 || table->end != 0, seen_last = false;
    *offset = (relative(w, table->query_dim, table->key_dim) + table->offset) * table->row_stride;
    for (int d = p->ndims - 1; d >= 0; d--) {
        int64_t at = w->at[d];
        if (p->dims[d].role != role && p->dims[d].role != ATTN_BATCH)
            continue;
        if (part && p->dims[d].role == role && !seen_last) {
            if (at < table->begin || at >= table->end)
                return false;
            at -= table->begin;
        }
        seen_last = seen_last || p->dims[d].role == role;
        *offset += at * table->stride[d];
    }
    return true;
}

double walk_keep(const walk *w, uint64_t seed_offset)
{
    const attn_problem *p = w->p;
    uint64_t row = 0, column = 0;
    for (int d = 0; d < p->ndims; d++) {
        if (p->dims[d].role == ATTN_BATCH || p->dims[d].role == ATTN_QUERY)
            row = row * (uint64_t)p->dims[d].n + (uint64_t)w->at[d];
        if (p->dims[d].role == ATTN_KEY)
            column = column * (uint64_t)p->dims[d].n + (uint64_t)w->at[d];
    }
    if (p->dropout == 0)
        return 1;
    uint32_t bits = attn__dropout_bits(attn__dropout_key(p->seed + seed_offset, p->stream, row), (uint32_t)column);
    return bits < attn__dropout_threshold(p->dropout) ? 0 : 1 / (1 - p->dropout);
}
