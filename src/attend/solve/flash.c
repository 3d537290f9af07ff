/* SPDX-License-Identifier: MIT
 *
 * flash.c - flash attention's forward pass: what it accepts, its plan, its items.  flash.h has the algorithm.
 */
#include "attend/solve/flash.h"

#include "attend/block/dropout.h"
#include "attend/block/items.h"
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

/* A subtile's queries and a block of keys meet at relative positions that lie close together.  For a table T of queries,
 * X = Q T^T has a row for each query and a column for each such position.  The terms of query i and keys 0, 1, 2, ...
 * are neighbours in row i, from a column on that depends on i: X read from there on is transposed to S^T, to which the
 * product of keys and queries is added.  For a table of values, D^T[d,i] is the sum of the weights that query i has for
 * keys at position d, and O^T += T^T D^T. */
static void choose_tables(attn__flash *f, const attn__canonical *canonical)
{
    int64_t wide = f->tile->lanes * f->vectors;
    f->ntables = canonical->problem.nrelatives;
    for (int i = 0; i < f->ntables; i++) {
        attn__flash_table *table = &f->table[i];
        table->value = canonical->problem.relatives[i].kind == ATTN_RELATIVE_VALUE;
        table->panel = attn__table_panel_make(canonical, i, attn__odd_lines(f->values), f->tile->lanes);
        table->ld = attn__odd_lines(attn__table_most_rows(canonical, i, wide, f->key_block));
    }
}

static void take_tables(const attn__flash *f, attn__arena *arena, attn__flash_scratch *s)
{
    int64_t wide = f->tile->lanes * f->vectors;
    for (int i = 0; i < f->ntables; i++) {
        attn__flash_table_memory *x = &s->table[i];
        attn__table_memory_take(&f->table[i].panel, arena, f->table[i].value, &x->panel);
        x->terms = attn__arena_take(arena, wide * f->table[i].ld, sizeof(float));
        x->query = attn__arena_take(arena, f->query_block, sizeof(int64_t));
        x->key = attn__arena_take(arena, f->key_block, sizeof(int64_t));
        x->lane = attn__arena_take(arena, wide, sizeof(int64_t));
    }
}

/* Before an execution, of each thread. */
static void start_tables(const attn__flash *f, const attn__flash_scratch *s)
{
    for (int i = 0; i < f->ntables; i++)
        attn__table_memory_start(&s->table[i].panel);
}

/* --------------------------------------------------------------------------------------------------- scratch memory */

static void take_queries(attn__arena *p, const attn__flash *f, const attn__canonical *canonical, attn__flash_scratch *s)
{
    int64_t n = f->query_block;
    s->q = attn__arena_take(p, n * f->channels, sizeof(float));
    s->o = attn__arena_take(p, n * f->held, sizeof(float));
    s->pairs.q = attn__arena_take(p, f->pairs ? n * f->channel_pairs : 0, sizeof(uint32_t));
    s->m = attn__arena_take(p, n, sizeof(float));
    s->l = attn__arena_take(p, n, sizeof(float));
    s->shrink = attn__arena_take(p, n, sizeof(float));
    s->query_at.q = attn__arena_take(p, n, sizeof(int64_t));
    s->query_at.o = attn__arena_take(p, n, sizeof(int64_t));
    s->query_at.bias = attn__arena_take(p, canonical->has_bias ? n : 0, sizeof(int64_t));
    s->key_low = attn__arena_take(p, canonical->has_dropout ? n : 0, sizeof(uint32_t));
    s->key_high = attn__arena_take(p, canonical->has_dropout ? n : 0, sizeof(uint32_t));
    s->span = attn__arena_take(p, f->subtiles, sizeof(attn__flash_span));
    attn__visible_rows_take(&s->rows, &f->visible, p, n, ATTN__VISIBLE_ANY);
}

