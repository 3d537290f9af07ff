/* SPDX-License-Identifier: MIT
 *
 * flash.c - the forward pass of flash attention: which problems it accepts, its plan, and its items.  flash.h describes
 * the algorithm.
 */
#include "attend/solve/flash.h"

#include "attend/block/finite.h"
#include "attend/block/gradient_sums.h"
#include "attend/block/items.h"
#include "attend/block/pair.h"
#include "attend/block/rows.h"
#include "attend/block/scores.h"
#include "base/arena.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/bf16x3/bf16x3_split_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- relative tables in the plan */

/* A subtile's queries and a block of keys have few different distances.  For a table T of queries, X = Q T^T has a row
 * per query and a column per distance. Row i contains the terms of query i for consecutive keys, from a column on that
 * depends on i. These terms are transposed to S^T before K Q^T is added. For a table of values, D^T[d,i] is the sum of
 * query i's weights for keys at distance d, and O^T += T^T D^T. */
static void take_tables(const attn__flash *f, attn__arena *arena, attn__flash_scratch *s)
{
    int64_t wide = f->tile->lanes * f->vectors;
    for (int i = 0; i < f->tables.n; i++) {
        attn__flash_table_memory *x = &s->table[i];
        attn__table_memory_take(&f->tables.of[i].panel, arena, f->tables.of[i].value, &x->panel);
        x->terms = attn__arena_floats(arena, wide * f->tables.of[i].ld);
        x->query = attn__arena_offsets(arena, f->query_block);
        x->key = attn__arena_offsets(arena, f->key_block);
        x->lane = attn__arena_offsets(arena, wide);
    }
}

/* --------------------------------------------------------------------------------------------------- scratch memory */

static void take_queries(attn__arena *p, const attn__flash *f, attn__flash_scratch *s)
{
    int64_t n = f->query_block;
    s->q = attn__arena_floats(p, n * f->channels);
    s->o = attn__arena_floats(p, n * f->held);
    s->pairs.q = attn__arena_take(p, f->pairs ? n * f->channel_pairs : 0, sizeof(uint32_t));
    attn__tile_lanes_take(&s->rows, &f->tiles, p, 1, n);
    s->at[ATTN__OP_Q] = attn__arena_offsets(p, n);
    s->at[ATTN__OP_O] = attn__arena_offsets(p, n);
    s->span = attn__arena_take(p, f->subtiles, sizeof(attn__flash_span));
    attn__visible_rows_take(&s->see, &f->tiles.visible, p, n, ATTN__VISIBLE_ANY);
}

static void take_keys(attn__arena *p, const attn__flash *f, const attn__canonical *canonical, attn__flash_scratch *s)
{
    int64_t n = f->key_block, width = f->tile->lanes * f->vectors, square = n * width;
    int64_t group = f->tile->group, groups = attn__round_up(f->values, group);
    s->s = attn__arena_floats(p, square);
    s->other_s = attn__arena_floats(p, f->amx ? attn__round_up(n, ATTN__BF16X3_SIDE) * width : 0);
    s->top = attn__arena_floats(p, width);
    bool extra = canonical->has_bias || canonical->has_mask || f->tables.n > 1;
    s->extra = attn__arena_floats(p, extra ? square : 0);
    bool careful = f->tables.n || attn__flash_may_hide(canonical, f);
    s->alive = attn__arena_take(p, careful ? square : 0, 1);
    s->fades = attn__arena_take(p, f->tiles.visible.fills ? attn__round_up(f->query_block, f->tile->lanes) : 0, 1);
    s->clean = attn__arena_floats(p, careful ? n * groups : 0);
    s->bad = attn__arena_offsets(p, careful ? n * groups / group : 0);
    s->nbad = attn__arena_offsets(p, groups / group);
    s->k = attn__arena_floats(p, f->pairs ? 0 : n * f->ldk);
    s->pairs.k = attn__arena_take(p, f->pairs ? n * f->ld_pairs : 0, sizeof(uint32_t));
    s->pairs.v = attn__arena_take(p, f->pairs ? (n + 1) / 2 * f->ldv : 0, sizeof(uint32_t));
    s->pairs.p = attn__arena_take(p, f->pairs ? square : 0, sizeof(uint32_t));
    s->v = attn__arena_floats(p, n * (groups > f->ldv ? groups : f->ldv));
    s->at[ATTN__OP_K] = attn__arena_offsets(p, n);
    s->at[ATTN__OP_V] = attn__arena_offsets(p, n);
    attn__tile_keys_take(&s->keys, &f->tiles, p, n);
}

static void take_terms(attn__arena *p, const attn__flash *f, attn__flash_scratch *s)
{
    enum { SIDE = ATTN__BF16X3_SIDE };
    int64_t channels = attn__ceil_div(f->channels, ATTN__BF16X3_DEPTH),
            keys = attn__ceil_div(f->key_block, ATTN__BF16X3_DEPTH);
    s->tiles.q = attn__flash_take_side(p, f->terms, f->query_block / SIDE, channels);
    s->tiles.k = attn__flash_take_side(p, f->terms, attn__round_up(f->key_block, SIDE) / SIDE, channels);
    s->tiles.v = attn__flash_take_side(p, f->terms, f->held / SIDE, keys);
    for (int i = 0; i < 2; i++)
        s->tiles.p[i] = attn__flash_take_side(p, f->terms, f->vectors, keys);
}

/* Divides `base` into arrays and returns the bytes used. If `base` is NULL, it only counts bytes. */
static size_t divide_memory(const attn__flash *flash, const attn__canonical *canonical, char *base,
                            attn__flash_scratch *scratch)
{
    attn__arena p = {base, 0};
    take_queries(&p, flash, scratch);
    take_keys(&p, flash, canonical, scratch);
    take_tables(flash, &p, scratch);
    if (flash->amx)
        take_terms(&p, flash, scratch);
    return p.used;
}

enum { NO_KEY = -1, ALL_KEYS = -2 }; /* instead of a chosen key: there are no keys; there is NaN among the scores */

