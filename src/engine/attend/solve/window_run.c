/* SPDX-License-Identifier: MIT
 *
 * window_run.c - runs one item of a pass of windows. It prepares lines of strips with their masks, dropout, biases and
 * tables, and then runs the blocks, forward and in both backward passes.
 *
 * If all queries have the same mask (padding), strips have a flag for each key. Otherwise the mask is read for each
 * pair.  Positions outside of a zero border are never masked.  Dropout has a hash per query and a column number per
 * tap. Column numbers count from the window's first tap, so the kernel subtracts the shift of a shifted window.  A tap
 * has the same relative position for all queries. A table's terms are therefore a product of few table rows and the
 * lanes or a strip. Terms of tables along several axes are added.
 */
#include "attend/solve/window.h"

#include "attend/block/dropout.h"
#include "attend/block/finite.h"
#include "attend/block/rows.h"
#include "attend/block/scores.h"
#include "attend/block/table.h"
#include "base/constants.h"
#include "base/normal.h"

#include <math.h>

static int64_t first_cell(const attn__window_axis *axis)
{
    return attn__window_cell(axis, axis->first);
}

static int64_t last_cell(const attn__window_axis *axis)
{
    return axis->last > axis->first ? attn__window_cell(axis, axis->last - 1) : first_cell(axis);
}

static const attn__axis *side_axis(const attn__window_work *work, attn__operand op)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    bool key = !(attn__operand_table[op].roles & ATTN__IN_QUERY);
    return key ? &work->canonical->key.axis[axis->key] : &work->canonical->query.axis[axis->query];
}

static int64_t lane_offset(const attn__window_work *work, attn__operand op, int64_t lane)
{
    int64_t at = attn__window_lane_cell(work, lane), head = lane % work->plan->per_cell;
    if (work->pass->by_key)
        at = at * attn__window_lane_axis(work->plan)->window.step + work->phase;
    return attn__stride(&work->line.at, op) + at * attn__stride(&side_axis(work, op)->dim, op) +
           head * attn__window_head_stride(work, op);
}

static int64_t channels_of(const attn__window *plan, attn_relative_kind kind)
{
    return kind == ATTN_RELATIVE_VALUE ? plan->values : plan->channels;
}

void attn__window_list_by_query(const attn__window_axis *axis, int64_t query, attn__window_list *list)
{
    attn__window_range r = attn__window_range_at(axis, query);
    const attn_window *w = &axis->window;
    list->n = 0;
    for (int64_t tap = r.from; tap < r.to; tap++) {
        int64_t at = query * w->step + w->offset + tap * w->dilation;
        list->tap[list->n] = tap;
        list->at[list->n++] = at >= 0 && at < w->size ? at : -1;
    }
}

static void list_by_key(const attn__window_axis *axis, int64_t position, attn__window_list *list)
{
    const attn_window *w = &axis->window;
    list->n = 0;
    for (int64_t tap = axis->first; tap < axis->last; tap++) {
        int64_t start = position - w->offset - tap * w->dilation;
        if (start < 0 || start % w->step || start / w->step >= axis->n)
            continue;
        attn__window_range r = attn__window_range_at(axis, start / w->step);
        if (tap < r.from || tap >= r.to)
            continue;
        list->tap[list->n] = tap;
        list->at[list->n++] = start / w->step;
    }
}

/* Computes the offsets of lanes. `step` is the stride between cells. `head` is the stride between interleaved heads. */
static void lane_offsets(const attn__window_work *work, int64_t first, int64_t step, int64_t head, int64_t lanes)
{
    int64_t per_cell = work->plan->per_cell, *offset = work->s.offset;
    for (int64_t h = 0; h < per_cell; h++, first += head)
        for (int64_t i = h, at = first; i < lanes; i += per_cell, at += step)
            offset[i] = at;
}

attn__place attn__window_line(const attn__window_work *work, const int64_t *at, int64_t free, bool keys)
{
    const attn__window *plan = work->plan;
    const attn__canonical *canonical = work->canonical;
    attn__place line = work->place;
    for (int i = 0; i < plan->naxes - 1; i++)
        attn__place_advance(
            &line, keys ? &canonical->key.axis[plan->axis[i].key] : &canonical->query.axis[plan->axis[i].query], at[i]);
    for (int f = plan->nfree - 1; f >= 0 && !keys; f--) {
        const attn__axis *axis = &canonical->query.axis[plan->free_axis[f]];
        attn__place_advance(&line, axis, free % axis->dim.n);
        free /= axis->dim.n;
    }
    return line;
}

static int64_t padded(const attn__window_work *w, int64_t channels)
{
    return channels * w->plan->taps->width;
}

static int64_t entries_of(const attn__window_work *w)
{
    return w->pairs * w->now.n;
}

/* ------------------------------------------------------------------------------------------------ masks and lengths */

/* Returns the end of a line's keys by the length at offset `lens`. The line is at `position` along lens_axis. */
static int64_t length_of(const attn__window_work *work, int64_t lens, int64_t position)
{
    int64_t len = work->canonical->has_lens ? work->arrays->at.lens[lens] : INT64_MAX;
    if (!work->canonical->has_lens || work->plan->lens_axis == work->plan->naxes - 1)
        return len;
    return position < len ? INT64_MAX : INT64_MIN;
}

static int64_t outer_position(const attn__window_work *work, const int64_t *at)
{
    int axis = work->plan->lens_axis;
    return axis < work->plan->naxes - 1 ? at[axis] : 0;
}

/* Reads the mask flags of n lanes of a line of keys, from `position` on. Positions outside of the axis are not
 * masked. */
static void read_flags(const attn__window_work *work, const attn__place *line, const int64_t *at, int64_t position,
                       int64_t n, float *flags)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    int64_t stride = work->canonical->key.axis[axis->key].dim.mask;
    int64_t len = length_of(work, line->at.lens, outer_position(work, at));
    const uint8_t *mask = work->canonical->has_mask ? work->arrays->at.mask + line->at.mask : NULL;
    for (int64_t j = 0; j < n; j++) {
        int64_t x = position + j / work->plan->per_cell * axis->window.step;
        flags[j] = x < 0 || x >= axis->window.size || (x < len && (!mask || mask[x * stride]));
    }
}

/* A view of an array that has a number for each query and each tap or position. Element (tap, query) is at query * lane
 * + tap * step + origin. If own_taps is set, taps count from the window's first tap. */
typedef struct pair_view {
    int64_t lane, step, origin;
    bool own_taps;
} pair_view;

static pair_view view_of_mask(const attn__window_work *work)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    const attn_window *w = &axis->window;
    int64_t stride = work->canonical->key.axis[axis->key].dim.mask;
    return (pair_view){.lane = work->canonical->query.axis[axis->query].dim.mask + w->step * stride,
                       .step = w->dilation * stride,
                       .origin = w->offset * stride};
}

static pair_view view_of_bias(const attn__window_work *work, attn__operand op)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    return (pair_view){.lane = attn__stride(&work->canonical->query.axis[axis->query].dim, op),
                       .step = attn__stride(&work->canonical->key.axis[axis->key].dim, op),
                       .own_taps = true};
}

/* Finds the element of lane w and the tap of entry k. Returns false if the lane does not attend that tap. */
static bool find(const attn__window_work *work, const pair_view *v, int64_t k, int64_t w, int64_t *offset)
{
    int64_t tap = work->now.first + k * work->stride, at = work->s.entries.range[k] + work->cell + w;
    if (tap < work->s.ranges.from[at] || tap >= work->s.ranges.to[at])
        return false;
    *offset =
        work->s.ranges.query[at] * v->lane + (v->own_taps ? tap - work->s.ranges.moved[at] : tap) * v->step + v->origin;
    return true;
}

/* Gathers all numbers of the block times `factor` to tile[tap][width].  Returns false if some number is outside of the
 * array, or if the lanes are keys. */
static bool gather_pair(const attn__window_work *work, const pair_view *v, const void *base, attn_dtype dtype,
                        float factor, float *tile)
{
    const attn_window *window = &attn__window_lane_axis(work->plan)->window;
    int64_t *lane = work->s.offset, *row = work->s.tap_at, first = work->cell0 + work->cell;
    int64_t start = first / work->plan->per_cell * window->step + window->offset + work->now.first * window->dilation;
    int64_t end =
        start + (work->lanes - 1) / work->plan->per_cell * window->step + (work->now.n - 1) * window->dilation;
    if (work->pass->by_key || first < 0 ||
        (v->own_taps ? window->border == ATTN_BORDER_SHIFT && work->now.ragged : start < 0 || end >= window->size))
        return false;
    for (int64_t w = 0; w < work->lanes; w++) {
        int64_t at = work->cell + w, moved = v->own_taps ? work->s.ranges.moved[at] : 0;
        lane[w] = work->s.ranges.query[at] * v->lane + (work->now.first - moved) * v->step + v->origin;
    }
    for (int64_t k = 0; k < work->now.n && v->step != 1; k++)
        row[k] = k * v->step;
    attn__lane_view view = {(void *)(uintptr_t)base, dtype, lane, v->step == 1 ? NULL : row, work->now.n, work->lanes};
    work->plan->lanes->gather(&view, tile, work->plan->taps->width, factor);
    return true;
}

