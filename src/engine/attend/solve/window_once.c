/* SPDX-License-Identifier: MIT
 *
 * window_once.c - computes all gradients from one evaluation of the weights.
 *
 * Each line of queries is run with the lines of keys in its window, one by one.  For each block along the two lines, it
 * computes weights p and gradients of scores ds, and adds to dq. Then it adds to dk and dv of a block of keys, which is
 * as far behind as taps reach. The p and ds of this block are read diagonally.  Sums of dq last for one line. Sums of
 * dk and dv last until the last line of queries that attends their keys.
 *
 * A tile of a band writes only the gradients of its own queries and keys. The weights of pairs between two bands are
 * computed in both bands.  Results depend neither on threads nor on bands, because bands share nothing.
 */
#include "attend/solve/window.h"

#include <string.h>

/* A line of queries that is run with a line of keys. */
typedef struct meeting {
    attn__window_pair *pair;
    attn__window_recent *recent;
    float *k, *v;   /* strips of the keys and values */
    float *dk, *dv; /* gradients of the keys and values, or NULL if another band owns the keys */
    bool queries;   /* whether this band owns the queries */
} meeting;

/* Returns the lowest cell of a query's keys relative to the query's cell. */
static int64_t lowest(const attn__window_axis *axis)
{
    return attn__window_cell(axis, axis->first);
}

static int64_t highest(const attn__window_axis *axis)
{
    return attn__window_cell(axis, axis->last - 1);
}

/* Adds the product of weights and strip to `to`. `marked`: some weights may be marks. */
static void mix(attn__window_work *w, attn__tap_block *b, float *to, bool marked)
{
    int64_t width = w->plan->taps->width;
    b->tile = marked ? w->s.lanes.out_a : to;
    b->tile_ld = width;
    if (!marked) {
        w->plan->taps->mix(b);
        return;
    }
    attn__window_mix(w, b, true);
    w->plan->lanes->add(to, b->tile, b->channels * width, 1);
}

/* Computes p and ds of a block of queries for one pair of lines, and adds the block's terms to dq. */
static void query_block(attn__window_work *w, const meeting *m, int64_t x)
{
    const attn__window *plan = w->plan;
    const attn__window_once *o = &w->s.once;
    attn__window_block block = w->s.block[x / plan->taps->width];
    int64_t ld = w->pass->ld, tap = block.first - attn__window_lane_axis(plan)->first, width = plan->taps->width;
    int64_t recent = w->pass->recent, at = tap * recent + x - m->recent->start, pairs = w->pairs;
    bool own = m->queries && x >= w->pass->left && x < w->pass->left + w->pass->own;
    attn__window_pair *all = w->s.pair;
    attn__window_weights to = {.a = o->q + x,
                               .b = o->dout + x,
                               .tile_ld = ld,
                               .lse = o->lse + x,
                               .delta = o->delta + x,
                               .p = m->recent->p + at,
                               .ds = m->recent->ds + at,
                               .ld = recent,
                               .dbias = own && (w->canonical->problem.flags & ATTN_WANT_DBIAS)};
    w->s.pair = m->pair;
    w->pairs = 1;
    w->now = block;
    w->cell = x;
    w->lanes = attn__min(w->live - x, width);
    w->strip[0] = m->k;
    w->strip[1] = m->v;
    w->flags = w->s.flags + m->pair->slot * ld;
    w->entry = tap;
    attn__tap_block b;
    attn__window_find(w, &to, &b);
    if (w->canonical->has_dropout)
        attn__window_drop(w, to.p, recent);
    w->s.pair = all;
    w->pairs = pairs;
    if (!own)
        return;
    if (plan->table_floats)
        plan->taps->margins(&(attn__tap_margins){.taps = block.n,
                                                 .ds = to.ds,
                                                 .ds_ld = recent,
                                                 .by_tap = w->s.margin + tap * ld + x,
                                                 .ld = ld,
                                                 .over_taps = w->s.pair_margin + m->pair->number * ld + x});
    mix(w, &b, o->dq + x * plan->channels, attn__window_has_marks(w, &block));
}

