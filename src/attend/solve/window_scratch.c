/* SPDX-License-Identifier: MIT
 * Divides one thread's memory for one pass of the window solver: what all heads of an item share, then each head's. */
#include "attend/solve/window_solver.h"

#include "base/arena.h"

static float *take_floats(attn__arena *p, int64_t count)
{
    return attn__arena_take(p, count, sizeof(float));
}

/* Tables that depend only on the place of a line and a block; all heads share them. */
static void take_lists(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = &plan->axis[plan->naxes - 1];
    int64_t taps = lanes->last - lanes->first;
    s->block = attn__arena_take(p, pass->tile / plan->taps->width, sizeof *s->block);
    s->ranges.query = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->ranges.from = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->ranges.to = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->ranges.moved = attn__arena_take(p, pass->ld, sizeof(int32_t));
    s->entries.number = attn__arena_take(p, pass->entries, sizeof(int32_t));
    s->entries.a = attn__arena_take(p, pass->entries, sizeof(int64_t));
    s->entries.b = attn__arena_take(p, pass->entries, sizeof(int64_t));
    s->entries.range = attn__arena_take(p, pass->entries, sizeof(int64_t));
    s->entries.state = attn__arena_take(p, pass->entries, sizeof(int64_t));
    s->shift = attn__arena_take(p, taps, sizeof(int64_t));
    s->phase = attn__arena_take(p, taps, sizeof(int64_t));
    s->entries.flag = attn__arena_take(p, plan->masked ? pass->entries : 0, sizeof(int64_t));
    s->offset = attn__arena_take(p, pass->ld, sizeof(int64_t));
}

static void take_strips(attn__arena *p, const attn__window *plan, const attn__window_pass *pass,
                        attn__window_scratch *s)
{
    int64_t row = pass->ld * plan->heads, all = (pass->slots + 1) * pass->strip_phases * row;
    s->a = take_floats(p, all * plan->channels);
    s->b = take_floats(p, all * plan->values);
    s->line = take_floats(p, row * (plan->channels + 2 * plan->values));
}

static void take_block(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = &plan->axis[plan->naxes - 1];
    int64_t width = plan->taps->width, taps = lanes->last - lanes->first;
    int64_t most = plan->channels > plan->values ? plan->channels : plan->values;
    float **const tiles[] = {&s->lanes.a, &s->lanes.b, &s->lanes.o, &s->lanes.out_a, &s->lanes.out_b, &s->lanes.old};
    float **const rows[] = {&s->softmax.m,    &s->softmax.l,   &s->softmax.factor,
                            &s->softmax.ones, &s->softmax.lse, &s->softmax.delta};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        *tiles[i] = take_floats(p, most * width * plan->heads);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = take_floats(p, width);
    s->s = take_floats(p, pass->entries * width);
    s->dp = take_floats(p, pass->entries * width);
    s->lanes.terms = take_floats(p, (taps + pass->pairs) * width);
    s->margin = take_floats(p, taps * width);
    s->pair_margin = take_floats(p, pass->pairs * width);
}

/* State that a head keeps from block to block. */
static void take_head(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = &plan->axis[plan->naxes - 1];
    int64_t taps = lanes->last - lanes->first, row = pass->ld * pass->strip_phases;
    int64_t most = plan->channels > plan->values ? plan->channels : plan->values;
    attn_relative_kind kinds[2] = {attn__window_strip_kind(pass), ATTN_RELATIVE_VALUE};
    for (int i = 0; i < plan->naxes - 1; i++) {
        int64_t n = plan->axis[i].last - plan->axis[i].first;
        s->list[i].tap = attn__arena_take(p, n, sizeof(int64_t));
        s->list[i].at = attn__arena_take(p, n, sizeof(int64_t));
    }
    s->pair = attn__arena_take(p, pass->pairs, sizeof *s->pair);
    s->tag = attn__arena_take(p, pass->slots + 1, sizeof(int64_t));
    s->rows = take_floats(p, pass->by_key ? (pass->slots + 1) * 2 * pass->ld : 0);
    for (int i = 0; i < 1 + pass->by_key; i++) {
        bool own = plan->has_table[kinds[i]][plan->naxes - 1], outer = attn__window_has_outer(plan, kinds[i]);
        s->terms[i] = take_floats(p, own ? (pass->slots + 1) * taps * pass->ld : 0);
        s->pair_rows[i] = take_floats(p, outer ? pass->pairs * row : 0);
    }
    s->flags = take_floats(p, plan->masked && !pass->by_key ? (pass->slots + 1) * row : 0);
    s->lanes.flags = take_floats(p, plan->taps->width);
    for (int kind = 0; kind < ATTN__WINDOW_KINDS; kind++)
        s->pair_table[kind] = take_floats(p, plan->table_floats ? pass->pairs * most : 0);
}

static void take_drop_keys(attn__arena *p, const attn__window *plan, const attn__window_pass *pass,
                           attn__window_scratch *s)
{
    int64_t rows = pass->by_key ? (pass->slots + 1) * 2 * pass->ld : 2 * plan->taps->width;
    s->drop_key = attn__arena_take(p, rows, sizeof(uint32_t));
}

/* The first head's pointers, moved to another head's part. */
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

/* The further state of the pass for all gradients. */
static void take_once(attn__arena *p, const attn__window *plan, const attn__window_pass *pass, attn__window_scratch *s)
{
    const attn__window_axis *lanes = &plan->axis[plan->naxes - 1];
    int64_t taps = lanes->last - lanes->first, ld = pass->ld, c = plan->channels, v = plan->values;
    bool tables = plan->table_floats > 0;
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
                {&o->terms, tables ? taps : 0},
                {&o->pair_terms, tables ? pass->pairs : 0},
                {&o->margin, tables ? taps : 0},
                {&o->pair_margin, tables ? pass->pairs : 0},
                {&o->marks, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i].at = take_floats(p, rows[i].rows * ld);
    for (int i = 0; i < ATTN__WINDOW_TOGETHER; i++) {
        o->recent[i].p = take_floats(p, taps * pass->recent);
        o->recent[i].ds = take_floats(p, taps * pass->recent);
    }
    o->key_at = attn__arena_take(p, taps, sizeof(int64_t));
    o->query_at = attn__arena_take(p, taps, sizeof(int64_t));
    o->zeros = attn__arena_take(p, taps, sizeof(int64_t));
    o->number = attn__arena_take(p, taps, sizeof(int32_t));
    o->keys = attn__arena_take(p, pass->tile / plan->taps->width, sizeof *o->keys);
    o->fill = attn__arena_take(p, pass->tile / plan->taps->width, sizeof *o->fill);
}

size_t attn__window_divide(const attn__window *plan, const attn__canonical *canonical, const attn__window_pass *pass,
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
            take_drop_keys(&p, plan, pass, s);
        s->table = take_floats(&p, plan->table_floats);
        s->table_sums = attn__arena_take(&p, canonical->backward ? plan->table_floats : 0, sizeof(double));
        if (pass->once)
            take_once(&p, plan, pass, s);
    }
    return p.used;
}