/* Masks keys in the scores of a pair of lines. Each query has its own mask and length. */
static void mask_pair(attn__window_work *work, int64_t p, float *s)
{
    const attn__window_pair *pair = &work->s.pair[p];
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    const attn_window *window = &axis->window;
    pair_view v = view_of_mask(work);
    int64_t lens = work->canonical->query.axis[axis->query].dim.lens, width = work->plan->taps->width, offset;
    const uint8_t *mask = work->canonical->has_mask ? work->arrays->at.mask + pair->mask : NULL;
    if (pair->outside)
        return;
    if (!work->canonical->has_lens && gather_pair(work, &v, mask, ATTN_U8, 1, work->s.lanes.terms)) {
        work->plan->lanes->hide(s, work->s.lanes.terms, work->now.n * width, -INFINITY);
        return;
    }
    for (int64_t k = 0; k < work->now.n; k++, s += width) {
        int64_t distance = window->offset + (work->now.first + k * work->stride) * window->dilation;
        for (int64_t w = 0; w < work->lanes; w++) {
            int64_t query = work->s.ranges.query[work->s.entries.range[k] + work->cell + w];
            int64_t position = query * window->step + distance;
            if (position < 0 || position >= window->size || !find(work, &v, k, w, &offset))
                continue;
            if (position >= length_of(work, pair->lens + query * lens, pair->position) || (mask && !mask[offset]))
                s[w] = -INFINITY;
        }
    }
}

static void hide_by_flags(attn__window_work *work, float *s)
{
    int64_t width = work->plan->taps->width;
    if (work->pass->by_key)
        read_flags(work, &work->line, work->index,
                   attn__window_lane_cell(work, 0) * attn__window_lane_axis(work->plan)->window.step + work->phase,
                   width, work->s.lanes.flags);
    for (int64_t e = 0; e < entries_of(work); e++) {
        const float *flags =
            work->pass->by_key ? work->s.lanes.flags : work->flags + work->s.entries.flag[work->entry + e] + work->cell;
        work->plan->lanes->hide(s + e * width, flags, width, -INFINITY);
    }
}

/* ---------------------------------------------------------------------------------------------------------- dropout */

/* Computes the dropout hashes of a line of queries from query `first` on. Low halves come first, then high halves.
 * `row` is the row number of query 0. */
void attn__window_drop_line(attn__window_work *work, int64_t slot, uint64_t row, int64_t first)
{
    uint64_t step = (uint64_t)work->canonical->query.axis[attn__window_lane_axis(work->plan)->query].drop;
    int64_t ld = work->pass->ld;
    uint32_t *out = work->s.drop_key + slot * 2 * ld;
    for (int64_t i = 0; i < ld; i++) {
        uint64_t key = attn__dropout_row(work->canonical, work->arrays, row + (uint64_t)(first + i) * step);
        out[i] = (uint32_t)key;
        out[ld + i] = (uint32_t)(key >> 32);
    }
}

static void drop_pair(attn__window_work *work, int64_t p, float *s, int64_t ld)
{
    const attn__axis *key = &work->canonical->key.axis[attn__window_lane_axis(work->plan)->key];
    const uint32_t *keys = work->s.drop_key + work->cell;
    uint32_t *column = work->s.entries.column;
    for (int64_t k = 0; k < work->now.n; k++)
        column[k] = work->s.pair[p].column + (uint32_t)(work->now.first + k * work->stride) * (uint32_t)key->drop;
    attn__tap_drop d = {.taps = work->now.n,
                        .ld = ld,
                        .column = column,
                        .weight = (uint32_t)key->drop,
                        .threshold = attn__dropout_threshold(work->canonical->problem.dropout),
                        .moved = work->s.ranges.moved + work->cell,
                        .shift = work->s.entries.range + p * work->now.n * work->pass->by_key,
                        .key_at = work->s.entries.state + p * work->now.n * work->pass->by_key,
                        .key_low = keys,
                        .key_high = keys + work->pass->ld};
    work->plan->taps->drop(s, &d);
}

/* Replaces dropped weights or gradients of the block by marks. The rows of `s`, one per tap, are `ld` apart. */
void attn__window_drop(attn__window_work *w, float *s, int64_t ld)
{
    for (int64_t p = 0; p < w->pairs; p++)
        drop_pair(w, p, s + p * w->now.n * ld, ld);
}

/* ----------------------------------------------------------------------------------------------------------- biases */

static void add_bias(attn__window_work *work, int64_t p, float *s)
{
    const float *bias = (const float *)work->arrays->at.bias + work->s.pair[p].bias;
    pair_view v = view_of_bias(work, ATTN__OP_BIAS);
    int64_t width = work->plan->taps->width, offset;
    if (gather_pair(work, &v, bias, ATTN_F32, (float)ATTN__LOG2E, work->s.lanes.terms)) {
        work->plan->lanes->add(s, work->s.lanes.terms, work->now.n * width, 1);
        return;
    }
    for (int64_t k = 0; k < work->now.n; k++, s += width)
        for (int64_t w = 0; w < work->lanes; w++)
            if (find(work, &v, k, w, &offset))
                s[w] += (float)ATTN__LOG2E * bias[offset];
}

static void bias_gradient(attn__window_work *work, int64_t p, const float *ds, int64_t ld)
{
    int64_t at = work->s.pair[p].dbias, offset;
    double *sums = work->sums.at[ATTN__SUM_BIAS];
    float *to = work->arrays->at.dbias;
    pair_view v = view_of_bias(work, ATTN__OP_DBIAS);
    for (int64_t k = 0; k < work->now.n; k++, ds += ld)
        for (int64_t w = 0; w < work->lanes; w++) {
            if (!find(work, &v, k, w, &offset))
                continue;
            if (sums)
                sums[at + offset] += (double)ds[w];
            else
                to[at + offset] = work->canonical->problem.accumulate ? to[at + offset] + ds[w] : ds[w];
        }
}

/* ----------------------------------------------------------------------------------------------------------- tables */

static float *rows_of(const attn__window_work *work, attn_relative_kind kind, int axis)
{
    return work->s.table + work->plan->table_at[kind][axis];
}

/* Returns the row of table i for the first virtual tap of its axis. Sets *axis to that axis. */
static int64_t first_row(const attn__window_work *work, int i, const attn__window_axis **axis)
{
    const attn_relative *r = &work->canonical->problem.relatives[i];
    *axis = &work->plan->axis[0];
    for (int a = 1; a < work->plan->naxes; a++)
        if (work->plan->axis[a].key == r->key_dim)
            *axis = &work->plan->axis[a];
    return (*axis)->window.offset + (*axis)->first * (*axis)->window.dilation + r->offset;
}

static void read_table(attn__window_work *work, int i)
{
    const attn_relative *r = &work->canonical->problem.relatives[i];
    const attn__window_axis *axis = NULL;
    int64_t row = first_row(work, i, &axis), batch = work->table_at[i], n = channels_of(work->plan, r->kind);
    const int64_t *channel = work->plan->table_channel[i];
    float *out = rows_of(work, r->kind, (int)(axis - work->plan->axis));
    for (int64_t tap = axis->first; tap < axis->last; tap++, row += axis->window.dilation, out += n)
        for (int64_t c = 0; c < n; c++)
            if (channel[c] != INT64_MIN)
                out[c] += ((const float *)work->arrays->at.table[i])[batch + row * r->row_stride + channel[c]];
}

/* Reads the tables of the batch index if they are not in memory. Otherwise keeps the sums of their gradients. */
static void tables_read(attn__window_work *work)
{
    if (work->tables_read && memcmp(work->table_at, work->place.table, sizeof work->table_at) == 0)
        return;
    attn__window_tables_store(work);
    memcpy(work->table_at, work->place.table, sizeof work->table_at);
    work->tables_read = true;
    memset(work->s.table, 0, (size_t)work->plan->table_floats * sizeof(float));
    if (work->canonical->backward)
        memset(work->s.table_sums, 0, (size_t)work->plan->table_floats * sizeof(double));
    for (int i = 0; i < work->canonical->problem.nrelatives; i++)
        read_table(work, i);
    work->tables_finite = true;
    for (int64_t i = 0; i < work->plan->table_floats; i++)
        work->tables_finite = work->tables_finite && isfinite(work->s.table[i]);
}

