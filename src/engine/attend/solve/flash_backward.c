/* SPDX-License-Identifier: MIT
 *
 * flash_backward.c - the backward pass of softmax attention in one fused pass. It recomputes the weights tile by tile
 * from the log-sum-exp (Dao et al. 2022, arXiv:2205.14135).  This file decides which problems are accepted, chooses
 * tile sizes and the loop order, lays out memory, and loops over items, blocks of keys and tiles of queries.
 * flash_backward.h describes the algorithm. flash_backward_tile.c runs a tile, and flash_backward_vectors.c,
 * flash_backward_pairs.c and flash_backward_amx.c have the products.
 */
#include "attend/solve/flash_backward.h"

#include "attend/block/items.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------------- what it accepts */

static const char *refuse(const attn__canonical *canonical)
{
    if (canonical->contract.size > 512 || canonical->value.size > 512)
        return "supports heads of at most 512 channels";
    if (!canonical->backward)
        return "supports backward only";
    const char *unusual = attn__refuse_unusual(canonical, ATTN__WEIGHTS_KINDS);
    if (unusual)
        return unusual;
    if (canonical->key.size >= INT32_MAX / 2)
        return "does not support 2^30 - 1 keys or more";
    if (canonical->problem.dtype == ATTN_BF16 &&
        attn__sums_broadcast(canonical) & ATTN__WANT_ROWS) /* bf16 cannot hold partial sums */
        return "does not support bf16 gradients summed over broadcast dims";
    return attn__table_panels_refuse(canonical);
}

/* -------------------------------------------------------------------------------------------------- relative tables */

static void place_tables(const attn__flash_backward_plan *p, attn__arena *arena, attn__flash_backward_scratch *m)
{
    for (int i = 0; i < p->tables.n; i++) {
        const attn__flash_table *t = &p->tables.of[i];
        attn__flash_table_memory *x = &m->table[i];
        attn__table_memory_take(&t->panel, arena, true, &x->panel);
        x->sums = attn__arena_floats(arena, t->panel.rows * t->panel.ld);
        x->terms = attn__arena_floats(arena, p->tile_q * t->ld);
        x->weights = attn__arena_floats(arena, p->tile_q * t->ld);
        x->query = attn__arena_offsets(arena, p->tile_q);
        x->key = attn__arena_offsets(arena, p->block_k);
    }
}

/* Reads the relative tables at the start of an item and clears their gradients. */
static void read_tables(const attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int i = 0; i < plan->tables.n; i++) {
        const attn__flash_table *t = &plan->tables.of[i];
        const attn__flash_table_memory *x = &run->m.table[i];
        attn__table_panel_read(&t->panel, run->canonical, run->arrays,
                               attn__flash_table_at(run->canonical, i, run->batch), t->value ? 1.0f : plan->score_scale,
                               &x->panel);
        if (run->want & ATTN_WANT_DTABLES)
            memset(x->sums, 0, (size_t)(t->panel.rows * t->panel.ld) * sizeof(float));
    }
}