/* Memory that all threads share in the backward pass of a hardmax. */
typedef struct backward_memory {
    int32_t *chosen; /* [batch][query]: the chosen key */
    void *sums;
    char *pairs; /* for each thread, `pair` bytes for rows in float64 */
    size_t pair;
} backward_memory;

/* Returns the gradients that are summed in float64. Of packed sequences these are all gradients of rows, because some
 * elements belong to no sequence and are not written. */
static unsigned summed_gradients(const attn__canonical *canonical)
{
    return attn__is_packed(canonical) ? ATTN__WANT_ROWS : ATTN_WANT_DV;
}

/* Divides `base` into arrays and returns the bytes used. If `base` is NULL, it only counts bytes. */
static size_t divide_backward(const attn__canonical *canonical, char *base, backward_memory *memory)
{
    attn__arena p = {base, 0};
    backward_memory unused, *m = memory ? memory : &unused;
    m->chosen = attn__arena_take(&p, canonical->batch.size * canonical->query.size, sizeof(int32_t));
    m->pair = attn__pair_size(canonical);
    m->pairs = attn__arena_take(&p, canonical->threads, m->pair);
    m->sums = attn__arena_take(&p, 1, attn__sums_size(canonical, summed_gradients(canonical)));
    return p.used;
}

/* --------------------------------------------------------------------------------------------------------- the plan */

static const char *refuse(const attn__canonical *canonical)
{
    if (canonical->contract.size > ATTN__FLASH_CHANNELS || canonical->value.size > ATTN__FLASH_CHANNELS)
        return "supports heads of at most 512 channels";
    bool chooses = canonical->problem.normalization == ATTN_NORMALIZATION_HARDMAX;
    if (canonical->backward && !chooses)
        return "supports forward only";
    const char *unusual = attn__refuse_unusual(canonical, ATTN__HARDMAX_TOO);
    if (!unusual)
        unusual = attn__refuse_top_k(canonical);
    if (unusual)
        return unusual;
    if (chooses && canonical->problem.nrelatives)
        return "does not support tables with hardmax";
    return attn__table_panels_refuse(canonical);
}

/* Returns a row stride of whole cache lines. It is no multiple of 256 floats, so that rows do not share cache sets. */
static int64_t panel_width(int64_t channels)
{
    int64_t width = attn__round_up(channels, 16);
    return width % 256 == 0 ? width + 16 : width;
}

/* Divides queries into blocks of nearly equal size, at most `most`. `most` is a multiple of whole subtiles. */
static void divide_queries(attn__flash *f, int64_t queries, int64_t most)
{
    int64_t lanes = f->tile->lanes, blocks = attn__max(1, attn__ceil_div(queries, most));
    f->query_block = attn__max(lanes, attn__round_up(attn__ceil_div(queries, blocks), lanes));
    f->subtiles = attn__ceil_div(f->query_block, lanes * f->vectors) + 1;
}

/* Chooses blocks so large that q, o and the panels stay in the L2 cache, and the score tile in the L1 cache. Blocks do
 * not depend on the number of threads, so that the bits of the results do not either. */
static void choose_blocks(attn__flash *f, const attn__canonical *canonical)
{
    int64_t row = (f->channels + f->values) * (int64_t)sizeof(float), wide = f->tile->lanes * f->vectors;
    int64_t l2 = (int64_t)canonical->caches.l2, keys = canonical->key.size;
    /* For packed sequences, the order of sums must not depend on the lengths of other sequences. */
    bool fixed = canonical->extras & (ATTN__BATCH_INVARIANT | ATTN__PACKED);
    f->key_block = keys < 256 && !f->pairs && !fixed ? 96 : 128; /* with 128, all rows would be prefetched together */
    while (f->key_block > 32 && f->key_block * row > l2 / 4)
        f->key_block /= 2;
    if (keys > 0 && !fixed)
        f->key_block = attn__round_up(attn__ceil_div(keys, attn__ceil_div(keys, f->key_block)), 8);
    int64_t most = l2 / 2 / row;
    divide_queries(f, canonical->query.size, attn__max(wide, most > 768 ? 768 : most / wide * wide));
}

/* Returns the minimum number of queries for AMX. With fewer, splitting into bf16 terms costs more than AMX gains. */
static int64_t least_queries(const attn__flash *f, const attn__canonical *canonical)
{
    enum { ONE_PART = 32, THREE = 96, THREE_OF_SLIM = 192, USUAL = 64 };
    if (canonical->problem.dtype == ATTN_BF16)
        return ONE_PART;
    return f->channels < USUAL ? THREE_OF_SLIM : THREE;
}

/* Reports whether AMX exists and is faster. Padding of AMX tiles with zeros must not cost too much. */
static bool amx_pays(const attn__flash *f, const attn__canonical *canonical)
{
    if (!attn__bf16x3_for(canonical->isa) || f->keys_dtype != canonical->problem.dtype || f->channels == 0 ||
        canonical->key.size == 0 || canonical->query.size < least_queries(f, canonical))
        return false;
    enum { SIDE = ATTN__BF16X3_SIDE, DEPTH = ATTN__BF16X3_DEPTH };
    int64_t queries = attn__round_up(canonical->query.size, SIDE);
    double plain = (double)queries * (double)canonical->key.size * (double)(f->channels + f->values);
    double whole =
        (double)queries * (double)(attn__round_up(canonical->key.size, SIDE) * attn__round_up(f->channels, DEPTH) +
                                   attn__round_up(canonical->key.size, DEPTH) * attn__round_up(f->values, SIDE));
    return whole <= 1.5 * plain;
}

static void use_amx(attn__flash *f, const attn__canonical *canonical)
{
    f->amx = attn__bf16x3_for(canonical->isa);
    f->pairs = NULL;
    f->terms = canonical->problem.dtype == ATTN_BF16 ? 1 : ATTN__BF16X3_F32;
    f->vectors = 2;
}

enum { MANY = 8 }; /* from this number of heads on, all threads have work */

/* Chooses blocks for AMX, similar to choose_blocks. Panels of bf16 terms take longer to pack, so blocks have more
 * queries, unless there are few heads. Subtiles are as wide as two AMX tiles. */