void attn__window_tables_of_pairs(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    for (attn_relative_kind kind = 0; kind < ATTN__WINDOW_KINDS; kind++) {
        int64_t n = channels_of(plan, kind);
        if (!attn__window_has_outer(plan, kind))
            continue;
        float *out = work->s.pair_table[kind];
        memset(out, 0, (size_t)(work->pairs * n) * sizeof(float));
        for (int64_t p = 0; p < work->pairs; p++, out += n)
            for (int a = 0; a < plan->naxes - 1; a++) {
                const float *row = rows_of(work, kind, a) + (work->s.pair[p].tap[a] - plan->axis[a].first) * n;
                for (int64_t c = 0; plan->has_table[kind][a] && c < n; c++)
                    out[c] += row[c];
            }
    }
}

static void multiply(const attn__window_work *work, const float *rows, int64_t m, int64_t channels, const float *strip,
                     int64_t ld, float *out)
{
    work->plan->tile->run(&(attn__gemm_tile_args){.m = m,
                                                  .n = ld,
                                                  .k = channels,
                                                  .a = rows,
                                                  .am = channels,
                                                  .ak = 1,
                                                  .b = strip,
                                                  .ldb = ld,
                                                  .c = out,
                                                  .ldc = ld});
}

static void tables_of_strip(attn__window_work *work, int64_t slot)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *axis = attn__window_lane_axis(plan);
    attn_relative_kind kinds[2] = {attn__window_strip_kind(work->pass), ATTN_RELATIVE_VALUE};
    int64_t ld = work->pass->ld, taps = axis->last - axis->first;
    for (int i = 0; i < 1 + work->pass->by_key; i++) {
        int64_t n = channels_of(plan, kinds[i]);
        if (!plan->has_table[kinds[i]][plan->naxes - 1])
            continue;
        int64_t rows = work->pass->strip_phases == 1 ? taps : 1; /* one product for taps that read the same strip */
        for (int64_t t = 0; t < taps; t += rows) {
            int64_t phase = work->pass->by_key ? 0 : attn__window_phase(axis, axis->first + t);
            multiply(work, rows_of(work, kinds[i], plan->naxes - 1) + t * n, rows, n,
                     attn__window_strip(work, i, slot, phase), ld, work->s.terms[i] + (slot * taps + t) * ld);
        }
    }
}

static void tables_of_pair_strips(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    attn_relative_kind kinds[2] = {attn__window_strip_kind(work->pass), ATTN_RELATIVE_VALUE};
    int64_t ld = work->pass->ld, phases = work->pass->strip_phases;
    for (int i = 0; i < 1 + work->pass->by_key; i++) {
        int64_t n = channels_of(plan, kinds[i]);
        for (int64_t p = 0; attn__window_has_outer(plan, kinds[i]) && p < work->pairs; p++)
            for (int64_t phase = 0; phase < phases; phase++)
                multiply(work, work->s.pair_table[kinds[i]] + p * n, 1, n,
                         attn__window_strip(work, i, work->s.pair[p].slot, phase), ld,
                         work->s.pair_rows[i] + (p * phases + phase) * ld);
    }
}

static void lane_terms(attn__window_work *work, attn_relative_kind kind, const float *tile, float *s, float factor)
{
    const attn__window *plan = work->plan;
    int64_t n = channels_of(plan, kind), width = plan->taps->width, taps = work->now.n;
    const attn__window_axis *axis = attn__window_lane_axis(plan);
    float *out = work->s.lanes.terms;
    attn__gemm_tile_args t = {.n = width, .k = n, .ak = 1, .b = tile, .ldb = width, .c = out, .ldc = width};
    if (plan->has_table[kind][plan->naxes - 1]) {
        t.a = rows_of(work, kind, plan->naxes - 1) + (work->now.first - axis->first) * n;
        t.am = work->stride * n;
        t.m = taps;
        plan->tile->run(&t);
        for (int64_t p = 0; p < work->pairs; p++)
            plan->lanes->add(s + p * taps * width, out, taps * width, factor);
    }
    if (!attn__window_has_outer(plan, kind))
        return;
    t.a = work->s.pair_table[kind];
    t.am = n;
    t.m = work->pairs;
    plan->tile->run(&t);
    for (int64_t p = 0; p < work->pairs; p++)
        plan->taps->add_rows(s + p * taps * width, taps, out + p * width, 0, factor);
}

static void strip_terms(attn__window_work *work, attn_relative_kind kind, float *s, float factor)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *axis = attn__window_lane_axis(plan);
    int64_t width = plan->taps->width, ld = work->pass->ld, all = axis->last - axis->first;
    int which = kind == ATTN_RELATIVE_VALUE;
    bool own = plan->has_table[kind][plan->naxes - 1], outer = attn__window_has_outer(plan, kind);
    for (int64_t p = 0; (own || outer) && p < work->pairs; p++)
        for (int64_t k = 0; k < work->now.n; k++, s += width) {
            int64_t at = work->s.shift[k] + work->cell;
            int64_t tap = work->now.first + k * work->stride - axis->first;
            if (own)
                plan->taps->add_rows(s, 1, work->s.terms[which] + (work->s.pair[p].slot * all + tap) * ld + at, 0,
                                     factor);
            if (outer)
                plan->taps->add_rows(
                    s, 1, work->s.pair_rows[which] + (p * work->pass->strip_phases + work->s.phase[k]) * ld + at, 0,
                    factor);
        }
}

/* Starts sums of weights or of gradients of scores. A sum of marks (-0) only is a mark. `n` is a multiple of the lanes,
 * and so of 4: compilers make one vector of the inner loop. */
static void start_margins(float *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i += 4)
        for (int k = 0; k < 4; k++)
            rows[i + k] = -0.0f;
}

static void clear_dead(const attn__window_work *work, float *rows, int64_t n)
{
    int64_t width = work->plan->taps->width;
    for (int64_t r = 0; r < n; r++)
        for (int64_t w = work->lanes; w < width; w++)
            rows[r * width + w] = -0.0f;
}

static void find_margins(attn__window_work *work, attn_relative_kind kind, const float *weights)
{
    const attn__window *plan = work->plan;
    int64_t width = plan->taps->width, taps = work->now.n;
    if (plan->has_table[kind][plan->naxes - 1]) {
        start_margins(work->s.margin, taps * width);
        for (int64_t p = 0; p < work->pairs; p++)
            plan->lanes->add(work->s.margin, weights + p * taps * width, taps * width, 1);
        clear_dead(work, work->s.margin, taps);
    }
    if (!attn__window_has_outer(plan, kind))
        return;
    start_margins(work->s.pair_margin, work->pairs * width);
    for (int64_t p = 0; p < work->pairs; p++)
        plan->taps->sum_rows(weights + p * taps * width, taps, work->s.pair_margin + p * width);
    clear_dead(work, work->s.pair_margin, work->pairs);
}

/* Adds A B to C, where A has table rows and B has weights. If tables are not finite, terms whose weight is
 * a mark are skipped. */
static void add_rows(const attn__window_work *work, const attn__gemm_tile_args *t)
{
    if (work->tables_finite) {
        work->plan->tile->run(t);
        return;
    }
    for (int64_t c = 0; c < t->m; c++)
        for (int64_t k = 0; k < t->k; k++)
            for (int64_t w = 0; w < t->n; w++) {
                float weight = t->b[k * t->ldb + w];
                t->c[c * t->ldc + w] += attn__is_mark(weight) ? 0 : weight * t->a[c * t->am + k * t->ak];
            }
}

/* Adds `count` rows of tables to `out`, for taps or pairs. Each row is multiplied by its margin (see find_margins). */
static void mix_rows(const attn__window_work *work, const float *rows, int64_t step, int64_t count, int64_t channels,
                     const float *margin, float *out)
{
    int64_t width = work->plan->taps->width;
    add_rows(work, &(attn__gemm_tile_args){.m = channels,
                                           .n = width,
                                           .k = count,
                                           .a = rows,
                                           .am = 1,
                                           .ak = step,
                                           .b = margin,
                                           .ldb = work->pass->margin_ld,
                                           .c = out,
                                           .ldc = width,
                                           .accumulate = true});
}

static void table_mix(attn__window_work *work, attn_relative_kind kind, float *out)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *axis = attn__window_lane_axis(plan);
    int64_t n = channels_of(plan, kind);
    if (plan->has_table[kind][plan->naxes - 1])
        mix_rows(work, rows_of(work, kind, plan->naxes - 1) + (work->now.first - axis->first) * n, work->stride * n,
                 work->now.n, n, work->s.margin, out);
    if (attn__window_has_outer(plan, kind))
        mix_rows(work, work->s.pair_table[kind], n, work->pairs, n, work->s.pair_margin, out);
}