static void take_keys(attn__arena *p, const attn__flash *f, const attn__canonical *canonical, attn__flash_scratch *s)
{
    int64_t n = f->key_block, width = f->tile->lanes * f->vectors, square = n * width;
    int64_t group = f->tile->group, groups = attn__round_up(f->values, group);
    s->s = attn__arena_take(p, square, sizeof(float));
    s->other_s = attn__arena_take(p, f->amx ? attn__round_up(n, ATTN__BF16X3_SIDE) * width : 0, sizeof(float));
    s->top = attn__arena_take(p, width, sizeof(float));
    bool extra = canonical->has_bias || canonical->has_mask || f->ntables > 1;
    s->extra = attn__arena_take(p, extra ? square : 0, sizeof(float));
    s->hidden = attn__arena_take(p, square, 1);
    s->k = attn__arena_take(p, f->pairs ? 0 : n * f->ldk, sizeof(float));
    s->pairs.k = attn__arena_take(p, f->pairs ? n * f->ld_pairs : 0, sizeof(uint32_t));
    s->pairs.v = attn__arena_take(p, f->pairs ? (n + 1) / 2 * f->ldv : 0, sizeof(uint32_t));
    s->pairs.p = attn__arena_take(p, f->pairs ? square : 0, sizeof(uint32_t));
    s->v = attn__arena_take(p, n * (groups > f->ldv ? groups : f->ldv), sizeof(float));
    s->key_at.k = attn__arena_take(p, n, sizeof(int64_t));
    s->key_at.v = attn__arena_take(p, n, sizeof(int64_t));
    s->key_at.bias = attn__arena_take(p, canonical->has_bias ? n : 0, sizeof(int64_t));
    s->column = attn__arena_take(p, canonical->has_dropout ? n : 0, sizeof(uint32_t));
    attn__visible_keys_take(&s->keys, &f->visible, p, n, ATTN__VISIBLE_ANY);
}

/* Tiles of `blocks` times 16 rows or columns and `depth` numbers of each. */
static attn__bf16x3_side take_tiles(attn__arena *p, const attn__flash *f, int64_t blocks, int64_t depth)
{
    attn__bf16x3_side side = attn__bf16x3_packed(NULL, attn__ceil_div(depth, ATTN__BF16X3_DEPTH), f->terms);
    side.data = attn__arena_take(p, blocks * side.block, sizeof *side.data);
    return side;
}

static void take_terms(attn__arena *p, const attn__flash *f, attn__flash_scratch *s)
{
    enum { SIDE = ATTN__BF16X3_SIDE };
    s->tiles.q = take_tiles(p, f, f->query_block / SIDE, f->channels);
    s->tiles.k = take_tiles(p, f, attn__round_up(f->key_block, SIDE) / SIDE, f->channels);
    s->tiles.v = take_tiles(p, f, f->held / SIDE, f->key_block);
    for (int i = 0; i < 2; i++)
        s->tiles.p[i] = take_tiles(p, f, f->vectors, f->key_block);
}

/* Divides `base` into the arrays and returns the bytes used; NULL: only counts them. */
static size_t divide_memory(const attn__flash *flash, const attn__canonical *canonical, char *base,
                            attn__flash_scratch *scratch)
{
    attn__arena p = {base, 0};
    take_queries(&p, flash, canonical, scratch);
    take_keys(&p, flash, canonical, scratch);
    take_tables(flash, &p, scratch);
    if (flash->amx)
        take_terms(&p, flash, scratch);
    return p.used;
}

/* --------------------------------------------------------------------------------------------------------- the plan */

static const char *refuse(const attn__canonical *canonical)
{
    if (canonical->contract.size > ATTN__FLASH_CHANNELS || canonical->value.size > ATTN__FLASH_CHANNELS)
        return "head size above 512";
    if (canonical->backward)
        return "forward only";
    const char *unusual = attn__refuse_unusual(canonical);
    if (unusual)
        return unusual;
    return attn__table_panels_refuse(canonical);
}

/* Rows of whole cache lines, not a power of two apart so large that they share sets of the cache. */
static int64_t panel_width(int64_t channels)
{
    int64_t width = attn__round_up(channels, 16);
    return width % 256 == 0 ? width + 16 : width;
}

/* Spreads queries evenly over blocks of at most `most`, which is a multiple of whole subtiles. */
static void divide_queries(attn__flash *f, int64_t queries, int64_t most)
{
    int64_t lanes = f->tile->lanes, blocks = attn__max(1, attn__ceil_div(queries, most));
    f->query_block = attn__max(lanes, attn__round_up(attn__ceil_div(queries, blocks), lanes));
    f->subtiles = attn__ceil_div(f->query_block, lanes * f->vectors) + 1;
}

/* Blocks as large as leave q, o and the panels in the second cache; the score tile in the first.  Threads have no say:
 * neither bits nor blocks depend on them. */