static void choose_amx(attn__flash *f, const attn__canonical *canonical)
{
    use_amx(f, canonical);
    f->held = attn__round_up(f->values, ATTN__BF16X3_SIDE);
    int64_t part = f->terms * (int64_t)sizeof(uint16_t), l2 = (int64_t)canonical->caches.l2;
    int64_t wide = f->tile->lanes * f->vectors, keys = canonical->key.size;
    enum { ONE_BLOCK = 256 }; /* maximum number of keys for which AMX tiles hold all sums of values */
    int64_t most = keys <= ONE_BLOCK && f->terms > 1 ? ONE_BLOCK : 128;
    while (most > 32 && most * (f->channels + f->values) * part > l2 / 4)
        most /= 2;
    f->key_block = attn__round_up(attn__ceil_div(keys, attn__ceil_div(keys, most)), ATTN__BF16X3_DEPTH);
    most = l2 * 5 / 8 / (f->channels * part + f->values * (int64_t)sizeof(float));
    most = attn__min(most, canonical->batch.size < MANY ? 512 : 1024) / wide * wide;
    divide_queries(f, canonical->query.size, attn__max(wide, most));
}

/* Sets the fields that follow from the problem: kernels, channels, and axes with limits. */
static void describe(attn__flash *f, const attn__canonical *canonical)
{
    f->tile = attn__gemm_tile_for(canonical->isa);
    f->tiles = attn__tile_plan_of(canonical, canonical->isa);
    f->tiles.wants_dbias = false; /* the gradient of a hardmax's bias is 0 */
    f->keys_dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_K);
    f->channels = canonical->contract.size;
    f->values = canonical->value.size;
    f->held = f->values;
    f->vectors = f->tile->vectors;
}

static void fill_flash(attn__flash *f, const attn__canonical *canonical)
{
    describe(f, canonical);
    f->ldk = panel_width(f->channels);
    f->ldv = panel_width(f->values);
    static const attn__operand ops[] = {ATTN__OP_Q, ATTN__OP_K, ATTN__OP_V, ATTN__OP_O};
    int64_t *next = attn__channels_find(canonical, ops, 4, f->channel, f->offsets);
    bool tables = canonical->problem.nrelatives; /* products of tables run in f32 on vectors */
    bool adjacent = !f->channel[ATTN__OP_K] && !f->channel[ATTN__OP_V];
    if (canonical->problem.dtype == ATTN_BF16 && adjacent && !tables && attn__cpu_has(ATTN__CPU_BF16_DOT))
        f->pairs = attn__gemm_tile_bf16_for(canonical->isa);
    f->channel_pairs = (f->channels + 1) / 2;
    f->ld_pairs = panel_width(f->channel_pairs);
    bool softmax = f->tiles.kind == ATTN__WEIGHTS_SOFTMAX; /* AMX computes the weights of a softmax during products */
    if (!f->channel[ATTN__OP_Q] && adjacent && !tables && softmax && amx_pays(f, canonical))
        choose_amx(f, canonical);
    else
        choose_blocks(f, canonical);
    if (canonical->has_blocks)
        f->key_block = attn__visible_fit(canonical->problem.blocks.keys, f->key_block, f->amx ? ATTN__BF16X3_DEPTH : 8,
                                         f->key_block);
    attn__flash_tables_choose(&f->tables, canonical, f->tile->lanes, attn__odd_lines(f->values),
                              attn__odd_lines(f->values), f->tile->lanes * f->vectors, f->key_block);
    attn__flash_tables_channels(&f->tables, canonical, next);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    size_t channels = (size_t)canonical->contract.size + (size_t)canonical->value.size;
    size_t tables = (2 + (size_t)canonical->problem.nrelatives) * channels * sizeof(int64_t);
    attn__flash *f = attn__alloc_zero(context, sizeof *f + tables);
    if (!f)
        return ATTN_ERROR_MEMORY;
    fill_flash(f, canonical);
    recipe->data = f;
    attn__flash_scratch unused;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, divide_memory(f, canonical, NULL, &unused));
    if (canonical->backward)
        recipe->workspace = attn__size_add(recipe->workspace, divide_backward(canonical, NULL, NULL));
    if (f->amx)
        snprintf(recipe->text, sizeof recipe->text, "%s, %d bf16 term%s, blocks of %d queries x %d keys",
                 attn__isa_text(f->amx->isa), f->terms, f->terms == 1 ? "" : "s", (int)f->query_block,
                 (int)f->key_block);
    else
        snprintf(recipe->text, sizeof recipe->text, "%s%s tile %dx%d, blocks of %d queries x %d keys",
                 attn__isa_text(f->tile->isa), f->pairs ? " bf16 pairs" : "", f->tile->rows,
                 f->tile->lanes * f->tile->vectors, (int)f->query_block, (int)f->key_block);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ an item's queries */

/* All subtiles have nearly equal widths, because a subtile of one vector would wait for its sums. */
static attn__flash_subtile subtile_at(const attn__flash_item *t, int64_t i)
{
    int64_t lanes = t->flash->tile->lanes, vectors = t->padded / lanes, n = t->subtiles;
    int64_t each = vectors / n, more = vectors % n;
    attn__flash_subtile sub = {.index = i};
    sub.lane = (i * each + (i < more ? i : more)) * lanes;
    sub.width = (each + (i < more)) * lanes;
    sub.lanes = t->count - sub.lane < sub.width ? t->count - sub.lane : sub.width;
    return sub;
}

/* Transposes the item's queries, so that each lane has one query. Does nothing if they are transposed already. */
static void gather_queries(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    if (t->q_ready)
        return;
    t->q_ready = true;
    float factor = f->pairs ? 1.0f : attn__score_factor(t->canonical);
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = subtile_at(t, i);
        attn__lane_view view = {(void *)(uintptr_t)t->arrays->at.q,
                                t->canonical->problem.dtype,
                                t->s.at[ATTN__OP_Q] + sub.lane,
                                f->channel[ATTN__OP_Q],
                                f->channels,
                                sub.lanes};
        float *q = t->s.q + sub.lane * f->channels;
        f->tiles.lanes->gather(&view, q, sub.width, factor);
        if (f->pairs) /* exact, because the numbers are unscaled bf16 */
            f->pairs->round_rows(q, f->channels, sub.width, t->s.pairs.q + sub.lane * f->channel_pairs);
    }
}

