/* SPDX-License-Identifier: MIT
 *
 * window_once.c - all gradients from one evaluation of the weights.
 *
 * Each line of queries meets the lines of keys in its window one by one.  Block by block along the two lines: compute
 * weights p and gradients of scores ds, and add to dq; then, as many lanes behind as a tap reaches, add to dk and dv of
 * a block of keys from the p and ds of its queries, read diagonally.  Sums of dq last for one line, sums of dk and dv
 * until the last line that meets theirs.
 *
 * A band and a tile write only the gradients of their own queries and keys; the weights of pairs between two bands are
 * computed in both.  Nothing is shared, so that the bits depend neither on threads nor on bands.
 */
#include "attend/solve/window.h"

#include "attend/block/scores.h"
#include "base/constants.h"

#include <math.h>

/* One line of queries and one of keys. */
typedef struct meeting {
    const attn__window_pair *pair;
    attn__window_recent *recent;
    int64_t number; /* of the pair */
    float *k, *v;   /* strips */
    float *dk, *dv; /* NULL where the keys are another band's */
    bool queries;   /* are this band's */
} meeting;

/* Positions before and after a query that it meets. */
static int64_t lowest(const attn__window_axis *axis)
{
    return attn__window_cell(axis, axis->first);
}

static int64_t highest(const attn__window_axis *axis)
{
    return attn__window_cell(axis, axis->last - 1);
}

/* to += weights x strip.  `marked`: some weights may be marks, of lanes that take no part. */
static void mix(attn__window_work *w, attn__tap_block *b, float *to, bool marked)
{
    const attn__window_kernel *taps = w->plan->taps;
    int64_t width = taps->width;
    b->tile = to;
    b->tile_ld = width;
    if (!marked) {
        taps->mix(b);
        return;
    }
    b->tile = w->s.lanes.out_a;
    memset(b->tile, 0, (size_t)(b->channels * width) * sizeof(float));
    taps->mix(b);
    if (!taps->finite(b->tile, b->channels * width)) {
        memset(b->tile, 0, (size_t)(b->channels * width) * sizeof(float));
        b->marked = true;
        taps->mix(b);
    }
    w->plan->lanes->add(to, b->tile, b->channels * width, 1);
}

static void find_scores(attn__window_work *w, const meeting *m, attn__tap_block *b, int64_t x)
{
    const attn__window *plan = w->plan;
    const attn__window_once *o = &w->s.once;
    const attn__window_block *block = &w->s.block[x / plan->taps->width];
    int64_t width = plan->taps->width, ld = w->pass->ld, tap = block->first - attn__window_lane_axis(w->plan)->first;
    b->factor = (float)(w->canonical->problem.scale * (double)(float)ATTN__LOG2E);
    b->s = w->s.s;
    plan->taps->scores(b);
    if (plan->has_table[ATTN_RELATIVE_QUERY][1])
        plan->taps->add_rows(w->s.s, b->taps, o->terms + tap * ld + x, ld, b->factor);
    if (plan->has_table[ATTN_RELATIVE_QUERY][0])
        plan->taps->add_rows(w->s.s, b->taps, o->pair_terms + m->number * ld + x, 0, b->factor);
    if (w->canonical->problem.softcap != 0)
        attn__window_cap(w, w->s.s, b->taps);
    attn__window_pair_scores(w, m->number, w->s.s);
    for (int64_t e = 0; plan->masked && !plan->by_pairs && e < b->taps; e++)
        plan->lanes->hide(w->s.s + e * width, w->s.flags + m->pair->slot * ld + b->offset[e] + x, width, -INFINITY);
    if (!block->ragged)
        return;
    attn__tap_limit limit = {.taps = b->taps,
                             .number = o->number + tap,
                             .shift = o->zeros,
                             .from = w->s.ranges.from + x,
                             .to = w->s.ranges.to + x};
    plan->taps->limit(w->s.s, &limit);
}

