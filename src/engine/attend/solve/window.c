/* SPDX-License-Identifier: MIT
 * window.c - attention over windows along one to three axes, in time linear in the number of positions.  This file
 * decides which problems the solver takes, divides a pass into tiles, bands and slots, and hands items to threads.
 * window.h describes the method. */
#include "attend/solve/window.h"

#include "attend/block/rows.h"
#include "attend/block/table.h"
#include "base/arena.h"
#include "base/parallel.h"

#include <stdio.h>

enum { MOST_ENTRIES = 16384, MOST_SLOTS = 2048, WIDEST = 512, SPREAD = 64, COLUMNS = 64, ITEMS_LINES = 256 };

/* ------------------------------------------------------------------------------------------------------------- axes */

/* Converts bands lo <= position - i * step <= hi to ranges of taps. All distances in accepted windows are below FAR. */
static void find_bands(attn__window_axis *axis, const attn_problem *p)
{
    const int64_t FAR = INT64_C(1) << 40;
    axis->low = -FAR;
    axis->high = FAR;
    for (int i = 0; i < p->nbands; i++) {
        int64_t lo = attn__min(attn__max(p->bands[i].lo, -FAR), FAR) - axis->window.offset;
        int64_t hi = attn__min(attn__max(p->bands[i].hi, -FAR), FAR) - axis->window.offset;
        if (p->bands[i].key_dim != axis->key)
            continue;
        axis->low = attn__max(axis->low, attn__ceil_div(lo, axis->window.dilation));
        axis->high = attn__min(axis->high, attn__floor_div(hi, axis->window.dilation) + 1);
    }
}

static bool is_taken(const attn_window *windows, int n, int query)
{
    for (int i = 0; i < n; i++)
        if (windows[i].query_dim == query)
            return true;
    return false;
}

/* Returns the QUERY axis that some table or band relates to a KEY axis, or -1 if there is none. */
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

/* Finds a window for each KEY axis and returns their number. The number is smaller if some axis can have no window.  A
 * KEY axis without a window, to which a table refers, gets a window with a shifting border and the length of the axis.
 * Its virtual taps are then relative positions, which index the table. */
static int find_windows(const attn__canonical *canonical, attn_window windows[ATTN__WINDOW_AXES])
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
    for (int round = 0; round < 2; round++) /* first axes with a table or band, then others */
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

static attn__window_axis make_axis(const attn__canonical *canonical, const attn_window *window)
{
    attn__window_axis axis = {.window = *window, .query = window->query_dim, .key = window->key_dim};
    axis.n = canonical->query.axis[axis.query].dim.n;
    axis.taps = canonical->key.axis[axis.key].dim.n;
    find_bands(&axis, &canonical->problem);
    bool any = false;
    for (int64_t i = 0; i < axis.n; i++) {
        attn__window_range r = attn__window_range_at(&axis, i);
        if (r.from >= r.to)
            continue;
        axis.first = any ? attn__min(axis.first, r.from) : r.from;
        axis.last = any ? attn__max(axis.last, r.to) : r.to;
        any = true;
    }
    return axis;
}

/* Chooses the axis of the lanes: the last axis, unless it is shorter than a block and another axis is longer. */
static void choose_lanes(attn__window *plan)
{
    int best = plan->naxes - 1;
    for (int i = plan->naxes - 2; i >= 0; i--)
        if (attn__min(plan->axis[i].n, SPREAD) > attn__min(plan->axis[best].n, SPREAD))
            best = i;
    attn__window_axis lanes = plan->axis[best];
    for (int i = best; i < plan->naxes - 1; i++)
        plan->axis[i] = plan->axis[i + 1];
    plan->axis[plan->naxes - 1] = lanes;
}

static void find_axes(attn__window *plan, const attn__canonical *canonical)
{
    attn_window windows[ATTN__WINDOW_AXES];
    int n = find_windows(canonical, windows);
    plan->free = 1;
    for (int q = 0; q < canonical->query.n; q++) {
        bool slides = false;
        for (int i = 0; i < n; i++)
            if (windows[i].query_dim == q) {
                plan->axis[plan->naxes++] = make_axis(canonical, &windows[i]);
                slides = true;
            }
        if (!slides) {
            plan->free_axis[plan->nfree++] = q;
            plan->free *= canonical->query.axis[q].dim.n;
        }
    }
    choose_lanes(plan);
}