static void find_spans(attn__flash_item *t, int64_t batch)
{
    attn__flash_scratch *s = &t->s;
    attn__visible_rows_start(&s->see, t->canonical, t->arrays, batch, t->first, t->count, t->flash->tile->lanes);
    t->key_begin = t->canonical->key.size;
    t->key_end = 0;
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = subtile_at(t, i);
        attn__flash_span *span = &s->span[i];
        span->limits = attn__visible_span_of(&s->see, sub.lane, sub.lanes);
        span->begin = span->limits.first;
        span->end = span->limits.last;
        span->started = false;
        if (span->begin < span->end) {
            t->key_begin = attn__min(span->begin, t->key_begin);
            t->key_end = attn__max(span->end, t->key_end);
        }
    }
    /* rounds down, so that blocks begin at the same keys for all queries */
    t->key_begin -= t->key_begin % t->flash->key_block;
}

static void read_tables(const attn__flash_item *t, int64_t batch)
{
    for (int i = 0; i < t->flash->tables.n; i++) {
        int64_t at = attn__flash_table_at(t->canonical, i, batch);
        attn__table_panel_read(&t->flash->tables.of[i].panel, t->canonical, t->arrays, at, 1.0f, &t->s.table[i].panel);
        attn__offsets_indices(&t->canonical->query, t->canonical->problem.relatives[i].query_dim, t->first, t->count,
                              t->s.table[i].query);
    }
}

/* Sets the offsets of the item's queries, their dropout hashes, key ranges and running sums. */
static void begin(attn__flash_item *t, int64_t batch)
{
    const attn__canonical *canonical = t->canonical;
    attn__flash_scratch *s = &t->s;
    int64_t lanes = t->flash->tile->lanes;
    t->batch = batch;
    t->padded = attn__round_up(t->count, lanes);
    attn__operand_offsets(canonical, ATTN__OP_Q, batch, t->first, t->count, s->at[ATTN__OP_Q]);
    attn__operand_offsets(canonical, ATTN__OP_O, batch, t->first, t->count, s->at[ATTN__OP_O]);
    attn__tile_place place = {canonical, t->arrays, 0, batch, t->first, t->count};
    attn__tile_rows_start(&s->rows, &t->flash->tiles, &place);
    attn__tile_rows_head(&s->rows, &t->flash->tiles, &place);
    attn__running_begin(canonical, t->arrays, batch, t->first, t->count, t->padded, s->rows.m, s->rows.l);
    t->subtiles = attn__ceil_div(t->padded / lanes, t->flash->vectors);
    find_spans(t, batch);
    read_tables(t, batch);
}

/* -------------------------------------------------------------------------------------------------- a block of keys */

enum { STEP = 2 * ATTN__BF16X3_SIDE }; /* keys per call of the kernel of pairs */

/* Packs the values as operand A, whose rows are channels.  Returns false if a number is not finite. */
static bool pack_values(attn__flash_item *t, const attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    int64_t group = f->tile->group;
    const int64_t *channel = f->channel[ATTN__OP_V];
    bool finite = true;
    for (int64_t c = 0; c < f->values; c += group) {
        const char *base = t->arrays->at.v;
        if (!channel)
            base += c * (int64_t)attn_dtype_size(f->keys_dtype);
        finite = f->tiles.lanes->copy(base, f->keys_dtype, t->s.at[ATTN__OP_V], channel ? channel + c : NULL, b->keys,
                                      attn__min(f->values - c, group), t->s.v + c * b->keys, group) &&
                 finite;
    }
    return finite;
}

/* In the copy `clean`, a key has zeros in each group of channels with a number that is not finite. */
static void pack_clean_values(attn__flash_item *t, const attn__flash_keys *b)
{
    int64_t group = t->flash->tile->group, values = t->flash->values;
    pack_values(t, b);
    for (int64_t c = 0; c < values; c += group)
        t->s.nbad[c / group] =
            attn__finite_clean(t->s.v + c * b->keys, group, b->keys, attn__min(values - c, group),
                               t->s.clean + c * b->keys, group, t->s.bad + c / group * t->flash->key_block);
}

/* Packs keys as operand A with contiguous rows. With a single subtile, keys are read in place, because copying is
 * slower. */
static void pack_keys(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn_dtype dtype = f->keys_dtype;
    int64_t step = attn__offsets_one(&t->canonical->key, ATTN__STRIDE(dim.k), 1);
    bool here = t->subtiles == 1 && dtype == ATTN_F32 && !f->channel[ATTN__OP_K] && t->canonical->key.n == 1;
    b->k = here ? (const float *)t->arrays->at.k + t->s.at[ATTN__OP_K][0] : t->s.k;
    b->ldk = here ? step : f->ldk;
    if (!here)
        f->tiles.lanes->copy(t->arrays->at.k, dtype, t->s.at[ATTN__OP_K], f->channel[ATTN__OP_K], b->keys, f->channels,
                             t->s.k, f->ldk);
}

/* --------------------------------------------------------------------------------------- relative tables of a block */

static attn__table_reach reach_of(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    return attn__table_reach_of(&t->flash->tables.of[i].panel, x->query + sub.lane, sub.lanes, x->key, b->keys);
}

/* Multiplies queries by the table rows that they use. Sets x->lane[r] to the offset of the term of lane r and key 0. */
static void multiply_table(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i)
{
    const attn__flash *f = t->flash;
    const attn__flash_table *table = &f->tables.of[i];
    const attn__flash_table_memory *x = &t->s.table[i];
    attn__table_reach reach = reach_of(t, b, sub, i);
    f->tile->run(&(attn__gemm_tile_args){.m = sub.lanes,
                                         .n = attn__round_up(reach.n, f->tile->lanes),
                                         .k = f->channels,
                                         .a = t->s.q + sub.lane * f->channels,
                                         .am = 1,
                                         .ak = sub.width,
                                         .b = x->panel.across + reach.low,
                                         .ldb = table->panel.ld_across,
                                         .c = x->terms,
                                         .ldc = table->ld});
    for (int64_t r = 0; r < sub.lanes; r++)
        x->lane[r] = r * table->ld - x->query[sub.lane + r] + table->panel.queries - 1 - reach.low;
}

