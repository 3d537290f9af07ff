/* SPDX-License-Identifier: MIT
 *
 * flash_block.c - one block of keys of the tiled forward pass: scores, masks, weights, values.
 */
#include "attend/solve/flash_item.h"

#include "attend/block/rows.h"
#include "base/integers.h"
#include "base/rng.h"
#include "base/constants.h"

#include <math.h>

enum { STEP = 2 * ATTN__BF16X3_SIDE }; /* keys of one call of the product of pairs */

void attn__flash_key_offsets(const attn__flash_item *t, const attn__flash_keys *b, size_t stride, int64_t base,
                             int64_t *out)
{
    attn__offsets_fill(&t->canonical->key, stride, b->at, b->keys, out);
    for (int64_t i = 0; i < b->keys; i++)
        out[i] += base;
}

/* Channels of values as rows of A.  False if any is not finite. */
static bool pack_values(attn__flash_item *t, const attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    int64_t group = f->tile->group;
    attn_dtype dtype = t->canonical->problem.dtype;
    bool finite = true;
    for (int64_t c = 0; c < f->values; c += group) {
        const char *base = t->arrays->v;
        if (!f->v_channel)
            base += c * (int64_t)attn_dtype_size(dtype);
        finite = f->lanes->copy(base, dtype, t->s.key_at.v, f->v_channel ? f->v_channel + c : NULL, b->keys,
                                attn__least(f->values - c, group), t->s.v + c * b->keys, group) &&
                 finite;
    }
    return finite;
}

/* Keys as rows of A.  A panel is near whatever the strides are, but one subtile alone does not repay the copy. */
static void pack_keys(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn_dtype dtype = t->canonical->problem.dtype;
    int64_t step = attn__offsets_one(&t->canonical->key, ATTN__STRIDE(dim.k), 1);
    bool here = t->subtiles == 1 && dtype == ATTN_F32 && !f->k_channel && t->canonical->key.n == 1;
    b->k = here ? (const float *)t->arrays->k + t->s.key_at.k[0] : t->s.k;
    b->ldk = here ? step : f->ldk;
    if (!here)
        f->lanes->copy(t->arrays->k, dtype, t->s.key_at.k, f->k_channel, b->keys, f->channels, t->s.k, f->ldk);
}

static void load_panels(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn__flash_key_offsets(t, b, ATTN__STRIDE(dim.k), t->k_base, t->s.key_at.k);
    attn__flash_key_offsets(t, b, ATTN__STRIDE(dim.v), t->v_base, t->s.key_at.v);
    bool finite;
    if (f->parts && (finite = attn__flash_amx_panels(t, b), b->parts)) {
        b->careful = !finite && attn__flash_may_hide(t->canonical, f);
        if (b->careful)
            pack_values(t, b);
        return;
    }
    attn__flash_gather_queries(t);
    if (f->pairs) {
        f->pairs->copy_rows(t->arrays->k, t->s.key_at.k, b->keys, f->channels, t->s.pairs.k, f->ld_pairs);
        finite = f->pairs->pair_rows(t->arrays->v, t->s.key_at.v, b->keys, f->values, t->s.pairs.v, f->ldv);
    } else {
        pack_keys(t, b);
        finite = pack_values(t, b);
    }
    b->careful = !attn__flash_tables_finite(t) || (!finite && attn__flash_may_hide(t->canonical, f));
    if (b->careful && f->pairs)
        pack_values(t, b);
}

void attn__flash_key_tables(attn__flash_item *t, const attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    if (t->canonical->has_bias)
        attn__flash_key_offsets(t, b, ATTN__STRIDE(dim.bias), 0, t->s.key_at.bias);
    if (t->canonical->has_mask)
        attn__flash_key_offsets(t, b, ATTN__STRIDE(dim.mask), 0, t->s.key_at.mask);
    for (int l = 0; l < f->nlimits; l++) {
        for (int64_t i = 0; i < b->keys; i++)
            t->s.index[l][i] = (int32_t)attn__offsets_index(&t->canonical->key, f->limit_axis[l], b->at + i);
    }
    if (t->canonical->has_dropout) {
        attn__flash_key_offsets(t, b, ATTN__STRIDE(drop), 0, t->s.key_at.column);
        for (int64_t i = 0; i < b->keys; i++)
            t->s.column[i] = (uint32_t)t->s.key_at.column[i];
    }
    attn__flash_tables_keys(t, b);
}

