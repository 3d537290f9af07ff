/* SPDX-License-Identifier: MIT
 * The window solver's plan: which tasks it takes, and how a pass is cut into tiles, bands and slots. */
#include "attend/window/local.h"

#include "attend/task/offsets.h"
#include "base/integers.h"

#include <stdio.h>

enum { MOST_ENTRIES = 16384, MOST_SLOTS = 2048, WIDEST = 512, SPREAD = 64, COLUMNS = 64, ITEMS_LINES = 256 };

/* ------------------------------------------------------------------------------------------------- axes */

/* Lanes want a long axis: the last one, unless it is shorter than a block and another one is not. */
static void choose_lanes(attn__local *local)
{
    int best = local->naxes - 1;
    for (int i = local->naxes - 2; i >= 0; i--)
        if (attn__least(local->axis[i].n, SPREAD) > attn__least(local->axis[best].n, SPREAD))
            best = i;
    attn__local_axis lanes = local->axis[best];
    for (int i = best; i < local->naxes - 1; i++)
        local->axis[i] = local->axis[i + 1];
    local->axis[local->naxes - 1] = lanes;
}

static void find_axes(attn__local *local, const attn__task *task)
{
    attn_window windows[ATTN__LOCAL_AXES];
    int n = attn__local_windows(task, windows);
    local->free = 1;
    for (int q = 0; q < task->query.n; q++) {
        bool slides = false;
        for (int i = 0; i < n; i++)
            if (windows[i].query_dim == q) {
                local->axis[local->naxes++] = attn__local_axis_make(task, &windows[i]);
                slides = true;
            }
        if (!slides) {
            local->free_axis[local->nfree++] = q;
            local->free *= task->query.axis[q].dim.n;
        }
    }
    choose_lanes(local);
}

static void find_tables(attn__local *local, const attn__task *task)
{
    for (int i = 0; i < task->problem.nrelatives; i++)
        for (int a = 0; a < local->naxes; a++)
            if (local->axis[a].key == task->problem.relatives[i].key_dim)
                local->has_table[task->problem.relatives[i].kind][a] = true;
    for (int kind = 0; kind < ATTN__LOCAL_KINDS; kind++)
        for (int a = 0; a < local->naxes; a++) {
            int64_t channels = kind == ATTN_RELATIVE_VALUE ? local->values : local->channels;
            local->table_at[kind][a] = local->table_floats;
            if (local->has_table[kind][a])
                local->table_floats += (local->axis[a].last - local->axis[a].first) * channels;
        }
}

/* ----------------------------------------------------------------------------------------------- passes */

/* Positions of a line, or queries, that follow each other closely share strips from line to line. */
static void find_slots(attn__local_pass *pass, const attn__local *local)
{
    pass->slots = pass->by_key ? local->free : 1;
    for (int i = 0; i < local->naxes - 1; i++) {
        const attn__local_axis *axis = &local->axis[i];
        const attn_window *w = &axis->window;
        int64_t taps = pass->by_key ? axis->last - axis->first : attn__least(axis->taps, axis->last - axis->first);
        int64_t a = w->step, b = w->dilation;
        int64_t span = attn__most((taps - 1) * w->dilation / (pass->by_key ? w->step : 1) + 1, 1);
        while (b) {
            int64_t rest = a % b;
            a = b;
            b = rest;
        }
        pass->divisor[i] = span <= SPREAD ? 1 : pass->by_key ? w->dilation / a : w->dilation;
        pass->modulus[i] = span <= SPREAD ? span : attn__most(taps, 1);
        pass->slots *= pass->modulus[i];
    }
}

static void find_entries(attn__local_pass *pass, const attn__local *local)
{
    const attn__local_axis *lanes = &local->axis[local->naxes - 1];
    pass->pairs = pass->by_key ? local->free : 1;
    for (int i = 0; i < local->naxes - 1; i++)
        pass->pairs *= local->axis[i].last - local->axis[i].first;
    pass->entries = pass->pairs * (lanes->last - lanes->first);
}

static int64_t halo(const attn__local *local)
{
    const attn__local_axis *lanes = &local->axis[local->naxes - 1];
    if (lanes->last <= lanes->first)
        return 0;
    return (attn__local_cell(lanes, lanes->last - 1) - attn__local_cell(lanes, lanes->first)) * local->woven;
}

/* Both arrays of `op`'s kind lie so that neighbours along the last batch axis continue each other's channels. */
static bool continues(const attn__task *task, attn__operand op)
{
    const attn__operand_info *info = &attn__operand_table[op];
    const attn__group *channels = info->roles & ATTN__IN_VALUE ? &task->value : &task->contract;
    const attn_dim *head = &task->batch.axis[task->batch.n - 1].dim;
    return !attn__operand_used(&task->problem, op) ||
           (attn__offsets_adjacent(channels, offsetof(attn__axis, dim) + info->offset) &&
            attn__stride(head, op) == channels->size);
}

