/* SPDX-License-Identifier: MIT */
#include "attend/block/tile.h"

#include "attend/block/finite.h"
#include "attend/problem/operand.h"
#include "base/integers.h"

static attn__weights_kind kind_of(const attn__canonical *canonical)
{
    attn_normalization normalization = canonical->problem.normalization;
    return normalization == ATTN_NORMALIZATION_SIGMOID   ? ATTN__WEIGHTS_SIGMOID
           : normalization == ATTN_NORMALIZATION_NONE    ? ATTN__WEIGHTS_SCORES
           : normalization == ATTN_NORMALIZATION_HARDMAX ? ATTN__WEIGHTS_LARGEST
                                                         : ATTN__WEIGHTS_SOFTMAX;
}

attn__tile_plan attn__tile_plan_of(const attn__canonical *canonical, attn__isa isa)
{
    attn__tile_plan plan = {.lanes = attn__online_softmax_for(isa),
                            .backward = attn__softmax_backward_for(isa),
                            .kind = kind_of(canonical),
                            .has_bias = canonical->has_bias,
                            .has_dropout = canonical->has_dropout,
                            .wants_dbias = canonical->backward && (canonical->problem.flags & ATTN_WANT_DBIAS),
                            .softcap = attn__softcap(canonical),
                            .fill = attn__masked_score(canonical),
                            .drop_scale = (float)attn__dropout_factor(canonical),
                            .drop_below = attn__dropout_threshold(canonical->problem.dropout)};
    attn__visible_make(&plan.visible, canonical);
    plan.masks = attn__visible_masks(&plan.visible);
    return plan;
}

/* ------------------------------------------------------------------------------------------ queries and keys */

void attn__tile_rows_take(attn__tile_rows *rows, const attn__tile_plan *plan, attn__arena *arena, int64_t heads,
                          int64_t most)
{
    int64_t all = heads * most;
    rows->most = most;
    rows->low = rows->high = NULL;
    rows->m = rows->l = rows->shrink = NULL;
    rows->chosen = NULL;
    rows->bias = attn__arena_offsets(arena, plan->has_bias ? most : 0);
    rows->dbias = attn__arena_offsets(arena, plan->wants_dbias ? most : 0);
    rows->bias_at = attn__arena_offsets(arena, plan->has_bias ? heads : 0);
    rows->dbias_at = attn__arena_offsets(arena, plan->wants_dbias ? heads : 0);
    rows->drop = attn__arena_take(arena, plan->has_dropout ? all : 0, sizeof(uint64_t));
    rows->lse = attn__arena_floats(arena, all);
    rows->delta = attn__arena_floats(arena, all);
    rows->fill = attn__arena_floats(arena, plan->masks && plan->visible.fills ? all : 0);
}

void attn__tile_lanes_take(attn__tile_rows *rows, const attn__tile_plan *plan, attn__arena *arena, int64_t heads,
                           int64_t most)
{
    int64_t all = heads * most;
    rows->most = most;
    rows->dbias = rows->dbias_at = NULL;
    rows->drop = NULL;
    rows->lse = rows->delta = rows->fill = NULL;
    rows->bias = attn__arena_offsets(arena, plan->has_bias ? most : 0);
    rows->bias_at = attn__arena_offsets(arena, plan->has_bias ? heads : 0);
    rows->low = attn__arena_take(arena, plan->has_dropout ? all : 0, sizeof(uint32_t));
    rows->high = attn__arena_take(arena, plan->has_dropout ? all : 0, sizeof(uint32_t));
    rows->m = attn__arena_floats(arena, all);
    rows->l = attn__arena_floats(arena, all);
    rows->shrink = attn__arena_floats(arena, most);
    rows->chosen = attn__arena_take(arena, plan->kind == ATTN__WEIGHTS_LARGEST ? all : 0, sizeof(int32_t));
}