/* Returns how many pairs, beginning with pair p, have consecutive taps along the axis. */
static int64_t neighbours(const attn__window_work *work, int64_t p, int axis)
{
    int64_t n = 1;
    while (p + n < work->pairs && work->s.pair[p + n].tap[axis] == work->s.pair[p].tap[axis] + n)
        n++;
    return n;
}

/* Adds margins (see find_margins) x `tile` to the gradients of the tables. Margins are read from lane `x` on. */
static void table_gradient(attn__window_work *work, attn_relative_kind kind, int64_t x, const float *tile,
                           int64_t tile_ld)
{
    const attn__window *plan = work->plan;
    attn__tap_outer o = {
        .channels = channels_of(plan, kind), .tile = tile, .rows_ld = work->pass->margin_ld, .tile_ld = tile_ld};
    for (int a = 0; a < plan->naxes; a++) {
        bool lanes = a == plan->naxes - 1;
        double *sums = work->s.table_sums + plan->table_at[kind][a];
        for (int64_t i = 0; plan->has_table[kind][a] && i < (lanes ? work->now.n : work->pairs); i += o.count) {
            int64_t tap = lanes ? work->now.first + i * work->stride : work->s.pair[i].tap[a];
            o.count = !lanes ? neighbours(work, i, a) : work->stride == 1 ? work->now.n : 1;
            o.rows = (lanes ? work->s.margin : work->s.pair_margin) + i * o.rows_ld + x;
            o.sums = sums + (tap - plan->axis[a].first) * o.channels;
            plan->taps->outer(&o);
        }
    }
}

void attn__window_tables_store(attn__window_work *work)
{
    const attn_problem *p = &work->canonical->problem;
    for (int i = 0; work->tables_read && work->canonical->backward && i < p->nrelatives; i++) {
        const attn_relative *r = &p->relatives[i];
        double *to = work->sums.at[ATTN__SUM_TABLE + i], factor = p->scale;
        if (r->kind == ATTN_RELATIVE_VALUE)
            factor = (double)work->plan->kept;
        const attn__window_axis *axis = NULL;
        int64_t row = first_row(work, i, &axis), batch = work->table_at[i], n = channels_of(work->plan, r->kind);
        const int64_t *channel = work->plan->table_channel[i];
        const double *from = work->s.table_sums + work->plan->table_at[r->kind][axis - work->plan->axis];
        for (int64_t tap = axis->first; to && tap < axis->last; tap++, row += axis->window.dilation, from += n)
            for (int64_t c = 0; c < n; c++)
                if (channel[c] != INT64_MIN)
                    to[batch + row * r->row_stride + channel[c]] += factor * from[c];
    }
}

void attn__window_once_terms(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    const attn__window_once *o = &work->s.once;
    const attn__window_axis *axis = &plan->axis[1];
    int64_t ld = work->pass->ld, n = plan->channels, taps = axis->last - axis->first;
    if (plan->has_table[ATTN_RELATIVE_QUERY][1])
        multiply(work, rows_of(work, ATTN_RELATIVE_QUERY, 1), taps, n, o->q, ld, work->s.terms[0]);
    start_margins(work->s.margin, taps * ld);
    attn__window_tables_of_pairs(work);
    if (attn__window_has_outer(plan, ATTN_RELATIVE_QUERY))
        multiply(work, work->s.pair_table[ATTN_RELATIVE_QUERY], work->pairs, n, o->q, ld, work->s.pair_rows[0]);
    start_margins(work->s.pair_margin, work->pairs * ld);
}

/* Adds margins (sums of ds) x table rows to dq. If requested, adds margins x queries to the tables' gradients. */
void attn__window_once_margins(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    const attn__window_once *o = &work->s.once;
    const attn__window_axis *axis = &plan->axis[1];
    int64_t ld = work->pass->ld, n = plan->channels, left = work->pass->left, taps = axis->last - axis->first;
    int64_t end = attn__min(work->live, left + work->pass->own);
    work->now = (attn__window_block){.first = axis->first, .n = taps};
    for (int64_t x = left; x < end; x += plan->taps->width) {
        float *dq = o->dq + x * n;
        if (plan->has_table[ATTN_RELATIVE_QUERY][0])
            mix_rows(work, work->s.pair_table[ATTN_RELATIVE_QUERY], n, work->pairs, n, work->s.pair_margin + x, dq);
        if (plan->has_table[ATTN_RELATIVE_QUERY][1])
            mix_rows(work, rows_of(work, ATTN_RELATIVE_QUERY, 1), n, taps, n, work->s.margin + x, dq);
        if (work->canonical->problem.flags & ATTN_WANT_DTABLES)
            table_gradient(work, ATTN_RELATIVE_QUERY, x, o->q + x, ld);
    }
}

/* ------------------------------------------------------------------------------------------------------------ tiles */

/* Finds the range of taps of each query. The queries are the lanes, or in the pass by key the lanes of the strips. */
static void read_ranges(attn__window_work *work)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    const attn__window_ranges *to = &work->s.ranges;
    int64_t per_cell = work->plan->per_cell,
            query = work->cell0 / per_cell - (work->pass->by_key ? last_cell(axis) : 0);
    for (int64_t j = 0; j < work->pass->ld; j += per_cell, query++) {
        attn__window_range r = {0};
        if (query >= 0 && query < axis->n)
            r = attn__window_range_at(axis, query);
        bool none = r.from >= r.to;
        for (int64_t h = 0; h < per_cell; h++) {
            to->query[j + h] = (int32_t)query;
            to->from[j + h] = none ? INT32_MAX : (int32_t)r.from;
            to->to[j + h] = none ? INT32_MIN : (int32_t)r.to;
            to->moved[j + h] = none ? 0 : (int32_t)r.moved;
        }
    }
}

static int64_t shift_of(const attn__window_work *work, int64_t tap)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    return work->pass->by_key ? (last_cell(axis) - attn__window_cell(axis, tap)) * work->plan->per_cell : 0;
}

/* Returns how many lanes of the block attend the tap `tap`. */
static int64_t count_lanes(const attn__window_work *work, int64_t cell, int64_t tap)
{
    int64_t count = 0, at = cell + shift_of(work, tap), per_cell = work->plan->per_cell;
    for (int64_t w = 0; w < work->plan->taps->width; w += per_cell)
        count += work->s.ranges.from[at + w] <= tap && tap < work->s.ranges.to[at + w];
    return count * per_cell;
}

static attn__window_block describe_block(const attn__window_work *work, int64_t cell, int64_t first, int64_t count)
{
    attn__window_block block = {0};
    int64_t width = work->plan->taps->width, end = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t tap = first + k * work->stride, lanes = count_lanes(work, cell, tap);
        if (lanes == 0)
            continue;
        if (end == 0)
            block.first = tap;
        block.ragged = block.ragged || lanes < width || (end && end != k);
        end = k + 1;
        block.n = (tap - block.first) / work->stride + 1;
    }
    return block;
}

/* Lanes of one phase attend every stride-th tap, because of step and dilation. */
static void describe_blocks(attn__window_work *work)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    int64_t first = axis->first;
    work->stride = 1;
    if (work->pass->by_key) {
        work->stride = axis->window.step / attn__gcd(axis->window.step, axis->window.dilation);
        while (first < axis->last && attn__window_phase(axis, first) != work->phase)
            first++;
    }
    int64_t count = (axis->last - first + work->stride - 1) / work->stride;
    for (int64_t cell = 0; cell < work->live; cell += work->plan->taps->width)
        work->s.block[cell / work->plan->taps->width] = describe_block(work, cell, first, count);
}

static void tile_start(attn__window_work *work, int64_t item)
{
    const attn__window_pass *pass = work->pass;
    int64_t tile = item % pass->tiles;
    work->phase = item / pass->tiles % pass->phases;
    work->cell0 = tile * pass->own - pass->left;
    int64_t live = pass->cells - work->cell0;
    if (pass->by_key) /* later phases may have one position less than the first */
        live = (attn__window_lane_axis(work->plan)->window.size - work->phase + pass->phases - 1) / pass->phases *
                   work->plan->per_cell -
               work->cell0;
    work->live = live < pass->tile ? live : pass->tile;
    for (int64_t slot = 0; slot <= pass->slots; slot++)
        work->s.tag[slot] = -1;
    int64_t kind = item % (pass->tiles * pass->phases);
    if (work->described && work->described_item == kind)
        return;
    read_ranges(work);
    describe_blocks(work);
    work->described = true;
    work->described_item = kind;
}

/* ----------------------------------------------------------------------------------------------------------- strips */