/* Adds the terms of one pair of lines to dk and dv of a block of keys. */
static void key_block(attn__window_work *w, const meeting *m, int64_t x)
{
    const attn__window *plan = w->plan;
    const attn__window_once *o = &w->s.once;
    const attn__window_block *block = &o->keys[x / plan->taps->width];
    int64_t ld = w->pass->ld, tap = block->first - attn__window_lane_axis(w->plan)->first, recent = w->pass->recent;
    int64_t from = x - o->far, at = tap * recent + from + o->query_at[tap] - m->recent->start;
    if (block->n == 0)
        return;
    attn__tap_block b = {.taps = block->n,
                         .channels = plan->channels,
                         .run = block->n,
                         .unit = plan->unit,
                         .down = true,
                         .strip = o->q + from,
                         .offset = o->query_at + tap,
                         .ld = ld,
                         .s = m->recent->ds + at,
                         .s_ld = recent - plan->unit};
    if (w->canonical->problem.flags & ATTN_WANT_DK)
        mix(w, &b, m->dk + x * plan->channels, attn__window_has_marks(w, block));
    b.channels = plan->values;
    b.strip = o->dout + from;
    b.s = m->recent->p + at;
    b.marked = false;
    if (w->canonical->problem.flags & ATTN_WANT_DV)
        mix(w, &b, m->dv + x * plan->values, attn__window_has_marks(w, block));
}

/* Makes room for the block of queries at `x`. Lanes that later blocks of keys still need are moved to the front. */
static void move_recent(attn__window_work *w, attn__window_recent *r, int64_t x)
{
    const attn__window_pass *pass = w->pass;
    int64_t taps = attn__window_lane_axis(w->plan)->last - attn__window_lane_axis(w->plan)->first,
            keep = pass->tile - pass->own;
    if (x + w->plan->taps->width - r->start <= pass->recent)
        return;
    int64_t from = x - keep - r->start;
    for (int64_t t = 0; t < taps; t++) {
        memmove(r->p + t * pass->recent, r->p + t * pass->recent + from, (size_t)keep * sizeof(float));
        memmove(r->ds + t * pass->recent, r->ds + t * pass->recent + from, (size_t)keep * sizeof(float));
    }
    r->start = x - keep;
}

static void fill_marks(const attn__window_work *w, const attn__window_recent *r, int64_t x)
{
    int64_t taps = attn__window_lane_axis(w->plan)->last - attn__window_lane_axis(w->plan)->first,
            recent = w->pass->recent;
    for (int64_t t = 0, at = x - r->start; t < taps; t++, at += recent) {
        memcpy(r->p + at, w->s.once.marks, (size_t)w->plan->taps->width * sizeof(float));
        memcpy(r->ds + at, w->s.once.marks, (size_t)w->plan->taps->width * sizeof(float));
    }
}

/* Runs the blocks of the line of queries with `count` lines of keys. A block of keys runs as far behind as taps
 * reach. */
static void meet(attn__window_work *w, const meeting *meetings, int64_t count)
{
    const attn__window_pass *pass = w->pass;
    int64_t width = w->plan->taps->width, behind = pass->tile - pass->left - pass->own;
    for (int64_t x = 0; x < pass->tile; x += width)
        for (int64_t i = 0; i < count; i++) {
            const meeting *m = &meetings[i];
            int64_t key = x - behind;
            attn__window_once_prefetch(w, m->pair->number, x);
            move_recent(w, m->recent, x);
            if (w->s.once.fill[x / width])
                fill_marks(w, m->recent, x);
            if (x < w->live && w->s.block[x / width].n)
                query_block(w, m, x);
            if (m->dk && key >= pass->left && key < w->live)
                key_block(w, m, key);
        }
}

/* Writes the part of a line of gradients that belongs to the tile. */
static void write_line(attn__window_work *w, attn__operand op, void *base, float *blocks, float factor)
{
    int64_t rows = attn__window_channels(w->plan, op);
    int64_t left = w->pass->left, width = w->plan->taps->width, end = attn__min(w->live, left + w->pass->own);
    attn__window_factors(w, factor);
    for (w->cell = left; w->cell < end; w->cell += width) {
        w->lanes = attn__min(end - w->cell, width);
        attn__window_write(w, op, base, blocks + w->cell * rows, w->s.softmax.factor);
    }
}