/* Asked for each sequence of packed ones: a shorter one's keys need not be adjacent. */
static bool mask_adjacent(const attn__flash_item *t)
{
    return attn__offsets_adjacent(&t->canonical->key, ATTN__STRIDE(dim.mask));
}

/* bias and mask as a view of the block; adjacent keys start at the first one's offset. */
static attn__lane_view key_view(const attn__flash_keys *b, attn__flash_subtile sub, const void *base, attn_dtype dtype,
                                const int64_t *lane_at, const int64_t *key_at, bool adjacent)
{
    const char *start = base;
    if (adjacent)
        start += key_at[0] * (int64_t)attn_dtype_size(dtype);
    return (attn__lane_view){(void *)(uintptr_t)start, dtype,   lane_at + sub.lane,
                             adjacent ? NULL : key_at, b->keys, sub.lanes};
}

/* The score of a masked key, in powers of two. */
static float fill_of(const attn__canonical *canonical)
{
    return canonical->problem.mask_fill == 0.0 ? -INFINITY : (float)canonical->problem.mask_fill * (float)ATTN__LOG2E;
}

attn__block_view attn__flash_blocks_seen(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    if (!t->canonical->has_blocks)
        return ATTN__BLOCKS_ALL;
    return attn__blocks_seen(t->arrays->blocks, t->s.query_at.block + sub.lane, sub.lanes, t->s.key_at.block, b->keys);
}

static attn__block_view mask_seen(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    if (!t->canonical->has_mask)
        return ATTN__BLOCKS_ALL;
    if (!mask_adjacent(t))
        return ATTN__BLOCKS_SOME;
    return attn__mask_seen(t->arrays->mask + t->s.key_at.mask[0], t->s.query_at.mask + sub.lane, sub.lanes, b->keys);
}

/* Lanes of padding score what they like. */
static void hide_blocks(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, float fill)
{
    const int64_t *rows = t->s.query_at.block + sub.lane;
    for (int64_t key = 0; key < b->keys; key++) {
        const uint8_t *column = t->arrays->blocks + t->s.key_at.block[key];
        float *s = t->s.s + key * sub.width;
        for (int64_t i = 0; i < sub.lanes; i++)
            s[i] = column[rows[i]] ? s[i] : fill;
    }
}

bool attn__flash_mask(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    const attn__canonical *canonical = t->canonical;
    attn__flash_scratch *s = &t->s;
    const attn__flash_span *span = &s->span[sub.index];
    float fill = fill_of(canonical);
    bool capped = canonical->problem.softcap != 0;
    if (capped)
        f->lanes->softcap(s->s, b->keys * sub.width, (float)canonical->problem.softcap * (float)ATTN__LOG2E);
    if (canonical->has_bias) {
        attn__lane_view view = key_view(b, sub, t->arrays->bias, ATTN_F32, s->query_at.bias, s->key_at.bias,
                                        attn__offsets_adjacent(&canonical->key, ATTN__STRIDE(dim.bias)));
        f->lanes->gather(&view, s->extra, sub.width, (float)ATTN__LOG2E);
        f->lanes->add(s->s, s->extra, b->keys * sub.width, 1.0f);
    }
    bool masks = mask_seen(t, b, sub) != ATTN__BLOCKS_ALL;
    if (masks) {
        attn__lane_view view =
            key_view(b, sub, t->arrays->mask, ATTN_U8, s->query_at.mask, s->key_at.mask, mask_adjacent(t));
        f->lanes->gather(&view, s->extra, sub.width, 1.0f);
        f->lanes->hide(s->s, s->extra, b->keys * sub.width, fill);
    }
    bool hides = attn__flash_blocks_seen(t, b, sub) != ATTN__BLOCKS_ALL;
    if (hides)
        hide_blocks(t, b, sub, fill);
    if (b->at >= span->open_begin && b->at + b->keys <= span->open_end)
        return capped || hides || canonical->has_bias || masks;
    for (int l = 0; l < f->nlimits; l++)
        f->lanes->limit(s->s, b->keys, sub.width, s->index[l], s->from[l] + sub.lane, s->to[l] + sub.lane, fill);
    return true;
}

void attn__flash_note_hidden(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    float fill = fill_of(t->canonical);
    for (int64_t i = 0; i < b->keys * sub.width; i++)
        t->s.hidden[i] = t->s.s[i] == fill || t->canonical->has_dropout;
}