/* The source of a strip of one phase. `low` is the coordinate of cell 0. A cell has `step` coordinates. */
typedef struct strip_source {
    const void *base;
    attn_dtype dtype;
    int64_t at, stride; /* offset of coordinate 0; stride of coordinates */
    int64_t head;       /* stride between interleaved heads */
    int64_t low, step, size;
    const int64_t *channel;
    int64_t channels;
} strip_source;

static void read_strip(const attn__window_work *work, const strip_source *t, float *out)
{
    const attn__online_softmax_kernel *lanes = work->plan->lanes;
    int64_t ld = work->pass->ld, per_cell = work->plan->per_cell,
            begin = attn__ceil_div(attn__max(-t->low, 0), t->step);
    int64_t end = t->low < t->size ? (t->size - t->low + t->step - 1) / t->step : 0;
    end = end < ld / per_cell ? end : ld / per_cell;
    if (begin >= end) {
        memset(out, 0, (size_t)(t->channels * ld) * sizeof *out);
        return;
    }
    int64_t first = t->at + (t->low + begin * t->step) * t->stride, step = t->step * t->stride;
    begin *= per_cell;
    end *= per_cell;
    lane_offsets(work, first, step, t->head, end - begin);
    attn__lane_view view = {(void *)(uintptr_t)t->base, t->dtype, work->s.offset, t->channel, t->channels, end - begin};
    float *to = begin ? work->s.line : out;
    lanes->gather(&view, to, ld, 1);
    for (int64_t c = 0; c < t->channels; c++) {
        float *row = out + c * ld;
        if (begin) {
            memset(row, 0, (size_t)begin * sizeof *row);
            memcpy(row + begin, to + c * ld, (size_t)(end - begin) * sizeof *row);
        }
        memset(row + end, 0, (size_t)(ld - end) * sizeof *row);
    }
}

static strip_source strip_of(const attn__window_work *work, attn__operand op, const void *base, int64_t at,
                             int64_t phase)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    strip_source t = {
        .base = base, .dtype = work->canonical->problem.dtype, .at = at, .channel = work->plan->channel[op]};
    t.stride = attn__stride(&side_axis(work, op)->dim, op);
    t.channels = attn__window_channels(work->plan, op) * work->plan->heads;
    t.head = attn__window_head_stride(work, op);
    t.step = work->pass->by_key ? 1 : axis->window.step;
    t.low = work->cell0 / work->plan->per_cell;
    t.low = work->pass->by_key ? t.low - last_cell(axis) : (t.low + first_cell(axis)) * t.step + phase;
    t.size = work->pass->by_key ? axis->n : axis->window.size;
    return t;
}

void attn__window_read_lse(const attn__window_work *work, int64_t lse_at, int64_t low, int64_t n, float *rows,
                           float *delta)
{
    const attn__window_axis *axis = attn__window_lane_axis(work->plan);
    int64_t per_cell = work->plan->per_cell, head = attn__window_head_stride(work, ATTN__OP_LSE);
    int64_t stride = work->canonical->query.axis[axis->query].dim.lse;
    for (int64_t j = 0; j < n; j += per_cell, low++) {
        int64_t at = lse_at + low * stride;
        bool inside = low >= 0 && low < axis->n;
        for (int64_t h = 0; h < per_cell; h++) {
            float lse = inside ? ((const float *)work->arrays->at.lse)[at + h * head] : -INFINITY;
            rows[j + h] = lse == -INFINITY ? INFINITY : lse * (float)ATTN__LOG2E;
            if (lse != -INFINITY && (work->canonical->extras & ATTN__DLSE))
                delta[j + h] -= ((const float *)work->arrays->at.dlse)[at + h * head];
        }
    }
}

void attn__window_read_queries(const attn__window_work *work, attn__operand op, const void *base, float *out)
{
    strip_source t = strip_of(work, op, base, attn__stride(&work->line.at, op), 0);
    t.low = work->cell0 / work->plan->per_cell;
    t.size = attn__window_lane_axis(work->plan)->n;
    read_strip(work, &t, out);
}

/* Computes delta, the sum over channels of o * dout, for all heads. */
static void read_delta(attn__window_work *work, int64_t slot, int64_t o_at)
{
    const attn__window *plan = work->plan;
    int64_t ld = work->pass->ld;
    strip_source t = strip_of(work, ATTN__OP_O, work->arrays->at.o, o_at, 0);
    float *o = work->s.line + ld * plan->values * plan->heads;
    read_strip(work, &t, o);
    for (int h = 0; h < plan->heads; h++)
        plan->taps->dot(o + h * plan->values * ld, attn__window_strip(work + h, true, slot, 0), plan->values, ld, ld,
                        work[h].s.rows + (slot * 2 + 1) * ld);
}

static void read_slot(attn__window_work *work, int64_t slot, const attn_dim *at)
{
    const attn__window_pass *pass = work->pass;
    const attn_arrays *x = &work->arrays->at;
    for (int64_t phase = 0; work->head == 0 && phase < pass->strip_phases; phase++) {
        strip_source first = pass->by_key ? strip_of(work, ATTN__OP_Q, x->q, at->q, phase)
                                          : strip_of(work, ATTN__OP_K, x->k, at->k, phase);
        strip_source second = pass->by_key ? strip_of(work, ATTN__OP_DOUT, x->dout, at->dout, phase)
                                           : strip_of(work, ATTN__OP_V, x->v, at->v, phase);
        read_strip(work, &first, attn__window_strip(work, false, slot, phase));
        read_strip(work, &second, attn__window_strip(work, true, slot, phase));
    }
    if (pass->by_key && work->head == 0)
        read_delta(work, slot, at->o);
    if (pass->by_key)
        attn__window_read_lse(work, at->lse,
                              work->cell0 / work->plan->per_cell - last_cell(attn__window_lane_axis(work->plan)),
                              pass->ld, work->s.rows + slot * 2 * pass->ld, work->s.rows + (slot * 2 + 1) * pass->ld);
    tables_of_strip(work, slot);
}

static void clear_slot(attn__window_work *work, int64_t slot)
{
    const attn__window *plan = work->plan;
    int64_t n = work->pass->strip_phases * work->pass->ld;
    for (int64_t phase = 0; phase < work->pass->strip_phases; phase++) {
        memset(attn__window_strip(work, false, slot, phase), 0,
               (size_t)(work->pass->ld * plan->channels) * sizeof(float));
        memset(attn__window_strip(work, true, slot, phase), 0, (size_t)(work->pass->ld * plan->values) * sizeof(float));
    }
    for (int64_t i = 0; work->plan->masked && !work->pass->by_key && i < n; i++)
        work->s.flags[slot * n + i] = 1; /* positions outside of the axis are not masked */
    tables_of_strip(work, slot);
}

void attn__window_outside_start(attn__window_work *work)
{
    int64_t slot = work->pass->slots;
    if (work->s.tag[slot] == -1)
        clear_slot(work, slot);
    work->s.tag[slot] = 0;
}

/* ------------------------------------------------------------------------------------------------------------ lines */

int64_t attn__window_slot_of(attn__window_work *work, const int64_t *at, int64_t free)
{
    const attn__window_pass *pass = work->pass;
    int64_t slot = pass->by_key ? free : 0, tag = slot;
    for (int i = 0; i < work->plan->naxes - 1; i++) {
        const attn__window_axis *axis = &work->plan->axis[i];
        if (at[i] < 0)
            return pass->slots;
        slot = slot * pass->modulus[i] + at[i] / pass->divisor[i] % pass->modulus[i];
        tag = tag * (pass->by_key ? axis->n : axis->window.size) + at[i];
    }
    if (work->s.tag[slot] == tag)
        return slot;
    attn__place line = attn__window_line(work, at, free, !pass->by_key);
    const attn__window_axis *lanes = attn__window_lane_axis(work->plan);
    read_slot(work, slot, &line.at);
    if (pass->by_key && work->canonical->has_dropout)
        attn__window_drop_line(work, slot, line.drop, work->cell0 - last_cell(lanes));
    int64_t first = (work->cell0 / work->plan->per_cell + first_cell(lanes)) * lanes->window.step;
    for (int64_t phase = 0; phase < pass->strip_phases && !pass->by_key && work->plan->masked && !work->plan->by_pairs;
         phase++)
        read_flags(work, &line, at, first + phase, pass->ld,
                   work->s.flags + (slot * pass->strip_phases + phase) * pass->ld);
    work->s.tag[slot] = tag;
    return slot;
}

