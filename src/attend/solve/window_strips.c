/* SPDX-License-Identifier: MIT
 * Lines: which ones meet, strips of them kept from line to line, and blocks of lanes read and written. */
#include "attend/solve/window_solver.h"

#include "attend/block/rows.h"
#include "base/constants.h"
#include "base/integers.h"

#include <math.h>

static const attn__window_axis *lane_axis(const attn__window *plan)
{
    return &plan->axis[plan->naxes - 1];
}

static int64_t first_cell(const attn__window_axis *axis)
{
    return attn__window_cell(axis, axis->first);
}

static int64_t last_cell(const attn__window_axis *axis)
{
    return axis->last > axis->first ? attn__window_cell(axis, axis->last - 1) : first_cell(axis);
}

/* ------------------------------------------------------------------------------------------------ tiles */

/* Which queries take part where: those of the lanes where these are queries, else those of the strips. */
static void read_ranges(attn__window_work *work)
{
    const attn__window_axis *axis = lane_axis(work->plan);
    const attn__window_ranges *to = &work->s.ranges;
    int64_t woven = work->plan->woven, query = work->cell0 / woven - (work->pass->by_key ? last_cell(axis) : 0);
    for (int64_t j = 0; j < work->pass->ld; j += woven, query++) {
        attn__window_range r = {0};
        if (query >= 0 && query < axis->n)
            r = attn__window_range_at(axis, query);
        bool none = r.from >= r.to;
        for (int64_t h = 0; h < woven; h++) {
            to->query[j + h] = (int32_t)query;
            to->from[j + h] = none ? INT32_MAX : (int32_t)r.from;
            to->to[j + h] = none ? INT32_MIN : (int32_t)r.to;
            to->moved[j + h] = none ? 0 : (int32_t)r.moved;
        }
    }
}

static int64_t shift_of(const attn__window_work *work, int64_t tap)
{
    const attn__window_axis *axis = lane_axis(work->plan);
    return work->pass->by_key ? (last_cell(axis) - attn__window_cell(axis, tap)) * work->plan->woven : 0;
}

