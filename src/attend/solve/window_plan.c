/* SPDX-License-Identifier: MIT
 * The window solver's plan: which tasks it takes, and how a pass is cut into tiles, bands and slots. */
#include "attend/solve/window_solver.h"

#include "attend/block/rows.h"
#include "attend/block/table_panel.h"
#include "base/integers.h"

#include <stdio.h>

enum { MOST_ENTRIES = 16384, MOST_SLOTS = 2048, WIDEST = 512, SPREAD = 64, COLUMNS = 64, ITEMS_LINES = 256 };

/* ------------------------------------------------------------------------------------------------- axes */

/* Lanes want a long axis: the last one, unless it is shorter than a block and another one is not. */
static void choose_lanes(attn__window *plan)
{
    int best = plan->naxes - 1;
    for (int i = plan->naxes - 2; i >= 0; i--)
        if (attn__least(plan->axis[i].n, SPREAD) > attn__least(plan->axis[best].n, SPREAD))
            best = i;
    attn__window_axis lanes = plan->axis[best];
    for (int i = best; i < plan->naxes - 1; i++)
        plan->axis[i] = plan->axis[i + 1];
    plan->axis[plan->naxes - 1] = lanes;
}

static void find_axes(attn__window *plan, const attn__canonical *canonical)
{
    attn_window windows[ATTN__WINDOW_AXES];
    int n = attn__window_windows(canonical, windows);
    plan->free = 1;
    for (int q = 0; q < canonical->query.n; q++) {
        bool slides = false;
        for (int i = 0; i < n; i++)
            if (windows[i].query_dim == q) {
                plan->axis[plan->naxes++] = attn__window_axis_make(canonical, &windows[i]);
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

/* ----------------------------------------------------------------------------------------------- passes */

/* Positions of a line, or queries, that follow each other closely share strips from line to line. */
static void find_slots(attn__window_pass *pass, const attn__window *plan)
{
    pass->slots = pass->by_key ? plan->free : 1;
    for (int i = 0; i < plan->naxes - 1; i++) {
        const attn__window_axis *axis = &plan->axis[i];
        const attn_window *w = &axis->window;
        int64_t taps = pass->by_key ? axis->last - axis->first : attn__least(axis->taps, axis->last - axis->first);
        int64_t span = attn__most((taps - 1) * w->dilation / (pass->by_key ? w->step : 1) + 1, 1);
        int64_t common = attn__common_divisor(w->step, w->dilation);
        pass->divisor[i] = span <= SPREAD ? 1 : pass->by_key ? w->dilation / common : w->dilation;
        pass->modulus[i] = span <= SPREAD ? span : attn__most(taps, 1);
        pass->slots *= pass->modulus[i];
    }
}

static void find_entries(attn__window_pass *pass, const attn__window *plan)
{
    const attn__window_axis *lanes = &plan->axis[plan->naxes - 1];
    pass->pairs = pass->by_key ? plan->free : 1;
    for (int i = 0; i < plan->naxes - 1; i++)
        pass->pairs *= plan->axis[i].last - plan->axis[i].first;
    pass->entries = pass->pairs * (lanes->last - lanes->first);
}

static int64_t halo(const attn__window *plan)
{
    const attn__window_axis *lanes = &plan->axis[plan->naxes - 1];
    if (lanes->last <= lanes->first)
        return 0;
    return (attn__window_cell(lanes, lanes->last - 1) - attn__window_cell(lanes, lanes->first)) * plan->woven;
}

/* Both arrays of `op`'s kind lie so that neighbours along the last batch axis continue each other's channels. */
static bool continues(const attn__canonical *canonical, attn__operand op)
{
    const attn__operand_info *info = &attn__operand_table[op];
    const attn__group *channels = info->roles & ATTN__IN_VALUE ? &canonical->value : &canonical->contract;
    const attn_dim *head = &canonical->batch.axis[canonical->batch.n - 1].dim;
    return !attn__operand_used(&canonical->problem, op) ||
           (attn__offsets_adjacent(channels, offsetof(attn__axis, dim) + info->offset) &&
            attn__stride(head, op) == channels->size);
}

/* The heads of the last batch axis see the same tables and masks. */
static bool are_alike(const attn__canonical *canonical)
{
    const attn__axis *head = &canonical->batch.axis[canonical->batch.n - 1];
    bool alike = !canonical->has_bias && !canonical->has_dropout && (!canonical->has_mask || head->dim.mask == 0) &&
                 (!canonical->has_lens || head->dim.lens == 0);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        alike = alike && head->table[i] == 0;
    return alike;
}

/* As many as a vector has lanes; few of them still gain, above all backward. */
static int64_t woven_heads(int64_t heads, int64_t lanes)
{
    int64_t woven = 1;
    while (heads % (2 * woven) == 0 && woven < lanes)
        woven *= 2;
    return 8 * woven >= lanes ? woven : 1;
}

/* Heads of the last batch axis, 1 unless all arrays continue from one to the next. */
static int64_t adjacent_heads(const attn__canonical *canonical)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    int64_t n = canonical->batch.n ? canonical->batch.axis[canonical->batch.n - 1].dim.n : 1;
    for (size_t i = 0; i < sizeof ops / sizeof *ops && n > 1; i++)
        n = continues(canonical, ops[i]) ? n : 1;
    return n;
}

int64_t attn__window_woven(const attn__canonical *canonical)
{
    int64_t n = adjacent_heads(canonical);
    return n > 1 && are_alike(canonical) ? woven_heads(n, attn__window_kernel_for(canonical->isa)->lanes) : 1;
}

/* As many heads as fill whole cache lines, but not so many that few items remain. */
static void choose_heads(attn__window *plan, const attn__canonical *canonical)
{
    int64_t n = adjacent_heads(canonical), lines = plan->free;
    plan->heads = 1;
    plan->woven = attn__window_woven(canonical);
    if (plan->woven > 1)
        return;
    for (int i = 0; i < plan->naxes - 1; i++)
        lines *= plan->axis[i].n;
    for (int64_t heads = 2; heads <= ATTN__WINDOW_HEADS && heads <= n; heads++)
        if (n % heads == 0 && heads * attn__most(plan->channels, plan->values) <= COLUMNS &&
            canonical->batch.size / heads * lines >= ITEMS_LINES)
            plan->heads = (int)heads;
}

/* A tile's strips should fit in the second cache, and its halo should be the smaller part.  With interleaved heads the
 * halo is small even for short tiles, and short tiles allow long bands. */
static void choose_tile(attn__window_pass *pass, const attn__window *plan, const attn__canonical *canonical)
{
    int64_t width = plan->taps->width, beyond = halo(plan);
    int64_t cell = pass->slots * pass->strip_phases * (plan->channels + plan->values) * (int64_t)sizeof(float);
    cell *= plan->heads;
    int64_t part = plan->woven > 1 ? 8 : 2, tile = (int64_t)canonical->caches.l2 / part / attn__most(cell, 1) - beyond;
    tile = attn__least(attn__most(attn__most(tile, beyond), width), WIDEST * plan->woven);
    tile = attn__most(tile, 1);
    pass->tiles = attn__most((pass->cells + tile - 1) / tile, 1);
    pass->tile = attn__most(attn__round_up((pass->cells + pass->tiles - 1) / pass->tiles, width), width);
    pass->tiles = (pass->cells + pass->tile - 1) / pass->tile;
    pass->own = pass->tile;
    pass->ld = attn__round_up(pass->tile + beyond, width);
}

/* The same for all gradients at once: a tile also needs the queries that meet the keys whose gradients it writes. */
static void choose_tile_once(attn__window_pass *pass, const attn__window *plan, const attn__canonical *canonical)
{
    const attn__window_axis *outer = &plan->axis[0], *lanes = &plan->axis[1];
    int64_t width = plan->taps->width, channels = plan->channels + plan->values;
    int64_t after = attn__most(-attn__window_cell(lanes, lanes->first), 0) * plan->woven;
    int64_t before = attn__most(attn__window_cell(lanes, lanes->last - 1), 0) * plan->woven;
    pass->sums = (outer->last - 1 - outer->first) * outer->window.dilation + 1;
    pass->left = attn__round_up(before, width);
    after = attn__round_up(after, width);
    int64_t lane = (pass->slots + pass->sums + 2) * channels * (int64_t)sizeof(float);
    int64_t tile = (int64_t)canonical->caches.l2 / 2 / lane - pass->left - after - halo(plan);
    tile = attn__least(attn__most(tile, attn__most(4 * (pass->left + after), width)), WIDEST * plan->woven);
    pass->tiles = attn__most((pass->cells + tile - 1) / tile, 1);
    pass->own = attn__most(attn__round_up((pass->cells + pass->tiles - 1) / pass->tiles, width), width);
    pass->tiles = (pass->cells + pass->own - 1) / pass->own;
    pass->tile = pass->left + pass->own + after;
    pass->recent = pass->left + after + 6 * width;
    pass->ld = attn__round_up(pass->tile + halo(plan), width);
}

/* Enough items for many threads, but bands much longer than the lines that they read beyond their ends.  Only sums of
 * tables know how lines are cut into bands. */
static void choose_band(attn__window_pass *pass, const attn__window *plan, const attn__canonical *canonical)
{
    int64_t others = canonical->batch.size / (plan->heads * plan->woven) * pass->tiles * pass->phases;
    int64_t parts = pass->once && !plan->table_floats ? attn__least(4 * canonical->threads, 16) : 16;
    pass->band = attn__least(attn__most(pass->lines * others / parts, 16), 256);
    pass->bands = (pass->lines + pass->band - 1) / pass->band;
    pass->items = pass->bands * pass->tiles * pass->phases;
}

static void find_pass(attn__window_pass *pass, const attn__window *plan, const attn__canonical *canonical, bool by_key)
{
    const attn__window_axis *lanes = &plan->axis[plan->naxes - 1];
    const attn_window *w = &lanes->window;
    pass->by_key = by_key;
    pass->lines = by_key ? 1 : plan->free;
    for (int i = 0; i < plan->naxes - 1; i++)
        pass->lines *= by_key ? plan->axis[i].window.size : plan->axis[i].n;
    pass->cells = (by_key ? (w->size + w->step - 1) / w->step : lanes->n) * plan->woven;
    pass->phases = by_key ? w->step : 1;
    pass->strip_phases = by_key ? 1 : w->step;
    find_slots(pass, plan);
    find_entries(pass, plan);
    if (pass->once)
        choose_tile_once(pass, plan, canonical);
    else
        choose_tile(pass, plan, canonical);
    choose_band(pass, plan, canonical);
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
    attn__window_masks_plan(plan, canonical);
    const attn_window *w = &plan->axis[plan->naxes - 1].window;
    plan->unit = plan->woven * (w->step == 1 ? w->dilation : 1);
    plan->kept = (float)(1 / (1 - canonical->problem.dropout));
    find_pass(&plan->pass[0], plan, canonical, false);
    find_pass(&plan->pass[1], plan, canonical, true);
    plan->once = attn__window_once_serves(plan, canonical);
    plan->pass[2].once = plan->once;
    if (plan->once)
        find_pass(&plan->pass[2], plan, canonical, false);
}

/* ------------------------------------------------------------------------------------------------ refuse */

/* Two pairs would add to one element. */
static bool repeats(const attn__canonical *canonical, unsigned bit, attn__operand op)
{
    if (!(canonical->problem.flags & bit))
        return false;
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++) {
        const attn__group *group = attn__group_of(canonical, role);
        for (int i = 0; i < group->n && (attn__operand_table[op].roles >> role & 1); i++) {
            const attn__axis *axis = &group->axis[i];
            if (attn__stride(&axis->dim, op) == 0 && (axis->dim.n > 1 || role == ATTN_ROLE_KEY))
                return true;
        }
    }
    return false;
}

static const char *refuse_gradients(const attn__canonical *canonical)
{
    if (repeats(canonical, ATTN_WANT_DQ, ATTN__OP_DQ) || repeats(canonical, ATTN_WANT_DK, ATTN__OP_DK) ||
        repeats(canonical, ATTN_WANT_DV, ATTN__OP_DV))
        return "a gradient is broadcast";
    return NULL;
}

/* Each window slides along its own QUERY axis, and bands and tables must relate the same axes. */
static const char *refuse_windows(const attn__canonical *canonical, const attn_window *windows, int n)
{
    const attn_problem *p = &canonical->problem;
    if (n != canonical->key.n)
        return "keys without a window";
    for (int i = 0; i < n; i++)
        for (int other = 0; other < i; other++)
            if (windows[i].query_dim == windows[other].query_dim)
                return "two windows along one axis";
    for (int w = 0; w < n; w++) {
        for (int i = 0; i < p->nbands; i++)
            if (p->bands[i].key_dim == windows[w].key_dim && p->bands[i].query_dim != windows[w].query_dim)
                return "a band across axes";
        for (int i = 0; i < p->nrelatives; i++)
            if (p->relatives[i].key_dim == windows[w].key_dim && p->relatives[i].query_dim != windows[w].query_dim)
                return "a table across axes";
    }
    return NULL;
}

static const char *refuse_features(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    attn_window windows[ATTN__WINDOW_AXES];
    if (p->nwindows == 0 && p->nrelatives == 0)
        return "neither window nor table";
    if (p->dtype == ATTN_F64)
        return "f64 is for the solver of blocks";
    if (p->score != ATTN_SCORE_DOT || p->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return "neither dot product nor softmax";
    if ((p->nbands || canonical->has_mask || canonical->has_lens) && p->mask_fill != 0)
        return "masked keys score";
    return refuse_windows(canonical, windows, attn__window_windows(canonical, windows));
}

/* Numbers of taps and cells that int32 and the scratch memory can hold. */
static bool is_moderate(const attn__canonical *canonical)
{
    const int64_t most = 1 << 28;
    attn_window windows[ATTN__WINDOW_AXES];
    int count = attn__window_windows(canonical, windows);
    for (int i = 0; i < count; i++) {
        const attn_window *w = &windows[i];
        int64_t n = canonical->query.axis[w->query_dim].dim.n, taps = canonical->key.axis[w->key_dim].dim.n;
        if (n > most || w->step > 64 || w->size > most || taps > MOST_ENTRIES || w->dilation > most / taps ||
            w->offset < -most || w->offset > most || w->size < 1)
            return false;
    }
    return true;
}

const char *attn__window_refuse(const attn__canonical *canonical)
{
    const char *why = refuse_features(canonical);
    if (!why && canonical->backward)
        why = refuse_gradients(canonical);
    if (why)
        return why;
    if (!is_moderate(canonical))
        return "a window too large";
    attn__window plan = {0};
    find_all(&plan, canonical);
    for (int i = 0; i < 1 + canonical->backward; i++) {
        const attn__window_pass *pass = &plan.pass[i];
        if (pass->entries > MOST_ENTRIES || pass->slots > MOST_SLOTS || pass->ld > 4 * WIDEST + 2 * MOST_ENTRIES)
            return "a window too large";
    }
    for (int i = 0; i < plan.naxes; i++)
        if (plan.axis[i].last <= plan.axis[i].first)
            return "no tap is in reach";
    return NULL;
}

/* ------------------------------------------------------------------------------------------------- plan */

static const attn__group *group_of(const attn__canonical *canonical, bool value)
{
    return value ? &canonical->value : &canonical->contract;
}

/* Offsets of channels, for operands whose channels are not adjacent. */
static int64_t *fill_channels(attn__window *plan, const attn__canonical *canonical, int64_t *next)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const attn__operand_info *info = &attn__operand_table[ops[i]];
        const attn__group *group = group_of(canonical, info->roles & ATTN__IN_VALUE);
        size_t stride = offsetof(attn__axis, dim) + info->offset;
        if (attn__offsets_adjacent(group, stride))
            continue;
        attn__offsets_fill(group, stride, 0, group->size, next);
        plan->channel[ops[i]] = next;
        next += group->size;
    }
    return next;
}