/* The heads of the last batch axis see the same tables and masks. */
static bool are_alike(const attn__task *task)
{
    const attn__axis *head = &task->batch.axis[task->batch.n - 1];
    bool alike = !task->has_bias && !task->has_dropout && (!task->has_mask || head->dim.mask == 0) &&
                 (!task->has_lens || head->dim.lens == 0);
    for (int i = 0; i < task->problem.nrelatives; i++)
        alike = alike && head->table[i] == 0;
    return alike;
}

/* As many as a vector has lanes; few of them still gain, above all backward. */
static int64_t woven_heads(const attn__local *local, int64_t heads)
{
    int64_t woven = 1;
    while (heads % (2 * woven) == 0 && woven < local->taps->lanes)
        woven *= 2;
    return 8 * woven >= local->taps->lanes ? woven : 1;
}

/* As many heads as fill whole cache lines, but not so many that few items remain. */
static void choose_heads(attn__local *local, const attn__task *task)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    int64_t n = task->batch.n ? task->batch.axis[task->batch.n - 1].dim.n : 1, lines = local->free;
    local->heads = 1;
    local->woven = 1;
    for (size_t i = 0; i < sizeof ops / sizeof *ops && n > 1; i++)
        n = continues(task, ops[i]) ? n : 1;
    if (n > 1 && are_alike(task))
        local->woven = woven_heads(local, n);
    if (local->woven > 1)
        return;
    for (int i = 0; i < local->naxes - 1; i++)
        lines *= local->axis[i].n;
    for (int64_t heads = 2; heads <= ATTN__LOCAL_HEADS && heads <= n; heads++)
        if (n % heads == 0 && heads * attn__most(local->channels, local->values) <= COLUMNS &&
            task->batch.size / heads * lines >= ITEMS_LINES)
            local->heads = (int)heads;
}

/* A tile's strips should fit in the second cache, and its halo should be the smaller part.  With interleaved heads the
 * halo is small even for short tiles, and short tiles allow long bands. */
static void choose_tile(attn__local_pass *pass, const attn__local *local, const attn__task *task)
{
    int64_t width = local->taps->width, beyond = halo(local);
    int64_t cell = pass->slots * pass->strip_phases * (local->channels + local->values) * (int64_t)sizeof(float);
    cell *= local->heads;
    int64_t part = local->woven > 1 ? 8 : 2, tile = (int64_t)task->caches.l2 / part / attn__most(cell, 1) - beyond;
    tile = attn__least(attn__most(attn__most(tile, beyond), width), WIDEST * local->woven);
    tile = attn__most(tile, 1);
    pass->tiles = attn__most((pass->cells + tile - 1) / tile, 1);
    pass->tile = attn__most(attn__round_up((pass->cells + pass->tiles - 1) / pass->tiles, width), width);
    pass->tiles = (pass->cells + pass->tile - 1) / pass->tile;
    pass->own = pass->tile;
    pass->ld = attn__round_up(pass->tile + beyond, width);
}

/* The same for all gradients at once: a tile also needs the queries that meet the keys whose gradients it writes. */
static void choose_tile_once(attn__local_pass *pass, const attn__local *local, const attn__task *task)
{
    const attn__local_axis *outer = &local->axis[0], *lanes = &local->axis[1];
    int64_t width = local->taps->width, channels = local->channels + local->values;
    int64_t after = attn__most(-attn__local_cell(lanes, lanes->first), 0) * local->woven;
    int64_t before = attn__most(attn__local_cell(lanes, lanes->last - 1), 0) * local->woven;
    pass->sums = (outer->last - 1 - outer->first) * outer->window.dilation + 1;
    pass->left = attn__round_up(before, width);
    after = attn__round_up(after, width);
    int64_t lane = (pass->slots + pass->sums + 2) * channels * (int64_t)sizeof(float);
    int64_t tile = (int64_t)task->caches.l2 / 2 / lane - pass->left - after - halo(local);
    tile = attn__least(attn__most(tile, attn__most(4 * (pass->left + after), width)), WIDEST * local->woven);
    pass->tiles = attn__most((pass->cells + tile - 1) / tile, 1);
    pass->own = attn__most(attn__round_up((pass->cells + pass->tiles - 1) / pass->tiles, width), width);
    pass->tiles = (pass->cells + pass->own - 1) / pass->own;
    pass->tile = pass->left + pass->own + after;
    pass->recent = pass->left + after + 6 * width;
    pass->ld = attn__round_up(pass->tile + halo(local), width);
}