static void store_tables(const attn__flash_backward_run *run, const attn__sums *sums)
{
    if (!sums || !(run->want & ATTN_WANT_DTABLES))
        return;
    for (int i = 0; i < run->plan->tables.n; i++) {
        const attn__table_panel *t = &run->plan->tables.of[i].panel;
        const attn_relative *r = &run->canonical->problem.relatives[i];
        double *to = sums->at[ATTN__SUM_TABLE + i] + attn__flash_table_at(run->canonical, i, run->batch);
        double factor = run->plan->tables.of[i].value ? 1.0 : run->canonical->problem.scale;
        for (int64_t row = attn__max(0, -t->first); row < attn__min(t->rows, r->rows - t->first); row++) {
            const float *from = run->m.table[i].sums + row * t->ld;
            double *at = to + (t->first + row) * r->row_stride;
            for (int64_t c = 0; c < t->channels; c++)
                if (t->channel[c] != INT64_MIN)
                    at[t->channel[c]] += factor * (double)from[c];
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- the plan */

enum {
    TILE_Q = 64,                     /* 64 to 80 queries, so that S and dS of a strip take 48 KiB */
    STRIP = 96,                      /* divisible by the width of each kernel's widest register tile */
    RESIDENT = 256 * 1024,           /* largest dQ in scratch memory, in bytes; twice that for transposed products */
    RESIDENT_BF16 = 2 * 1024 * 1024, /* the same for bf16; several thousand queries then need no second pass */
    CELLS = 64,                      /* number of cells that gives work to all threads */
    FEW_CELLS = 32,
    MANY_ITEMS = 8, /* number of batch items that keeps most machines busy */
    ONE_PASS = 5,   /* number of products of a cell; two passes compute S and dP twice */
    TWO_PASSES = 7
};

typedef struct freedom {
    bool q, k;          /* different chunks of queries (keys) write different elements of a gradient */
    bool own_q, own_kv; /* no two batch items, rows or channels share an element of dq (of dk and dv) */
} freedom;

/* Reports whether a gradient has nonzero strides along all BATCH dims and channels. */
static bool belongs(const attn__canonical *canonical, attn__operand op)
{
    return attn__group_moves(&canonical->batch, op) && attn__group_moves(attn__channels_of(canonical, op), op);
}

static freedom find_freedom(const attn__canonical *canonical, unsigned want)
{
    bool no_q = !(want & ATTN_WANT_DQ), no_k = !(want & ATTN_WANT_DK), no_v = !(want & ATTN_WANT_DV);
    freedom f = {.q = no_q || attn__group_moves(&canonical->query, ATTN__OP_DQ),
                 .k = (no_k || attn__group_moves(&canonical->key, ATTN__OP_DK)) &&
                      (no_v || attn__group_moves(&canonical->key, ATTN__OP_DV))};
    f.own_q = f.q && (no_q || belongs(canonical, ATTN__OP_DQ));
    f.own_kv = f.k && (no_k || belongs(canonical, ATTN__OP_DK)) && (no_v || belongs(canonical, ATTN__OP_DV));
    return f;
}

/* Divides n into `count` equal parts. Returns the size of a part, rounded up to a multiple of `to`. Parts are equal,
 * because a short tile would read and write as many sums as a whole one. */
static int64_t share(int64_t n, int64_t count, int64_t to)
{
    return count > 1 ? attn__round_up(attn__ceil_div(n, count), to) : attn__round_up(n, to);
}

/* Reports whether tiles and waves must not depend on lengths, for example the lengths of other packed sequences. */
static bool fixed_order(const attn__canonical *canonical)
{
    return canonical->extras & (ATTN__BATCH_INVARIANT | ATTN__PACKED);
}

static void choose_tiles(const attn__canonical *canonical, attn__flash_backward_plan *p)
{
    int64_t lanes = p->tile->lanes;
    p->dp = attn__round_up(p->d, lanes);
    p->dvp = attn__round_up(p->dv, lanes);
    int64_t rows = share(p->nq, (p->nq + TILE_Q - TILE_Q / 4 - 1) / TILE_Q, p->tile->rows);
    p->tile_q = attn__max(1, attn__min(p->nq, rows));
    p->strip = attn__max(lanes, share(p->nk, (p->nk + STRIP - 1) / STRIP, lanes));
    if (fixed_order(canonical)) {
        p->tile_q = attn__round_up(TILE_Q, p->tile->rows);
        p->strip = STRIP;
    }
    if (canonical->has_blocks) {
        const attn_blocks *blocks = &canonical->problem.blocks;
        p->tile_q = attn__visible_fit(blocks->queries, TILE_Q + TILE_Q / 4, 1, p->tile_q);
        p->strip = attn__visible_fit(blocks->keys, STRIP, lanes, p->strip);
    }
    int64_t bytes = (int64_t)sizeof(float) * (3 * p->dp + 2 * p->dvp), room = (int64_t)canonical->caches.l2 / 2;
    p->block_k = attn__max(1, room / (bytes * p->strip)) * p->strip;
    p->block_k = attn__min(p->block_k, attn__max(1, (p->nk + p->strip - 1) / p->strip) * p->strip);
}

/* Reports whether several pairs may add to the same element of the bias gradient. */
static bool bias_meets(const attn__canonical *canonical, const attn__flash_backward_plan *p)
{
    return (p->want & ATTN_WANT_DBIAS) && (canonical->extras & ATTN__BIAS_MEETS);
}

static int64_t resident(const attn__flash_backward_plan *p)
{
    return p->products->transposed ? 2 * RESIDENT : RESIDENT;
}

/* Chooses the chunks of two passes. The dQ of a chunk of queries fits in scratch memory. */
static void choose_passes(const attn__canonical *canonical, attn__flash_backward_plan *p, freedom f)
{
    bool bias = bias_meets(canonical, p) ||
                ((p->want & ATTN_WANT_DBIAS) && !attn__group_moves(&canonical->key, ATTN__OP_DBIAS));
    int64_t room = attn__max(1, resident(p) / ((int64_t)sizeof(float) * p->dp * p->tile_q)) * p->tile_q;
    int64_t share = attn__round_up(p->items * p->nq / CELLS, p->tile_q);
    p->waves = 1;
    p->chunk_k = f.k && !bias ? p->block_k : attn__max(1, attn__round_up(p->nk, p->strip));
    p->chunk_q = f.q ? attn__min(room, attn__max(share, 4 * p->tile_q)) : attn__max(1, p->nq);
    p->resident_q = p->chunk_q <= room;
    p->chunks_q = attn__max(1, (p->nq + p->chunk_q - 1) / p->chunk_q);
    p->chunks_k = attn__max(1, (p->nk + p->chunk_k - 1) / p->chunk_k);
}

/* Returns the minimum number of waves that gives work to all threads, because each wave reads and adds everything
 * again. */
static int64_t count_waves(const attn__flash_backward_plan *p)
{
    int64_t n = attn__min(p->nq, p->nk), items = attn__max(1, p->items);
    return attn__max(n / 1024, items >= MANY_ITEMS ? 1 : attn__min(attn__ceil_div(FEW_CELLS, items), n / 256));
}

static void choose_waves(const attn__canonical *canonical, attn__flash_backward_plan *p, freedom f)
{
    bool bias = bias_meets(canonical, p) ||
                ((p->want & ATTN_WANT_DBIAS) && !attn__group_moves(&canonical->query, ATTN__OP_DBIAS) &&
                 !attn__group_moves(&canonical->key, ATTN__OP_DBIAS));
    int64_t waves = count_waves(p);
    if (waves < 2 || p->bf16 || bias || !f.q || !f.k || fixed_order(canonical) ||
        (p->want & ATTN_WANT_DTABLES)) /* dtables of an item must be summed by one thread */
        waves = 1;
    p->chunk_q = attn__max(1, attn__round_up((p->nq + waves - 1) / waves, p->tile_q));
    p->chunk_k = attn__max(1, attn__round_up((p->nk + waves - 1) / waves, p->strip));
    p->waves = attn__max(1, attn__max((p->nq + p->chunk_q - 1) / p->chunk_q, (p->nk + p->chunk_k - 1) / p->chunk_k));
    int64_t room = p->bf16 ? RESIDENT_BF16 : resident(p);
    p->resident_q = p->chunk_q * p->dp * (int64_t)sizeof(float) <= room;
}

static void choose_order(const attn__canonical *canonical, attn__flash_backward_plan *p)
{
    freedom f = find_freedom(canonical, p->want);
    bool accumulate = canonical->problem.accumulate;
    choose_waves(canonical, p, f);
    bool only_q = p->want == ATTN_WANT_DQ, only_others = !(p->want & ATTN_WANT_DQ);
    bool even = attn__round_up(p->items, canonical->threads) * ONE_PASS <= p->items * TWO_PASSES &&
                !(p->want & ATTN_WANT_DTABLES); /* both orders give the same bits, except for tables */
    bool small = p->resident_q && (p->items >= MANY_ITEMS || even || p->nq * p->nk < 128 * 128);
    p->two_pass = (only_q || only_others || (p->bf16 && !small)) && p->waves * p->items < CELLS;
    p->two_pass = p->two_pass || (p->bf16 && !small);
    if (p->two_pass)
        choose_passes(canonical, p, f);
    p->block_k = share(p->chunk_k, attn__ceil_div(p->chunk_k, p->block_k), p->strip);
    p->store_q = f.own_q && !accumulate && p->resident_q;
    p->store_kv = f.own_kv && !accumulate;
    p->clears = !accumulate && (((p->want & ATTN_WANT_DQ) && !p->store_q) || (p->want & ATTN_WANT_DBIAS) ||
                                ((p->want & (ATTN_WANT_DK | ATTN_WANT_DV)) && !p->store_kv));
}

/* ------------------------------------------------------------------------------------- scratch memory */

static void place_keys(const attn__flash_backward_plan *p, attn__arena *arena, attn__flash_backward_keys *m)
{
    bool apart = p->products->apart, transposed = p->products->transposed;
    int64_t packed = apart ? p->strip : p->block_k, summed = transposed ? p->ld_keys : p->block_k;
    m->kt = attn__arena_floats(arena, packed * p->ldk);
    m->vt = attn__arena_floats(arena, packed * p->ldv);
    m->k = attn__arena_floats(arena, p->block_k * p->ldk);
    m->dk = attn__arena_floats(arena, summed * p->ldk);
    m->dv = attn__arena_floats(arena, summed * p->ldv);
    m->v = apart ? attn__arena_floats(arena, p->block_k * p->ldv)
                 : m->dv;                   /* v as rows is not needed after v is transposed */
    m->dk_rows = transposed ? m->k : m->dk; /* k and v are not needed after their block is done */
    m->dv_rows = transposed ? m->v : m->dv;
}

static void place_offsets(const attn__flash_backward_plan *p, attn__arena *arena, attn__flash_backward_scratch *m)
{
    static const attn__operand all[] = {ATTN__OP_Q, ATTN__OP_DQ, ATTN__OP_O, ATTN__OP_DOUT,
                                        ATTN__OP_K, ATTN__OP_DK, ATTN__OP_V, ATTN__OP_DV};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        m->at[all[i]] = attn__arena_offsets(arena, attn__flash_backward_has_keys(all[i]) ? p->block_k : p->tile_q);
    for (int i = 0; i < ATTN__FLASH_BACKWARD_STREAMS; i++) {
        m->prefetch_at[ATTN__FLASH_BACKWARD_TILES][i] = attn__arena_offsets(arena, p->tile_q);
        m->prefetch_at[ATTN__FLASH_BACKWARD_BLOCKS][i] = attn__arena_offsets(arena, p->block_k);
    }
}

/* Places the arrays of `m` in `memory` and returns the bytes used. If `memory` is NULL, it only counts bytes. */
static size_t place_scratch(const attn__flash_backward_plan *p, void *memory, attn__flash_backward_scratch *m)
{
    attn__arena arena = {memory, 0};
    m->s = attn__arena_floats(&arena, p->tile_q * p->strip);
    m->ds = attn__arena_floats(&arena, p->tile_q * p->strip);
    m->q = attn__arena_floats(&arena, p->tile_q * p->ldk);
    m->dout = attn__arena_floats(&arena, p->tile_q * p->ldv);
    place_keys(p, &arena, &m->keys);
    m->dq =
        attn__arena_floats(&arena, attn__round_up(p->resident_q ? p->chunk_q : p->tile_q, ATTN__BF16X3_DEPTH) * p->ldk);
    m->row = attn__arena_floats(&arena, p->dvp);
    m->bias = attn__arena_floats(&arena, p->tiles.has_bias ? p->tile_q * p->strip : 0);
    m->dbias = p->tiles.softcap != 0.0f && p->tiles.has_bias ? attn__arena_floats(&arena, p->tile_q * p->strip) : m->ds;
    attn__tile_rows_take(&m->rows, &p->tiles, &arena, 1, p->tile_q);
    attn__tile_keys_take(&m->keys_of_block, &p->tiles, &arena, p->block_k);
    m->kept = attn__arena_floats(&arena, p->resident_q ? p->chunk_q : 0);
    m->known = attn__arena_take(&arena, p->resident_q ? attn__ceil_div(p->chunk_q, p->tile_q) : 0, 1);
    m->mask = attn__arena_take(&arena, p->tile_q * p->strip, 1);
    m->alive = attn__arena_take(&arena, p->tile_q * p->strip, 1);
    attn__visible_rows_take(&m->see, &p->tiles.visible, &arena, p->tile_q, ATTN__VISIBLE_ANY);
    place_offsets(p, &arena, m);
    place_tables(p, &arena, m);
    if (p->products->place)
        p->products->place(p, &arena, m);
    return arena.used;
}

/* Sets the fields that follow from the problem: kernels, sizes, and requested gradients. */
static void start_plan(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    p->tile = attn__gemm_tile_for(canonical->isa);
    p->tiles = attn__tile_plan_of(canonical, p->tile->isa);
    p->score_scale = (float)(canonical->problem.scale * ATTN__LOG2E);
    p->nq = canonical->query.size;
    p->nk = canonical->key.size;
    p->d = canonical->contract.size;
    p->dv = canonical->value.size;
    p->want = canonical->problem.flags & (ATTN__WANT_OWN | ATTN_WANT_DTABLES);
    p->bf16 = canonical->problem.dtype == ATTN_BF16;
    p->split = attn__batch_split_make(canonical, ATTN__WANT_OWN); /* slots sum the gradients to which all items add */
    p->items = p->split.items;
    p->shared = p->split.rest;
}

/* Returns the number of packed sequences that run in different cells. */
static int64_t independent_sequences(const attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    int64_t n = 1;
    for (int a = 0; a < canonical->batch.n; a++) {
        const attn__axis *axis = &canonical->batch.axis[a];
        if (axis->packed && axis->dim.n > 1 && p->split.apart[a])
            n = axis->dim.n;
    }
    return n;
}

/* Returns the row stride of an operand in floats. In f32 it is no multiple of 256 bytes, because a register tile reads
 * few columns of 64 to 96 rows, and these columns would share few sets of the L1 cache. */
static int64_t row_length(const attn__flash_backward_plan *p, int64_t channels)
{
    enum { STRIDE = 64, LINE = 16 };
    return !p->products->transposed && channels % STRIDE == 0 ? channels + LINE : channels;
}

/* Chooses the first products that are possible. Those of tables run in f32 on vectors. */
static void choose_products(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    static const attn__flash_backward_products *const all[] = {
        &attn__flash_backward_by_amx, &attn__flash_backward_by_pairs, &attn__flash_backward_by_vectors};
    p->isa = p->tile->isa;
    bool chosen = false;
    for (int i = canonical->problem.nrelatives == 0 ? 0 : 2; i < 3 && !chosen; i++) {
        p->products = all[i];
        chosen = all[i]->choose(p, canonical);
    }
}

/* A packed sequence has the same loop order, and therefore the same bits, as the sequence alone. */
static void choose(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    start_plan(p, canonical);
    int64_t sequences = independent_sequences(p, canonical);
    p->items /= sequences;
    choose_tiles(canonical, p);
    choose_products(p, canonical);
    p->ldk = row_length(p, p->dp);
    p->ldv = row_length(p, p->dvp);
    choose_order(canonical, p);
    p->items *= sequences;
    p->ld_keys = attn__round_up(p->block_k, ATTN__BF16X3_DEPTH) + ATTN__BF16X3_SIDE; /* columns share no cache sets */
    attn__flash_tables_choose(&p->tables, canonical, p->tile->lanes, p->ldk, p->ldv, p->tile_q, p->block_k);
}

/* Returns the gradients that are added to several times: dq, dk and dv with several waves, otherwise dq if there are
 * several blocks of keys and dq is not in scratch memory. */
static unsigned adds_often(const attn__canonical *canonical)
{
    attn__flash_backward_plan p = {0};
    choose(&p, canonical);
    if (p.waves > 1)
        return ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    return p.resident_q || p.nk <= p.block_k ? 0u : ATTN_WANT_DQ;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    int64_t channels_held = (4 + canonical->problem.nrelatives) * (canonical->contract.size + canonical->value.size);
    attn__flash_backward_plan *p = attn__alloc_zero(context, sizeof *p + (size_t)channels_held * sizeof(int64_t));
    if (!p)
        return ATTN_ERROR_MEMORY;
    choose(p, canonical);
    int64_t *room = attn__channels_find(canonical, ops, sizeof ops / sizeof *ops, p->channel, (void *)(p + 1));
    attn__flash_tables_channels(&p->tables, canonical, room);
    attn__flash_backward_scratch unused;
    p->thread_bytes = place_scratch(p, NULL, &unused);
    recipe->workspace = attn__size_mul(p->thread_bytes, (size_t)canonical->threads);
    if (p->want & ATTN_WANT_DTABLES)
        recipe->workspace = attn__size_add(recipe->workspace, attn__slots_make(canonical, NULL).bytes);
    recipe->data = p;
    snprintf(recipe->text, sizeof recipe->text, "%s, %lld queries x %lld keys in blocks of %lld, %s %lld",
             attn__isa_text(p->isa), (long long)p->tile_q, (long long)p->strip, (long long)p->block_k,
             p->two_pass ? "chunks" : "waves", (long long)(p->two_pass ? p->chunks_q * p->chunks_k : p->waves));
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------- places, log-sum-exp, delta */

/* Returns the end of the keys that any query of the item may attend. Keys after it are padding and are skipped. */
static int64_t key_end(const attn__flash_backward_run *run)
{
    const attn__visible *visible = &run->plan->tiles.visible;
    if (!run->canonical->has_lens || !visible->ranges || visible->lens_by_query || visible->fills)
        return run->plan->nk;
    return attn__clamp(
        run->arrays->at.lens[attn__offsets_one(&run->canonical->batch, ATTN__STRIDE(dim.lens), run->batch)], 0,
        run->plan->nk);
}

/* Finds the offsets of the block's keys in every array that is read, and their dropout columns. */
static void locate_keys(attn__flash_backward_run *run)
{
    int64_t begin = run->block, n = run->block_n;
    attn__flash_backward_find(run, ATTN__OP_K, begin, n);
    attn__flash_backward_find(run, ATTN__OP_V, begin, n);
}

/* Returns a row of the caller's array as floats. It is a pointer into the array if possible, otherwise `copy`. */
static const float *row_of(const attn__flash_backward_plan *plan, const attn__rows *x, int64_t r, float *copy)
{
    attn__rows row = *x;
    if (!x->channel && x->dtype == ATTN_F32)
        return (const float *)x->data + x->at[r];
    row.at += r;
    row.rows = 1;
    attn__rows_load(&row, plan->tiles.lanes, copy, x->n);
    return copy;
}

/* Computes delta = sum over channels of dout * o, minus the gradient of the log-sum-exp. */
static void find_deltas(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__flash_backward_scratch *m = &run->m;
    const attn__rows o = attn__flash_backward_rows(run, ATTN__OP_O);
    const attn__rows dout = attn__flash_backward_rows(run, ATTN__OP_DOUT);
    for (int64_t r = 0; r < run->tile_n; r++) {
        float *copy = m->dout + r * plan->ldv;
        if (!o.channel)
            attn__rows_prefetch(&o, r + ATTN__ROWS_AHEAD);
        const float *gradient = run->queries.copied ? copy : row_of(plan, &dout, r, copy);
        m->rows.delta[r] = plan->tiles.backward->dot(gradient, row_of(plan, &o, r, m->row), plan->dv);
    }
}

static attn__tile_place place_of(const attn__flash_backward_run *run)
{
    return (attn__tile_place){run->canonical, run->arrays, 0, run->batch, run->tile, run->tile_n};
}

/* Computes what all blocks of keys use for the tile's rows: delta, the log-sum-exp, and the weight of masked keys. */
static void pack_row_numbers(attn__flash_backward_run *run)
{
    attn__flash_backward_scratch *m = &run->m;
    int64_t at = run->tile - run->q_begin;
    uint8_t *known = m->known + at / run->plan->tile_q;
    bool has_deltas = run->keeps && *known;
    attn__tile_place place = place_of(run);
    if (!has_deltas)
        find_deltas(run);
    attn__tile_rows_lse(&m->rows, &run->plan->tiles, &place, &m->see);
    if (has_deltas) {
        memcpy(m->rows.delta, m->kept + at, (size_t)run->tile_n * sizeof(float));
    } else if (run->keeps) {
        memcpy(m->kept + at, m->rows.delta, (size_t)run->tile_n * sizeof(float));
        *known = 1;
    }
}

/* Finds the offsets of the tile's queries in every array that is read, and their dropout hashes. */
static void locate_queries(attn__flash_backward_run *run)
{
    static const attn__operand all[] = {ATTN__OP_Q, ATTN__OP_O, ATTN__OP_DOUT};
    attn__tile_place place = place_of(run);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        attn__flash_backward_find(run, all[i], run->tile, run->tile_n);
    attn__tile_rows_start(&run->m.rows, &run->plan->tiles, &place);
    attn__tile_rows_head(&run->m.rows, &run->plan->tiles, &place);
}

static void store_rows(const attn__flash_backward_run *run, attn__operand op, int64_t first, int64_t n,
                       const float *from, int64_t ld, float scale, bool add)
{
    attn__rows to = attn__flash_backward_rows(run, op);
    to.rows = n;
    attn__flash_backward_find(run, op, first, n);
    attn__rows_store(&to, run->plan->tiles.backward, from, ld, scale, add);
}

static void store_queries(const attn__flash_backward_run *run, int64_t begin, int64_t n, const float *dq, bool add)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int64_t i = 0; i < n; i += plan->tile_q)
        store_rows(run, ATTN__OP_DQ, begin + i, attn__min(plan->tile_q, n - i), dq + i * plan->ldk, plan->ldk,
                   (float)run->canonical->problem.scale, add);
}

static void store_keys(const attn__flash_backward_run *run, int64_t n)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_keys *keys = &run->m.keys;
    float scale = (float)run->canonical->problem.scale;
    bool add = !plan->store_kv || !run->first;
    if (run->want & ATTN_WANT_DK)
        store_rows(run, ATTN__OP_DK, run->block, n, keys->dk_rows, plan->ldk, scale, add);
    if (run->want & ATTN_WANT_DV)
        store_rows(run, ATTN__OP_DV, run->block, n, keys->dv_rows, plan->ldv, 1.0f, add);
}

/* ------------------------------------------------------------------------------------------------------ prefetching */

/* Returns the number of register tiles in the products of `tiles` tiles of queries and one block of keys. */
static int64_t portions(const attn__flash_backward_run *run, int64_t tiles)
{
    const attn__flash_backward_plan *p = run->plan;
    int64_t rows = run->tile_n, products = run->want & ATTN_WANT_DV ? p->dv : 0;
    products += rows + (run->want & ~(unsigned)ATTN_WANT_DV ? rows : 0);
    products += run->want & ATTN_WANT_DK ? p->d : 0;
    int64_t sums = run->block_n * products;
    sums += run->want & ATTN_WANT_DQ ? rows * p->d * ((run->block_n + p->strip - 1) / p->strip) : 0;
    return attn__max(1, tiles * sums / (p->tile->rows * p->tile->vectors * p->tile->lanes));
}

typedef struct rows {
    attn__operand op;
    int64_t batch, begin, n;
} rows;

/* Adds rows to a prefetch list. If channels are not adjacent, adds nothing, and the hardware prefetches. */
static void want(attn__flash_backward_run *run, int which, const rows r[ATTN__FLASH_BACKWARD_STREAMS],
                 int64_t portion_count)
{
    int64_t size = run->plan->bf16 ? 2 : 4;
    attn__prefetch *prefetch = &run->prefetch[which];
    attn__prefetch_clear(prefetch);
    for (int i = 0; i < ATTN__FLASH_BACKWARD_STREAMS; i++) {
        const attn__rows of = attn__flash_backward_rows(run, r[i].op);
        int64_t *at = run->m.prefetch_at[which][i];
        if (of.channel || r[i].n <= 0)
            continue;
        attn__operand_offsets(run->canonical, r[i].op, r[i].batch, r[i].begin, r[i].n, at);
        attn__prefetch_add(prefetch, of.data, size, at, r[i].n, of.n * size);
    }
    attn__prefetch_divide(prefetch, portion_count);
}

/* Plans the prefetch of the next tile, which may be in the next block or cell, and of the rows of this tile's dQ. */
static void prefetch_next_tile(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    int64_t at = run->batch, next = at;
    bool last = run->tile + run->tile_n >= run->q_end, end = run->block + plan->block_k >= run->k_end;
    bool writes = (run->want & ATTN_WANT_DQ) && (end || !plan->resident_q);
    int64_t begin = last ? run->q_begin : run->tile + run->tile_n;
    int64_t n = (last && end) || begin == run->tile ? 0 : attn__min(plan->tile_q, run->q_end - begin);
    if (last && end && run->has_next) {
        next = run->next_batch;
        begin = run->next_q;
        n = attn__min(plan->tile_q, plan->nq - begin);
    }
    const rows wanted[] = {{ATTN__OP_DQ, at, run->tile, writes ? run->tile_n : 0},
                           {ATTN__OP_Q, next, begin, n},
                           {ATTN__OP_DOUT, next, begin, n},
                           {ATTN__OP_O, next, begin, n}};
    want(run, ATTN__FLASH_BACKWARD_TILES, wanted, portions(run, 1));
}

/* Plans the prefetch of keys and values of the next block or of the next cell, and of this block's gradients. */
static void prefetch_next_block(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    int64_t at = run->batch, next = at;
    int64_t begin = run->block + plan->block_k, n = attn__min(plan->block_k, run->k_end - begin);
    if (n <= 0 && run->has_next) {
        next = run->next_batch;
        begin = run->next_k;
        n = attn__min(plan->block_k, plan->nk - begin);
    }
    const rows wanted[] = {{ATTN__OP_DK, at, run->block, run->want & ATTN_WANT_DK ? run->block_n : 0},
                           {ATTN__OP_DV, at, run->block, run->want & ATTN_WANT_DV ? run->block_n : 0},
                           {ATTN__OP_K, next, begin, n},
                           {ATTN__OP_V, next, begin, n}};
    want(run, ATTN__FLASH_BACKWARD_BLOCKS, wanted,
         portions(run, (run->q_end - run->tile + plan->tile_q - 1) / plan->tile_q));
}

/* -------------------------------------------------------------------------------------- a range of queries and keys */

/* Prepares all data of the tile's queries except the limits of keys. */
static void pack_queries(attn__flash_backward_run *run)
{
    locate_queries(run);
    run->queries.copied = false;
    run->plan->products->pack(run, false);
    pack_row_numbers(run);
}

/* Packs the keys and values of the block. Clears dK and dV. */
static void pack_keys(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_keys *m = &run->m.keys;
    int64_t summed = plan->products->transposed ? plan->ld_keys : run->block_n;
    run->keys.copied = false;
    plan->products->pack(run, true);
    memset(m->dk, 0, (size_t)(summed * plan->ldk) * sizeof *m->dk);
    memset(m->dv, 0, (size_t)(summed * plan->ldv) * sizeof *m->dv);
}

static void run_tile(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    bool wants_q = run->want & ATTN_WANT_DQ;
    pack_queries(run);
    if (plan->resident_q && wants_q)
        run->dq = run->m.dq + (run->tile - run->q_begin) * plan->ldk;
    else if (wants_q)
        memset(run->dq = run->m.dq, 0, (size_t)(run->tile_n * plan->ldk) * sizeof(float));
    if (plan->products->prefetches)
        prefetch_next_tile(run);
    attn__flash_backward_tile_run(run);
    if (wants_q && !plan->resident_q)
        store_queries(run, run->tile, run->tile_n, run->dq, true);
}

/* Runs one block of `size` keys with all queries of the run. Queries only attend the first block_n keys. */
static void run_block(attn__flash_backward_run *run, int64_t size)
{
    const attn__flash_backward_plan *plan = run->plan;
    bool packed = false;
    attn__tile_keys_start(&run->m.keys_of_block, &plan->tiles, run->canonical, run->block, run->block_n);
    for (run->tile = run->q_begin; run->tile < run->q_end; run->tile += plan->tile_q) {
        run->tile_n = attn__min(plan->tile_q, run->q_end - run->tile);
        if (!attn__flash_backward_tile_start(run))
            continue;
        if (!packed) {
            locate_keys(run);
            pack_keys(run);
            if (plan->products->prefetches)
                prefetch_next_block(run);
        }
        packed = true;
        run_tile(run);
    }
    bool writes = run->want & (ATTN_WANT_DK | ATTN_WANT_DV);
    if (!writes || (!packed && !(plan->store_kv && run->first)))
        return;
    int64_t done = packed ? run->block_n : 0;
    if (plan->products->store && plan->products->store(run, done, size))
        return;
    memset(run->m.keys.dk_rows + done * plan->ldk, 0, (size_t)((size - done) * plan->ldk) * sizeof(float));
    memset(run->m.keys.dv_rows + done * plan->ldv, 0, (size_t)((size - done) * plan->ldv) * sizeof(float));
    store_keys(run, size);
}

static void run_range(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    int64_t end = key_end(run), queries = run->q_end - run->q_begin;
    bool holds_q = plan->resident_q && (run->want & ATTN_WANT_DQ);
    if (holds_q)
        memset(run->m.dq, 0, (size_t)(queries * plan->ldk) * sizeof(float));
    run->keeps = plan->resident_q && queries <= plan->chunk_q;
    if (run->keeps)
        memset(run->m.known, 0, (size_t)attn__ceil_div(queries, plan->tile_q));
    for (run->block = run->k_begin; run->block < run->k_end; run->block += plan->block_k) {
        int64_t size = attn__min(plan->block_k, run->k_end - run->block), alive = end - run->block;
        run->block_n = alive < 0 ? 0 : attn__min(size, alive);
        run_block(run, size);
    }
    if (holds_q)
        store_queries(run, run->q_begin, queries, run->m.dq, !plan->store_q || !run->first);
}

/* ------------------------------------------------------------------------------------- the order of runs */

typedef struct work {
    const attn__canonical *canonical;
    const attn__flash_backward_plan *plan;
    const attn__execution *arrays;
    char *workspace;
    int64_t step;      /* current step of the waves */
    bool queries;      /* the second of two passes is running */
    attn__slots slots; /* slots for the gradients of tables; the items of a slot run one after another */
} work;

/* Finds cell number `cell`, which this thread will probably run next. */
static void find_next(const work *w, int64_t cell, attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = w->plan;
    int64_t chunk = cell % plan->waves;
    run->has_next = cell < plan->items * plan->waves && plan->shared == 1;
    if (!run->has_next)
        return;
    run->next_batch = attn__batch_split_index(&plan->split, w->canonical, cell / plan->waves, 0);
    run->next_q = (chunk + w->step) % plan->waves * plan->chunk_q;
    run->next_k = chunk * plan->chunk_k;
}

/* A number of -1 means all chunks. */
static void run_chunks(attn__flash_backward_run *run, int64_t chunk_q, int64_t chunk_k)
{
    const attn__flash_backward_plan *plan = run->plan;
    run->q_begin = chunk_q < 0 ? 0 : attn__min(plan->nq, chunk_q * plan->chunk_q);
    run->q_end = chunk_q < 0 ? plan->nq : attn__min(plan->nq, run->q_begin + plan->chunk_q);
    run->k_begin = chunk_k < 0 ? 0 : attn__min(plan->nk, chunk_k * plan->chunk_k);
    run->k_end = chunk_k < 0 ? plan->nk : attn__min(plan->nk, run->k_begin + plan->chunk_k);
    run_range(run);
}

/* A chunk past the end of the sequence is empty. */
static void run_sequence(const attn__flash_backward_run *run, int64_t chunk_q, int64_t chunk_k)
{
    attn__sequence one;
    attn__flash_backward_run of_one = *run;
    attn__flash_backward_plan plan = *run->plan;
    attn__sequence_enter(&one, &of_one.canonical, &of_one.arrays, run->batch);
    plan.nq = of_one.canonical->query.size;
    plan.nk = of_one.canonical->key.size;
    of_one.plan = &plan;
    run_chunks(&of_one, chunk_q, chunk_k);
}

static void place_thread(const work *w, int thread, attn__flash_backward_scratch *m)
{
    place_scratch(w->plan, w->workspace + (size_t)thread * w->plan->thread_bytes, m);
}

/* `next` is the number of the next cell, or negative if there is none. `sums` is the cell's slot or NULL. */
static void run_cell(const work *w, int thread, int64_t item, unsigned want, int64_t chunk_q, int64_t chunk_k,
                     int64_t next, const attn__sums *sums)
{
    const attn__flash_backward_plan *plan = w->plan;
    attn__flash_backward_run run = {
        .canonical = w->canonical, .plan = plan, .arrays = w->arrays, .want = plan->want & want, .first = w->step == 0};
    bool packed = attn__is_packed(w->canonical);
    place_thread(w, thread, &run.m);
    if (next >= 0 && !packed)
        find_next(w, next, &run);
    if (plan->products->begin)
        plan->products->begin(plan);
    for (int64_t s = 0; s < plan->shared; s++) {
        run.batch = attn__batch_split_index(&plan->split, w->canonical, item, s);
        read_tables(&run);
        if (packed)
            run_sequence(&run, chunk_q, chunk_k);
        else
            run_chunks(&run, chunk_q, chunk_k);
        store_tables(&run, sums);
    }
    if (plan->products->end)
        plan->products->end(plan);
}

/* Clears the gradients to which the cells of an item add. */
static void zero_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    const attn__flash_backward_plan *plan = w->plan;
    (void)thread;
    unsigned adds =
        plan->want & ~(plan->store_q ? ATTN_WANT_DQ : 0u) & ~(plan->store_kv ? ATTN_WANT_DK | ATTN_WANT_DV : 0u);
    unsigned bias = adds & ATTN_WANT_DBIAS;
    bool packed = attn__is_packed(w->canonical), all[ATTN_MAX_DIMS];
    int64_t batch = attn__batch_split_index(&plan->split, w->canonical, number, 0);
    attn__gradients_clear(w->canonical, w->arrays, batch, packed ? bias : adds, plan->split.apart);
    memset(all, true, sizeof all);
    for (int64_t s = 0; packed && adds != bias && s < plan->shared; s++) {
        attn__sequence one;
        const attn__canonical *canonical = w->canonical;
        const attn__execution *arrays = w->arrays;
        batch = attn__batch_split_index(&plan->split, w->canonical, number, s);
        attn__sequence_enter(&one, &canonical, &arrays, batch);
        attn__gradients_clear(canonical, arrays, batch, adds & ~bias, all);
    }
}

