/* SPDX-License-Identifier: MIT
 *
 * window_mask.c - masks and lengths of windows.  If all queries have the same mask (padding), each key has a flag in
 * the strips; otherwise the mask of each pair is read.  Positions outside a zero border are never masked.
 */
#include "attend/solve/window_solver.h"

#include <math.h>

void attn__window_masks_plan(attn__window *plan, const attn__canonical *canonical)
{
    plan->masked = canonical->has_mask || canonical->has_lens;
    for (int i = 0; i < canonical->query.n; i++) {
        const attn_dim *d = &canonical->query.axis[i].dim;
        plan->by_pairs = plan->by_pairs || (canonical->has_mask && d->mask) || (canonical->has_lens && d->lens);
    }
    for (int i = 0; i < plan->naxes; i++)
        if (plan->axis[i].key == canonical->problem.lens_dim)
            plan->lens_axis = i;
}

/* One line of keys as one query sees it. */
typedef struct line {
    const uint8_t *mask; /* of position 0 of the lanes' axis, or NULL */
    int64_t stride;
    int64_t size; /* of the lanes' axis */
    int64_t len;  /* along the lanes' axis */
} line;

static line line_of(const attn__window_work *work, int64_t mask, int64_t lens, int64_t position)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *axis = &plan->axis[plan->naxes - 1];
    line l = {.stride = work->canonical->key.axis[axis->key].dim.mask, .size = axis->window.size, .len = INT64_MAX};
    if (work->canonical->has_mask)
        l.mask = work->arrays->mask + mask;
    if (!work->canonical->has_lens)
        return l;
    l.len = work->arrays->lens[lens];
    if (plan->lens_axis != plan->naxes - 1)
        l.len = position < l.len ? INT64_MAX : INT64_MIN;
    return l;
}

static bool takes_part(const line *l, int64_t position)
{
    if (position < 0 || position >= l->size)
        return true;
    return position < l->len && (!l->mask || l->mask[position * l->stride]);
}

static int64_t outer_position(const attn__window_work *work, const int64_t *at)
{
    int axis = work->plan->lens_axis;
    return axis < work->plan->naxes - 1 ? at[axis] : 0;
}

void attn__window_mask_of_slot(attn__window_work *work, int64_t slot, const int64_t *at)
{
    const attn__window_pass *pass = work->pass;
    const attn__window_axis *axis = &work->plan->axis[work->plan->naxes - 1];
    int64_t offsets[ATTN__OPERANDS], step = axis->window.step;
    attn__window_line_offsets(work, at, 0, true, offsets);
    line l = line_of(work, offsets[ATTN__OP_MASK], offsets[ATTN__OP_LENS], outer_position(work, at));
    for (int64_t phase = 0; phase < pass->strip_phases; phase++) {
        float *flags = work->s.flags + (slot * pass->strip_phases + phase) * pass->ld;
        int64_t position = (work->cell0 / work->plan->woven + attn__window_cell(axis, axis->first)) * step + phase;
        for (int64_t j = 0; j < pass->ld; j++)
            flags[j] = takes_part(&l, position + j / work->plan->woven * step);
    }
}

void attn__window_mask_of_pair(attn__window_work *work, attn__window_pair *pair, const int64_t *at, int64_t free)
{
    const attn__window *plan = work->plan;
    bool by_key = work->pass->by_key;
    const int64_t *query = by_key ? at : work->index, *key = by_key ? work->index : at;
    int64_t offsets[ATTN__OPERANDS];
    attn__window_line_offsets(work, query, free, false, offsets);
    pair->mask = offsets[ATTN__OP_MASK];
    pair->lens = offsets[ATTN__OP_LENS];
    pair->outside = false;
    for (int i = 0; i < plan->naxes - 1; i++) {
        pair->mask += key[i] * work->canonical->key.axis[plan->axis[i].key].dim.mask;
        pair->outside = pair->outside || key[i] < 0;
    }
    pair->position = outer_position(work, key);
}

/* Entry k of the pair: each lane has a query of its own, and with it a mask and a length. */
static void mask_lanes(attn__window_work *work, const attn__window_pair *pair, int64_t k, float *s)
{
    const attn__window_axis *axis = &work->plan->axis[work->plan->naxes - 1];
    const attn_dim *d = &work->canonical->query.axis[axis->query].dim;
    int64_t tap = work->now.first + k * work->stride, first = work->s.entries.range[k] + work->cell;
    int64_t distance = axis->window.offset + tap * axis->window.dilation;
    for (int64_t w = 0; w < work->lanes; w++) {
        int64_t query = work->s.ranges.query[first + w];
        if (tap < work->s.ranges.from[first + w] || tap >= work->s.ranges.to[first + w])
            continue;
        line l = line_of(work, pair->mask + query * d->mask, pair->lens + query * d->lens, pair->position);
        if (!takes_part(&l, query * axis->window.step + distance))
            s[w] = -INFINITY;
    }
}

/* Flags of the lanes' own keys. */
static void flag_lanes(attn__window_work *work)
{
    const attn__window_axis *axis = &work->plan->axis[work->plan->naxes - 1];
    line l =
        line_of(work, work->line_at[ATTN__OP_MASK], work->line_at[ATTN__OP_LENS], outer_position(work, work->index));
    for (int64_t w = 0; w < work->plan->taps->width; w++) {
        int64_t position = attn__window_lane_cell(work, w) * axis->window.step + work->phase;
        work->s.lanes.flags[w] = takes_part(&l, position);
    }
}

void attn__window_mask(attn__window_work *work, float *s)
{
    const attn__online_softmax_kernel *lanes = work->plan->lanes;
    int64_t width = work->plan->taps->width, e = 0;
    if (!work->plan->by_pairs && work->pass->by_key)
        flag_lanes(work);
    for (int64_t p = 0; p < work->pairs; p++)
        for (int64_t k = 0; k < work->now.n; k++, e++) {
            const float *flags =
                work->pass->by_key ? work->s.lanes.flags : work->s.flags + work->s.entries.flag[e] + work->cell;
            if (!work->plan->by_pairs)
                lanes->hide(s + e * width, flags, width, -INFINITY);
            else if (!work->s.pair[p].outside)
                mask_lanes(work, &work->s.pair[p], k, s + e * width);
        }
}