static void choose_blocks(attn__flash *f, const attn__canonical *canonical)
{
    int64_t row = (f->channels + f->values) * (int64_t)sizeof(float), wide = f->tile->lanes * f->vectors;
    int64_t l2 = (int64_t)canonical->caches.l2, keys = canonical->key.size;
    /* Blocks end where the order of sums does: of packed sequences none depends on the others' lengths. */
    bool fixed = canonical->extras & (ATTN__BATCH_INVARIANT | ATTN__PACKED);
    f->key_block =
        keys < 256 && !f->pairs && !fixed ? 96 : 128; /* with only two blocks, all rows would be prefetched at once */
    while (f->key_block > 32 && f->key_block * row > l2 / 4)
        f->key_block /= 2;
    if (keys > 0 && !fixed)
        f->key_block = attn__round_up(attn__ceil_div(keys, attn__ceil_div(keys, f->key_block)), 8);
    int64_t most = l2 / 2 / row;
    divide_queries(f, canonical->query.size, attn__max(wide, most > 768 ? 768 : most / wide * wide));
}

/* The fewest queries whose products gain more than splitting into bf16 terms costs, as measured. */
static int64_t least_queries(const attn__flash *f, const attn__canonical *canonical)
{
    enum { ONE_PART = 32, THREE = 96, THREE_OF_SLIM = 192, USUAL = 64 };
    if (canonical->problem.dtype == ATTN_BF16)
        return ONE_PART;
    return f->channels < USUAL ? THREE_OF_SLIM : THREE;
}

/* Whether AMX is there and faster, though its tiles are filled up with zeros. */
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

enum { MANY = 8 }; /* heads, which are work for all threads */

/* As above for panels of bf16 terms, which cost more to pack: more queries share them, unless there are few heads.
 * Subtiles are as wide as two AMX tiles. */
static void choose_amx(attn__flash *f, const attn__canonical *canonical)
{
    use_amx(f, canonical);
    f->held = attn__round_up(f->values, ATTN__BF16X3_SIDE);
    int64_t part = f->terms * (int64_t)sizeof(uint16_t), l2 = (int64_t)canonical->caches.l2;
    int64_t wide = f->tile->lanes * f->vectors, keys = canonical->key.size;
    enum { ONE_BLOCK = 256 }; /* keeps all sums of the values in AMX tiles */
    int64_t most = keys <= ONE_BLOCK && f->terms > 1 ? ONE_BLOCK : 128;
    while (most > 32 && most * (f->channels + f->values) * part > l2 / 4)
        most /= 2;
    f->key_block = attn__round_up(attn__ceil_div(keys, attn__ceil_div(keys, most)), ATTN__BF16X3_DEPTH);
    most = l2 * 5 / 8 / (f->channels * part + f->values * (int64_t)sizeof(float));
    most = attn__min(most, canonical->batch.size < MANY ? 512 : 1024) / wide * wide;
    divide_queries(f, canonical->query.size, attn__max(wide, most));
}

/* Sets what follows from the problem alone: kernels, channels, axes with limits. */
static void describe(attn__flash *f, const attn__canonical *canonical)
{
    f->tile = attn__gemm_tile_for(canonical->isa);
    f->lanes = attn__online_softmax_for(canonical->isa);
    f->keys_dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_K);
    f->channels = canonical->contract.size;
    f->values = canonical->value.size;
    f->held = f->values;
    f->vectors = f->tile->vectors;
    attn__visible_make(&f->visible, canonical, false);
}