static void find_tables(attn__window *plan, const attn__canonical *canonical)
{
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        for (int a = 0; a < plan->naxes; a++)
            if (plan->axis[a].key == canonical->problem.relatives[i].key_dim)
                plan->has_table[canonical->problem.relatives[i].kind][a] = true;
    for (int kind = 0; kind < ATTN__WINDOW_KINDS; kind++)
        for (int a = 0; a < plan->naxes; a++) {
            int64_t channels = kind == ATTN_RELATIVE_VALUE ? plan->values : plan->channels;
            plan->table_at[kind][a] = plan->table_floats;
            if (plan->has_table[kind][a])
                plan->table_floats += (plan->axis[a].last - plan->axis[a].first) * channels;
        }
}

/* ----------------------------------------------------------------------------------------------------------- passes */

/* A strip is read once, because nearby lines find it in its slot. */
static void find_slots(attn__window_pass *pass, const attn__window *plan)
{
    pass->slots = pass->by_key ? plan->free : 1;
    for (int i = 0; i < plan->naxes - 1; i++) {
        const attn__window_axis *axis = &plan->axis[i];
        const attn_window *w = &axis->window;
        int64_t taps = pass->by_key ? axis->last - axis->first : attn__min(axis->taps, axis->last - axis->first);
        int64_t span = attn__max((taps - 1) * w->dilation / (pass->by_key ? w->step : 1) + 1, 1);
        int64_t common = attn__gcd(w->step, w->dilation);
        pass->divisor[i] = span <= SPREAD ? 1 : pass->by_key ? w->dilation / common : w->dilation;
        pass->modulus[i] = span <= SPREAD ? span : attn__max(taps, 1);
        pass->slots *= pass->modulus[i];
    }
}

static void find_entries(attn__window_pass *pass, const attn__window *plan)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    pass->pairs = pass->by_key ? plan->free : 1;
    for (int i = 0; i < plan->naxes - 1; i++)
        pass->pairs *= plan->axis[i].last - plan->axis[i].first;
    pass->entries = pass->pairs * (lanes->last - lanes->first);
}

static int64_t halo(const attn__window *plan)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    if (lanes->last <= lanes->first)
        return 0;
    return (attn__window_cell(lanes, lanes->last - 1) - attn__window_cell(lanes, lanes->first)) * plan->per_cell;
}

static const attn__group *channels_of(const attn__canonical *canonical, attn__operand op)
{
    return attn__operand_table[op].roles & ATTN__IN_VALUE ? &canonical->value : &canonical->contract;
}

/* Reports whether the channels of neighbours along the last batch axis are adjacent. */
static bool continues(const attn__canonical *canonical, attn__operand op)
{
    const attn__group *channels = channels_of(canonical, op);
    return !attn__operand_used(&canonical->problem, op) ||
           (attn__offsets_adjacent(channels, attn__stride_of(op)) &&
            attn__stride(&canonical->batch.axis[canonical->batch.n - 1].dim, op) == channels->size);
}

/* Reports whether the heads along the last batch axis have the same tables and masks, and no bias or dropout. */
static bool are_alike(const attn__canonical *canonical)
{
    const attn__axis *head = &canonical->batch.axis[canonical->batch.n - 1];
    bool alike = !canonical->has_bias && !canonical->has_dropout && (!canonical->has_mask || head->dim.mask == 0) &&
                 (!canonical->has_lens || head->dim.lens == 0);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        alike = alike && head->table[i] == 0;
    return alike;
}

/* Returns how many heads to interleave: the largest power of two that divides `heads`, at most `lanes`. Returns 1 if it
 * is below lanes / 8, because interleaving is then not faster. */
static int64_t heads_to_interleave(int64_t heads, int64_t lanes)
{
    int64_t per_cell = 1;
    while (heads % (2 * per_cell) == 0 && per_cell < lanes)
        per_cell *= 2;
    return 8 * per_cell >= lanes ? per_cell : 1;
}

/* Returns the number of heads along the last batch axis if they are adjacent in all arrays, otherwise 1. */
static int64_t adjacent_heads(const attn__canonical *canonical)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    int64_t n = canonical->batch.n ? canonical->batch.axis[canonical->batch.n - 1].dim.n : 1;
    for (size_t i = 0; i < sizeof ops / sizeof *ops && n > 1; i++)
        n = continues(canonical, ops[i]) ? n : 1;
    return n;
}