void attn__tile_keys_take(attn__tile_keys *keys, const attn__tile_plan *plan, attn__arena *arena, int64_t most)
{
    attn__visible_keys_take(&keys->see, &plan->visible, arena, plan->masks ? most : 0, ATTN__VISIBLE_ANY);
    keys->bias = attn__arena_offsets(arena, plan->has_bias ? most : 0);
    keys->dbias = attn__arena_offsets(arena, plan->wants_dbias ? most : 0);
    keys->column =
        attn__arena_take(arena, plan->has_dropout ? attn__round_up(most, plan->backward->lanes) : 0, sizeof(uint32_t));
}

void attn__tile_rows_start(const attn__tile_rows *rows, const attn__tile_plan *plan, const attn__tile_place *place)
{
    const attn__group *query = &place->canonical->query;
    if (plan->has_bias)
        attn__offsets_fill(query, ATTN__STRIDE(dim.bias), place->first, place->count, rows->bias);
    if (plan->wants_dbias)
        attn__offsets_fill(query, ATTN__STRIDE(dim.dbias), place->first, place->count, rows->dbias);
}

void attn__tile_rows_head(const attn__tile_rows *rows, const attn__tile_plan *plan, const attn__tile_place *place)
{
    const attn__canonical *canonical = place->canonical;
    int64_t at = place->head * rows->most, batch = place->batch, first = place->first, count = place->count;
    if (plan->has_bias)
        rows->bias_at[place->head] = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.bias), batch);
    if (plan->wants_dbias)
        rows->dbias_at[place->head] = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.dbias), batch);
    if (plan->has_dropout && rows->drop)
        attn__dropout_rows(canonical, place->arrays, batch, first, count, rows->drop + at);
    else if (plan->has_dropout)
        attn__dropout_lanes(canonical, place->arrays, batch, first, count, plan->lanes->lanes, rows->low + at,
                            rows->high + at);
}

void attn__tile_rows_lse(const attn__tile_rows *rows, const attn__tile_plan *plan, const attn__tile_place *place,
                         const attn__visible_rows *see)
{
    enum { CHUNK = 64 };
    const attn__canonical *canonical = place->canonical;
    int64_t at = place->head * rows->most, batch = place->batch, count = place->count, offset[CHUNK];
    const float *lse = place->arrays->at.lse;
    if (plan->kind == ATTN__WEIGHTS_SIGMOID)
        return;
    attn__lse_load(canonical, place->arrays, batch, place->first, count, rows->lse + at, rows->delta + at);
    for (int64_t i = 0; plan->masks && plan->visible.fills && i < count; i++) {
        if (i % CHUNK == 0)
            attn__query_offsets(canonical, ATTN__STRIDE(dim.lse), batch, place->first + i, attn__min(count - i, CHUNK),
                                offset);
        rows->fill[at + i] = attn__visible_fill_weight(see, i, lse[offset[i % CHUNK]]);
    }
}

void attn__tile_keys_start(attn__tile_keys *keys, const attn__tile_plan *plan, const attn__canonical *canonical,
                           int64_t first, int64_t count)
{
    if (plan->masks)
        attn__visible_keys_start(&keys->see, canonical, first, count);
    keys->sigmoid_bias = attn__sigmoid_offset(canonical);
    keys->first = first;
    if (count < 1)
        return;
    if (plan->has_bias)
        attn__offsets_fill(&canonical->key, ATTN__STRIDE(dim.bias), first, count, keys->bias);
    if (plan->wants_dbias)
        attn__offsets_fill(&canonical->key, ATTN__STRIDE(dim.dbias), first, count, keys->dbias);
    if (!plan->has_dropout)
        return;
    attn__dropout_columns(canonical, first, count, keys->column);
    for (int64_t j = count; j < attn__round_up(count, plan->backward->lanes); j++)
        keys->column[j] = 0;
}

/* ----------------------------------------------------------------------------------------------- both passes */