/* How many lanes of the block take part in the tap. */
static int64_t count_lanes(const attn__window_work *work, int64_t cell, int64_t tap)
{
    int64_t count = 0, at = cell + shift_of(work, tap), woven = work->plan->woven;
    for (int64_t w = 0; w < work->plan->taps->width; w += woven)
        count += work->s.ranges.from[at + w] <= tap && tap < work->s.ranges.to[at + w];
    return count * woven;
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

/* A phase of the lanes has every stride-th tap, as the dilation and the step have it. */
static void describe_blocks(attn__window_work *work)
{
    const attn__window_axis *axis = lane_axis(work->plan);
    int64_t first = axis->first;
    work->stride = 1;
    if (work->pass->by_key) {
        work->stride = axis->window.step / attn__common_divisor(axis->window.step, axis->window.dilation);
        while (first < axis->last && attn__window_phase(axis, first) != work->phase)
            first++;
    }
    int64_t count = (axis->last - first + work->stride - 1) / work->stride;
    for (int64_t cell = 0; cell < work->live; cell += work->plan->taps->width)
        work->s.block[cell / work->plan->taps->width] = describe_block(work, cell, first, count);
}

void attn__window_tile_start(attn__window_work *work, int64_t item)
{
    const attn__window_pass *pass = work->pass;
    int64_t tile = item % pass->tiles;
    work->phase = item / pass->tiles % pass->phases;
    work->cell0 = tile * pass->own - pass->left;
    int64_t live = pass->cells - work->cell0;
    if (pass->by_key) /* later phases may have one position less */
        live =
            (lane_axis(work->plan)->window.size - work->phase + pass->phases - 1) / pass->phases * work->plan->woven -
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

/* ----------------------------------------------------------------------------------------------- strips */

/* Where the strip of a phase starts: coordinate of cell 0, and the step from cell to cell. */
typedef struct strip {
    const void *base;
    attn_dtype dtype;
    int64_t at, stride; /* offset of coordinate 0, and between coordinates */
    int64_t head;       /* between interleaved heads */
    int64_t low, step, size;
    const int64_t *channel;
    int64_t channels;
} strip;

void attn__window_lane_offsets(const attn__window_work *work, int64_t first, int64_t step, int64_t head, int64_t lanes)
{
    int64_t woven = work->plan->woven;
    for (int64_t i = 0; i < lanes; i += woven, first += step)
        for (int64_t h = 0; h < woven && i + h < lanes; h++)
            work->s.offset[i + h] = first + h * head;
}

static void read_strip(const attn__window_work *work, const strip *t, float *out)
{
    const attn__online_softmax_kernel *lanes = work->plan->lanes;
    int64_t ld = work->pass->ld, woven = work->plan->woven, begin = t->low < 0 ? (-t->low + t->step - 1) / t->step : 0;
    int64_t end = t->low < t->size ? (t->size - t->low + t->step - 1) / t->step : 0;
    end = end < ld / woven ? end : ld / woven;
    if (begin >= end) {
        memset(out, 0, (size_t)(t->channels * ld) * sizeof *out);
        return;
    }
    int64_t first = t->at + (t->low + begin * t->step) * t->stride, step = t->step * t->stride;
    begin *= woven;
    end *= woven;
    attn__window_lane_offsets(work, first, step, t->head, end - begin);
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

static const attn__axis *side_axis(const attn__window_work *work, attn__operand op)
{
    const attn__window_axis *axis = lane_axis(work->plan);
    bool key = !(attn__operand_table[op].roles & ATTN__IN_QUERY);
    return key ? &work->canonical->key.axis[axis->key] : &work->canonical->query.axis[axis->query];
}

static strip strip_of(const attn__window_work *work, attn__operand op, const void *base, int64_t at, int64_t phase)
{
    const attn__window_axis *axis = lane_axis(work->plan);
    bool value = attn__operand_table[op].roles & ATTN__IN_VALUE;
    strip t = {.base = base, .dtype = work->canonical->problem.dtype, .at = at, .channel = work->plan->channel[op]};
    t.stride = attn__stride(&side_axis(work, op)->dim, op);
    t.channels = (value ? work->plan->values : work->plan->channels) * work->plan->heads;
    t.head = attn__window_head_stride(work, op);
    t.step = work->pass->by_key ? 1 : axis->window.step;
    t.low = work->cell0 / work->plan->woven;
    t.low = work->pass->by_key ? t.low - last_cell(axis) : (t.low + first_cell(axis)) * t.step + phase;
    t.size = work->pass->by_key ? axis->n : axis->window.size;
    return t;
}

void attn__window_read_lse(const attn__window_work *work, int64_t lse_at, int64_t low, float *rows)
{
    const attn__window_axis *axis = lane_axis(work->plan);
    int64_t ld = work->pass->ld, woven = work->plan->woven, head = attn__window_head_stride(work, ATTN__OP_LSE);
    int64_t stride = work->canonical->query.axis[axis->query].dim.lse;
    for (int64_t j = 0; j < ld; j += woven, low++) {
        int64_t at = lse_at + low * stride;
        bool inside = low >= 0 && low < axis->n;
        for (int64_t h = 0; h < woven; h++) {
            float lse = inside ? ((const float *)work->arrays->lse)[at + h * head] : -INFINITY;
            rows[j + h] = lse == -INFINITY ? INFINITY : lse * (float)ATTN__LOG2E;
        }
    }
}

void attn__window_read_queries(const attn__window_work *work, attn__operand op, const void *base, float *out)
{
    strip t = strip_of(work, op, base, work->line_at[op], 0);
    t.low = work->cell0 / work->plan->woven;
    t.size = lane_axis(work->plan)->n;
    read_strip(work, &t, out);
}

/* delta = sum of o * dout for all heads. */
static void read_delta(attn__window_work *work, int64_t slot, int64_t o_at)
{
    const attn__window *plan = work->plan;
    int64_t ld = work->pass->ld;
    strip t = strip_of(work, ATTN__OP_O, work->arrays->o, o_at, 0);
    float *o = work->s.line + ld * plan->values * plan->heads;
    read_strip(work, &t, o);
    for (int h = 0; h < plan->heads; h++)
        plan->taps->dot(o + h * plan->values * ld, attn__window_strip(work + h, true, slot, 0), plan->values, ld, ld,
                        work[h].s.rows + (slot * 2 + 1) * ld);
}

static void read_slot(attn__window_work *work, int64_t slot, const int64_t at[ATTN__OPERANDS])
{
    const attn__window_pass *pass = work->pass;
    const attn_arrays *x = work->arrays;
    for (int64_t phase = 0; work->head == 0 && phase < pass->strip_phases; phase++) {
        strip first = pass->by_key ? strip_of(work, ATTN__OP_Q, x->q, at[ATTN__OP_Q], phase)
                                   : strip_of(work, ATTN__OP_K, x->k, at[ATTN__OP_K], phase);
        strip second = pass->by_key ? strip_of(work, ATTN__OP_DOUT, x->dout, at[ATTN__OP_DOUT], phase)
                                    : strip_of(work, ATTN__OP_V, x->v, at[ATTN__OP_V], phase);
        read_strip(work, &first, attn__window_strip(work, false, slot, phase));
        read_strip(work, &second, attn__window_strip(work, true, slot, phase));
    }
    if (pass->by_key && work->head == 0)
        read_delta(work, slot, at[ATTN__OP_O]);
    if (pass->by_key)
        attn__window_read_lse(work, at[ATTN__OP_LSE],
                              work->cell0 / work->plan->woven - last_cell(lane_axis(work->plan)),
                              work->s.rows + slot * 2 * pass->ld);
    attn__window_tables_of_strip(work, slot);
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
        work->s.flags[slot * n + i] = 1; /* what does not exist is not masked */
    attn__window_tables_of_strip(work, slot);
}

void attn__window_outside_start(attn__window_work *work)
{
    int64_t slot = work->pass->slots;
    if (work->s.tag[slot] == -1)
        clear_slot(work, slot);
    work->s.tag[slot] = 0;
}

/* ------------------------------------------------------------------------------------------------ lines */

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

/* Offsets of a line: `at` of the outer axes on the side of the queries or keys, `free` of the free QUERY axes. */
void attn__window_line_offsets(const attn__window_work *work, const int64_t *at, int64_t free, bool keys, int64_t *out)
{
    const attn__window *plan = work->plan;
    const attn__canonical *canonical = work->canonical;
    memcpy(out, work->batch_at, sizeof work->batch_at);
    for (int i = 0; i < plan->naxes - 1; i++) {
        const attn__window_axis *axis = &plan->axis[i];
        const attn_dim *d = keys ? &canonical->key.axis[axis->key].dim : &canonical->query.axis[axis->query].dim;
        for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
            out[op] += (keys && !attn__operand_table[op].positional ? 0 : at[i]) * attn__stride(d, op);
    }
    for (int f = plan->nfree - 1; f >= 0 && !keys; f--) {
        const attn_dim *d = &canonical->query.axis[plan->free_axis[f]].dim;
        for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
            out[op] += free % d->n * attn__stride(d, op);
        free /= d->n;
    }
}

int64_t attn__window_slot_of(attn__window_work *work, const int64_t *at, int64_t free)
{
    const attn__window_pass *pass = work->pass;
    int64_t slot = pass->by_key ? free : 0, tag = slot, offsets[ATTN__OPERANDS];
    for (int i = 0; i < work->plan->naxes - 1; i++) {
        const attn__window_axis *axis = &work->plan->axis[i];
        if (at[i] < 0)
            return pass->slots;
        slot = slot * pass->modulus[i] + at[i] / pass->divisor[i] % pass->modulus[i];
        tag = tag * (pass->by_key ? axis->n : axis->window.size) + at[i];
    }
    if (work->s.tag[slot] == tag)
        return slot;
    attn__window_line_offsets(work, at, free, !pass->by_key, offsets);
    read_slot(work, slot, offsets);
    if (pass->by_key && work->canonical->has_dropout)
        attn__window_drop_of_slot(work, slot, at, free);
    if (!pass->by_key && work->plan->masked && !work->plan->by_pairs)
        attn__window_mask_of_slot(work, slot, at);
    work->s.tag[slot] = tag;
    return slot;
}

/* The bias of the pair's lines, for tap 0 of the lanes' axis (its `moved` apart) and lane coordinate 0. */
static int64_t bias_of(const attn__window_work *work, const int64_t *query, int64_t free, const int64_t *tap,
                       attn__operand op)
{
    int64_t offsets[ATTN__OPERANDS] = {0};
    attn__window_line_offsets(work, query, free, false, offsets);
    for (int i = 0; i < work->plan->naxes - 1; i++) {
        const attn__window_axis *axis = &work->plan->axis[i];
        int64_t own = tap[i] - attn__window_range_at(axis, query[i]).moved; /* NOLINT: filled for every axis */
        offsets[op] += own * attn__stride(&work->canonical->key.axis[axis->key].dim, op);
    }
    return offsets[op];
}

static void add_pair(attn__window_work *work, const int64_t *choice, int64_t free)
{
    attn__window_pair *pair = &work->s.pair[work->pairs++];
    int64_t at[ATTN__WINDOW_AXES];
    bool by_key = work->pass->by_key;
    for (int i = 0; i < work->plan->naxes - 1; i++) {
        pair->tap[i] = work->s.list[i].tap[choice[i]];
        at[i] = work->s.list[i].at[choice[i]];
    }
    pair->slot = attn__window_slot_of(work, at, free);
    const int64_t *query = by_key ? at : work->index;
    if (work->plan->by_pairs)
        attn__window_mask_of_pair(work, pair, at, free);
    if (work->canonical->has_dropout)
        attn__window_drop_of_pair(work, pair, query);
    if (!work->canonical->has_bias)
        return;
    pair->bias = bias_of(work, query, free, pair->tap, ATTN__OP_BIAS);
    pair->dbias = bias_of(work, query, free, pair->tap, ATTN__OP_DBIAS);
}

static void make_pairs(attn__window_work *work, int64_t free)
{
    int outer = work->plan->naxes - 1, i = 0;
    int64_t choice[ATTN__WINDOW_AXES] = {0};
    for (i = 0; i < outer; i++)
        if (work->s.list[i].n == 0)
            return;
    while (i >= 0) {
        add_pair(work, choice, free);
        for (i = outer - 1; i >= 0 && ++choice[i] == work->s.list[i].n; i--)
            choice[i] = 0;
    }
}

void attn__window_line_start(attn__window_work *work, int64_t line)
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
    attn__window_line_offsets(work, work->index, rest, pass->by_key, work->line_at);
    attn__window_outside_start(work);
    work->pairs = 0;
    work->free = rest;
    for (int64_t free = 0; free < (pass->by_key ? plan->free : 1); free++)
        make_pairs(work, pass->by_key ? free : rest);
    attn__window_tables_of_pairs(work);
    attn__window_tables_of_pair_strips(work);
}

/* ----------------------------------------------------------------------------------------------- blocks */

int64_t attn__window_lane_offset(const attn__window_work *work, attn__operand op, int64_t lane)
{
    int64_t at = attn__window_lane_cell(work, lane), head = lane % work->plan->woven;
    if (work->pass->by_key)
        at = at * lane_axis(work->plan)->window.step + work->phase;
    return work->line_at[op] + at * attn__stride(&side_axis(work, op)->dim, op) +
           head * attn__window_head_stride(work, op);
}

/* Asks for `lanes` coordinates from `first` on of the line `at`, if there is such a line. */
static void prefetch_line(const attn__window_work *work, attn__operand op, const void *base, int64_t at, int64_t first)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *outer = &plan->axis[plan->naxes - 2], *lanes = lane_axis(plan);
    bool key = !(attn__operand_table[op].roles & ATTN__IN_QUERY);
    int64_t n = key ? outer->window.size : outer->n, size = key ? lanes->window.size : lanes->n;
    const attn_dim *d =
        key ? &work->canonical->key.axis[outer->key].dim : &work->canonical->query.axis[outer->query].dim;
    int64_t element = (int64_t)attn_dtype_size(work->canonical->problem.dtype), step = key ? lanes->window.step : 1;
    int64_t offset = work->batch_at[op] + at * attn__stride(d, op),
            stride = attn__stride(&side_axis(work, op)->dim, op);
    if (at < 0 || at >= n || plan->channel[op])
        return;
    int64_t bytes = (attn__operand_table[op].roles & ATTN__IN_VALUE ? plan->values : plan->channels) * element;
    uintptr_t in_line = ((uintptr_t)base + (uintptr_t)(offset * element)) % 64;
    if (work->head > 0 && in_line >= (uintptr_t)bytes) /* the head before has prefetched this line */
        return;
    for (int64_t w = 0, x = first; w < work->lanes && x < size; w += plan->woven, x += step)
        for (int64_t b = 0; x >= 0 && b < bytes * plan->woven; b += 64)
            __builtin_prefetch((const char *)base + (offset + x * stride) * element + b, 0, 2);
}

void attn__window_prefetch(const attn__window_work *work)
{
    const attn__window *plan = work->plan;
    if (plan->naxes != 2 || plan->nfree)
        return;
    const attn__window_axis *outer = &plan->axis[0];
    const attn_window *w = &outer->window;
    const attn_arrays *a = work->arrays;
    int64_t line = work->index[0] + 1, x = (work->cell0 + work->cell) / plan->woven;
    if (!work->pass->by_key) {
        int64_t last = line * w->step + w->offset + (outer->taps - 1) * w->dilation;
        prefetch_line(work, ATTN__OP_Q, a->q, line, x);
        prefetch_line(work, ATTN__OP_K, a->k, last, x * lane_axis(plan)->window.step);
        prefetch_line(work, ATTN__OP_V, a->v, last, x * lane_axis(plan)->window.step);
        return;
    }
    int64_t last = (line - w->offset - outer->first * w->dilation) / w->step;
    prefetch_line(work, ATTN__OP_K, a->k, line, x * lane_axis(plan)->window.step);
    prefetch_line(work, ATTN__OP_V, a->v, line, x * lane_axis(plan)->window.step);
    prefetch_line(work, ATTN__OP_Q, a->q, last, x);
    prefetch_line(work, ATTN__OP_DOUT, a->dout, last, x);
    prefetch_line(work, ATTN__OP_O, a->o, last, x);
}

void attn__window_once_prefetch(attn__window_work *work, int64_t pair, int64_t x)
{
    const attn__window_axis *outer = &work->plan->axis[0];
    const attn_arrays *a = work->arrays;
    int64_t line = work->index[0], low = attn__window_cell(outer, outer->first);
    int64_t high = attn__window_cell(outer, outer->last - 1);
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
            prefetch_line(work, wanted[i].op, wanted[i].base, wanted[i].line, (work->cell0 + x) / work->plan->woven);
}

static attn__lane_view view_of(const attn__window_work *work, attn__operand op, const void *base)
{
    bool value = attn__operand_table[op].roles & ATTN__IN_VALUE;
    int64_t first = attn__window_lane_offset(work, op, 0), woven = work->plan->woven;
    int64_t step = attn__window_lane_offset(work, op, woven) - first;
    attn__window_lane_offsets(work, first, step, attn__window_head_stride(work, op), work->lanes);
    int64_t rows = (value ? work->plan->values : work->plan->channels) * work->plan->heads;
    return (attn__lane_view){(void *)(uintptr_t)base,
                             work->canonical->problem.dtype,
                             work->s.offset,
                             work->plan->channel[op],
                             rows,
                             work->lanes};
}

void attn__window_read(const attn__window_work *work, attn__operand op, const void *base, float *out)
{
    if (work->head > 0)
        return;
    attn__lane_view view = view_of(work, op, base);
    work->plan->lanes->gather(&view, out, work->plan->taps->width, 1);
}

void attn__window_write(attn__window_work *work, attn__operand op, void *base, float *tile, const float *factor)
{
    const attn__online_softmax_kernel *lanes = work->plan->lanes;
    int64_t width = work->plan->taps->width, last = work->plan->heads - 1;
    int64_t own = attn__operand_table[op].roles & ATTN__IN_VALUE ? work->plan->values : work->plan->channels;
    lanes->scale(tile, own, width, factor);
    if (work->head < last)
        return;
    tile -= last * own * width;
    attn__lane_view view = view_of(work - last, op, base);
    if (work->canonical->backward && work->canonical->problem.accumulate) {
        lanes->gather(&view, work->s.lanes.old, width, 1);
        lanes->add(tile, work->s.lanes.old, view.rows * width, 1);
    }
    int64_t step = work->lanes > 1 ? work->s.offset[1] - work->s.offset[0] : 1;
    if (view.row_offset && step == 1 && view.dtype == ATTN_F32) {
        for (int64_t c = 0; c < view.rows; c++)
            memcpy((float *)base + view.lane_offset[0] + view.row_offset[c], tile + c * width,
                   (size_t)work->lanes * sizeof(float));
        return;
    }
    lanes->scatter(&view, tile, width, work->s.softmax.ones);
}