static int64_t heads_of_a_cell(const attn__canonical *canonical, int64_t n)
{
    return n > 1 && are_alike(canonical) ? heads_to_interleave(n, attn__window_kernel_for(canonical->isa)->lanes) : 1;
}

/* Chooses the heads of an item: as many as fill whole cache lines, but so few that many items remain. */
static void choose_heads(attn__window *plan, const attn__canonical *canonical)
{
    int64_t n = adjacent_heads(canonical), lines = plan->free;
    plan->heads = 1;
    plan->per_cell = heads_of_a_cell(canonical, n);
    if (plan->per_cell > 1)
        return;
    for (int i = 0; i < plan->naxes - 1; i++)
        lines *= plan->axis[i].n;
    for (int64_t heads = 2; heads <= ATTN__WINDOW_HEADS && heads <= n; heads++)
        if (n % heads == 0 && heads * attn__max(plan->channels, plan->values) <= COLUMNS &&
            canonical->batch.size / heads * lines >= ITEMS_LINES)
            plan->heads = (int)heads;
}

static int64_t reach(const attn__window_axis *axis)
{
    return (axis->last - 1 - axis->first) * axis->window.dilation;
}

/* A tile's strips should fit in the L2 cache, and its halo should be smaller than the rest. With interleaved heads,
 * tiles are shorter, because the halo is small and bands can then be longer.  In the pass for all gradients, a tile
 * also has the queries that attend the keys whose gradients it writes. */
static void choose_tile(attn__window_pass *pass, const attn__window *plan, const attn__canonical *canonical)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    int64_t width = plan->taps->width, beyond = halo(plan), after = 0, least = attn__max(beyond, width);
    int64_t part = plan->per_cell > 1 && !pass->once ? 8 : 2, copies = pass->slots * pass->strip_phases * plan->heads;
    if (pass->once) {
        pass->left = attn__round_up(attn__max(attn__window_cell(lanes, lanes->last - 1), 0) * plan->per_cell, width);
        after = attn__round_up(attn__max(-attn__window_cell(lanes, lanes->first), 0) * plan->per_cell, width);
        pass->sums = reach(&plan->axis[0]) + 1;
        pass->recent = pass->left + after + 6 * width;
        copies += pass->sums + 2;
        least = attn__max(4 * (pass->left + after), width);
    }
    int64_t lane = attn__max(copies * (plan->channels + plan->values) * (int64_t)sizeof(float), 1);
    int64_t tile = (int64_t)canonical->caches.l2 / part / lane - pass->left - after - beyond;
    tile = attn__max(attn__min(attn__max(tile, least), WIDEST * plan->per_cell), 1);
    pass->tiles = attn__max((pass->cells + tile - 1) / tile, 1);
    pass->own = attn__max(attn__round_up((pass->cells + pass->tiles - 1) / pass->tiles, width), width);
    pass->tiles = (pass->cells + pass->own - 1) / pass->own;
    pass->tile = pass->left + pass->own + after;
    pass->ld = attn__round_up(pass->tile + beyond, width);
}

/* Chooses the lines of a band. They are few enough for many items, but many more than the extra lines that are read at
 * both ends.  Only the bits of table sums depend on this choice. */
static void choose_band(attn__window_pass *pass, const attn__window *plan, const attn__canonical *canonical)
{
    int64_t others = canonical->batch.size / (plan->heads * plan->per_cell) * pass->tiles * pass->phases;
    int64_t parts = pass->once && !plan->table_floats ? attn__min(4 * canonical->threads, 16) : 16;
    pass->band = attn__min(attn__max(pass->lines * others / parts, 16), 256);
    pass->bands = (pass->lines + pass->band - 1) / pass->band;
    pass->items = pass->bands * pass->tiles * pass->phases;
}

static void find_pass(attn__window_pass *pass, const attn__window *plan, const attn__canonical *canonical, bool by_key)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    const attn_window *w = &lanes->window;
    pass->by_key = by_key;
    pass->lines = by_key ? 1 : plan->free;
    for (int i = 0; i < plan->naxes - 1; i++)
        pass->lines *= by_key ? plan->axis[i].window.size : plan->axis[i].n;
    pass->cells = (by_key ? (w->size + w->step - 1) / w->step : lanes->n) * plan->per_cell;
    pass->phases = by_key ? w->step : 1;
    pass->strip_phases = by_key ? 1 : w->step;
    find_slots(pass, plan);
    find_entries(pass, plan);
    choose_tile(pass, plan, canonical);
    pass->margin_ld = pass->once ? pass->ld : plan->taps->width;
    choose_band(pass, plan, canonical);
}