/* Copies the terms of one table to `s` and transposes them, so that each lane has one query. */
static void transpose_terms(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i,
                            float *s)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    for (int64_t from = 0, end = 0; from < b->keys; from = end) {
        bool steps = attn__table_run(x->key, from, b->keys, &end);
        float *first = s + from * sub.width;
        attn__lane_view view = {x->terms + x->key[from], ATTN_F32, x->lane, NULL, steps ? end - from : 1, sub.lanes};
        t->flash->tiles.lanes->gather(&view, first, sub.width, 1.0f);
        for (int64_t key = from + 1; !steps && key < end; key++)
            memcpy(s + key * sub.width, first, (size_t)sub.width * sizeof *s);
    }
}

/* Sets the scores to the sum of the terms of tables of queries. Returns false if there is no such table. */
static bool set_table_terms(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    bool any = false;
    for (int i = 0; i < t->flash->tables.n; i++) {
        if (t->flash->tables.of[i].value)
            continue;
        multiply_table(t, b, sub, i);
        transpose_terms(t, b, sub, i, any ? t->s.extra : t->s.s);
        if (any)
            t->flash->tiles.lanes->add(t->s.s, t->s.extra, b->keys * sub.width, 1.0f);
        any = true;
    }
    return any;
}

/* Adds the terms of a value table pair by pair, for pairs that are not masked. A product would also add terms of weight
 * 0, which are NaN if the table has NaN or infinity. */
static void add_table_carefully(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i,
                                int64_t low)
{
    const attn__table_panel *panel = &t->flash->tables.of[i].panel;
    const attn__flash_table_memory *x = &t->s.table[i];
    float *o = t->s.o + sub.lane * t->flash->held;
    for (int64_t key = 0; key < b->keys; key++)
        for (int64_t lane = 0; lane < sub.lanes; lane++) {
            float p = t->s.s[key * sub.width + lane];
            int64_t row = low + x->key[key] - x->query[sub.lane + lane];
            for (int64_t c = 0; t->s.alive[key * sub.width + lane] && c < panel->channels; c++)
                o[c * sub.width + lane] += p * x->panel.rows[row * panel->ld + c];
        }
}

/* Computes D^T in x->terms. It has the sum of the weights for each distance and lane. */
static void collect_weights(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i,
                            attn__table_reach reach, int64_t low)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    const int64_t *query = x->query + sub.lane;
    memset(x->terms, 0, (size_t)(reach.n * sub.width) * sizeof(float));
    for (int64_t key = 0; key < b->keys; key++)
        for (int64_t lane = 0; lane < sub.lanes; lane++)
            x->terms[(low + x->key[key] - query[lane] - reach.low) * sub.width + lane] +=
                t->s.s[key * sub.width + lane];
}

static void add_table_values(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    for (int i = 0; i < f->tables.n; i++) {
        const attn__table_panel *panel = &f->tables.of[i].panel;
        const attn__flash_table_memory *x = &t->s.table[i];
        int64_t low = panel->queries - 1;
        if (!f->tables.of[i].value)
            continue;
        if (b->careful) {
            add_table_carefully(t, b, sub, i, low);
            continue;
        }
        attn__table_reach reach = reach_of(t, b, sub, i);
        collect_weights(t, b, sub, i, reach, low);
        f->tile->run(&(attn__gemm_tile_args){.m = f->values,
                                             .n = sub.width,
                                             .k = reach.n,
                                             .a = x->panel.rows + reach.low * panel->ld,
                                             .am = 1,
                                             .ak = panel->ld,
                                             .b = x->terms,
                                             .ldb = sub.width,
                                             .c = t->s.o + sub.lane * f->held,
                                             .ldc = sub.width,
                                             .accumulate = true});
    }
}

/* ------------------------------------------------------------------------------------ a subtile and a block of keys */

static void load_panels(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn__operand_offsets(t->canonical, ATTN__OP_K, t->batch, b->at, b->keys, t->s.at[ATTN__OP_K]);
    attn__operand_offsets(t->canonical, ATTN__OP_V, t->batch, b->at, b->keys, t->s.at[ATTN__OP_V]);
    bool finite, chooses = f->tiles.kind == ATTN__WEIGHTS_LARGEST; /* then no product reads the values */
    if (f->amx && (finite = attn__flash_amx_panels(t, b), b->amx)) {
        b->careful = !finite && attn__flash_may_hide(t->canonical, f);
        if (b->careful)
            pack_clean_values(t, b);
        return;
    }
    gather_queries(t);
    if (f->pairs) {
        f->pairs->copy_rows(t->arrays->at.k, t->s.at[ATTN__OP_K], b->keys, f->channels, t->s.pairs.k, f->ld_pairs);
        finite = chooses ||
                 f->pairs->pair_rows(t->arrays->at.v, t->s.at[ATTN__OP_V], b->keys, f->values, t->s.pairs.v, f->ldv);
    } else {
        pack_keys(t, b);
        finite = chooses || pack_values(t, b);
    }
    b->careful =
        !attn__flash_tables_finite(&f->tables, t->s.table, false) || (!finite && attn__flash_may_hide(t->canonical, f));
    if (b->careful)
        pack_clean_values(t, b);
}

/* Prepares what masks, bias, dropout and tables need for the block's keys. */
static void find_keys(attn__flash_item *t, const attn__flash_keys *b)
{
    attn__tile_keys_start(&t->s.keys, &t->flash->tiles, t->canonical, b->at, b->keys);
    attn__flash_tables_keys(&t->flash->tables, t->canonical, b->at, b->keys, t->s.table);
}

attn__tile attn__flash_tile(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash_scratch *s = &t->s;
    return (attn__tile){.plan = &t->flash->tiles,
                        .canonical = t->canonical,
                        .arrays = t->arrays,
                        .see = &s->see,
                        .rows = &s->rows,
                        .row = sub.lane,
                        .nrows = sub.lanes,
                        .keys = &s->keys,
                        .nkeys = b->keys,
                        .ld = sub.width,
                        .s = s->s,
                        .bias = s->extra,
                        .alive = b->careful ? s->alive : NULL,
                        .fades = t->fades ? s->fades : NULL,
                        .hidden = attn__flash_hidden(t, b, sub)};
}

