/* SPDX-License-Identifier: MIT
 * Divides one thread's memory for one pass of the window solver: what all heads of an item share, then each head's. */
#include "attend/window/local.h"

#include "attend/task/pile.h"

static float *take_floats(attn__pile *p, int64_t count)
{
    return attn__pile_take(p, count, sizeof(float));
}

/* Tables that depend only on the place of a line and a block; all heads share them. */
static void take_lists(attn__pile *p, const attn__local *local, const attn__local_pass *pass, attn__local_scratch *s)
{
    const attn__local_axis *lanes = &local->axis[local->naxes - 1];
    int64_t taps = lanes->last - lanes->first;
    s->block = attn__pile_take(p, pass->tile / local->taps->width, sizeof *s->block);
    s->from = attn__pile_take(p, pass->ld, sizeof(int32_t));
    s->to = attn__pile_take(p, pass->ld, sizeof(int32_t));
    s->moved = attn__pile_take(p, pass->ld, sizeof(int32_t));
    s->number = attn__pile_take(p, pass->entries, sizeof(int32_t));
    s->a_at = attn__pile_take(p, pass->entries, sizeof(int64_t));
    s->b_at = attn__pile_take(p, pass->entries, sizeof(int64_t));
    s->row_at = attn__pile_take(p, pass->entries, sizeof(int64_t));
    s->rows_at = attn__pile_take(p, pass->entries, sizeof(int64_t));
    s->shift = attn__pile_take(p, taps, sizeof(int64_t));
    s->phase = attn__pile_take(p, taps, sizeof(int64_t));
    s->flag_at = attn__pile_take(p, local->masked ? pass->entries : 0, sizeof(int64_t));
    s->offset = attn__pile_take(p, pass->ld, sizeof(int64_t));
}

static void take_strips(attn__pile *p, const attn__local *local, const attn__local_pass *pass, attn__local_scratch *s)
{
    int64_t row = pass->ld * local->heads, all = (pass->slots + 1) * pass->strip_phases * row;
    s->a = take_floats(p, all * local->channels);
    s->b = take_floats(p, all * local->values);
    s->line = take_floats(p, row * (local->channels + 2 * local->values));
}

static void take_block(attn__pile *p, const attn__local *local, const attn__local_pass *pass, attn__local_scratch *s)
{
    const attn__local_axis *lanes = &local->axis[local->naxes - 1];
    int64_t width = local->taps->width, taps = lanes->last - lanes->first;
    int64_t most = local->channels > local->values ? local->channels : local->values;
    float **const tiles[] = {&s->lane_a, &s->lane_b, &s->lane_o, &s->out_a, &s->out_b, &s->old};
    float **const rows[] = {&s->m, &s->l, &s->factor, &s->ones, &s->lse, &s->delta};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        *tiles[i] = take_floats(p, most * width * local->heads);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = take_floats(p, width);
    s->s = take_floats(p, pass->entries * width);
    s->dp = take_floats(p, pass->entries * width);
    s->lane_terms = take_floats(p, (taps + pass->pairs) * width);
    s->margin = take_floats(p, taps * width);
    s->pair_margin = take_floats(p, pass->pairs * width);
}

/* State that a head keeps from block to block. */
static void take_head(attn__pile *p, const attn__local *local, const attn__local_pass *pass, attn__local_scratch *s)
{
    const attn__local_axis *lanes = &local->axis[local->naxes - 1];
    int64_t taps = lanes->last - lanes->first, row = pass->ld * pass->strip_phases;
    int64_t most = local->channels > local->values ? local->channels : local->values;
    attn_relative_kind kinds[2] = {attn__local_strip_kind(pass), ATTN_RELATIVE_VALUE};
    for (int i = 0; i < local->naxes - 1; i++) {
        int64_t n = local->axis[i].last - local->axis[i].first;
        s->list[i].tap = attn__pile_take(p, n, sizeof(int64_t));
        s->list[i].at = attn__pile_take(p, n, sizeof(int64_t));
    }
    s->pair = attn__pile_take(p, pass->pairs, sizeof *s->pair);
    s->tag = attn__pile_take(p, pass->slots + 1, sizeof(int64_t));
    s->rows = take_floats(p, pass->by_key ? (pass->slots + 1) * 2 * pass->ld : 0);
    for (int i = 0; i < 1 + pass->by_key; i++) {
        bool own = local->has_table[kinds[i]][local->naxes - 1], outer = attn__local_has_outer(local, kinds[i]);
        s->terms[i] = take_floats(p, own ? (pass->slots + 1) * taps * pass->ld : 0);
        s->pair_rows[i] = take_floats(p, outer ? pass->pairs * row : 0);
    }
    s->flags = take_floats(p, local->masked && !pass->by_key ? (pass->slots + 1) * row : 0);
    s->lane_flags = take_floats(p, local->taps->width);
    for (int kind = 0; kind < ATTN__LOCAL_KINDS; kind++)
        s->pair_table[kind] = take_floats(p, local->table_floats ? pass->pairs * most : 0);
}