/* Enough items for many threads, but bands much longer than the lines that they read beyond their ends.  Only sums of
 * tables know how lines are cut into bands. */
static void choose_band(attn__local_pass *pass, const attn__local *local, const attn__task *task)
{
    int64_t others = task->batch.size / (local->heads * local->woven) * pass->tiles * pass->phases;
    int64_t parts = pass->once && !local->table_floats ? attn__least(4 * task->threads, 16) : 16;
    pass->band = attn__least(attn__most(pass->lines * others / parts, 16), 256);
    pass->bands = (pass->lines + pass->band - 1) / pass->band;
    pass->items = pass->bands * pass->tiles * pass->phases;
}

static void find_pass(attn__local_pass *pass, const attn__local *local, const attn__task *task, bool by_key)
{
    const attn__local_axis *lanes = &local->axis[local->naxes - 1];
    const attn_window *w = &lanes->window;
    pass->by_key = by_key;
    pass->lines = by_key ? 1 : local->free;
    for (int i = 0; i < local->naxes - 1; i++)
        pass->lines *= by_key ? local->axis[i].window.size : local->axis[i].n;
    pass->cells = (by_key ? (w->size + w->step - 1) / w->step : lanes->n) * local->woven;
    pass->phases = by_key ? w->step : 1;
    pass->strip_phases = by_key ? 1 : w->step;
    find_slots(pass, local);
    find_entries(pass, local);
    if (pass->once)
        choose_tile_once(pass, local, task);
    else
        choose_tile(pass, local, task);
    choose_band(pass, local, task);
}

static void find_all(attn__local *local, const attn__task *task)
{
    local->taps = attn__taps_for(task->isa);
    local->lanes = attn__lanes_for(task->isa);
    local->tile = attn__tile_for(task->isa);
    local->channels = task->contract.size;
    local->values = task->value.size;
    find_axes(local, task);
    find_tables(local, task);
    choose_heads(local, task);
    attn__local_masks_plan(local, task);
    const attn_window *w = &local->axis[local->naxes - 1].window;
    local->unit = local->woven * (w->step == 1 ? w->dilation : 1);
    local->kept = (float)(1 / (1 - task->problem.dropout));
    find_pass(&local->pass[0], local, task, false);
    find_pass(&local->pass[1], local, task, true);
    local->once = attn__local_once_serves(local, task);
    local->pass[2].once = local->once;
    if (local->once)
        find_pass(&local->pass[2], local, task, false);
}

/* ------------------------------------------------------------------------------------------------ refuse */

/* Two pairs would add to one element. */
static bool repeats(const attn__task *task, unsigned bit, attn__operand op)
{
    const attn__group *const groups[] = {&task->batch, &task->query, &task->key, &task->contract, &task->value};
    if (!(task->problem.with & bit))
        return false;
    for (int g = 0; g < 5; g++)
        for (int i = 0; i < groups[g]->n; i++)
            if (attn__operand_table[op].roles & (1 << g) || g == 0) {
                const attn__axis *axis = &groups[g]->axis[i];
                if (attn__stride(&axis->dim, op) == 0 && (axis->dim.n > 1 || g == 2))
                    return true;
            }
    return false;
}

static const char *refuse_gradients(const attn__task *task)
{
    if (repeats(task, ATTN_WANT_DQ, ATTN__OP_DQ) || repeats(task, ATTN_WANT_DK, ATTN__OP_DK) ||
        repeats(task, ATTN_WANT_DV, ATTN__OP_DV))
        return "a gradient is broadcast";
    return NULL;
}

