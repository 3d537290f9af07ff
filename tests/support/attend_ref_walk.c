/* SPDX-License-Identifier: MIT */
#include "support/attend_ref_walk.h"

#include "base/rng.h"

#include <stdlib.h>
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

bool walk_is_token(size_t field, attn_role role)
{
    static const size_t rows[] = {offsetof(attn_dim, q), offsetof(attn_dim, o), offsetof(attn_dim, lse),
                                  offsetof(attn_dim, dq), offsetof(attn_dim, dout)};
    static const size_t keys[] = {offsetof(attn_dim, k), offsetof(attn_dim, v), offsetof(attn_dim, dk),
                                  offsetof(attn_dim, dv)};
    bool is = false;
    for (int i = 0; role == ATTN_ROLE_QUERY && i < 5; i++)
        is = is || field == rows[i];
    for (int i = 0; role == ATTN_ROLE_KEY && i < 4; i++)
        is = is || field == keys[i];
    return is;
}

static int64_t stride_at(const attn_problem *p, int dim, size_t field)
{
    int64_t stride;
    memcpy(&stride, (const char *)&p->dims[dim] + field, sizeof stride);
    return stride;
}

static int64_t length_at(const int32_t *offsets, int64_t s)
{
    return offsets[s + 1] - offsets[s];
}

bool walk_row_exists(const walk *w)
{
    return !w->q_offsets || w->at[w->p->packed.query_dim] < length_at(w->q_offsets, w->at[w->p->packed.batch_dim]);
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
    const attn_packed *packed = &w->p->packed;
    if (w->q_offsets && walk_is_token(field, ATTN_ROLE_QUERY))
        offset += w->q_offsets[w->at[packed->batch_dim]] * stride_at(w->p, packed->query_dim, field);
    if (w->k_offsets && walk_is_token(field, ATTN_ROLE_KEY))
        offset += w->k_offsets[w->at[packed->batch_dim]] * stride_at(w->p, packed->key_dim, field);
    return offset;
}

int64_t *walk_channels(const attn_problem *p, size_t field, int roles)
{
    walk w = {.p = p};
    int64_t *channels = malloc((size_t)(walk_count(p, roles) + 1) * sizeof *channels), c = 0;
    if (walk_start(&w, roles))
        do
            channels[c++] = walk_offset(&w, field, false);
        while (walk_next(&w, roles));
    return channels;
}