static bool is_one_image(const attn__window *plan)
{
    for (int i = 0; i < plan->naxes; i++) {
        const attn__window_axis *axis = &plan->axis[i];
        if (axis->window.step != 1 || axis->n != axis->window.size || axis->last <= axis->first)
            return false;
    }
    return plan->naxes == 2 && plan->free == 1;
}

/* Reports whether few lines are in use at once and taps are near each other, so that strips fit in the cache. */
static bool is_compact(const attn__window *plan)
{
    return reach(&plan->axis[0]) < 32 && reach(&plan->axis[1]) < 1024;
}

static bool once_serves(const attn__window *plan, const attn__canonical *canonical)
{
    if (!canonical->backward || plan->heads > 1)
        return false;
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        if (canonical->problem.relatives[i].kind != ATTN_RELATIVE_QUERY)
            return false;
    return is_one_image(plan) && is_compact(plan);
}

static void find_masks(attn__window *plan, const attn__canonical *canonical)
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

static void find_all(attn__window *plan, const attn__canonical *canonical)
{
    plan->taps = attn__window_kernel_for(canonical->isa);
    plan->lanes = attn__online_softmax_for(canonical->isa);
    plan->tile = attn__gemm_tile_for(canonical->isa);
    plan->channels = canonical->contract.size;
    plan->values = canonical->value.size;
    find_axes(plan, canonical);
    find_tables(plan, canonical);
    choose_heads(plan, canonical);
    find_masks(plan, canonical);
    const attn_window *w = &attn__window_lane_axis(plan)->window;
    plan->unit = plan->per_cell * (w->step == 1 ? w->dilation : 1);
    plan->capped = canonical->backward && canonical->problem.softcap != 0;
    plan->kept = (float)(1 / (1 - canonical->problem.dropout));
    find_pass(&plan->pass[0], plan, canonical, false);
    find_pass(&plan->pass[1], plan, canonical, true);
    plan->once = once_serves(plan, canonical);
    plan->pass[2].once = plan->once;
    if (plan->once)
        find_pass(&plan->pass[2], plan, canonical, false);
}

/* ----------------------------------------------------------------------------------------------------------- refuse */

/* Refuses broadcast gradients, also along key axes of length 1, because a window gives such an axis many positions. */
static const char *refuse_gradients(const attn__canonical *canonical)
{
    bool meet = attn__sums_broadcast(canonical) & ATTN__WANT_ROWS;
    for (int i = 0; i < canonical->key.n; i++) {
        const attn_dim *key = &canonical->key.axis[i].dim;
        meet = meet || ((canonical->problem.flags & ATTN_WANT_DK) && key->dk == 0) ||
               ((canonical->problem.flags & ATTN_WANT_DV) && key->dv == 0);
    }
    return meet ? "does not support broadcast gradients" : NULL;
}

/* Refuses windows that do not slide along a QUERY axis of their own, and bands or tables that relate other axes. */
static const char *refuse_windows(const attn__canonical *canonical, const attn_window *windows, int n)
{
    const attn_problem *p = &canonical->problem;
    if (n != canonical->key.n)
        return "does not support key dims without a window";
    for (int i = 0; i < n; i++)
        for (int other = 0; other < i; other++)
            if (windows[i].query_dim == windows[other].query_dim)
                return "does not support two windows along one axis";
    for (int w = 0; w < n; w++) {
        for (int i = 0; i < p->nbands; i++)
            if (p->bands[i].key_dim == windows[w].key_dim && p->bands[i].query_dim != windows[w].query_dim)
                return "does not support a band across axes";
        for (int i = 0; i < p->nrelatives; i++)
            if (p->relatives[i].key_dim == windows[w].key_dim && p->relatives[i].query_dim != windows[w].query_dim)
                return "does not support a table across axes";
    }
    return NULL;
}