/* Each window slides along its own QUERY axis, and bands and tables must relate the same axes. */
static const char *refuse_windows(const attn__task *task, const attn_window *windows, int n)
{
    const attn_problem *p = &task->problem;
    if (n != task->key.n)
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

static const char *refuse_features(const attn__task *task)
{
    const attn_problem *p = &task->problem;
    attn_window windows[ATTN__LOCAL_AXES];
    if (p->nwindows == 0 && p->nrelatives == 0)
        return "neither window nor table";
    if (p->dtype == ATTN_F64)
        return "f64 is the reference's";
    if (p->score != ATTN_SCORE_DOT || p->normalise != ATTN_SOFTMAX)
        return "neither dot product nor softmax";
    if ((p->nbands || task->has_mask || task->has_lens) && p->mask_fill != 0)
        return "masked keys score";
    return refuse_windows(task, windows, attn__local_windows(task, windows));
}

/* Numbers of taps and cells that int32 and the scratch memory can hold. */
static bool is_moderate(const attn__task *task)
{
    const int64_t most = 1 << 28;
    attn_window windows[ATTN__LOCAL_AXES];
    int count = attn__local_windows(task, windows);
    for (int i = 0; i < count; i++) {
        const attn_window *w = &windows[i];
        int64_t n = task->query.axis[w->query_dim].dim.n, taps = task->key.axis[w->key_dim].dim.n;
        if (n > most || w->step > 64 || w->size > most || taps > MOST_ENTRIES || w->dilation > most / taps ||
            w->offset < -most || w->offset > most || w->size < 1)
            return false;
    }
    return true;
}

const char *attn__local_refuse(const attn__task *task)
{
    const char *why = refuse_features(task);
    if (!why && task->backward)
        why = refuse_gradients(task);
    if (why)
        return why;
    if (!is_moderate(task))
        return "a window too large";
    attn__local local = {0};
    find_all(&local, task);
    for (int i = 0; i < 1 + task->backward; i++) {
        const attn__local_pass *pass = &local.pass[i];
        if (pass->entries > MOST_ENTRIES || pass->slots > MOST_SLOTS || pass->ld > 4 * WIDEST + 2 * MOST_ENTRIES)
            return "a window too large";
    }
    for (int i = 0; i < local.naxes; i++)
        if (local.axis[i].last <= local.axis[i].first)
            return "no tap is in reach";
    return NULL;
}

/* ------------------------------------------------------------------------------------------------- plan */

static const attn__group *group_of(const attn__task *task, bool value)
{
    return value ? &task->value : &task->contract;
}

/* Offsets of channels, for operands whose channels are not adjacent. */
static int64_t *fill_channels(attn__local *local, const attn__task *task, int64_t *next)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const attn__operand_info *info = &attn__operand_table[ops[i]];
        const attn__group *group = group_of(task, info->roles & ATTN__IN_VALUE);
        size_t stride = offsetof(attn__axis, dim) + info->offset;
        if (attn__offsets_adjacent(group, stride))
            continue;
        attn__offsets_fill(group, stride, 0, group->size, next);
        local->channel[ops[i]] = next;
        next += group->size;
    }
    return next;
}

static int64_t *fill_table(attn__local *local, const attn__task *task, int i, int64_t *next)
{
    const attn_relative *r = &task->problem.relatives[i];
    const attn__group *group = group_of(task, r->kind == ATTN_RELATIVE_VALUE);
    for (int64_t c = 0; c < group->size; c++) {
        int64_t index[ATTN_MAX_DIMS], offset = 0;
        attn__split(group, c, index);
        bool served = index[group->n - 1] >= r->begin && index[group->n - 1] < r->end;
        index[group->n - 1] -= r->begin;
        for (int a = 0; a < group->n; a++)
            offset += index[a] * group->axis[a].table[i];
        next[c] = served ? offset : INT64_MIN;
    }
    local->table_channel[i] = next;
    return next + group->size;
}

static size_t aligned(size_t size)
{
    return attn__size_add(size, 63) & ~(size_t)63;
}

attn_status attn__local_plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    size_t channels = 4 * (size_t)(task->contract.size + task->value.size);
    channels += (size_t)task->problem.nrelatives * (size_t)attn__most(task->contract.size, task->value.size);
    attn__local *local = attn__alloc_zero(context, attn__size_add(sizeof *local, channels * sizeof(int64_t)));
    if (!local)
        return ATTN_MEMORY;
    find_all(local, task);
    int64_t *next = fill_channels(local, task, local->memory);
    for (int i = 0; i < task->problem.nrelatives; i++)
        next = fill_table(local, task, i, next);
    attn__local_scratch unused[ATTN__LOCAL_HEADS] = {0};
    local->share = aligned(attn__local_divide(local, task, &local->pass[0], NULL, unused));
    for (int i = 1; task->backward && i < ATTN__LOCAL_PASSES - !local->once; i++) {
        size_t share = aligned(attn__local_divide(local, task, &local->pass[i], NULL, unused));
        local->share = share > local->share ? share : local->share;
    }
    attn__task shared = attn__local_shared(task);
    local->slot_share = aligned(attn__sums_size(&shared));
    recipe->data = local;
    recipe->workspace = attn__size_add(attn__size_mul((size_t)task->threads, local->share),
                                       attn__size_mul(local->slot_share, ATTN__LOCAL_SLOTS));
    snprintf(recipe->text, sizeof recipe->text, "%s blocks of %d, tiles of %d, bands of %d lines, %d strips",
             attn__isa_text(local->taps->isa), local->taps->width, (int)local->pass[0].tile, (int)local->pass[0].band,
             (int)local->pass[0].slots);
    return ATTN_OK;
}