/* p, ds and the part of dq of a block of queries. */
static void query_block(attn__window_work *w, const meeting *m, int64_t x)
{
    const attn__window *plan = w->plan;
    const attn__window_once *o = &w->s.once;
    const attn__window_block *block = &w->s.block[x / plan->taps->width];
    int64_t ld = w->pass->ld, tap = block->first - attn__window_lane_axis(w->plan)->first, width = plan->taps->width;
    int64_t recent = w->pass->recent, at = tap * recent + x - m->recent->start;
    attn__tap_block b = {.taps = block->n,
                         .channels = plan->channels,
                         .run = block->n,
                         .unit = plan->unit,
                         .strip = m->k + x,
                         .offset = o->key_at + tap,
                         .ld = ld,
                         .tile = o->q + x,
                         .tile_ld = ld,
                         .s_ld = width};
    w->now = *block;
    w->cell = x;
    w->lanes = attn__min(w->live - x, width);
    find_scores(w, m, &b, x);
    b.channels = plan->values;
    b.strip = m->v + x;
    b.tile = o->dout + x;
    b.factor = plan->kept;
    b.s = w->s.dp;
    plan->taps->scores(&b);
    if (w->canonical->has_dropout)
        attn__window_drop(w, m->number, w->s.dp, width);
    attn__tap_gradient g = {.taps = block->n,
                            .s = w->s.s,
                            .dp = w->s.dp,
                            .shift = o->zeros,
                            .lse = o->lse + x,
                            .delta = o->delta + x,
                            .p = m->recent->p + at,
                            .ds = m->recent->ds + at,
                            .ld = recent,
                            .marked = attn__window_has_marks(w, block)};
    plan->taps->gradient(&g);
    bool own = m->queries && x >= w->pass->left && x < w->pass->left + w->pass->own;
    if (own && (w->canonical->problem.flags & ATTN_WANT_DBIAS))
        attn__window_bias_gradient(w, m->number, g.ds, recent);
    if (w->canonical->has_dropout)
        attn__window_drop(w, m->number, g.p, recent);
    if (plan->capped)
        plan->taps->uncap(g.ds, recent, w->s.capped, block->n, attn__softcap(w->canonical));
    if (!own)
        return;
    if (plan->table_floats)
        plan->taps->margins(&(attn__tap_margins){.taps = block->n,
                                                 .ds = g.ds,
                                                 .ds_ld = recent,
                                                 .by_tap = o->margin + tap * ld + x,
                                                 .ld = ld,
                                                 .over_taps = o->pair_margin + m->number * ld + x});
    b.channels = plan->channels;
    b.strip = m->k + x;
    b.s = g.ds;
    b.s_ld = recent;
    mix(w, &b, o->dq + x * plan->channels, attn__window_has_marks(w, block));
}

/* Adds to dk and dv of a block of keys. */
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

/* Makes room for the block of queries at `x`: what keys behind it still want moves to the front. */
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

/* Along the line of queries and `count` lines of keys, the keys as far behind as they are seen. */
static void meet(attn__window_work *w, const meeting *meetings, int64_t count)
{
    const attn__window_pass *pass = w->pass;
    int64_t width = w->plan->taps->width, behind = pass->tile - pass->left - pass->own;
    for (int64_t x = 0; x < pass->tile; x += width)
        for (int64_t i = 0; i < count; i++) {
            const meeting *m = &meetings[i];
            int64_t key = x - behind;
            attn__window_once_prefetch(w, m->number, x);
            move_recent(w, m->recent, x);
            if (w->s.once.fill[x / width])
                fill_marks(w, m->recent, x);
            if (x < w->live && w->s.block[x / width].n)
                query_block(w, m, x);
            if (m->dk && key >= pass->left && key < w->live)
                key_block(w, m, key);
        }
}

/* Writes the tile's own part of a line of gradients times the factor, or adds it if the problem accumulates. */
static void write_line(attn__window_work *w, attn__operand op, void *base, int64_t at, float *blocks, float factor)
{
    const attn__online_softmax_kernel *kernel = w->plan->lanes;
    const attn__window_axis *axis = attn__window_lane_axis(w->plan);
    bool value = attn__operand_table[op].roles & ATTN__IN_VALUE,
         key = !(attn__operand_table[op].roles & ATTN__IN_QUERY);
    int64_t rows = value ? w->plan->values : w->plan->channels, left = w->pass->left, width = w->plan->taps->width;
    int64_t lanes = w->live - left < w->pass->own ? w->live - left : w->pass->own;
    const attn__axis *side = key ? &w->canonical->key.axis[axis->key] : &w->canonical->query.axis[axis->query];
    int64_t step = attn__stride(&side->dim, op), first = at + (w->cell0 + left) / w->plan->woven * step;
    attn__window_lane_offsets(w, first, step, attn__window_head_stride(w, op), lanes);
    for (int64_t i = 0; i < width; i++)
        w->s.softmax.factor[i] = factor;
    blocks += left * rows;
    for (int64_t x = 0; x < lanes; x += width, blocks += width * rows) {
        attn__lane_view view = {base, w->canonical->problem.dtype,          w->s.offset + x, w->plan->channel[op],
                                rows, lanes - x < width ? lanes - x : width};
        if (!w->canonical->problem.accumulate) {
            kernel->scatter(&view, blocks, width, w->s.softmax.factor);
            continue;
        }
        kernel->scale(blocks, rows, width, w->s.softmax.factor);
        kernel->gather(&view, w->s.lanes.old, width, 1);
        kernel->add(blocks, w->s.lanes.old, rows * width, 1);
        kernel->scatter(&view, blocks, width, w->s.softmax.ones);
    }
}

static float *sums_of(const attn__window_work *w, bool values, int64_t key)
{
    int64_t slot = key % w->pass->sums, ld = w->pass->ld;
    return values ? w->s.once.dv + slot * w->plan->values * ld : w->s.once.dk + slot * w->plan->channels * ld;
}