static const char *refuse_features(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    attn_window windows[ATTN__WINDOW_AXES];
    if (p->nwindows == 0 && p->nrelatives == 0)
        return "needs a window or a relative table";
    if (p->dtype == ATTN_F64)
        return "does not support f64";
    if (p->score != ATTN_SCORE_DOT || p->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return "supports softmax of dot-product scores only";
    if ((p->nbands || canonical->has_mask || canonical->has_lens) && p->mask_fill != 0)
        return "does not support mask_fill";
    return refuse_windows(canonical, windows, find_windows(canonical, windows));
}

/* Reports whether the numbers of taps and cells fit in int32, and whether their arrays fit in scratch memory. */
static bool is_moderate(const attn__canonical *canonical)
{
    const int64_t most = 1 << 28;
    attn_window windows[ATTN__WINDOW_AXES];
    int count = find_windows(canonical, windows);
    for (int i = 0; i < count; i++) {
        const attn_window *w = &windows[i];
        int64_t n = canonical->query.axis[w->query_dim].dim.n, taps = canonical->key.axis[w->key_dim].dim.n;
        if (n > most || w->step > 64 || w->size > most || taps > MOST_ENTRIES || w->dilation > most / taps ||
            w->offset < -most || w->offset > most || w->size < 1)
            return false;
    }
    return true;
}

static const char *refuse(const attn__canonical *canonical)
{
    const char *why = refuse_features(canonical);
    if (!why && canonical->backward)
        why = refuse_gradients(canonical);
    if (why)
        return why;
    if (!is_moderate(canonical))
        return "the window is too large";
    attn__window plan = {0};
    find_all(&plan, canonical);
    for (int i = 0; i < 1 + canonical->backward; i++) {
        const attn__window_pass *pass = &plan.pass[i];
        if (pass->entries > MOST_ENTRIES || pass->slots > MOST_SLOTS || pass->ld > 4 * WIDEST + 2 * MOST_ENTRIES)
            return "the window is too large";
    }
    for (int i = 0; i < plan.naxes; i++)
        if (plan.axis[i].last <= plan.axis[i].first)
            return "does not support windows without any key in reach";
    return NULL;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Reserves the lists that all heads share, because they depend only on the position of a line and a block. */
static void take_lists(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    int64_t taps = lanes->last - lanes->first;
    s->block = attn__arena_take(p, pass->tile / plan->taps->width, sizeof *s->block);
    s->ranges.query = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->ranges.from = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->ranges.to = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->ranges.moved = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->entries.number = attn__arena_take(p, pass->entries, sizeof(int32_t));
    s->entries.a = attn__arena_offsets(p, pass->entries);
    s->entries.b = attn__arena_offsets(p, pass->entries);
    s->entries.range = attn__arena_offsets(p, pass->entries);
    s->entries.state = attn__arena_offsets(p, pass->entries);
    s->shift = attn__arena_offsets(p, taps);
    s->phase = attn__arena_offsets(p, taps);
    s->tap_at = attn__arena_offsets(p, taps);
    s->entries.flag = attn__arena_offsets(p, pass->entries);
    s->offset = attn__arena_offsets(p, pass->ld);
}

static void take_strips(attn__arena *p, const attn__window *plan, const attn__window_pass *pass,
                        attn__window_scratch *s)
{
    int64_t row = pass->ld * plan->heads, all = (pass->slots + 1) * pass->strip_phases * row;
    s->a = attn__arena_floats(p, all * plan->channels);
    s->b = attn__arena_floats(p, all * plan->values);
    s->line = attn__arena_floats(p, row * (plan->channels + 2 * plan->values));
}

static void take_block(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    int64_t width = plan->taps->width, taps = lanes->last - lanes->first;
    int64_t most = plan->channels > plan->values ? plan->channels : plan->values;
    float **const tiles[] = {&s->lanes.a, &s->lanes.b, &s->lanes.o, &s->lanes.out_a, &s->lanes.out_b, &s->lanes.old};
    float **const rows[] = {&s->softmax.m,    &s->softmax.l,   &s->softmax.factor,
                            &s->softmax.ones, &s->softmax.lse, &s->softmax.delta};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        *tiles[i] = attn__arena_floats(p, most * width * plan->heads);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = attn__arena_floats(p, width);
    s->s = attn__arena_floats(p, pass->entries * width);
    s->dp = attn__arena_floats(p, pass->entries * width);
    s->capped = attn__arena_floats(p, plan->capped ? pass->entries * width : 0);
    s->lanes.terms = attn__arena_floats(p, (taps + pass->pairs) * width);
    s->margin = attn__arena_floats(p, plan->table_floats ? taps * pass->margin_ld : 0);
    s->pair_margin = attn__arena_floats(p, plan->table_floats ? pass->pairs * pass->margin_ld : 0);
}

/* Reserves the memory that a head keeps between blocks. */
static void take_head(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    int64_t taps = lanes->last - lanes->first, row = pass->ld * pass->strip_phases;
    int64_t most = plan->channels > plan->values ? plan->channels : plan->values;
    attn_relative_kind kinds[2] = {pass->once ? ATTN_RELATIVE_QUERY : attn__window_strip_kind(pass),
                                   ATTN_RELATIVE_VALUE};
    int64_t lines = pass->once ? 1 : pass->slots + 1; /* with `once`, terms of one line are enough */
    for (int i = 0; i < plan->naxes - 1; i++) {
        int64_t n = plan->axis[i].last - plan->axis[i].first;
        s->list[i].tap = attn__arena_offsets(p, n);
        s->list[i].at = attn__arena_offsets(p, n);
    }
    s->pair = attn__arena_take(p, pass->pairs, sizeof *s->pair);
    s->tag = attn__arena_offsets(p, pass->slots + 1);
    s->rows = attn__arena_floats(p, pass->by_key ? (pass->slots + 1) * 2 * pass->ld : 0);
    for (int i = 0; i < 1 + pass->by_key; i++) {
        bool own = plan->has_table[kinds[i]][plan->naxes - 1], outer = attn__window_has_outer(plan, kinds[i]);
        s->terms[i] = attn__arena_floats(p, own ? lines * taps * pass->ld : 0);
        s->pair_rows[i] = attn__arena_floats(p, outer ? pass->pairs * row : 0);
    }
    s->flags = attn__arena_floats(p, plan->masked && !pass->by_key ? (pass->slots + 1) * row : 0);
    s->lanes.flags = attn__arena_floats(p, plan->taps->width);
    for (int kind = 0; kind < ATTN__WINDOW_KINDS; kind++)
        s->pair_table[kind] = attn__arena_floats(p, plan->table_floats ? pass->pairs * most : 0);
}

/* Advances the pointers of the first head's arrays, so that they belong to head `head`. */
static void move_on(const attn__window *plan, const attn__window_pass *pass, int head, attn__window_scratch *s)
{
    int64_t width = plan->taps->width, channels = head * plan->channels, values = head * plan->values;
    s->a += channels * pass->ld;
    s->b += values * pass->ld;
    float **const by_channel[] = {&s->lanes.a, &s->lanes.out_a},
                  **const by_value[] = {&s->lanes.b, &s->lanes.o, &s->lanes.out_b};
    for (size_t i = 0; i < sizeof by_channel / sizeof *by_channel; i++)
        *by_channel[i] += channels * width;
    for (size_t i = 0; i < sizeof by_value / sizeof *by_value; i++)
        *by_value[i] += values * width;
}

/* Reserves the memory that only the pass for all gradients uses. */
static void take_once(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = attn__window_lane_axis(plan);
    int64_t taps = lanes->last - lanes->first, ld = pass->ld, c = plan->channels, v = plan->values;
    attn__window_once *o = &s->once;
    const struct {
        float **at;
        int64_t rows;
    } rows[] = {{&o->q, c},
                {&o->dout, v},
                {&o->lse, 1},
                {&o->delta, 1},
                {&o->dq, c},
                {&o->dk, pass->sums * c},
                {&o->dv, pass->sums * v},
                {&o->marks, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i].at = attn__arena_floats(p, rows[i].rows * ld);
    for (int i = 0; i < ATTN__WINDOW_TOGETHER; i++) {
        o->recent[i].p = attn__arena_floats(p, taps * pass->recent);
        o->recent[i].ds = attn__arena_floats(p, taps * pass->recent);
    }
    o->query_at = attn__arena_offsets(p, taps);
    o->keys = attn__arena_take(p, pass->tile / plan->taps->width, sizeof *o->keys);
    o->fill = attn__arena_take(p, pass->tile / plan->taps->width, sizeof *o->fill);
}

static size_t divide_scratch(const attn__window *plan, const attn__canonical *canonical, const attn__window_pass *pass,
                             char *base, attn__window_scratch scratch[ATTN__WINDOW_HEADS])
{
    attn__arena p = {base, 0};
    take_lists(&p, plan, pass, scratch);
    take_strips(&p, plan, pass, scratch);
    take_block(&p, plan, pass, scratch);
    if (canonical->has_dropout)
        scratch->entries.column = attn__arena_take(&p, pass->entries, sizeof(uint32_t));
    for (int h = 0; h < plan->heads; h++) {
        attn__window_scratch *s = &scratch[h];
        if (h > 0)
            *s = scratch[0];
        if (h > 0 && base)
            move_on(plan, pass, h, s);
        take_head(&p, plan, pass, s);
        if (canonical->has_dropout)
            s->drop_key = attn__arena_take(&p, 2 * pass->ld * (pass->by_key ? pass->slots + 1 : 1), sizeof(uint32_t));
        s->table = attn__arena_floats(&p, plan->table_floats);
        s->table_sums = attn__arena_take(&p, canonical->backward ? plan->table_floats : 0, sizeof(double));
        if (pass->once)
            take_once(&p, plan, pass, s);
    }
    return p.used;
}

/* ------------------------------------------------------------------------------------------------------------- plan */

/* Reports whether several pairs add to the same element of dbias. */
static bool shares_bias(const attn__canonical *canonical)
{
    const attn__group *const groups[] = {&canonical->batch, &canonical->query, &canonical->key};
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < groups[g]->n; i++)
            if (groups[g]->axis[i].dim.n > 1 && groups[g]->axis[i].dim.dbias == 0)
                return true;
    return false;
}

/* Returns the gradients to which several passes or items add. */
static unsigned shared_of(const attn__canonical *canonical)
{
    return canonical->backward ? ATTN_WANT_DTABLES | (shares_bias(canonical) ? ATTN_WANT_DBIAS : 0u) : 0;
}

/* Finds the channel offsets of all operands and tables. Operands with adjacent channels need none. */
static void fill_channels(attn__window *plan, const attn__canonical *canonical)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    int64_t *room = plan->memory;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        plan->channel[ops[i]] = attn__offsets_channels(channels_of(canonical, ops[i]), attn__stride_of(ops[i]), &room);
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        plan->table_channel[i] = room;
        room = attn__table_channel_offsets(canonical, i, room);
    }
}