static void add_values(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    int64_t group = f->tile->group;
    attn__gemm_tile_packed_args args = {.m = f->values,
                                        .k = b->keys,
                                        .vectors = (int)(sub.width / f->tile->lanes),
                                        .a = b->careful ? t->s.clean : t->s.v,
                                        .ak = group,
                                        .group = group * b->packed,
                                        .b = t->s.s,
                                        .c = t->s.o + sub.lane * f->held,
                                        .accumulate = t->s.span[sub.index].started,
                                        .hook = {attn__prefetch_portion, &t->prefetch}};
    f->tile->run_packed(&args);
    t->s.span[sub.index].started = true;
}

/* Adds the terms of values with NaN or infinity, for the lanes that attend the keys of these values. */
static void repair_values(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    int64_t group = f->tile->group;
    for (int64_t c = 0; c < f->values; c += group) {
        const int64_t *bad = t->s.bad + c / group * f->key_block;
        attn__finite_sums sums = {.outs = sub.width,
                                  .channels = attn__min(f->values - c, group),
                                  .w = t->s.s,
                                  .alive = t->s.alive,
                                  .bit = 1,
                                  .w_out = 1,
                                  .w_row = sub.width,
                                  .factor = 1.0f,
                                  .x = t->s.v + c * b->packed,
                                  .x_row = group,
                                  .out = t->s.o + sub.lane * f->held + c * sub.width,
                                  .out_row = 1,
                                  .out_channel = sub.width};
        int64_t n = t->s.nbad[c / group];
        while (n > 0 && bad[n - 1] >= b->keys)
            n--;
        attn__finite_repair(&sums, bad, n);
    }
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

/* Computes S^T = K Q^T. If the queries have tables, S^T holds the terms of the tables, and K Q^T is added. */
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
                                 .accumulate = set_table_terms(t, b, sub),
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
    if (b->amx && !b->careful) {
        attn__flash_amx_see(t, b, sub);
        return;
    }
    bool top_known = !t->flash->pairs && !b->amx;
    if (b->amx)
        attn__flash_amx_score(t, b, sub);
    else if (t->flash->pairs)
        score_pairs(t, b, sub);
    else
        score(t, b, sub);
    attn__tile tile = attn__flash_tile(t, b, sub);
    top_known = !attn__tile_scores(&tile) && top_known;
    bool shrinks = attn__tile_softmax(&tile, top_known ? t->s.top : NULL);
    if (tile.plan->kind == ATTN__WEIGHTS_LARGEST)
        return;
    if (shrinks && t->s.span[sub.index].started)
        t->flash->tiles.lanes->scale(t->s.o + sub.lane * t->flash->held, t->flash->values, sub.width,
                                     t->s.rows.shrink + sub.lane);
    if (t->flash->pairs && !b->careful)
        add_value_pairs(t, b, sub);
    else
        add_values(t, b, sub);
    if (b->careful)
        repair_values(t, b, sub);
    add_table_values(t, b, sub);
}

/* Returns the number of prefetch portions per subtile and block: one per STEP keys, register tile, or AMX hook. */
static int64_t portions(const attn__flash *f, const attn__flash_keys *b)
{
    enum { SQUARE = 2 * ATTN__BF16X3_SIDE, PAIRS = 6 };
    int64_t pairs = f->terms == 1 ? 1 : PAIRS;
    if (b->amx) {
        int64_t scores = attn__ceil_div(b->keys, SQUARE) * attn__ceil_div(f->channels, ATTN__BF16X3_DEPTH) * pairs;
        int64_t values = attn__ceil_div(f->held, SQUARE) * attn__ceil_div(b->keys, ATTN__BF16X3_DEPTH) * pairs;
        return attn__ceil_div(scores + values, ATTN__BF16X3_HOOK_EVERY);
    }
    return f->pairs ? attn__ceil_div(b->keys, STEP) : attn__max((b->keys + f->values) / f->tile->rows, 1);
}

/* Reports whether any query of the subtile has a weight for a key of `b`. With mask_fill, every key has a weight. */
static bool sees(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    return attn__flash_hidden(t, b, sub) != ATTN__VISIBLE_NONE;
}

/* ------------------------------------------------------------------------------------------------------ prefetching */

enum { STORES = 4096 }; /* number of bytes that the store buffers can absorb */

static void stream(attn__flash_item *t, attn__operand op, int64_t batch, int64_t from, int64_t to)
{
    if (!t->flash->channel[op])
        attn__rows_plan_prefetch(&t->prefetch, t->canonical, t->arrays, op, batch, 1, from, to);
}

static void stream_keys(attn__flash_item *t, int64_t batch, int64_t from, int64_t to)
{
    stream(t, ATTN__OP_K, batch, from, to);
    if (t->flash->tiles.kind != ATTN__WEIGHTS_LARGEST)
        stream(t, ATTN__OP_V, batch, from, to);
}

/* Returns how many of `rows` rows to prefetch. For f32 on AMX, the splitting into bf16 terms prefetches the others. */
static int64_t rows_near(const attn__flash_item *t, int64_t rows)
{
    return t->flash->terms == ATTN__BF16X3_F32 ? attn__min(rows, ATTN__BF16X3_SPLIT_NEAR) : rows;
}

static void stream_next_queries(attn__flash_item *t, int64_t part, int64_t parts)
{
    const attn__flash *f = t->flash;
    int64_t count = rows_near(t, attn__min(t->canonical->query.size - t->next_first, f->query_block));
    stream(t, ATTN__OP_Q, t->next_batch, t->next_first + count * part / parts,
           t->next_first + count * (part + 1) / parts);
}

/* Adds part `part` of `parts` of this item's output rows to the prefetch list. Up to STORES bytes need no prefetch,
 * because the store buffers absorb them. Further stores that miss the cache would block loads. */