static void take_drop_keys(attn__pile *p, const attn__local *local, const attn__local_pass *pass,
                           attn__local_scratch *s)
{
    int64_t rows = pass->by_key ? (pass->slots + 1) * 2 * pass->ld : 2 * local->taps->width;
    s->drop_key = attn__pile_take(p, rows, sizeof(uint32_t));
}

/* The first head's pointers, moved to another head's part. */
static void move_on(const attn__local *local, const attn__local_pass *pass, int head, attn__local_scratch *s)
{
    int64_t width = local->taps->width, channels = head * local->channels, values = head * local->values;
    s->a += channels * pass->ld;
    s->b += values * pass->ld;
    float **const by_channel[] = {&s->lane_a, &s->out_a}, **const by_value[] = {&s->lane_b, &s->lane_o, &s->out_b};
    for (size_t i = 0; i < sizeof by_channel / sizeof *by_channel; i++)
        *by_channel[i] += channels * width;
    for (size_t i = 0; i < sizeof by_value / sizeof *by_value; i++)
        *by_value[i] += values * width;
}

/* The further state of the pass for all gradients. */
static void take_once(attn__pile *p, const attn__local *local, const attn__local_pass *pass, attn__local_scratch *s)
{
    const attn__local_axis *lanes = &local->axis[local->naxes - 1];
    int64_t taps = lanes->last - lanes->first, ld = pass->ld, c = local->channels, v = local->values;
    bool tables = local->table_floats > 0;
    attn__local_once *o = &s->once;
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
    for (int i = 0; i < ATTN__LOCAL_TOGETHER; i++) {
        o->recent[i].p = take_floats(p, taps * pass->recent);
        o->recent[i].ds = take_floats(p, taps * pass->recent);
    }
    o->key_at = attn__pile_take(p, taps, sizeof(int64_t));
    o->query_at = attn__pile_take(p, taps, sizeof(int64_t));
    o->zeros = attn__pile_take(p, taps, sizeof(int64_t));
    o->number = attn__pile_take(p, taps, sizeof(int32_t));
    o->keys = attn__pile_take(p, pass->tile / local->taps->width, sizeof *o->keys);
    o->fill = attn__pile_take(p, pass->tile / local->taps->width, sizeof *o->fill);
}

size_t attn__local_divide(const attn__local *local, const attn__task *task, const attn__local_pass *pass, char *base,
                          attn__local_scratch scratch[ATTN__LOCAL_HEADS])
{
    attn__pile p = {base, 0};
    take_lists(&p, local, pass, scratch);
    take_strips(&p, local, pass, scratch);
    take_block(&p, local, pass, scratch);
    if (task->has_dropout)
        scratch->column = attn__pile_take(&p, pass->entries, sizeof(uint32_t));
    for (int h = 0; h < local->heads; h++) {
        attn__local_scratch *s = &scratch[h];
        if (h > 0)
            *s = scratch[0];
        if (h > 0 && base)
            move_on(local, pass, h, s);
        take_head(&p, local, pass, s);
        if (task->has_dropout)
            take_drop_keys(&p, local, pass, s);
        s->table = take_floats(&p, local->table_floats);
        s->table_sums = attn__pile_take(&p, task->backward ? local->table_floats : 0, sizeof(double));
        if (pass->once)
            take_once(&p, local, pass, s);
    }
    return p.used;
}