static attn_status make_plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    size_t channels = 4 * (size_t)(canonical->contract.size + canonical->value.size);
    channels +=
        (size_t)canonical->problem.nrelatives * (size_t)attn__max(canonical->contract.size, canonical->value.size);
    attn__window *plan = attn__alloc_zero(context, attn__size_add(sizeof *plan, channels * sizeof(int64_t)));
    if (!plan)
        return ATTN_ERROR_MEMORY;
    find_all(plan, canonical);
    fill_channels(plan, canonical);
    attn__window_scratch unused[ATTN__WINDOW_HEADS] = {0};
    plan->share = divide_scratch(plan, canonical, &plan->pass[0], NULL, unused);
    for (int i = 1; canonical->backward && i < ATTN__WINDOW_PASSES - !plan->once; i++) {
        size_t share = divide_scratch(plan, canonical, &plan->pass[i], NULL, unused);
        plan->share = share > plan->share ? share : plan->share;
    }
    plan->slot_share = attn__size_add(attn__sums_size(canonical, shared_of(canonical)), 63) & ~(size_t)63;
    recipe->data = plan;
    recipe->workspace = attn__size_add(attn__size_mul((size_t)canonical->threads, plan->share),
                                       attn__size_mul(plan->slot_share, ATTN__WINDOW_SLOTS));
    snprintf(recipe->text, sizeof recipe->text, "%s blocks of %d, tiles of %d, bands of %d lines, %d strips",
             attn__isa_text(plan->taps->isa), plan->taps->width, (int)plan->pass[0].tile, (int)plan->pass[0].band,
             (int)plan->pass[0].slots);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------------------ items */