/* Initializes the pair of the current line and the line at `at`, `free`. Taps count from the window's first tap. */
void attn__window_pair_start(attn__window_work *work, attn__window_pair *pair, const int64_t *at, int64_t free)
{
    const attn__canonical *canonical = work->canonical;
    bool by_key = work->pass->by_key;
    const int64_t *query = by_key ? at : work->index, *key = by_key ? work->index : at;
    pair->slot = attn__window_slot_of(work, at, free);
    if (!work->plan->by_pairs && !canonical->has_dropout && !canonical->has_bias)
        return;
    attn_dim line = attn__window_line(work, query, free, false).at;
    pair->outside = false;
    pair->column = 0;
    for (int i = 0; i < work->plan->naxes - 1; i++) {
        const attn__axis *axis = &canonical->key.axis[work->plan->axis[i].key];
        int64_t own = pair->tap[i] - attn__window_range_at(&work->plan->axis[i], query[i]).moved;
        line.bias += own * axis->dim.bias;
        line.dbias += own * axis->dim.dbias;
        line.mask += key[i] * axis->dim.mask;
        pair->column += (uint32_t)((uint64_t)own * (uint64_t)axis->drop);
        pair->outside = pair->outside || key[i] < 0;
    }
    pair->bias = line.bias;
    pair->dbias = line.dbias;
    pair->mask = line.mask;
    pair->lens = line.lens;
    pair->position = outer_position(work, key);
}

static void make_pairs(attn__window_work *work, int64_t free)
{
    int outer = work->plan->naxes - 1, i = 0;
    int64_t choice[ATTN__WINDOW_AXES] = {0}, at[ATTN__WINDOW_AXES] = {0};
    for (i = 0; i < outer; i++)
        if (work->s.list[i].n == 0)
            return;
    while (i >= 0) {
        attn__window_pair *pair = &work->s.pair[work->pairs++];
        for (i = 0; i < outer; i++) {
            pair->tap[i] = work->s.list[i].tap[choice[i]];
            at[i] = work->s.list[i].at[choice[i]];
        }
        attn__window_pair_start(work, pair, at, free);
        for (i = outer - 1; i >= 0 && ++choice[i] == work->s.list[i].n; i--)
            choice[i] = 0;
    }
}

static void line_start(attn__window_work *work, int64_t line)
{
    const attn__window *plan = work->plan;
    const attn__window_pass *pass = work->pass;
    int64_t rest = line;
    for (int i = plan->naxes - 2; i >= 0; i--) {
        const attn__window_axis *axis = &plan->axis[i];
        int64_t n = pass->by_key ? axis->window.size : axis->n;
        work->index[i] = rest % n;
        rest /= n;
        if (pass->by_key)
            list_by_key(axis, work->index[i], &work->s.list[i]);
        else
            attn__window_list_by_query(axis, work->index[i], &work->s.list[i]);
    }
    work->line = attn__window_line(work, work->index, rest, pass->by_key);
    attn__window_outside_start(work);
    work->pairs = 0;
    if (work->canonical->has_dropout && !pass->by_key)
        attn__window_drop_line(work, 0, work->line.drop, work->cell0);
    for (int64_t free = 0; free < (pass->by_key ? plan->free : 1); free++)
        make_pairs(work, pass->by_key ? free : rest);
    attn__window_tables_of_pairs(work);
    tables_of_pair_strips(work);
}

/* ------------------------------------------------------------------------------------------ blocks read and written */

/* Prefetches the block's lanes, from coordinate `first` on, of the line `at`. Does nothing if there is no such line. */
static void prefetch_line(const attn__window_work *work, attn__operand op, const void *base, int64_t at, int64_t first)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *outer = &plan->axis[plan->naxes - 2], *lanes = attn__window_lane_axis(plan);
    bool key = !(attn__operand_table[op].roles & ATTN__IN_QUERY);
    int64_t n = key ? outer->window.size : outer->n, size = key ? lanes->window.size : lanes->n;
    const attn_dim *d =
        key ? &work->canonical->key.axis[outer->key].dim : &work->canonical->query.axis[outer->query].dim;
    int64_t element = (int64_t)attn_dtype_size(work->canonical->problem.dtype), step = key ? lanes->window.step : 1;
    int64_t offset = attn__stride(&work->place.at, op) + at * attn__stride(d, op),
            stride = attn__stride(&side_axis(work, op)->dim, op);
    if (at < 0 || at >= n || plan->channel[op])
        return;
    int64_t bytes = attn__window_channels(plan, op) * element;
    uintptr_t in_line = ((uintptr_t)base + (uintptr_t)(offset * element)) % 64;
    if (work->head > 0 && in_line >= (uintptr_t)bytes) /* the previous head has prefetched this cache line */
        return;
    for (int64_t w = 0, x = first * step; w < work->lanes && x < size; w += plan->per_cell, x += step)
        for (int64_t b = 0; x >= 0 && b < bytes * plan->per_cell; b += 64)
            __builtin_prefetch((const char *)base + (offset + x * stride) * element + b, 0, 2);
}

static void prefetch_next(const attn__window_work *work)
{
    const attn__window *plan = work->plan;
    if (plan->naxes != 2 || plan->nfree)
        return;
    const attn__window_axis *outer = &plan->axis[0];
    const attn_window *w = &outer->window;
    const attn_arrays *a = &work->arrays->at;
    int64_t next = work->index[0] + 1, x = (work->cell0 + work->cell) / plan->per_cell;
    int64_t query = work->pass->by_key ? (next - w->offset - outer->first * w->dilation) / w->step : next;
    int64_t key = work->pass->by_key ? next : next * w->step + w->offset + (outer->taps - 1) * w->dilation;
    prefetch_line(work, ATTN__OP_Q, a->q, query, x);
    prefetch_line(work, ATTN__OP_K, a->k, key, x);
    prefetch_line(work, ATTN__OP_V, a->v, key, x);
    if (!work->pass->by_key)
        return;
    prefetch_line(work, ATTN__OP_DOUT, a->dout, query, x);
    prefetch_line(work, ATTN__OP_O, a->o, query, x);
}

void attn__window_once_prefetch(attn__window_work *work, int64_t pair, int64_t x)
{
    const attn__window_axis *outer = &work->plan->axis[0];
    const attn_arrays *a = &work->arrays->at;
    int64_t line = work->index[0], low = first_cell(outer), high = last_cell(outer);
    const struct {
        attn__operand op;
        const void *base;
        int64_t line;
    } wanted[] = {{ATTN__OP_Q, a->q, line + 1},        {ATTN__OP_DOUT, a->dout, line + 1},
                  {ATTN__OP_O, a->o, line + 1},        {ATTN__OP_K, a->k, line + 1 + high},
                  {ATTN__OP_V, a->v, line + 1 + high}, {ATTN__OP_DQ, a->dq, line},
                  {ATTN__OP_DK, a->dk, line + low},    {ATTN__OP_DV, a->dv, line + low}};
    work->lanes = work->plan->taps->width;
    for (int64_t i = pair; i < (int64_t)(sizeof wanted / sizeof *wanted); i += work->pairs)
        if (wanted[i].base)
            prefetch_line(work, wanted[i].op, wanted[i].base, wanted[i].line, (work->cell0 + x) / work->plan->per_cell);
}

static attn__lane_view view_of(const attn__window_work *work, attn__operand op, const void *base)
{
    const attn__window *plan = work->plan;
    int64_t step = attn__stride(&side_axis(work, op)->dim, op);
    step *= work->pass->by_key ? attn__window_lane_axis(plan)->window.step : 1;
    lane_offsets(work, lane_offset(work, op, 0), step, attn__window_head_stride(work, op), work->lanes);
    return (attn__lane_view){.base = (void *)(uintptr_t)base,
                             .dtype = work->canonical->problem.dtype,
                             .lane_offset = work->s.offset,
                             .row_offset = plan->channel[op],
                             .rows = attn__window_channels(plan, op) * plan->heads,
                             .lanes = work->lanes};
}

static void read_lanes(const attn__window_work *work, attn__operand op, const void *base, float *out)
{
    if (work->head > 0)
        return;
    attn__lane_view view = view_of(work, op, base);
    work->plan->lanes->gather(&view, out, work->plan->taps->width, 1);
}