static float *sums_of(const attn__window_work *w, bool values, int64_t key)
{
    int64_t slot = key % w->pass->sums, ld = w->pass->ld;
    return values ? w->s.once.dv + slot * w->plan->values * ld : w->s.once.dk + slot * w->plan->channels * ld;
}

/* Writes the gradients of a line of keys and clears the sums. No later line of queries may attend the keys. */
static void finish_keys(attn__window_work *w, int64_t key)
{
    int64_t at[ATTN__WINDOW_AXES] = {key};
    float *dk = sums_of(w, false, key), *dv = sums_of(w, true, key);
    w->line = attn__window_line(w, at, 0, true);
    if (w->canonical->problem.flags & ATTN_WANT_DK)
        write_line(w, ATTN__OP_DK, w->arrays->at.dk, dk, (float)w->canonical->problem.scale);
    if (w->canonical->problem.flags & ATTN_WANT_DV)
        write_line(w, ATTN__OP_DV, w->arrays->at.dv, dv, w->plan->kept);
    memset(dk, 0, (size_t)(w->plan->channels * w->pass->ld) * sizeof(float));
    memset(dv, 0, (size_t)(w->plan->values * w->pass->ld) * sizeof(float));
}

/* Finds the lines of keys that the line attends. A pair is left out if this band owns neither of its lines. */
static void find_pairs(attn__window_work *w, int64_t line, int64_t first, int64_t end)
{
    attn__window_list *list = &w->s.list[0];
    attn__window_list_by_query(&w->plan->axis[0], line, list);
    attn__window_outside_start(w);
    w->pairs = 0;
    for (int64_t i = 0; i < list->n; i++) {
        int64_t at[ATTN__WINDOW_AXES] = {list->at[i]};
        if ((line < first || line >= end) && (at[0] < first || at[0] >= end))
            continue;
        attn__window_pair *pair = &w->s.pair[w->pairs];
        pair->number = w->pairs++;
        pair->tap[0] = list->tap[i];
        pair->line = at[0];
        attn__window_pair_start(w, pair, at, 0);
    }
}

static void read_line(attn__window_work *w)
{
    const attn__window_once *o = &w->s.once;
    int64_t ld = w->pass->ld;
    float *out = w->s.line + w->plan->values * ld; /* the first part of w->s.line is a buffer for reading */
    attn__window_read_queries(w, ATTN__OP_Q, w->arrays->at.q, o->q);
    attn__window_read_queries(w, ATTN__OP_DOUT, w->arrays->at.dout, o->dout);
    attn__window_read_queries(w, ATTN__OP_O, w->arrays->at.o, out);
    w->plan->taps->dot(out, o->dout, w->plan->values, ld, ld, o->delta);
    attn__window_read_lse(w, w->line.at.lse, w->cell0 / w->plan->per_cell, ld, o->lse, o->delta);
}

static meeting meeting_of(attn__window_work *w, int64_t number, int place, int64_t first, int64_t end)
{
    attn__window_pair *pair = &w->s.pair[number];
    bool keys = pair->line >= first && pair->line < end;
    meeting m = {.pair = pair, .recent = &w->s.once.recent[place]};
    m.recent->start = 0;
    m.queries = w->index[0] >= first && w->index[0] < end;
    m.k = attn__window_strip(w, false, pair->slot, 0);
    m.v = attn__window_strip(w, true, pair->slot, 0);
    m.dk = keys ? sums_of(w, false, pair->line) : NULL;
    m.dv = keys ? sums_of(w, true, pair->line) : NULL;
    return m;
}