typedef struct job {
    const attn__canonical *canonical;
    attn__slots shared; /* sums of the gradients that several items add to */
    const attn__window *plan;
    const attn__execution *arrays;
    char *scratch;
    int64_t slots;
    bool runs[ATTN__WINDOW_PASSES];
} job;

static int64_t items_of(const job *j, int which)
{
    return j->canonical->batch.size / (j->plan->heads * j->plan->per_cell) * j->plan->pass[which].items;
}

static void run_share(const job *j, int which, int64_t slot, int thread)
{
    attn__window_scratch scratch[ATTN__WINDOW_HEADS];
    attn__window_work heads[ATTN__WINDOW_HEADS];
    const attn__window_pass *pass = &j->plan->pass[which];
    divide_scratch(j->plan, j->canonical, pass, j->scratch + (size_t)thread * j->plan->share, scratch);
    int h = 0;
    do {
        heads[h] = (attn__window_work){
            .head = h, .canonical = j->canonical, .plan = j->plan, .pass = pass, .arrays = j->arrays, .s = scratch[h]};
        if (j->plan->slot_share)
            attn__sums_start(&heads[h].sums, j->canonical, j->shared.gradients,
                             j->shared.memory + (size_t)slot * j->shared.size);
    } while (++h < j->plan->heads);
    for (int i = 0; i < j->plan->taps->width; i++)
        scratch[0].softmax.ones[i] = 1;
    int64_t items = items_of(j, which);
    for (int64_t item = slot * items / j->slots; item < (slot + 1) * items / j->slots; item++)
        attn__window_item(heads, item);
    for (h = 0; h < j->plan->heads; h++)
        attn__window_tables_store(heads + h);
}