/* Writes the tile times each lane's factor, or adds it if `accumulate` is set. The last head writes for all heads. */
void attn__window_write(attn__window_work *work, attn__operand op, void *base, float *tile, const float *factor)
{
    const attn__online_softmax_kernel *lanes = work->plan->lanes;
    int64_t width = work->plan->taps->width, last = work->plan->heads - 1;
    int64_t own = attn__window_channels(work->plan, op);
    bool adds = work->canonical->backward && work->canonical->problem.accumulate;
    if (work->head < last) {
        lanes->scale(tile, own, width, factor);
        return;
    }
    attn__lane_view view = view_of(work - last, op, base);
    int64_t step = work->lanes > 1 ? work->s.offset[1] - work->s.offset[0] : 1;
    bool runs = view.row_offset && step == 1 && view.dtype == ATTN_F32;
    if (last == 0 && !adds && !runs) {
        lanes->scatter(&view, tile, width, factor);
        return;
    }
    lanes->scale(tile, own, width, factor);
    tile -= last * own * width;
    if (adds) {
        lanes->gather(&view, work->s.lanes.old, width, 1);
        lanes->add(tile, work->s.lanes.old, view.rows * width, 1);
    }
    if (!runs) {
        lanes->scatter(&view, tile, width, work->s.softmax.ones);
        return;
    }
    for (int64_t c = 0; c < view.rows; c++)
        memcpy((float *)base + view.lane_offset[0] + view.row_offset[c], tile + c * width,
               (size_t)work->lanes * sizeof(float));
}

/* ---------------------------------------------------------------------------------------------------------- a block */

static void list_taps(attn__window_work *w)
{
    const attn__window_axis *axis = attn__window_lane_axis(w->plan);
    int64_t low = attn__window_cell(axis, axis->first), high = attn__window_cell(axis, axis->last - 1);
    for (int64_t k = 0; k < w->now.n; k++) {
        int64_t tap = w->now.first + k * w->stride, cell = attn__window_cell(axis, tap);
        w->s.shift[k] = (w->pass->by_key ? high - cell : cell - low) * w->plan->per_cell;
        w->s.phase[k] = w->pass->by_key ? 0 : attn__window_phase(axis, tap);
    }
}

static void list_entries(attn__window_work *w)
{
    int64_t ld = w->pass->ld, phases = w->pass->strip_phases, e = 0;
    list_taps(w);
    for (int64_t p = 0; p < w->pairs; p++) {
        int64_t slot = w->s.pair[p].slot;
        for (int64_t k = 0; k < w->now.n; k++, e++) {
            int64_t row = slot * phases + w->s.phase[k], shift = w->s.shift[k];
            w->s.entries.number[e] = (int32_t)(w->now.first + k * w->stride);
            w->s.entries.a[e] = row * w->plan->channels * w->plan->heads * ld + shift;
            w->s.entries.b[e] = row * w->plan->values * w->plan->heads * ld + shift;
            w->s.entries.range[e] = w->pass->by_key ? shift : 0;
            w->s.entries.state[e] = w->pass->by_key ? slot * 2 * ld + shift : 0;
            w->s.entries.flag[e] = row * ld + shift;
        }
    }
}

/* Lists of entries, which all heads share, are made again only if the line or the taps change. */
static void block_start(attn__window_work *w, int64_t cell)
{
    attn__window_block next = w->s.block[cell / w->plan->taps->width];
    bool same = cell > 0 && next.first == w->now.first && next.n == w->now.n;
    w->now = next;
    w->cell = cell;
    w->strip[0] = w->s.a;
    w->strip[1] = w->s.b;
    w->flags = w->s.flags;
    w->lanes = w->live - cell < w->plan->taps->width ? w->live - cell : w->plan->taps->width;
    if (!same && w->head == 0)
        list_entries(w);
}

/* Returns the number of taps of a run: all taps of a pair if the lanes' axis has step 1, otherwise 1. */
static int64_t run_of(const attn__window_work *w)
{
    return w->plan->axis[w->plan->naxes - 1].window.step == 1 ? w->now.n : 1;
}

/* Sets the operand of a block's products to the strips of keys or values at the current cell. */
static void aim(const attn__window_work *w, bool values, attn__tap_block *b)
{
    b->channels = values ? w->plan->values : w->plan->channels;
    b->strip = w->strip[values] + w->cell;
    b->offset = (values ? w->s.entries.b : w->s.entries.a) + w->entry;
}

/* Initializes a block field by field. Copying a whole struct would be slow, because it waits for recent stores. */
static inline void block_of(const attn__window_work *w, bool values, attn__tap_block *b)
{
    int64_t width = w->plan->taps->width;
    b->taps = entries_of(w);
    b->run = run_of(w);
    b->unit = w->plan->unit;
    b->down = w->pass->by_key;
    b->marked = false;
    b->factor = 1;
    b->tile = NULL;
    b->tile_ld = width;
    b->s = NULL;
    b->s_ld = width;
    b->ld = w->pass->ld;
    aim(w, values, b);
}

/* Computes tile = weights x strip. `marked`: some weights may be marks of lanes that do not attend the tap. */
void attn__window_mix(attn__window_work *w, attn__tap_block *b, bool marked)
{
    size_t size = (size_t)padded(w, b->channels) * sizeof(float);
    memset(b->tile, 0, size);
    w->plan->taps->mix(b);
    if (!marked || w->plan->taps->finite(b->tile, padded(w, b->channels)))
        return;
    b->marked = true; /* the tile may have NaN from a mark times NaN or infinity */
    memset(b->tile, 0, size);
    w->plan->taps->mix(b);
}

static void mix(attn__window_work *w, bool values, float *weights, float *out)
{
    attn__tap_block b;
    block_of(w, values, &b);
    b.tile = out;
    b.s = weights;
    attn__window_mix(w, &b, attn__window_has_marks(w, &w->now));
}

/* Adds table terms to scores, in the pass for all gradients. The terms are rows that cover the whole line. */
static void line_terms(attn__window_work *w, float *s, float factor)
{
    const attn__window *plan = w->plan;
    int64_t ld = w->pass->ld, tap = w->now.first - attn__window_lane_axis(plan)->first;
    if (plan->has_table[ATTN_RELATIVE_QUERY][1])
        plan->taps->add_rows(s, w->now.n, w->s.terms[0] + tap * ld + w->cell, ld, factor);
    if (plan->has_table[ATTN_RELATIVE_QUERY][0])
        plan->taps->add_rows(s, w->now.n, w->s.pair_rows[0] + w->s.pair->number * ld + w->cell, 0, factor);
}

/* Computes scores times log2(e). Masked lanes get -infinity. In the backward pass, capped scores are stored too. */
static void find_scores(attn__window_work *w, attn__tap_block *b)
{
    float factor = (float)(w->canonical->problem.scale * (double)(float)ATTN__LOG2E), *s = w->s.s;
    int64_t width = w->plan->taps->width, n = b->taps * width;
    b->s = s;
    b->factor = factor;
    w->plan->taps->scores(b);
    if (w->pass->once) {
        line_terms(w, s, factor);
    } else {
        lane_terms(w, attn__window_lane_kind(w->pass), b->tile, s, factor);
        strip_terms(w, attn__window_strip_kind(w->pass), s, factor);
    }
    if (w->canonical->problem.softcap != 0)
        w->plan->lanes->softcap(s, n, attn__softcap(w->canonical));
    if (w->plan->capped)
        memcpy(w->s.capped, s, (size_t)n * sizeof *s);
    for (int64_t p = 0; p < w->pairs && w->canonical->has_bias; p++)
        add_bias(w, p, s + p * w->now.n * width);
    for (int64_t p = 0; p < w->pairs && w->plan->by_pairs; p++)
        mask_pair(w, p, s + p * w->now.n * width);
    if (w->plan->masked && !w->plan->by_pairs)
        hide_by_flags(w, s);
    if (!w->now.ragged)
        return;
    attn__tap_limit limit = {.taps = b->taps,
                             .number = w->s.entries.number + w->entry,
                             .shift = w->s.entries.range + w->entry,
                             .from = w->s.ranges.from + w->cell,
                             .to = w->s.ranges.to + w->cell};
    w->plan->taps->limit(s, &limit);
}

/* ---------------------------------------------------------------------------------------------------------- forward */

static void store_lse(attn__window_work *w)
{
    float *lse = w->arrays->at.lse;
    for (int64_t i = 0; i < w->lanes; i++)
        lse[lane_offset(w, ATTN__OP_LSE, i)] = attn__running_lse(w->canonical, w->s.softmax.m[i], w->s.softmax.l[i]);
}

/* A sink is a key of value 0. If its score is the largest, it changes the factor of the weights too. */
static void add_sinks(attn__window_work *w, float *factor)
{
    const float *sinks = w->arrays->at.sinks;
    float *m = w->s.softmax.m, *l = w->s.softmax.l;
    for (int64_t i = 0; i < w->lanes; i++) {
        float sink = sinks[lane_offset(w, ATTN__OP_SINKS, i)] * (float)ATTN__LOG2E;
        if (sink == -INFINITY)
            continue;
        if (l[i] != 0 && !(sink > m[i])) { /* true for NaN too, so that NaN is kept */
            l[i] += attn__normal(exp2f(sink - m[i]));
            continue;
        }
        factor[i] = l[i] == 0 ? 0 : attn__normal(exp2f(m[i] - sink));
        l[i] = l[i] * factor[i] + 1;
        m[i] = sink;
    }
}