bool attn__tile_sees(attn__tile *t, const attn__visible_span *span)
{
    const attn__visible *visible = &t->plan->visible;
    attn__visible_tile pairs = attn__tile_pairs(t);
    unsigned hidden = t->plan->masks ? attn__visible_of(&pairs, span) : (unsigned)ATTN__VISIBLE_ALL;
    t->hidden = hidden;
    t->full = !(hidden & ATTN__VISIBLE_LIMITS) || !visible->ranges;
    t->flagged = 0;
    if (hidden == ATTN__VISIBLE_NONE)
        return false;
    if (t->mask) {
        t->hidden &= visible->ranges && !visible->fills ? ~(unsigned)ATTN__VISIBLE_LIMITS : ~0u;
        if (t->hidden)
            attn__visible_bytes(&pairs, t->hidden, t->mask, t->ld);
    } else if (t->flags && (hidden & ~(unsigned)ATTN__VISIBLE_LIMITS)) {
        attn__visible_hide(&pairs, hidden, t->plan->lanes, t->flags, t->ld, 0.0f, t->flags);
        t->flagged = hidden;
    }
    return true;
}

static void load_bias(attn__tile *t, bool by_query)
{
    attn__bias bias = attn__bias_of(t->canonical, t->arrays, false, t->rows->bias + t->row, t->nrows,
                                    t->keys->bias + t->key, t->nkeys);
    bias.base += t->rows->bias_at[t->head];
    if (t->bias_there == bias.base)
        return;
    if (by_query)
        attn__bias_lanes(&bias, t->plan->lanes, (float)ATTN__LOG2E, t->bias, t->ld);
    else
        attn__bias_rows(&bias, t->ld, t->bias, t->ld);
    t->bias_there = bias.base;
}

/* -------------------------------------------------------------------------------------------------- forward */

static void hide(attn__tile *t, float score)
{
    const attn__tile_plan *plan = t->plan;
    unsigned rest = t->hidden & ~t->flagged;
    if (t->flagged)
        plan->lanes->hide(t->s, t->flags, t->nkeys * t->ld, score);
    if (!rest)
        return;
    attn__visible_tile pairs = attn__tile_pairs(t);
    attn__visible_hide(&pairs, rest, plan->lanes, t->s, t->ld, score, t->bias);
    if (plan->visible.mask && (rest & ATTN__VISIBLE_MASK))
        t->bias_there = NULL;
}

bool attn__tile_scores(attn__tile *t)
{
    const attn__tile_plan *plan = t->plan;
    int64_t count = t->nkeys * t->ld;
    if (plan->softcap != 0.0f)
        plan->lanes->softcap(t->s, count, plan->softcap);
    if (plan->has_bias) {
        load_bias(t, true);
        plan->lanes->add(t->s, t->bias, count, 1.0f);
    }
    if (t->alive) {
        hide(t, -INFINITY);
        attn__finite_note(t->s, count, t->alive);
    }
    if (!t->alive || plan->fill != -INFINITY)
        hide(t, plan->fill);
    return plan->softcap != 0.0f || plan->has_bias || t->hidden;
}

bool attn__tile_softmax(const attn__tile *t, const float *top)
{
    const attn__tile_plan *plan = t->plan;
    const attn__tile_rows *rows = t->rows;
    int64_t at = t->head * rows->most + t->row;
    bool changed = false;
    attn__online_softmax_args softmax = {
        t->s, t->nkeys, t->ld, top, rows->m + at, rows->l + at, rows->shrink + t->row, &changed};
    if (plan->kind == ATTN__WEIGHTS_LARGEST) {
        plan->lanes->largest(&(attn__lane_largest){t->s, t->nkeys, t->ld, rows->m + at, rows->chosen + at,
                                                   (int32_t)(t->keys->first + t->key)});
        return false;
    }
    if (plan->kind == ATTN__WEIGHTS_SOFTMAX)
        plan->lanes->softmax(&softmax);
    else
        plan->lanes->separate(&(attn__lane_weights){t->s, t->nkeys, t->ld, plan->kind == ATTN__WEIGHTS_SIGMOID,
                                                    t->keys->sigmoid_bias, rows->m + at, rows->l + at});
    if (plan->has_dropout)
        plan->lanes->dropout(&(attn__lane_dropout){t->s, t->nkeys, t->ld, rows->low + at, rows->high + at,
                                                   t->keys->column + t->key, plan->drop_below});
    if (t->alive)
        attn__finite_note_weights(t->s, t->nkeys, t->ld, t->fades ? t->fades + at : NULL, t->alive);
    return changed;
}