/* Runs all passes for the items of one slot, so that the second pass finds their arrays in the cache. */
static void run_slot(void *user, int64_t slot, int thread)
{
    const job *j = user;
    for (int which = 0; which < ATTN__WINDOW_PASSES; which++)
        if (j->runs[which])
            run_share(j, which, slot, thread);
}

/* Divides items into slots and runs the passes slot by slot. In a slot, tiles are described once and tables are read
 * once. There are few slots, because each needs memory for sums of tables. */
static void run_passes(job *j)
{
    int64_t items = items_of(j, j->runs[0] ? 0 : j->runs[1] ? 1 : 2);
    int64_t most = j->plan->slot_share ? ATTN__WINDOW_SLOTS : 64;
    j->slots = items < most ? items : most;
    attn__parallel_items(j->canonical->threads, j->slots, run_slot, j);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    const attn__window *plan = recipe->data;
    job j = {.canonical = canonical, .plan = plan, .arrays = arrays, .scratch = workspace};
    j.shared = (attn__slots){.canonical = canonical,
                             .gradients = shared_of(canonical),
                             .n = ATTN__WINDOW_SLOTS,
                             .size = plan->slot_share,
                             .memory = j.scratch + (size_t)canonical->threads * plan->share};
    unsigned with = canonical->problem.flags;
    j.runs[2] = plan->once && (with & ATTN_WANT_DQ) && (with & (ATTN_WANT_DK | ATTN_WANT_DV));
    j.runs[0] = !canonical->backward || (!j.runs[2] && (with & (ATTN_WANT_DQ | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES)));
    j.runs[1] = canonical->backward && !j.runs[2] && (with & (ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DTABLES));
    memset(j.shared.memory, 0, ATTN__WINDOW_SLOTS * plan->slot_share);
    if ((with & ATTN_WANT_DBIAS) && !canonical->problem.accumulate && !shares_bias(canonical))
        attn__gradients_clear(canonical, arrays, 0, ATTN_WANT_DBIAS, NULL);
    if (j.runs[0] || j.runs[1] || j.runs[2])
        run_passes(&j);
    attn__slots_store(&j.shared, arrays);
}

/* Estimates the time. Each multiply-add needs a load, and the backward pass computes scores twice.  For short whole
 * axes without a window, this solver is faster than flash attention if several heads fill the lanes (measured), because
 * the tiles of flash attention stay nearly empty. */
static double cost(const attn__canonical *canonical)
{
    enum { SMALL = 256, SEVERAL = 4 }; /* limit of numbers in a head's K and V; minimum of heads */
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    double channels = (double)(canonical->contract.size + canonical->value.size);
    if (canonical->problem.nwindows == 0 && (double)canonical->key.size * channels <= SMALL &&
        heads_of_a_cell(canonical, adjacent_heads(canonical)) >= SEVERAL)
        return 0.9 * pairs * channels;
    return pairs * (canonical->backward ? 2 : 1) * (30 + channels);
}

const attn__solver attn__solver_window = {.name = "window",
                                          .refuse = refuse,
                                          .cost = cost,
                                          .plan = make_plan,
                                          .apply = apply,
                                          .extras = ATTN__SOFTCAP | ATTN__SINKS | ATTN__DLSE};