static float value_of(const attn__flash_item *t, const attn__flash_keys *b, int64_t key, int64_t channel)
{
    int64_t group = t->flash->tile->group;
    return t->s.v[channel / group * group * b->packed + key * group + channel % group];
}

static bool value_is_finite(const attn__flash_item *t, const attn__flash_keys *b, int64_t key)
{
    float check = 0.0f;
    for (int64_t c = 0; c < t->flash->values; c++)
        check += value_of(t, b, key, c) * 0.0f;
    return check == check;
}

/* Adds the values of keys [from, to) of the block. */
static void add_values(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int64_t from,
                       int64_t to)
{
    const attn__flash *f = t->flash;
    int64_t group = f->tile->group;
    if (from == to)
        return;
    attn__gemm_tile_packed_args args = {.m = f->values,
                                        .k = to - from,
                                        .vectors = (int)(sub.width / f->tile->lanes),
                                        .a = t->s.v + from * group,
                                        .ak = group,
                                        .group = group * b->packed,
                                        .b = t->s.s + from * sub.width,
                                        .c = t->s.o + sub.lane * f->held,
                                        .accumulate = t->s.span[sub.index].started,
                                        .hook = {attn__prefetch_portion, &t->prefetch}};
    f->tile->run_packed(&args);
    t->s.span[sub.index].started = true;
}

/* One key, for the lanes that give it a weight, or that do see it. */
static void add_value_carefully(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int64_t key)
{
    const attn__flash *f = t->flash;
    const float *p = t->s.s + key * sub.width;
    const uint8_t *hidden = t->s.hidden + key * sub.width;
    float *o = t->s.o + sub.lane * f->held;
    bool started = t->s.span[sub.index].started;
    for (int64_t c = 0; c < f->values; c++) {
        float v = value_of(t, b, key, c);
        for (int64_t i = 0; i < sub.width; i++) {
            float sum = started ? o[c * sub.width + i] : 0.0f;
            o[c * sub.width + i] = hidden[i] && p[i] == 0.0f ? sum : sum + p[i] * v;
        }
    }
    t->s.span[sub.index].started = true;
}

static void add_values_carefully(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    int64_t from = 0;
    for (int64_t key = 0; key < b->keys; key++) {
        if (value_is_finite(t, b, key))
            continue;
        add_values(t, b, sub, from, key);
        add_value_carefully(t, b, sub, key);
        from = key + 1;
    }
    add_values(t, b, sub, from, b->keys);
}

static void add_value_pairs(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    f->pairs->round_rows(t->s.s, b->keys, sub.width, t->s.pairs.p);
    attn__gemm_tile_bf16_args args = {.m = f->values,
                                      .n = sub.width,
                                      .k = (b->keys + 1) / 2,
                                      .a = t->s.pairs.v,
                                      .am = 1,
                                      .ak = f->ldv,
                                      .b = t->s.pairs.p,
                                      .ldb = sub.width,
                                      .c = t->s.o + sub.lane * f->held,
                                      .ldc = sub.width,
                                      .factor = 1.0f,
                                      .accumulate = t->s.span[sub.index].started};
    f->pairs->run(&args);
    t->s.span[sub.index].started = true;
}

bool attn__flash_softmax(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, const float *top)
{
    const attn__flash *f = t->flash;
    attn__flash_scratch *s = &t->s;
    bool changed;
    attn__online_softmax_args softmax = {
        s->s, b->keys, sub.width, top, s->m + sub.lane, s->l + sub.lane, s->shrink + sub.lane, &changed};
    f->lanes->softmax(&softmax);
    if (t->canonical->has_dropout) {
        attn__lane_dropout dropout = {s->s,
                                      b->keys,
                                      sub.width,
                                      s->key_low + sub.lane,
                                      s->key_high + sub.lane,
                                      s->column,
                                      attn__dropout_threshold(t->canonical->problem.dropout)};
        f->lanes->dropout(&dropout);
    }
    return changed;
}