static void wave_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    int64_t chunk = number % w->plan->waves;
    run_cell(w, thread, number / w->plan->waves, ~0u, (chunk + w->step) % w->plan->waves, chunk, number + 1, NULL);
}

/* Runs a cell of two passes. It is a chunk of keys in the first pass, and a chunk of queries in the second pass. */
static void pass_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    int64_t chunks = w->queries ? w->plan->chunks_q : w->plan->chunks_k, item = number / chunks,
            chunk = number % chunks;
    if (w->queries)
        run_cell(w, thread, item, ATTN_WANT_DQ, chunk, -1, -1, NULL);
    else
        run_cell(w, thread, item, ~(unsigned)ATTN_WANT_DQ, -1, chunk, -1, NULL);
}

/* Runs the items of a slot one after another, including the gradients of tables. Runs the same cells as wave_cell or
 * pass_cell. An item has all BATCH indices that share a gradient of q, k, v or the bias. */
static void slot_cells(void *user, int64_t slot, int thread)
{
    const work *w = user;
    const attn__flash_backward_plan *plan = w->plan;
    unsigned want = plan->two_pass ? ~(unsigned)ATTN_WANT_DQ : ~0u;
    int64_t chunks = plan->two_pass ? plan->chunks_k : 1, item, end;
    attn__sums sums;
    for (attn__slots_start(&w->slots, slot, &sums, &item, &end); item < end; item++) {
        int64_t next = plan->two_pass || item + 1 == end ? -1 : item + 1;
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            run_cell(w, thread, item, want, -1, plan->two_pass ? chunk : -1, next, &sums);
    }
}