static void fill_flash(attn__flash *f, const attn__canonical *canonical)
{
    describe(f, canonical);
    f->ldk = panel_width(f->channels);
    f->ldv = panel_width(f->values);
    int64_t *next = f->tables;
    f->q_channel = attn__offsets_channels(&canonical->contract, ATTN__STRIDE(dim.q), &next);
    f->k_channel = attn__offsets_channels(&canonical->contract, ATTN__STRIDE(dim.k), &next);
    f->v_channel = attn__offsets_channels(&canonical->value, ATTN__STRIDE(dim.v), &next);
    f->o_channel = attn__offsets_channels(&canonical->value, ATTN__STRIDE(dim.o), &next);
    bool tables = canonical->problem.nrelatives; /* whose products are in f32, on vectors */
    bool adjacent = !f->k_channel && !f->v_channel;
    if (canonical->problem.dtype == ATTN_BF16 && adjacent && !tables && attn__cpu_has(ATTN__CPU_BF16_DOT))
        f->pairs = attn__gemm_tile_bf16_for(canonical->isa);
    f->channel_pairs = (f->channels + 1) / 2;
    f->ld_pairs = panel_width(f->channel_pairs);
    if (!f->q_channel && !f->k_channel && !f->v_channel && !tables && amx_pays(f, canonical))
        choose_amx(f, canonical);
    else
        choose_blocks(f, canonical);
    if (canonical->has_blocks)
        f->key_block = attn__visible_fit(canonical->problem.blocks.keys, f->key_block, f->amx ? ATTN__BF16X3_DEPTH : 8,
                                         f->key_block);
    choose_tables(f, canonical);
    for (int i = 0; i < f->ntables; i++) {
        f->table[i].panel.channel = next;
        next = attn__table_channel_offsets(canonical, i, next);
    }
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

/* Subtiles share the vectors evenly: a lone vector would leave the tile product waiting for its sums. */
static void divide_subtiles(attn__flash_item *t)
{
    int64_t lanes = t->flash->tile->lanes, vectors = t->padded / lanes;
    t->subtiles = (vectors + t->flash->vectors - 1) / t->flash->vectors;
}

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

/* Queries as rows of lanes, unless they are there already. */
static void gather_queries(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    if (t->q_ready)
        return;
    t->q_ready = true;
    float factor = f->pairs ? 1.0f : attn__score_factor(t->canonical);
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = subtile_at(t, i);
        attn__lane_view view = {(void *)(uintptr_t)t->arrays->q,
                                t->canonical->problem.dtype,
                                t->s.query_at.q + sub.lane,
                                f->q_channel,
                                f->channels,
                                sub.lanes};
        float *q = t->s.q + sub.lane * f->channels;
        f->lanes->gather(&view, q, sub.width, factor);
        if (f->pairs) /* exact: unscaled, they are bf16 still */
            f->pairs->round_rows(q, f->channels, sub.width, t->s.pairs.q + sub.lane * f->channel_pairs);
    }
}

/* What the subtiles and the item see. */
static void find_spans(attn__flash_item *t, int64_t batch)
{
    attn__flash_scratch *s = &t->s;
    attn__visible_rows_start(&s->rows, t->canonical, t->arrays, batch, t->first, t->count, t->flash->tile->lanes);
    t->key_begin = t->canonical->key.size;
    t->key_end = 0;
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = subtile_at(t, i);
        attn__flash_span *span = &s->span[i];
        span->limits = attn__visible_span_of(&s->rows, sub.lane, sub.lanes);
        span->begin = span->limits.first;
        span->end = span->limits.last;
        span->started = false;
        if (span->begin < span->end) {
            t->key_begin = attn__min(span->begin, t->key_begin);
            t->key_end = attn__max(span->end, t->key_end);
        }
    }
    /* Blocks begin at the same keys whatever the queries. */
    t->key_begin -= t->key_begin % t->flash->key_block;
}

static void read_tables(const attn__flash_item *t, int64_t batch)
{
    for (int i = 0; i < t->flash->ntables; i++) {
        int64_t at = attn__offsets_one(&t->canonical->batch, ATTN__STRIDE(table) + (size_t)i * sizeof(int64_t), batch);
        attn__table_panel_read(&t->flash->table[i].panel, t->canonical, t->arrays, at, 1.0f, &t->s.table[i].panel);
        attn__offsets_indices(&t->canonical->query, t->canonical->problem.relatives[i].query_dim, t->first, t->count,
                              t->s.table[i].query);
    }
}

/* Sets the offsets of the item's queries, their dropout keys, key ranges and running sums. */
static void begin(attn__flash_item *t, int64_t batch)
{
    const attn__canonical *canonical = t->canonical;
    attn__flash_scratch *s = &t->s;
    int64_t lanes = t->flash->tile->lanes;
    t->batch = batch;
    t->padded = attn__round_up(t->count, lanes);
    attn__query_offsets(canonical, ATTN__STRIDE(dim.q), batch, t->first, t->count, s->query_at.q);
    attn__query_offsets(canonical, ATTN__STRIDE(dim.o), batch, t->first, t->count, s->query_at.o);
    if (canonical->has_bias)
        attn__query_offsets(canonical, ATTN__STRIDE(dim.bias), batch, t->first, t->count, s->query_at.bias);
    if (canonical->has_dropout)
        attn__dropout_lanes(canonical, t->arrays, batch, t->first, t->count, lanes, s->key_low, s->key_high);
    t->k_base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.k), batch);
    t->v_base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.v), batch);
    attn__running_begin(canonical, t->arrays, batch, t->first, t->count, t->padded, s->m, s->l);
    divide_subtiles(t);
    find_spans(t, batch);
    read_tables(t, batch);
}

