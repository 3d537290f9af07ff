/* SPDX-License-Identifier: MIT
 *
 * window_dropout.c - dropout of windows: a key for each query's row and a column for each tap, as base/rng.h has
 * them.  The columns of a window that is moved inwards count from where it stands; the kernel subtracts that.
 */
#include "attend/solve/window_solver.h"

#include "base/rng.h"

static const attn__axis *lane_queries(const attn__window_work *work)
{
    const attn__window *plan = work->plan;
    return &work->canonical->query.axis[plan->axis[plan->naxes - 1].query];
}

/* Row number of query 0 of the line of outer queries `at`. */
static uint64_t line_row(const attn__window_work *work, const int64_t *at, int64_t free)
{
    const attn__window *plan = work->plan;
    uint64_t row = work->batch_row;
    for (int i = 0; i < plan->naxes - 1; i++)
        row += (uint64_t)at[i] * (uint64_t)work->canonical->query.axis[plan->axis[i].query].drop;
    for (int f = plan->nfree - 1; f >= 0; f--) {
        const attn__axis *axis = &work->canonical->query.axis[plan->free_axis[f]];
        row += (uint64_t)(free % axis->dim.n) * (uint64_t)axis->drop;
        free /= axis->dim.n;
    }
    return row;
}

/* Keys of `n` queries from `first` on: low halves, and high ones `apart` further. */
static void fill_keys(const attn__window_work *work, uint64_t row, int64_t first, int64_t n, uint32_t *out,
                      int64_t apart)
{
    const attn_problem *p = &work->canonical->problem;
    uint64_t seed = p->seed + work->arrays->seed_offset, step = (uint64_t)lane_queries(work)->drop;
    for (int64_t i = 0; i < n; i++) {
        uint64_t of_whole = attn__drop_row(&work->arrays->drop_rows, row + (uint64_t)(first + i) * step);
        uint64_t key = attn__dropout_key(seed, p->stream, of_whole);
        out[i] = (uint32_t)key;
        out[apart + i] = (uint32_t)(key >> 32);
    }
}

void attn__window_drop_of_slot(attn__window_work *work, int64_t slot, const int64_t *at, int64_t free)
{
    const attn__window_axis *axis = &work->plan->axis[work->plan->naxes - 1];
    int64_t ld = work->pass->ld, first = work->cell0 - attn__window_cell(axis, axis->last - 1);
    fill_keys(work, line_row(work, at, free), first, ld, work->s.drop_key + slot * 2 * ld, ld);
}

void attn__window_drop_of_lanes(attn__window_work *work)
{
    int64_t width = work->plan->taps->width;
    fill_keys(work, line_row(work, work->index, work->free), work->cell0 + work->cell, width, work->s.drop_key, width);
}

void attn__window_drop_of_pair(attn__window_work *work, attn__window_pair *pair, const int64_t *query)
{
    pair->column = 0;
    for (int i = 0; i < work->plan->naxes - 1; i++) {
        const attn__window_axis *axis = &work->plan->axis[i];
        int64_t own = pair->tap[i] - attn__window_range_at(axis, query[i]).moved;
        pair->column += (uint32_t)((uint64_t)own * (uint64_t)work->canonical->key.axis[axis->key].drop);
    }
}

static uint32_t tap_weight(const attn__window_work *work)
{
    const attn__window *plan = work->plan;
    return (uint32_t)work->canonical->key.axis[plan->axis[plan->naxes - 1].key].drop;
}

void attn__window_drop_of_entries(attn__window_work *work)
{
    uint32_t weight = tap_weight(work), *column = work->s.entries.column;
    for (int64_t p = 0; p < work->pairs; p++)
        for (int64_t k = 0; k < work->now.n; k++)
            *column++ = work->s.pair[p].column + (uint32_t)(work->now.first + k * work->stride) * weight;
}

void attn__window_drop(attn__window_work *work, float *s)
{
    bool by_key = work->pass->by_key;
    const uint32_t *keys = work->s.drop_key + (by_key ? work->cell : 0);
    attn__tap_drop d = {.taps = work->pairs * work->now.n,
                        .column = work->s.entries.column,
                        .weight = tap_weight(work),
                        .threshold = attn__dropout_threshold(work->canonical->problem.dropout),
                        .moved = work->s.ranges.moved + work->cell,
                        .shift = work->s.entries.range,
                        .key_at = work->s.entries.state,
                        .key_low = keys,
                        .key_high = keys + (by_key ? work->pass->ld : work->plan->taps->width)};
    work->plan->taps->drop(s, &d);
}