static void run_waves(work *w)
{
    for (w->step = 0; w->step < w->plan->waves; w->step++)
        attn__parallel_items(w->canonical->threads, w->plan->items * w->plan->waves, wave_cell, w);
}

static void run_passes(work *w)
{
    const attn__flash_backward_plan *plan = w->plan;
    unsigned others = plan->want & ~(unsigned)(ATTN_WANT_DQ | ATTN_WANT_DTABLES);
    int threads = w->canonical->threads;
    if (others && !(plan->want & ATTN_WANT_DTABLES))
        attn__parallel_items(threads, plan->items * plan->chunks_k, pass_cell, w);
    w->queries = true;
    if (plan->want & ATTN_WANT_DQ)
        attn__parallel_items(threads, plan->items * plan->chunks_q, pass_cell, w);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    const attn__flash_backward_plan *plan = recipe->data;
    work w = {.canonical = canonical, .plan = plan, .arrays = arrays, .workspace = workspace};
    bool tables = plan->want & ATTN_WANT_DTABLES;
    for (int thread = 0; plan->tables.n && thread < canonical->threads; thread++) {
        attn__flash_backward_scratch m;
        place_thread(&w, thread, &m);
        attn__flash_tables_start(&plan->tables, m.table);
    }
    if (plan->clears)
        attn__parallel_items(canonical->threads, plan->items, zero_cell, &w);
    if (tables) {
        w.slots = attn__slots_make(canonical, w.workspace + (size_t)canonical->threads * plan->thread_bytes);
        attn__parallel_items(canonical->threads, w.slots.n, slot_cells, &w);
        attn__slots_store(&w.slots, arrays);
    }
    if (plan->two_pass)
        run_passes(&w);
    else if (!tables)
        run_waves(&w);
}

const attn__solver attn__solver_flash_backward = {
    .name = "flash_backward",
    .refuse = refuse,
    .adds_often = adds_often,
    .plan = plan,
    .apply = apply,
    .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__DLSE | ATTN__BIAS_MEETS | ATTN__BLOCKS | ATTN__BATCH_INVARIANT,
};