/* -------------------------------------------------------------------------------------------------- a block of keys */

enum { STEP = 2 * ATTN__BF16X3_SIDE }; /* keys of one call of the product of pairs */

/* Channels of values as rows of A.  False if any is not finite. */
static bool pack_values(attn__flash_item *t, const attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    int64_t group = f->tile->group;
    attn_dtype dtype = f->keys_dtype;
    bool finite = true;
    for (int64_t c = 0; c < f->values; c += group) {
        const char *base = t->arrays->v;
        if (!f->v_channel)
            base += c * (int64_t)attn_dtype_size(dtype);
        finite = f->lanes->copy(base, dtype, t->s.key_at.v, f->v_channel ? f->v_channel + c : NULL, b->keys,
                                attn__min(f->values - c, group), t->s.v + c * b->keys, group) &&
                 finite;
    }
    return finite;
}

/* Keys as rows of A.  A panel is near whatever the strides are, but one subtile alone does not repay the copy. */
static void pack_keys(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn_dtype dtype = f->keys_dtype;
    int64_t step = attn__offsets_one(&t->canonical->key, ATTN__STRIDE(dim.k), 1);
    bool here = t->subtiles == 1 && dtype == ATTN_F32 && !f->k_channel && t->canonical->key.n == 1;
    b->k = here ? (const float *)t->arrays->k + t->s.key_at.k[0] : t->s.k;
    b->ldk = here ? step : f->ldk;
    if (!here)
        f->lanes->copy(t->arrays->k, dtype, t->s.key_at.k, f->k_channel, b->keys, f->channels, t->s.k, f->ldk);
}

/* --------------------------------------------------------------------------------------- relative tables of a block */

/* The indices of the block's keys. */
static void find_table_keys(const attn__flash_item *t, const attn__flash_keys *b)
{
    for (int i = 0; i < t->flash->ntables; i++)
        attn__offsets_indices(&t->canonical->key, t->canonical->problem.relatives[i].key_dim, b->at, b->keys,
                              t->s.table[i].key);
}

static attn__table_reach reach_of(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    return attn__table_reach_of(&t->flash->table[i].panel, x->query + sub.lane, sub.lanes, x->key, b->keys);
}

/* Of queries: X, and where a key of index 0 would meet each lane. */
static void multiply_table(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i)
{
    const attn__flash *f = t->flash;
    const attn__flash_table *table = &f->table[i];
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

/* The terms of one table, to rows of s. */
static void transpose_terms(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i,
                            float *s)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    for (int64_t from = 0, end = 0; from < b->keys; from = end) {
        bool steps = attn__table_run(x->key, from, b->keys, &end);
        float *first = s + from * sub.width;
        attn__lane_view view = {x->terms + x->key[from], ATTN_F32, x->lane, NULL, steps ? end - from : 1, sub.lanes};
        t->flash->lanes->gather(&view, first, sub.width, 1.0f);
        for (int64_t key = from + 1; !steps && key < end; key++)
            memcpy(s + key * sub.width, first, (size_t)sub.width * sizeof *s);
    }
}

/* Sets the scores to the terms of tables of queries; false if there are none. */
static bool set_table_terms(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    bool any = false;
    for (int i = 0; i < t->flash->ntables; i++) {
        if (t->flash->table[i].value)
            continue;
        multiply_table(t, b, sub, i);
        transpose_terms(t, b, sub, i, any ? t->s.extra : t->s.s);
        if (any)
            t->flash->lanes->add(t->s.s, t->s.extra, b->keys * sub.width, 1.0f);
        any = true;
    }
    return any;
}

/* Those of values. */
static bool tables_finite(const attn__flash_item *t)
{
    bool finite = true;
    for (int i = 0; i < t->flash->ntables; i++)
        finite = finite && (!t->flash->table[i].value || *t->s.table[i].panel.finite);
    return finite;
}