/* A line of keys that no later line meets: writes its gradients and clears the sums. */
static void finish_keys(attn__window_work *w, int64_t key)
{
    int64_t at[ATTN__WINDOW_AXES] = {key};
    float *dk = sums_of(w, false, key), *dv = sums_of(w, true, key);
    attn_dim line = attn__window_line(w, at, 0, true).at;
    if (w->canonical->problem.flags & ATTN_WANT_DK)
        write_line(w, ATTN__OP_DK, w->arrays->dk, line.dk, dk, (float)w->canonical->problem.scale);
    if (w->canonical->problem.flags & ATTN_WANT_DV)
        write_line(w, ATTN__OP_DV, w->arrays->dv, line.dv, dv, w->plan->kept);
    memset(dk, 0, (size_t)(w->plan->channels * w->pass->ld) * sizeof(float));
    memset(dv, 0, (size_t)(w->plan->values * w->pass->ld) * sizeof(float));
}

/* The lines of keys that the line meets, less those where neither is the band's own. */
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
        attn__window_pair *pair = &w->s.pair[w->pairs++];
        pair->tap[0] = list->tap[i];
        pair->line = at[0];
        attn__window_pair_start(w, pair, at, 0);
    }
}

static void read_line(attn__window_work *w)
{
    const attn__window_once *o = &w->s.once;
    int64_t ld = w->pass->ld;
    float *out = w->s.line + w->plan->values * ld; /* the first part is for reading it */
    attn__window_read_queries(w, ATTN__OP_Q, w->arrays->q, o->q);
    attn__window_read_queries(w, ATTN__OP_DOUT, w->arrays->dout, o->dout);
    attn__window_read_queries(w, ATTN__OP_O, w->arrays->o, out);
    w->plan->taps->dot(out, o->dout, w->plan->values, ld, ld, o->delta);
    attn__window_read_lse(w, w->line.at.lse, w->cell0 / w->plan->woven, ld, o->lse, o->delta);
}

static meeting meeting_of(attn__window_work *w, int64_t number, int place, int64_t first, int64_t end)
{
    const attn__window_pair *pair = &w->s.pair[number];
    bool keys = pair->line >= first && pair->line < end;
    meeting m = {.pair = pair, .number = number, .recent = &w->s.once.recent[place]};
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
        write_line(w, ATTN__OP_DQ, w->arrays->dq, w->line.at.dq, o->dq, (float)w->canonical->problem.scale);
}

/* The taps that reach a block of keys: those of the blocks of queries that hold the first and the last of its queries,
 * and between. */
static attn__window_block describe_keys(attn__window_work *w, int64_t x)
{
    const attn__window_axis *axis = attn__window_lane_axis(w->plan);
    int64_t width = w->plan->taps->width, woven = w->plan->woven;
    int64_t low = (x - highest(axis) * woven) / width, high = (x - lowest(axis) * woven + width - 1) / width;
    attn__window_block keys = {0};
    for (int64_t i = low; i <= high; i++) {
        attn__window_block b = i * width < w->live ? w->s.block[i] : (attn__window_block){0};
        int64_t end = keys.first + keys.n;
        keys.ragged = keys.ragged || b.ragged || b.n != w->s.block[low].n || b.first != w->s.block[low].first;
        if (b.n == 0)
            continue;
        if (keys.n == 0)
            keys = (attn__window_block){b.first, b.n, keys.ragged};
        keys.first = b.first < keys.first ? b.first : keys.first;
        end = b.first + b.n > end ? b.first + b.n : end;
        keys.n = end - keys.first;
    }
    for (int64_t i = low; keys.ragged && i <= high; i++) /* what no block writes takes no part */
        w->s.once.fill[i] = true;
    return keys;
}

static void start_band(attn__window_work *w)
{
    const attn__window_axis *axis = attn__window_lane_axis(w->plan);
    const attn__window_pass *pass = w->pass;
    attn__window_once *o = &w->s.once;
    int64_t taps = axis->last - axis->first, woven = w->plan->woven, width = w->plan->taps->width;
    for (int64_t t = 0; t < taps; t++) {
        int64_t cell = attn__window_cell(axis, axis->first + t);
        o->key_at[t] = (cell - lowest(axis)) * woven;
        o->query_at[t] = (highest(axis) - cell) * woven;
        o->zeros[t] = 0;
        w->s.entries.range[t] = 0;
        w->s.entries.state[t] = 0;
        o->number[t] = (int32_t)(axis->first + t);
    }
    o->far = highest(axis) * woven;
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
        for (; next < end && next < line + low; next++) /* the line's last keys take the place of these */
            finish_keys(w, next);
        run_line(w, line, first, end);
    }
    for (; next < end; next++)
        finish_keys(w, next);
}