static bool drops(const attn__tile_chosen *t, int64_t i)
{
    const attn__tile_place *place = &t->place;
    uint64_t hash;
    uint32_t column;
    if (!t->plan->has_dropout)
        return false;
    attn__dropout_rows(place->canonical, place->arrays, place->batch, place->first + i, 1, &hash);
    attn__dropout_columns(place->canonical, t->chosen[i], 1, &column);
    return attn__dropout_bits(hash, column) < t->plan->drop_below;
}

void attn__tile_store_chosen(const attn__tile_chosen *t)
{
    const attn__tile_place *place = &t->place;
    const attn__canonical *canonical = place->canonical;
    attn_dtype keys = attn__operand_dtype(&canonical->problem, ATTN__OP_V), dtype = canonical->problem.dtype;
    int64_t n = canonical->value.size, at;
    for (int64_t i = 0; i < place->count; i++) {
        bool nan = t->m[i] != t->m[i];
        if (nan || t->m[i] == -INFINITY || drops(t, i)) {
            for (int64_t c = 0; c < n; c++)
                t->row[c] = nan ? t->m[i] : 0.0f;
        } else {
            attn__operand_offsets(canonical, ATTN__OP_V, place->batch, t->chosen[i], 1, &at);
            attn__rows v = {place->arrays->at.v, keys, &at, 1, t->v_channel, n};
            attn__rows_load(&v, t->plan->lanes, t->row, n);
        }
        attn__operand_offsets(canonical, ATTN__OP_O, place->batch, place->first + i, 1, &at);
        attn__rows o = {place->arrays->at.o, dtype, &at, 1, t->o_channel, n};
        attn__rows_store(&o, t->plan->backward, t->row, n, t->plan->drop_scale, false);
    }
}

/* ------------------------------------------------------------------------------------------------- backward */

void attn__tile_weights(attn__tile *t)
{
    const attn__tile_plan *plan = t->plan;
    const attn__tile_rows *rows = t->rows;
    int64_t at = t->head * rows->most + t->row;
    bool masks = plan->masks, fills = masks && plan->visible.fills, drops = plan->has_dropout;
    if (plan->has_bias)
        load_bias(t, false);
    /* Every field is set, because clearing the struct takes a few percent of a small head. */
    attn__softmax_backward_args args = {.kind = plan->kind,
                                        .sigmoid_bias = t->keys->sigmoid_bias,
                                        .rows = t->nrows,
                                        .keys = t->nkeys,
                                        .ld = t->ld,
                                        .s = t->s,
                                        .dp = t->ds,
                                        .lse = rows->lse + at,
                                        .delta = rows->delta + at,
                                        .from = masks ? t->see->begin + t->row : NULL,
                                        .to = masks ? t->see->end + t->row : NULL,
                                        .first = masks ? (int32_t)(t->keys->see.first + t->key) : 0,
                                        .full = t->full,
                                        .mask = t->hidden ? t->mask : NULL,
                                        .softcap = plan->softcap,
                                        .bias = plan->has_bias ? t->bias : NULL,
                                        .dbias = t->dbias,
                                        .fill = fills ? rows->fill + at : NULL,
                                        .drop_key = drops ? rows->drop + at : NULL,
                                        .drop_column =
                                            drops ? (const int32_t *)(const void *)(t->keys->column + t->key) : NULL,
                                        .drop_below = plan->drop_below,
                                        .drop_scale = plan->drop_scale,
                                        .alive = t->alive};
    plan->backward->weights(&args);
}

void attn__tile_dbias(const attn__tile *t, bool add)
{
    attn__bias dbias = attn__bias_of(t->canonical, t->arrays, true, t->rows->dbias + t->row, t->nrows,
                                     t->keys->dbias + t->key, t->nkeys);
    dbias.base += t->rows->dbias_at[t->head];
    attn__bias_store(&dbias, t->plan->backward, t->dbias ? t->dbias : t->ds, t->ld, add);
}