static void run_line(attn__window_work *w, int64_t line, int64_t first, int64_t end)
{
    const attn__window_once *o = &w->s.once;
    bool own = line >= first && line < end;
    int64_t ld = w->pass->ld;
    w->index[0] = line;
    find_pairs(w, line, first, end);
    if (w->pairs == 0 && !own)
        return;
    w->line = attn__window_line(w, w->index, 0, false);
    if (w->canonical->has_dropout)
        attn__window_drop_line(w, 0, w->line.drop, w->cell0);
    read_line(w);
    memset(o->dq, 0, (size_t)(w->plan->channels * ld) * sizeof(float));
    if (w->plan->table_floats)
        attn__window_once_terms(w);
    for (int64_t p = 0; p < w->pairs; p += ATTN__WINDOW_TOGETHER) {
        meeting m[ATTN__WINDOW_TOGETHER];
        int64_t count = 0;
        for (; count < ATTN__WINDOW_TOGETHER && p + count < w->pairs; count++)
            m[count] = meeting_of(w, p + count, (int)count, first, end);
        meet(w, m, count);
    }
    if (own && w->plan->table_floats)
        attn__window_once_margins(w);
    if (own)
        write_line(w, ATTN__OP_DQ, w->arrays->at.dq, o->dq, (float)w->canonical->problem.scale);
}

/* Returns the taps that reach a block of keys, merged from all blocks of queries that attend the keys. */
static attn__window_block describe_keys(attn__window_work *w, int64_t x)
{
    const attn__window_axis *axis = attn__window_lane_axis(w->plan);
    int64_t width = w->plan->taps->width, per_cell = w->plan->per_cell;
    int64_t low = (x - highest(axis) * per_cell) / width, high = (x - lowest(axis) * per_cell + width - 1) / width;
    attn__window_block keys = {0};
    for (int64_t i = low; i <= high; i++) {
        attn__window_block b = i * width < w->live ? w->s.block[i] : (attn__window_block){0};
        keys.ragged = keys.ragged || b.ragged || b.n != w->s.block[low].n || b.first != w->s.block[low].first;
        if (b.n == 0)
            continue;
        if (keys.n == 0)
            keys = (attn__window_block){b.first, b.n, keys.ragged};
        int64_t end = attn__max(keys.first + keys.n, b.first + b.n); /* of taps, whose numbers may all be negative */
        keys.first = attn__min(keys.first, b.first);
        keys.n = end - keys.first;
    }
    for (int64_t i = low; keys.ragged && i <= high; i++) /* marks for lanes that no block of queries writes */
        w->s.once.fill[i] = true;
    return keys;
}

static void start_band(attn__window_work *w)
{
    const attn__window_axis *axis = attn__window_lane_axis(w->plan);
    const attn__window_pass *pass = w->pass;
    attn__window_once *o = &w->s.once;
    const attn__window_entries *e = &w->s.entries;
    int64_t taps = axis->last - axis->first, per_cell = w->plan->per_cell, width = w->plan->taps->width;
    for (int64_t t = 0; t < taps; t++) {
        int64_t cell = attn__window_cell(axis, axis->first + t);
        e->a[t] = e->b[t] = e->flag[t] = (cell - lowest(axis)) * per_cell;
        o->query_at[t] = (highest(axis) - cell) * per_cell;
        e->range[t] = e->state[t] = 0;
        e->number[t] = (int32_t)(axis->first + t);
    }
    o->far = highest(axis) * per_cell;
    for (int64_t i = 0; i < width; i++)
        o->marks[i] = -0.0f;
    memset(o->fill, 0, (size_t)(pass->tile / width) * sizeof *o->fill);
    memset(o->dk, 0, (size_t)(pass->sums * w->plan->channels * pass->ld) * sizeof(float));
    memset(o->dv, 0, (size_t)(pass->sums * w->plan->values * pass->ld) * sizeof(float));
    for (int64_t x = pass->left; x < w->live && x < pass->left + pass->own; x += width)
        o->keys[x / width] = describe_keys(w, x);
}

void attn__window_once_band(attn__window_work *w, int64_t first, int64_t end)
{
    const attn__window_axis *axis = &w->plan->axis[0];
    int64_t low = lowest(axis), high = highest(axis), next = first;
    int64_t from = first - high < first ? first - high : first, to = end - low > end ? end - low : end;
    start_band(w);
    for (int64_t line = from > 0 ? from : 0; line < to && line < axis->n; line++) {
        for (; next < end && next < line + low; next++) /* later keys of this line will use the slots of these keys */
            finish_keys(w, next);
        run_line(w, line, first, end);
    }
    for (; next < end; next++)
        finish_keys(w, next);
}