static void forward_block(attn__window_work *w)
{
    float *factor = w->s.softmax.factor, *l = w->s.softmax.l;
    read_lanes(w, ATTN__OP_Q, w->arrays->at.q, w->s.lanes.a);
    attn__tap_block b;
    block_of(w, false, &b);
    b.tile = w->s.lanes.a;
    find_scores(w, &b);
    w->plan->taps->softmax(w->s.s, entries_of(w), w->s.softmax.m, l);
    for (int64_t i = 0; i < w->plan->taps->width; i++)
        factor[i] = 1;
    if (w->canonical->extras & ATTN__SINKS)
        add_sinks(w, factor);
    if (w->canonical->has_dropout)
        attn__window_drop(w, w->s.s, w->plan->taps->width);
    mix(w, true, w->s.s, w->s.lanes.out_b);
    find_margins(w, ATTN_RELATIVE_VALUE, w->s.s);
    table_mix(w, ATTN_RELATIVE_VALUE, w->s.lanes.out_b);
    for (int64_t i = 0; i < w->plan->taps->width; i++)
        factor[i] = l[i] == 0 ? 0 : factor[i] * w->plan->kept / l[i];
    attn__window_write(w, ATTN__OP_O, w->arrays->at.o, w->s.lanes.out_b, factor);
    if (w->canonical->problem.flags & ATTN_WANT_LSE)
        store_lse(w);
}

/* --------------------------------------------------------------------------------------------------------- backward */

static bool wants(const attn__window_work *w, unsigned bit)
{
    return w->canonical->problem.flags & bit;
}

static void write_gradient(attn__window_work *w, attn__operand op, void *base, float *tile, float factor)
{
    attn__window_factors(w, factor);
    attn__window_write(w, op, base, tile, w->s.softmax.factor);
}

void attn__window_find(attn__window_work *w, const attn__window_weights *to, attn__tap_block *b)
{
    const attn__window *plan = w->plan;
    int64_t width = plan->taps->width;
    block_of(w, false, b);
    b->tile = to->a;
    b->tile_ld = to->tile_ld;
    find_scores(w, b);
    aim(w, true, b);
    b->tile = to->b;
    b->factor = plan->kept;
    b->s = w->s.dp;
    plan->taps->scores(b);
    if (w->pass->by_key)
        strip_terms(w, ATTN_RELATIVE_VALUE, w->s.dp, plan->kept);
    else if (!w->pass->once)
        lane_terms(w, ATTN_RELATIVE_VALUE, to->b, w->s.dp, plan->kept);
    if (w->canonical->has_dropout)
        attn__window_drop(w, w->s.dp, width);
    attn__tap_gradient g = {.taps = b->taps,
                            .s = w->s.s,
                            .dp = w->s.dp,
                            .shift = w->s.entries.state + w->entry,
                            .lse = to->lse,
                            .delta = to->delta,
                            .p = to->p,
                            .ds = to->ds,
                            .ld = to->ld,
                            .marked = attn__window_has_marks(w, &w->now)};
    plan->taps->gradient(&g);
    for (int64_t p = 0; p < w->pairs && to->dbias; p++)
        bias_gradient(w, p, g.ds + p * w->now.n * g.ld, g.ld);
    if (plan->capped)
        plan->taps->uncap(g.ds, g.ld, w->s.capped, b->taps, attn__softcap(w->canonical));
    aim(w, false, b);
    b->s = to->ds;
    b->s_ld = to->ld;
}

/* Computes weights (w->s.s) and gradients of scores (w->s.dp) for the lanes that were read. */
static void find_block(attn__window_work *w, const float *lse, const float *delta, bool dbias)
{
    int64_t width = w->plan->taps->width;
    attn__window_weights to = {.a = w->s.lanes.a,
                               .b = w->s.lanes.b,
                               .lse = lse,
                               .delta = delta,
                               .p = w->s.s,
                               .ds = w->s.dp,
                               .tile_ld = width,
                               .ld = width,
                               .dbias = dbias};
    attn__tap_block block;
    attn__window_find(w, &to, &block);
}

static void query_block(attn__window_work *w)
{
    const attn_arrays *a = &w->arrays->at;
    const attn__window_kernel *taps = w->plan->taps;
    read_lanes(w, ATTN__OP_Q, a->q, w->s.lanes.a);
    read_lanes(w, ATTN__OP_DOUT, a->dout, w->s.lanes.b);
    read_lanes(w, ATTN__OP_O, a->o, w->s.lanes.o);
    taps->dot(w->s.lanes.o, w->s.lanes.b, w->plan->values, taps->width, taps->width, w->s.softmax.delta);
    attn__window_read_lse(w, w->line.at.lse, attn__window_lane_cell(w, 0), taps->width, w->s.softmax.lse,
                          w->s.softmax.delta);
    find_block(w, w->s.softmax.lse, w->s.softmax.delta, wants(w, ATTN_WANT_DBIAS));
    find_margins(w, ATTN_RELATIVE_QUERY, w->s.dp);
    if (wants(w, ATTN_WANT_DQ)) {
        mix(w, false, w->s.dp, w->s.lanes.out_a);
        table_mix(w, ATTN_RELATIVE_QUERY, w->s.lanes.out_a);
        write_gradient(w, ATTN__OP_DQ, a->dq, w->s.lanes.out_a, (float)w->canonical->problem.scale);
    }
    if (wants(w, ATTN_WANT_DTABLES)) {
        table_gradient(w, ATTN_RELATIVE_QUERY, 0, w->s.lanes.a, w->plan->taps->width);
        if (w->canonical->has_dropout)
            attn__window_drop(w, w->s.s, taps->width);
        find_margins(w, ATTN_RELATIVE_VALUE, w->s.s);
        table_gradient(w, ATTN_RELATIVE_VALUE, 0, w->s.lanes.b, w->plan->taps->width);
    }
}

static void key_block(attn__window_work *w)
{
    const attn_arrays *a = &w->arrays->at;
    int64_t width = w->plan->taps->width;
    read_lanes(w, ATTN__OP_K, a->k, w->s.lanes.a);
    read_lanes(w, ATTN__OP_V, a->v, w->s.lanes.b);
    find_block(w, w->s.rows + w->cell, w->s.rows + w->pass->ld + w->cell, false);
    find_margins(w, ATTN_RELATIVE_KEY, w->s.dp);
    if (wants(w, ATTN_WANT_DK)) {
        mix(w, false, w->s.dp, w->s.lanes.out_a);
        table_mix(w, ATTN_RELATIVE_KEY, w->s.lanes.out_a);
        write_gradient(w, ATTN__OP_DK, a->dk, w->s.lanes.out_a, (float)w->canonical->problem.scale);
    }
    if (wants(w, ATTN_WANT_DV)) {
        if (w->canonical->has_dropout)
            attn__window_drop(w, w->s.s, width);
        mix(w, true, w->s.s, w->s.lanes.out_b);
        write_gradient(w, ATTN__OP_DV, a->dv, w->s.lanes.out_b, w->plan->kept);
    }
    if (wants(w, ATTN_WANT_DTABLES))
        table_gradient(w, ATTN_RELATIVE_KEY, 0, w->s.lanes.a, w->plan->taps->width);
}

/* ---------------------------------------------------------------------------------------------------------- an item */

static void run_line(attn__window_work *heads, int64_t line)
{
    const attn__window *plan = heads->plan;
    bool by_key = heads->pass->by_key;
    void (*block)(attn__window_work *) = !heads->canonical->backward ? forward_block : by_key ? key_block : query_block;
    int count = plan->heads;
    for (int h = 0; h < count; h++)
        line_start(heads + h, line);
    for (int64_t cell = 0; cell < heads->live; cell += plan->taps->width)
        for (attn__window_work *w = heads; w < heads + count; w++) {
            block_start(w, cell);
            prefetch_next(w);
            block(w);
        }
}

void attn__window_item(attn__window_work *heads, int64_t item)
{
    const attn__window_pass *pass = heads->pass;
    int64_t count = heads->plan->heads, members = count * heads->plan->per_cell;
    int64_t groups = heads->canonical->batch.size / members, group = item % groups;
    item /= groups;
    for (int64_t h = 0; h < count; h++) {
        heads[h].place = attn__place_of(heads->canonical, group * members + h);
        tables_read(heads + h);
        tile_start(heads + h, item);
    }
    int64_t line = item / (pass->tiles * pass->phases) * pass->band;
    int64_t end = line + pass->band < pass->lines ? line + pass->band : pass->lines;
    if (pass->once)
        attn__window_once_band(heads, line, end);
    for (; line < end && !pass->once; line++)
        run_line(heads, line);
}