/* S^T = K Q^T, added to the terms of tables. */
static void score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    attn__gemm_tile_args args = {.m = b->keys,
                                 .n = sub.width,
                                 .k = f->channels,
                                 .a = b->k,
                                 .am = b->ldk,
                                 .ak = 1,
                                 .b = t->s.q + sub.lane * f->channels,
                                 .ldb = sub.width,
                                 .c = t->s.s,
                                 .ldc = sub.width,
                                 .accumulate = attn__flash_tables_terms(t, b, sub),
                                 .top = t->s.top,
                                 .hook = {attn__prefetch_portion, &t->prefetch}};
    for (int64_t i = 0; i < sub.width; i++)
        t->s.top[i] = -INFINITY;
    f->tile->run(&args);
}

static void score_pairs(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    attn__gemm_tile_bf16_args args = {.n = sub.width,
                                      .k = f->channel_pairs,
                                      .am = f->ld_pairs,
                                      .ak = 1,
                                      .b = t->s.pairs.q + sub.lane * f->channel_pairs,
                                      .ldb = sub.width,
                                      .ldc = sub.width,
                                      .factor = (float)t->canonical->problem.scale * (float)ATTN__LOG2E};
    for (int64_t key = 0; key < b->keys; key += STEP) {
        args.m = b->keys - key < STEP ? b->keys - key : STEP;
        args.a = t->s.pairs.k + key * f->ld_pairs;
        args.c = t->s.s + key * sub.width;
        f->pairs->run(&args);
        attn__prefetch_portion(&t->prefetch);
    }
}

static void see_keys(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    if (b->parts && !b->careful) {
        attn__flash_amx_see(t, b, sub);
        return;
    }
    bool top_known = !t->flash->pairs && !b->parts;
    if (b->parts) {
        attn__flash_amx_score(t, b, sub);
        attn__flash_amx_scale(t, b, sub);
    } else if (t->flash->pairs) {
        score_pairs(t, b, sub);
    } else {
        score(t, b, sub);
    }
    top_known = !attn__flash_mask(t, b, sub) && top_known;
    if (b->careful)
        attn__flash_note_hidden(t, b, sub);
    if (attn__flash_softmax(t, b, sub, top_known ? t->s.top : NULL) && t->s.span[sub.index].started)
        t->flash->lanes->scale(t->s.o + sub.lane * t->flash->held, t->flash->values, sub.width, t->s.shrink + sub.lane);
    if (b->careful)
        add_values_carefully(t, b, sub);
    else if (t->flash->pairs)
        add_value_pairs(t, b, sub);
    else
        add_values(t, b, sub, 0, b->keys);
    attn__flash_tables_values(t, b, sub);
}

/* Number of prefetch portions while a subtile sees a block: one after every STEP keys, or register tile. */
static int64_t portions(const attn__flash *f, int64_t keys)
{
    int64_t whole = (keys + f->values) / f->tile->rows;
    return f->pairs ? (keys + STEP - 1) / STEP : attn__most(whole, 1);
}

/* Whether any query of the subtile has a weight for any of these keys; masked keys that score a number have one. */
static bool sees(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    return t->canonical->problem.mask_fill != 0.0 ||
           (attn__flash_blocks_seen(t, b, sub) != ATTN__BLOCKS_NONE && mask_seen(t, b, sub) != ATTN__BLOCKS_NONE);
}

void attn__flash_key_block(attn__flash_item *t, int64_t at, int64_t keys)
{
    attn__flash_keys b = {.at = at, .keys = keys, .packed = keys};
    bool seen_at_all = false;
    if (t->canonical->has_blocks)
        attn__block_columns(t->canonical, at, keys, t->s.key_at.block);
    attn__flash_key_tables(t, &b);
    for (int64_t i = 0; i < t->subtiles && !seen_at_all; i++)
        seen_at_all = sees(t, &b, attn__flash_subtile_at(t, i));
    if (!seen_at_all)
        return;
    load_panels(t, &b);
    attn__flash_plan_prefetch(t, at, keys,
                              t->subtiles * (b.parts ? attn__flash_amx_portions(t, &b) : portions(t->flash, keys)));
    for (int64_t i = 0; i < t->subtiles; i++) {
        const attn__flash_span *span = &t->s.span[i];
        if (at >= span->end || at + keys <= span->begin)
            continue;
        /* Up to the last key of any lane: under a causal mask a block is seldom seen whole. */
        attn__flash_keys seen = b;
        seen.keys = span->end - at < keys ? span->end - at : keys;
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        if (sees(t, &seen, sub))
            see_keys(t, &seen, sub);
    }
    if (b.parts)
        attn__flash_amx_end(t);
}