/* Pair by pair, without those that do not see each other: a product would have each row meet weights of 0. */
static void add_table_carefully(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i,
                                int64_t low)
{
    const attn__table_panel *panel = &t->flash->table[i].panel;
    const attn__flash_table_memory *x = &t->s.table[i];
    float *o = t->s.o + sub.lane * t->flash->held;
    for (int64_t key = 0; key < b->keys; key++)
        for (int64_t lane = 0; lane < sub.lanes; lane++) {
            float p = t->s.s[key * sub.width + lane];
            int64_t row = low + x->key[key] - x->query[sub.lane + lane];
            bool counts = p != 0.0f || !t->s.hidden[key * sub.width + lane];
            for (int64_t c = 0; counts && c < panel->channels; c++)
                o[c * sub.width + lane] += p * x->panel.rows[row * panel->ld + c];
        }
}

/* D^T. */
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

/* Adds those of values to the sums, after the values themselves. */
static void add_table_values(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    for (int i = 0; i < f->ntables; i++) {
        const attn__table_panel *panel = &f->table[i].panel;
        const attn__flash_table_memory *x = &t->s.table[i];
        int64_t low = panel->queries - 1;
        if (!f->table[i].value)
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
    attn__offsets_from(&t->canonical->key, ATTN__STRIDE(dim.k), t->k_base, b->at, b->keys, t->s.key_at.k);
    attn__offsets_from(&t->canonical->key, ATTN__STRIDE(dim.v), t->v_base, b->at, b->keys, t->s.key_at.v);
    bool finite;
    if (f->amx && (finite = attn__flash_amx_panels(t, b), b->amx)) {
        b->careful = !finite && attn__flash_may_hide(t->canonical, f);
        if (b->careful)
            pack_values(t, b);
        return;
    }
    gather_queries(t);
    if (f->pairs) {
        f->pairs->copy_rows(t->arrays->k, t->s.key_at.k, b->keys, f->channels, t->s.pairs.k, f->ld_pairs);
        finite = f->pairs->pair_rows(t->arrays->v, t->s.key_at.v, b->keys, f->values, t->s.pairs.v, f->ldv);
    } else {
        pack_keys(t, b);
        finite = pack_values(t, b);
    }
    b->careful = !tables_finite(t) || (!finite && attn__flash_may_hide(t->canonical, f));
    if (b->careful && f->pairs)
        pack_values(t, b);
}

/* What masks, bias, dropout and tables need of the block's keys. */
static void find_keys(attn__flash_item *t, const attn__flash_keys *b)
{
    attn__visible_keys_start(&t->s.keys, t->canonical, b->at, b->keys);
    if (t->canonical->has_bias)
        attn__offsets_fill(&t->canonical->key, ATTN__STRIDE(dim.bias), b->at, b->keys, t->s.key_at.bias);
    if (t->canonical->has_dropout)
        attn__dropout_columns(t->canonical, b->at, b->keys, t->s.column);
    find_table_keys(t, b);
}

static void add_bias(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash_scratch *s = &t->s;
    attn__bias bias =
        attn__bias_of(t->canonical, t->arrays, false, s->query_at.bias + sub.lane, sub.lanes, s->key_at.bias, b->keys);
    attn__bias_lanes(&bias, t->flash->lanes, (float)ATTN__LOG2E, s->extra, sub.width);
    t->flash->lanes->add(s->s, s->extra, b->keys * sub.width, 1.0f);
}

bool attn__flash_mask(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__canonical *canonical = t->canonical;
    attn__flash_scratch *s = &t->s;
    unsigned hidden = attn__flash_hidden(t, b, sub);
    attn__visible_tile tile = {&s->rows, sub.lane, sub.lanes, &s->keys, 0, b->keys};
    bool capped = canonical->problem.softcap != 0;
    if (capped)
        t->flash->lanes->softcap(s->s, b->keys * sub.width, attn__softcap(canonical));
    if (canonical->has_bias)
        add_bias(t, b, sub);
    if (hidden)
        attn__visible_hide(&tile, hidden == ATTN__VISIBLE_NONE ? ATTN__VISIBLE_ANY : hidden, t->flash->lanes, s->s,
                           sub.width, attn__masked_score(canonical), s->extra);
    return capped || hidden || canonical->has_bias;
}

/* Notes the scores of masked keys. */
static void note_hidden(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    float fill = attn__masked_score(t->canonical);
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
    if (b->amx) {
        attn__flash_amx_score(t, b, sub);
        attn__flash_amx_scale(t, b, sub);
    } else if (t->flash->pairs) {
        score_pairs(t, b, sub);
    } else {
        score(t, b, sub);
    }
    top_known = !attn__flash_mask(t, b, sub) && top_known;
    if (b->careful)
        note_hidden(t, b, sub);
    if (attn__flash_softmax(t, b, sub, top_known ? t->s.top : NULL) && t->s.span[sub.index].started)
        t->flash->lanes->scale(t->s.o + sub.lane * t->flash->held, t->flash->values, sub.width, t->s.shrink + sub.lane);
    if (b->careful)
        add_values_carefully(t, b, sub);
    else if (t->flash->pairs)
        add_value_pairs(t, b, sub);
    else
        add_values(t, b, sub, 0, b->keys);
    add_table_values(t, b, sub);
}

/* Number of prefetch portions while a subtile sees a block: one after every STEP keys, or register tile. */
static int64_t portions(const attn__flash *f, int64_t keys)
{
    int64_t whole = (keys + f->values) / f->tile->rows;
    return f->pairs ? (keys + STEP - 1) / STEP : attn__max(whole, 1);
}

/* Whether any query of the subtile has a weight for any of these keys; masked keys that score a number have one. */
static bool sees(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    return t->flash->visible.fills || attn__flash_hidden(t, b, sub) != ATTN__VISIBLE_NONE;
}

/* ------------------------------------------------------------------------------------------------------ prefetching */

enum { STORES = 4096 }; /* bytes that the store buffers absorb */

/* Rows [from, to) of an operand along a group of one dim; several dims are left to the machine. */
static void stream(attn__flash_item *t, const void *base, attn_dtype dtype, const attn__group *group, size_t stride,
                   int64_t offset, int64_t from, int64_t to, int64_t channels)
{
    int64_t size = (int64_t)attn_dtype_size(dtype);
    int64_t step = group->size > 1 ? attn__offsets_one(group, stride, 1) : 0;
    if (group->n == 1)
        attn__prefetch_add(&t->prefetch, (const char *)base + (offset + from * step) * size, step * size, NULL,
                           to - from, channels * size);
}

static void stream_keys(attn__flash_item *t, int64_t k_base, int64_t v_base, int64_t from, int64_t to)
{
    const attn__group *key = &t->canonical->key;
    if (!t->flash->k_channel)
        stream(t, t->arrays->k, t->flash->keys_dtype, key, ATTN__STRIDE(dim.k), k_base, from, to, t->flash->channels);
    if (!t->flash->v_channel)
        stream(t, t->arrays->v, t->flash->keys_dtype, key, ATTN__STRIDE(dim.v), v_base, from, to, t->flash->values);
}

/* How many of `rows` rows to prefetch: where they are split into bf16 terms, the first ones prefetch the others. */
static int64_t rows_near(const attn__flash_item *t, int64_t rows)
{
    return t->flash->terms == ATTN__BF16X3_F32 ? attn__min(rows, ATTN__BF16X3_SPLIT_NEAR) : rows;
}

/* Prefetches part `part` of `parts` of the next item's first queries, ... */
static void stream_next_queries(attn__flash_item *t, int64_t part, int64_t parts)
{
    const attn__flash *f = t->flash;
    int64_t count = rows_near(t, attn__min(t->canonical->query.size - t->next_first, f->query_block));
    if (!f->q_channel)
        stream(t, t->arrays->q, t->canonical->problem.dtype, &t->canonical->query, ATTN__STRIDE(dim.q),
               attn__offsets_one(&t->canonical->batch, ATTN__STRIDE(dim.q), t->next_batch),
               t->next_first + count * part / parts, t->next_first + count * (part + 1) / parts, f->channels);
}

/* ... and of where this one's output goes: more stores than that to lines that are not there hold up everything behind
 * them. */
static void stream_output(attn__flash_item *t, int64_t part, int64_t parts)
{
    int64_t size = (int64_t)attn_dtype_size(t->canonical->problem.dtype), row = t->flash->values * size;
    int64_t from = t->count * part / parts, to = t->count * (part + 1) / parts;
    if (!t->flash->o_channel && t->count * row > STORES)
        attn__prefetch_add(&t->prefetch, t->arrays->o, size, t->s.query_at.o + from, to - from, row);
}

static void stream_next_keys(attn__flash_item *t)
{
    const attn__group *batch = &t->canonical->batch;
    stream_keys(t, attn__offsets_one(batch, ATTN__STRIDE(dim.k), t->next_batch),
                attn__offsets_one(batch, ATTN__STRIDE(dim.v), t->next_batch), 0,
                rows_near(t, attn__min(t->canonical->key.size, t->flash->key_block)));
}

/* What to prefetch during a key block: the next block, or after the last one the output rows and the next item's
 * queries and first keys. */
static void plan_prefetch(attn__flash_item *t, int64_t at, int64_t keys, int64_t portions)
{
    attn__prefetch_clear(&t->prefetch);
    int64_t block = t->flash->key_block, next = at + keys;
    int64_t part = (at - t->key_begin) / block, parts = (t->key_end - t->key_begin + block - 1) / block;
    stream_output(t, part, parts);
    if (t->next_batch >= 0)
        stream_next_queries(t, part, parts);
    if (next < t->key_end)
        stream_keys(t, t->k_base, t->v_base, next, next + rows_near(t, attn__min(t->key_end - next, block)));
    else if (t->next_batch >= 0)
        stream_next_keys(t);
    attn__prefetch_divide(&t->prefetch, portions);
}

/* Lets every subtile see keys [at, at + keys). */
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
    plan_prefetch(t, at, keys, t->subtiles * (b.amx ? attn__flash_amx_portions(t, &b) : portions(t->flash, keys)));
    for (int64_t i = 0; i < t->subtiles; i++) {
        const attn__flash_span *span = &t->s.span[i];
        if (at >= span->end || at + keys <= span->begin)
            continue;
        /* Up to the last key of any lane: under a causal mask a block is seldom seen whole. */
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

/* A row without keys has l = 0 and, as nothing was ever added, o = 0. */
static void finish(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    for (int64_t i = 0; i < t->padded; i++)
        t->s.shrink[i] = attn__running_factor(t->canonical, t->s.l[i]);
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = subtile_at(t, i);
        float *o = t->s.o + sub.lane * f->held;
        if (!t->s.span[i].started)
            memset(o, 0, (size_t)(sub.width * f->values) * sizeof *o);
        attn__lane_view view = {
            t->arrays->o, t->canonical->problem.dtype, t->s.query_at.o + sub.lane, f->o_channel, f->values, sub.lanes};
        f->lanes->scatter(&view, o, sub.width, t->s.shrink + sub.lane);
    }
    if (t->canonical->problem.flags & ATTN_WANT_LSE)
        attn__running_store(t->canonical, t->arrays, t->batch, t->first, t->count, t->s.m, t->s.l);
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__flash *flash;
    attn__items items;
    char *workspace;
    size_t each; /* bytes of one thread */
} job;

static void run_item(void *user, int64_t number, int thread)
{
    const job *j = user;
    const attn__flash *f = j->flash;
    attn__item item;
    if (!attn__item_start(&item, &j->items, number))
        return;
    attn__flash_item t = {.canonical = item.canonical,
                          .flash = f,
                          .arrays = item.arrays,
                          .first = item.first,
                          .count = item.count,
                          .next_batch = item.next_batch,
                          .next_first = item.next_first};
    divide_memory(f, j->canonical, j->workspace + (size_t)thread * j->each, &t.s);
    begin(&t, item.batch);
    if (f->amx) {
        f->amx->begin();
        attn__flash_amx_queries(&t);
    } else {
        gather_queries(&t);
    }
    for (int64_t at = t.key_begin; at < t.key_end; at += f->key_block)
        run_key_block(&t, at, t.key_end - at < f->key_block ? t.key_end - at : f->key_block);
    if (f->amx)
        f->amx->end();
    finish(&t);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace)
{
    job j = {.canonical = canonical, .flash = recipe->data, .workspace = workspace};
    attn__flash_scratch scratch;
    j.each = divide_memory(j.flash, canonical, NULL, &scratch);
    for (int thread = 0; j.flash->ntables && thread < canonical->threads; thread++) {
        divide_memory(j.flash, canonical, j.workspace + (size_t)thread * j.each, &scratch);
        start_tables(j.flash, &scratch);
    }
    j.items = attn__items_make(canonical, arrays, j.flash->query_block);
    attn__parallel_items(canonical->threads, j.items.n, run_item, &j);
}

const attn__solver attn__solver_flash = {.name = "flash",
                                         .refuse = refuse,
                                         .plan = plan,
                                         .apply = apply,
                                         .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__BLOCKS |
                                                   ATTN__BATCH_INVARIANT | ATTN__BF16_KEYS};