static size_t aligned(size_t size)
{
    return attn__size_add(size, 63) & ~(size_t)63;
}

attn_status attn__window_plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    size_t channels = 4 * (size_t)(canonical->contract.size + canonical->value.size);
    channels +=
        (size_t)canonical->problem.nrelatives * (size_t)attn__most(canonical->contract.size, canonical->value.size);
    attn__window *plan = attn__alloc_zero(context, attn__size_add(sizeof *plan, channels * sizeof(int64_t)));
    if (!plan)
        return ATTN_ERROR_MEMORY;
    find_all(plan, canonical);
    int64_t *next = fill_channels(plan, canonical, plan->memory);
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        plan->table_channel[i] = next;
        next = attn__table_channel_offsets(canonical, i, next);
    }
    attn__window_scratch unused[ATTN__WINDOW_HEADS] = {0};
    plan->share = aligned(attn__window_divide(plan, canonical, &plan->pass[0], NULL, unused));
    for (int i = 1; canonical->backward && i < ATTN__WINDOW_PASSES - !plan->once; i++) {
        size_t share = aligned(attn__window_divide(plan, canonical, &plan->pass[i], NULL, unused));
        plan->share = share > plan->share ? share : plan->share;
    }
    attn__canonical shared = attn__window_shared(canonical);
    plan->slot_share = aligned(attn__sums_size(&shared));
    recipe->data = plan;
    recipe->workspace = attn__size_add(attn__size_mul((size_t)canonical->threads, plan->share),
                                       attn__size_mul(plan->slot_share, ATTN__WINDOW_SLOTS));
    snprintf(recipe->text, sizeof recipe->text, "%s blocks of %d, tiles of %d, bands of %d lines, %d strips",
             attn__isa_text(plan->taps->isa), plan->taps->width, (int)plan->pass[0].tile, (int)plan->pass[0].band,
             (int)plan->pass[0].slots);
    return ATTN_OK;
}