static void stream_output(attn__flash_item *t, int64_t part, int64_t parts)
{
    int64_t size = (int64_t)attn_dtype_size(t->canonical->problem.dtype), row = t->flash->values * size;
    int64_t from = t->count * part / parts, to = t->count * (part + 1) / parts;
    if (!t->flash->channel[ATTN__OP_O] && t->count * row > STORES)
        attn__prefetch_add(&t->prefetch, t->arrays->at.o, size, t->s.at[ATTN__OP_O] + from, to - from, row);
}

/* Plans the prefetches during a block of keys: the next block or, after the last block, the first keys of the next
 * item. A part of the output rows and of the next item's queries is prefetched during each block. */
static void plan_prefetch(attn__flash_item *t, int64_t at, int64_t keys, int64_t portions)
{
    attn__prefetch_clear(&t->prefetch);
    int64_t block = t->flash->key_block, next = at + keys;
    int64_t part = (at - t->key_begin) / block, parts = (t->key_end - t->key_begin + block - 1) / block;
    stream_output(t, part, parts);
    if (t->next_batch >= 0)
        stream_next_queries(t, part, parts);
    if (next < t->key_end)
        stream_keys(t, t->batch, next, next + rows_near(t, attn__min(t->key_end - next, block)));
    else if (t->next_batch >= 0)
        stream_keys(t, t->next_batch, 0, rows_near(t, attn__min(t->canonical->key.size, block)));
    attn__prefetch_divide(&t->prefetch, portions);
}

static void run_key_block(attn__flash_item *t, int64_t at, int64_t keys)
{
    attn__flash_keys b = {.at = at, .keys = keys, .packed = keys};
    bool seen_at_all = false;
    find_keys(t, &b);
    for (int64_t i = 0; i < t->subtiles && !seen_at_all; i++)
        seen_at_all = sees(t, &b, subtile_at(t, i));
    if (!seen_at_all)
        return;
    load_panels(t, &b);
    t->fills_nonfinite |= b.careful && t->flash->tiles.visible.fills;
    plan_prefetch(t, at, keys, t->subtiles * portions(t->flash, &b));
    for (int64_t i = 0; i < t->subtiles; i++) {
        const attn__flash_span *span = &t->s.span[i];
        if (at >= span->end || at + keys <= span->begin)
            continue;
        /* Subtiles stop at the last key of any lane, because a causal mask rarely ends at the end of a block. */
        attn__flash_keys seen = b;
        seen.keys = span->end - at < keys ? span->end - at : keys;
        attn__flash_subtile sub = subtile_at(t, i);
        if (sees(t, &seen, sub))
            see_keys(t, &seen, sub);
    }
    if (b.amx)
        attn__flash_amx_end(t);
}

/* ----------------------------------------------------------------------------------------------------------- output */

/* Returns the number in `whole` of an index of the group of a packed sequence, whose axes are shorter. */
static int64_t number_in(const attn__group *whole, const attn__group *group, int64_t index)
{
    int64_t at[ATTN_MAX_DIMS], number = 0;
    attn__split(group, index, at);
    for (int a = 0; a < group->n; a++)
        number = number * whole->axis[a].dim.n + at[a];
    return number;
}

/* Stores the values of the chosen keys or, in the backward pass, the keys. */
static void finish_chosen(attn__flash_item *t)
{
    const attn__tile_rows *rows = &t->s.rows;
    for (int64_t i = 0; i < t->count; i++) {
        bool any = rows->m[i] != -INFINITY, nan = rows->m[i] != rows->m[i];
        rows->l[i] = any ? 1.0f : 0.0f;
        if (!t->chosen)
            continue;
        int64_t key = nan ? ALL_KEYS : any ? number_in(&t->whole->key, &t->canonical->key, rows->chosen[i]) : NO_KEY;
        t->chosen[number_in(&t->whole->query, &t->canonical->query, t->first + i)] = (int32_t)key;
    }
    if (t->chosen)
        return;
    attn__tile_store_chosen(&(attn__tile_chosen){.plan = &t->flash->tiles,
                                                 .place = {t->canonical, t->arrays, 0, t->batch, t->first, t->count},
                                                 .m = rows->m,
                                                 .chosen = rows->chosen,
                                                 .v_channel = t->flash->channel[ATTN__OP_V],
                                                 .o_channel = t->flash->channel[ATTN__OP_O],
                                                 .row = t->s.v});
    if (t->canonical->problem.flags & ATTN_WANT_LSE)
        attn__running_store(t->canonical, t->arrays, t->batch, t->first, t->count, rows->m, rows->l);
}

/* Divides the sums by the sums of weights and stores them. A row without keys has l = 0 and o = 0. */
static void finish(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    for (int64_t i = 0; i < t->padded; i++)
        t->s.rows.shrink[i] = attn__running_factor(t->canonical, t->s.rows.l[i]);
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = subtile_at(t, i);
        float *o = t->s.o + sub.lane * f->held;
        if (!t->s.span[i].started)
            memset(o, 0, (size_t)(sub.width * f->values) * sizeof *o);
        attn__lane_view view = {t->arrays->at.o,
                                t->canonical->problem.dtype,
                                t->s.at[ATTN__OP_O] + sub.lane,
                                f->channel[ATTN__OP_O],
                                f->values,
                                sub.lanes};
        f->tiles.lanes->scatter(&view, o, sub.width, t->s.rows.shrink + sub.lane);
    }
    if (t->canonical->problem.flags & ATTN_WANT_LSE)
        attn__running_store(t->canonical, t->arrays, t->batch, t->first, t->count, t->s.rows.m, t->s.rows.l);
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__flash *flash;
    attn__items items;
    char *workspace;
    size_t each;     /* bytes of the memory of one thread */
    int32_t *chosen; /* backward: [batch][query] */
} job;

static void run_key_blocks(attn__flash_item *t)
{
    int64_t block = t->flash->key_block;
    for (int64_t at = t->key_begin; at < t->key_end; at += block)
        run_key_block(t, at, attn__min(t->key_end - at, block));
}