int64_t walk_bias_offset(const walk *w, const attn_arrays *a, size_t field)
{
    int64_t entry = 0, offset = 0;
    if (!(w->p->flags & ATTN_WITH_BIAS_INDEX))
        return walk_offset(w, field, false);
    for (int d = 0; d < w->p->ndims; d++)
        *(w->p->dims[d].role == ATTN_ROLE_BATCH ? &offset : &entry) += w->p->dims[d].bias * w->at[d];
    return offset + a->bias_index[entry] * w->p->bias_index.row_stride;
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

attn_dtype walk_keys(const attn_problem *p)
{
    return p->flags & ATTN_WITH_BF16_KEYS ? ATTN_BF16 : p->dtype;
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

/* A window that exceeds the axis moves inwards in steps of one dilation. */
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

/* Returns the distance j - i from query position i to key position j. Bands and tables use this distance. */
static int64_t relative(const walk *w, int query_dim, int key_dim)
{
    const attn_window *window = window_on(w->p, key_dim);
    return w->pos[key_dim] - w->at[query_dim] * (window ? or_one(window->step) : 1);
}

static int64_t walk_block(const walk *w)
{
    walk blocks = *w;
    blocks.at[w->p->blocks.query_dim] /= w->p->blocks.queries;
    blocks.at[w->p->blocks.key_dim] /= w->p->blocks.keys;
    return OFFSET(&blocks, blocks);
}

static bool is_masked(const walk *w, const attn_arrays *a)
{
    const attn_problem *p = w->p;
    for (int i = 0; i < p->nbands; i++) {
        int64_t d = relative(w, p->bands[i].query_dim, p->bands[i].key_dim), s = w->at[p->packed.batch_dim];
        if (w->q_offsets && w->k_offsets && p->packed.align_ends && p->bands[i].query_dim == p->packed.query_dim &&
            p->bands[i].key_dim == p->packed.key_dim)
            d -= length_at(w->k_offsets, s) - length_at(w->q_offsets, s);
        if (d < p->bands[i].lo || d > p->bands[i].hi)
            return true;
    }
    if ((p->flags & ATTN_WITH_BLOCKS) && a->blocks[walk_block(w)] == 0)
        return true;
    if (w->inside && (p->flags & ATTN_WITH_LENS) && w->pos[p->lens_dim] >= a->lens[OFFSET(w, lens)])
        return true;
    return w->inside && (p->flags & ATTN_WITH_MASK) && a->mask[POSITION_OFFSET(w, mask)] == 0;
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
    const attn_packed *packed = &w->p->packed;
    if (w->k_offsets && w->at[packed->key_dim] >= length_at(w->k_offsets, w->at[packed->batch_dim]))
        return WALK_ABSENT;
    if (is_masked(w, a))
        return w->p->mask_fill != 0 ? WALK_MASKED : WALK_ABSENT;
    return WALK_PRESENT;
}

bool walk_table(const walk *w, int r, int64_t *offset)
{
    const attn_problem *p = w->p;
    const attn_relative *table = &p->relatives[r];
    attn_role role = table->kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT;
    bool part = table->begin != 0 || table->end != 0, seen_last = false;
    *offset = (relative(w, table->query_dim, table->key_dim) + table->offset) * table->row_stride;
    for (int d = p->ndims - 1; d >= 0; d--) {
        int64_t at = w->at[d];
        if (p->dims[d].role != role && p->dims[d].role != ATTN_ROLE_BATCH)
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

int64_t walk_table_row(const walk *w, int r)
{
    const attn_relative *table = &w->p->relatives[r];
    int64_t offset = (relative(w, table->query_dim, table->key_dim) + table->offset) * table->row_stride;
    for (int d = 0; d < w->p->ndims; d++)
        if (w->p->dims[d].role == ATTN_ROLE_BATCH)
            offset += w->at[d] * table->stride[d];
    return offset;
}

int64_t *walk_table_channels(const attn_problem *p, int r)
{
    int roles = p->relatives[r].kind == ATTN_RELATIVE_VALUE ? ROLE_V : ROLE_C;
    walk w = {.p = p};
    int64_t *channels = malloc((size_t)(walk_count(p, roles) + 1) * sizeof *channels), c = 0, offset;
    if (walk_start(&w, roles))
        do
            channels[c++] = walk_table(&w, r, &offset) ? offset - walk_table_row(&w, r) : WALK_NO_CHANNEL;
        while (walk_next(&w, roles));
    return channels;
}

double walk_keep(const walk *w, uint64_t seed_offset)
{
    const attn_problem *p = w->p;
    uint64_t row = 0, column = 0;
    for (int d = 0; d < p->ndims; d++) {
        if (p->dims[d].role == ATTN_ROLE_BATCH || p->dims[d].role == ATTN_ROLE_QUERY)
            row = row * (uint64_t)p->dims[d].n + (uint64_t)w->at[d];
        if (p->dims[d].role == ATTN_ROLE_KEY)
            column = column * (uint64_t)p->dims[d].n + (uint64_t)w->at[d];
    }
    if (p->dropout == 0)
        return 1;
    uint32_t bits = attn__dropout_bits(attn__dropout_key(p->seed + seed_offset, p->stream, row), (uint32_t)column);
    return bits < attn__dropout_threshold(p->dropout) ? 0 : 1 / (1 - p->dropout);
}