/* Runs the item again if the weight of a mask_fill has become 0 relative to later keys. */
static void run_faded(attn__flash_item *t)
{
    attn__flash_scratch *s = &t->s;
    if (!t->fills_nonfinite || t->key_end - t->key_begin <= t->flash->key_block)
        return;
    t->fades = attn__finite_fades(s->rows.m, t->padded, t->flash->tiles.fill, s->fades);
    if (!t->fades)
        return;
    attn__running_begin(t->canonical, t->arrays, t->batch, t->first, t->count, t->padded, s->rows.m, s->rows.l);
    for (int64_t i = 0; i < t->subtiles; i++)
        s->span[i].started = false;
    run_key_blocks(t);
}

static void run_item(void *user, int64_t number, int thread)
{
    const job *j = user;
    const attn__flash *f = j->flash;
    attn__item item;
    if (!attn__item_start(&item, &j->items, number))
        return;
    attn__flash_item t = {.canonical = item.canonical,
                          .whole = j->canonical,
                          .flash = f,
                          .arrays = item.arrays,
                          .first = item.first,
                          .count = item.count,
                          .next_batch = item.next_batch,
                          .next_first = item.next_first};
    if (j->chosen)
        t.chosen = j->chosen + item.batch * j->canonical->query.size;
    divide_memory(f, j->canonical, j->workspace + (size_t)thread * j->each, &t.s);
    begin(&t, item.batch);
    if (f->amx) {
        f->amx->begin();
        attn__flash_amx_queries(&t);
    } else {
        gather_queries(&t);
    }
    run_key_blocks(&t);
    run_faded(&t);
    if (f->amx)
        f->amx->end();
    if (f->tiles.kind == ATTN__WEIGHTS_LARGEST)
        finish_chosen(&t);
    else
        finish(&t);
}

/* ------------------------------------------------------------------------------------ the backward pass of a hardmax
 *
 * Each query adds its gradient to that of its chosen key's value. Other gradients are 0. */

typedef struct chosen_job {
    const attn__canonical *canonical;
    const attn__execution *arrays;
    attn__batch_split split;
    attn__sums sums;
    backward_memory memory;
} chosen_job;

/* Adds a query's gradient to that of one key's value, or of every visible key's value if its scores have NaN. */
static void add_chosen(const chosen_job *j, attn__pair *pair, const attn__row *row, int64_t key, double weight)
{
    attn__spot spot;
    attn__spot_at(&spot, row, key);
    double keep = attn__row_keep(row, &spot);
    bool alive = spot.kind == ATTN__SPOT_KEY && (weight == 1 || attn__pair_score(pair, &spot) != (double)-INFINITY);
    if (!alive || keep == 0)
        return;
    for (int64_t c = 0; c < j->canonical->value.size; c++)
        pair->vs[c] = weight * keep * pair->douts[c];
    attn__scatter(&j->canonical->value, ATTN__OP_DV, ATTN_F64, j->sums.at[ATTN__SUM_V], spot.offset[ATTN__OP_DV],
                  pair->vs, true);
}

static void add_row(const chosen_job *j, attn__pair *pair, int64_t batch, int64_t query)
{
    attn__row row;
    int64_t key = j->memory.chosen[batch * j->canonical->query.size + query];
    attn__row_at(&row, j->canonical, j->arrays, batch, query);
    if (row.absent || key == NO_KEY)
        return;
    attn__gather(&j->canonical->value, ATTN__OP_DOUT, pair->dtype, j->arrays->at.dout, row.offset[ATTN__OP_DOUT],
                 pair->douts);
    if (key != ALL_KEYS) {
        add_chosen(j, pair, &row, key, 1);
        return;
    }
    attn__pair_row(pair, &row, NULL);
    for (key = 0; key < j->canonical->key.size; key++)
        add_chosen(j, pair, &row, key, (double)NAN);
}

static void run_chosen(void *user, int64_t item, int thread)
{
    const chosen_job *j = user;
    attn__pair pair;
    attn__pair_start(&pair, j->canonical, j->arrays, j->memory.pairs + (size_t)thread * j->memory.pair);
    for (int64_t rest = 0; rest < j->split.rest; rest++)
        for (int64_t query = 0; query < j->canonical->query.size; query++)
            add_row(j, &pair, attn__batch_split_index(&j->split, j->canonical, item, rest), query);
}

static void apply_chosen(const attn__canonical *canonical, const attn__execution *arrays, const backward_memory *memory)
{
    chosen_job j = {.canonical = canonical, .arrays = arrays, .memory = *memory};
    unsigned summed = summed_gradients(canonical);
    memset(memory->sums, 0, attn__sums_size(canonical, summed));
    attn__sums_start(&j.sums, canonical, summed, memory->sums);
    if (!canonical->problem.accumulate)
        attn__gradients_clear(canonical, arrays, 0, ATTN__WANT_OWN & ~summed, NULL);
    j.split = attn__batch_split_make(canonical, ATTN_WANT_DV);
    if (j.sums.at[ATTN__SUM_V])
        attn__parallel_items(canonical->threads, j.split.items, run_chosen, &j);
    attn__sums_store(&j.sums, canonical, arrays);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    job j = {.canonical = canonical, .flash = recipe->data, .workspace = workspace};
    attn__flash_scratch scratch;
    j.each = divide_memory(j.flash, canonical, NULL, &scratch);
    for (int thread = 0; j.flash->tables.n && thread < canonical->threads; thread++) {
        divide_memory(j.flash, canonical, j.workspace + (size_t)thread * j.each, &scratch);
        attn__flash_tables_start(&j.flash->tables, scratch.table);
    }
    backward_memory memory;
    bool backward = canonical->backward;
    if (backward) {
        divide_backward(canonical, j.workspace + (size_t)canonical->threads * j.each, &memory);
        j.chosen = memory.chosen;
    }
    j.items = attn__items_make(canonical, arrays, j.flash->query_block);
    attn__parallel_items(canonical->threads, j.items.n, run_item, &j);
    if (backward)
        apply_chosen(canonical, arrays, &memory);
}

const attn__solver attn__solver_flash = {.name = "flash",
                                         .refuse = refuse,
                                         .plan = plan,
                                         .apply = apply,
                                         .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__BLOCKS |
                                                   ATTN__BATCH_INVARIANT | ATTN__BF16_KEYS | ATTN__TOP_K |
                                                   ATTN__BIAS_MEETS};
