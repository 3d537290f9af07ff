/* SPDX-License-Identifier: MIT
 *
 * flash_backward_tile.c - runs one tile: the packed queries with the strips of the packed keys. Products run on
 * vectors, on pairs of bf16 numbers, or on AMX.
 */
#include "attend/solve/flash_backward.h"

#include "attend/block/tile.h"
#include "base/integers.h"
#include "kernels/bf16x3/bf16x3_backward.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------------- what a tile attends */

/* Returns the parts that hide keys of the block from rows of the tile. */
static unsigned find_hidden(const attn__flash_backward_run *run, const attn__visible_tile *tile)
{
    attn__visible_span span = attn__visible_span_of(&run->m.see, tile->row, tile->nrows);
    return attn__visible_of(tile, &span);
}

bool attn__flash_backward_tile_start(attn__flash_backward_run *run)
{
    attn__flash_backward_scratch *m = &run->m;
    attn__visible_rows_start(&m->see, run->canonical, run->arrays, run->batch, run->tile, run->tile_n, 1);
    attn__visible_tile tile = {&m->see, 0, run->tile_n, &m->keys_of_block.see, 0, run->block_n};
    return run->block_n > 0 && find_hidden(run, &tile) != ATTN__VISIBLE_NONE;
}

/* ------------------------------------------------------------------------------------------ operands as rows of f32 */

/* Copies the block's keys and values, or the tile's queries and dout, to rows of f32, unless they are copied
 * already. */
static void copy_rows(attn__flash_backward_run *run, bool keys)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    attn__flash_backward_side *side = keys ? &run->keys : &run->queries;
    attn__rows rows = attn__flash_backward_rows(run, keys ? ATTN__OP_K : ATTN__OP_Q);
    attn__rows values = attn__flash_backward_rows(run, keys ? ATTN__OP_V : ATTN__OP_DOUT);
    if (side->copied)
        return;
    side->finite = attn__rows_load(&rows, plan->tiles.lanes, keys ? m->keys.k : m->q, plan->ldk);
    side->finite = attn__rows_load(&values, plan->tiles.lanes, keys ? m->keys.v : m->dout, plan->ldv) && side->finite;
    side->copied = true;
}

static void transpose(const attn__flash_backward_run *run, attn__operand op, int64_t first, int64_t n, float factor,
                      float *to)
{
    attn__rows x = attn__flash_backward_rows(run, op);
    attn__lane_view view = {(void *)(uintptr_t)x.data, x.dtype, x.at + first, x.channel, x.n, n};
    run->plan->tiles.lanes->gather(&view, to, run->plan->strip, factor);
}

/* Transposes keys and values [first, first + n) of the block. */
static void transpose_strip(const attn__flash_backward_run *run, int64_t first, int64_t n, float *kt, float *vt)
{
    transpose(run, ATTN__OP_K, first, n, run->plan->score_scale, kt);
    transpose(run, ATTN__OP_V, first, n, 1.0f, vt);
}

/* A strip of keys and the part of the tile that attends it. */
typedef struct strip {
    attn__flash_backward_run *run;
    attn__tile t;                 /* scores between the products */
    attn__bf16x3_weights weights; /* arguments of the softmax step on AMX */
} strip;

/* -------------------------------------------------------------------------------------------------- relative tables */

/* Finds the table rows that pairs of the tile and the block use.  Afterwards, key j of the block and query r of the
 * tile have their term at index key[j] - query[r] in row r of the terms. */
static void find_rows(attn__flash_backward_run *run, int i)
{
    const attn__table_panel *panel = &run->plan->tables.of[i].panel;
    attn__flash_table_memory *x = &run->m.table[i];
    attn__offsets_indices(&run->canonical->query, run->canonical->problem.relatives[i].query_dim, run->tile,
                          run->tile_n, x->query);
    x->reach = attn__table_reach_of(panel, x->query, run->tile_n, x->key, run->block_n);
    for (int64_t r = 0; r < run->tile_n; r++)
        x->query[r] += x->reach.low - (panel->queries - 1);
}

/* Computes the products X of the tile and the tables, and clears D, the sums by distance. */
static void multiply_tables(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int i = 0; i < plan->tables.n; i++) {
        const attn__flash_table *t = &plan->tables.of[i];
        const attn__flash_table_memory *x = &run->m.table[i];
        find_rows(run, i);
        plan->tile->run(&(attn__gemm_tile_args){.m = run->tile_n,
                                                .n = attn__round_up(x->reach.n, plan->tile->lanes),
                                                .k = t->panel.channels,
                                                .a = t->value ? run->m.dout : run->m.q,
                                                .am = t->panel.ld,
                                                .ak = 1,
                                                .b = x->panel.across + x->reach.low,
                                                .ldb = t->panel.ld_across,
                                                .c = x->terms,
                                                .ldc = t->ld});
        for (int64_t r = 0; r < run->tile_n; r++)
            memset(x->weights + r * t->ld, 0, (size_t)x->reach.n * sizeof(float));
    }
}

typedef void store_function(float *dst, const float *src, int64_t n, float scale, bool add);

/* Sets or adds the terms of a run of keys in a row of s. A run of keys with equal indices has a single term. */
static void add_row(store_function *add, const float *from, bool steps, int64_t n, bool first, float *to)
{
    float same = from[0];
    if (first && steps)
        memcpy(to, from, (size_t)n * sizeof *to);
    else if (steps)
        add(to, from, n, 1.0f, true);
    else if (first)
        for (int64_t c = 0; c < n; c++)
            to[c] = same;
    else
        for (int64_t c = 0; c < n; c++)
            to[c] += same;
}

/* Sets s[r][c] to the sum of the terms of tables of queries, or of values if `value` is set. Columns from the last key
 * to `columns` become 0.  Returns false if there are no such tables. */
static bool add_table_terms(const strip *x, bool value, int64_t columns, float *s)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    bool first = true;
    for (int i = 0; i < plan->tables.n; i++) {
        const attn__flash_table_memory *m = &x->run->m.table[i];
        const int64_t *key = m->key + x->t.key, *query = m->query + x->t.row;
        const float *terms = m->terms + x->t.row * plan->tables.of[i].ld;
        if (plan->tables.of[i].value != value)
            continue;
        for (int64_t from = 0, end = 0; from < x->t.nkeys; from = end) {
            bool steps = attn__table_run(key, from, x->t.nkeys, &end);
            for (int64_t r = 0; r < x->t.nrows; r++)
                add_row(plan->tiles.backward->store, terms + r * plan->tables.of[i].ld + (key[from] - query[r]), steps,
                        end - from, first, s + r * plan->strip + from);
        }
        first = false;
    }
    for (int64_t r = 0; r < x->t.nrows && !first; r++)
        memset(s + r * plan->strip + x->t.nkeys, 0, (size_t)(columns - x->t.nkeys) * sizeof *s);
    return !first;
}

/* Adds weights of keys to the sums by distance. Four partial sums are used, because additions to one sum would wait. */
static void collect_row(store_function *add, const float *from, bool steps, int64_t n, float *to)
{
    float sum[4] = {0};
    int64_t c = 0;
    if (steps) {
        add(to, from, n, 1.0f, true);
        return;
    }
    for (; c + 4 <= n; c += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += from[c + i];
    for (; c < n; c++)
        sum[0] += from[c];
    to[0] += sum[0] + sum[1] + sum[2] + sum[3];
}

/* Adds P (tables of values) and dS (tables of queries) to the sums by distance. x->t.ds is NULL if dS is not needed. */
static void collect_table_weights(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    bool one_axis = x->run->canonical->key.n == 1;
    for (int i = 0; i < plan->tables.n; i++) {
        const attn__flash_table *t = &plan->tables.of[i];
        const attn__flash_table_memory *m = &x->run->m.table[i];
        const int64_t *key = m->key + x->t.key, *query = m->query + x->t.row;
        const float *weights = t->value ? x->t.s : x->t.ds;
        for (int64_t from = 0, end = 0; weights && from < x->t.nkeys; from = end) {
            bool steps = attn__table_run(key, from, x->t.nkeys, &end);
            for (int64_t r = 0; r < x->t.nrows; r++) {
                float *to = m->weights + (x->t.row + r) * t->ld + (key[from] - query[r]);
                if (one_axis) /* all keys are one run, so each sum has a single term */
                    memcpy(to, weights + r * plan->strip, (size_t)x->t.nkeys * sizeof *to);
                else
                    collect_row(plan->tiles.backward->store, weights + r * plan->strip + from, steps, end - from, to);
            }
        }
    }
}

/* Adds products of the tables and D, the sums by distance: D T to dQ, and D^T Q or D^T dO to dT. */
static void add_table_gradients(const attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    if (!run->keys.finite || !run->queries.finite || !attn__flash_tables_finite(&run->plan->tables, run->m.table, true))
        return; /* add_guarded has already added the gradients */
    for (int i = 0; i < plan->tables.n; i++) {
        const attn__flash_table *t = &plan->tables.of[i];
        const attn__flash_table_memory *x = &run->m.table[i];
        int64_t ld = t->panel.ld;
        attn__gemm_tile_args g = {.n = t->value ? plan->dvp : plan->dp, .a = x->weights, .ldb = ld, .accumulate = true};
        if (!t->value && (run->want & ATTN_WANT_DQ)) {
            g.m = run->tile_n;
            g.k = x->reach.n;
            g.am = t->ld;
            g.ak = 1;
            g.b = x->panel.rows + x->reach.low * ld;
            g.c = run->dq;
            g.ldc = plan->ldk;
            plan->tile->run(&g);
        }
        if (run->want & ATTN_WANT_DTABLES) {
            g.m = x->reach.n;
            g.k = run->tile_n;
            g.am = 1;
            g.ak = t->ld;
            g.b = t->value ? run->m.dout : run->m.q;
            g.c = x->sums + x->reach.low * ld;
            g.ldc = ld;
            plan->tile->run(&g);
        }
    }
}

/* Adds the table gradients of one pair. It replaces products if they would add NaN or infinity of masked pairs. `p` is
 * the weight and `ds` the gradient of the score. Either may be NULL. */
static void add_table_pair(const attn__flash_backward_run *run, int64_t query, int64_t key, const float *p,
                           const float *ds)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int i = 0; i < plan->tables.n; i++) {
        const attn__flash_table *t = &plan->tables.of[i];
        const attn__flash_table_memory *x = &run->m.table[i];
        const float *weight = t->value ? p : ds, *side = (t->value ? run->m.dout : run->m.q) + query * t->panel.ld;
        int64_t at = (x->reach.low + x->key[key] - x->query[query]) * t->panel.ld;
        for (int64_t c = 0; weight && c < t->panel.channels; c++) {
            if (!t->value && (run->want & ATTN_WANT_DQ))
                run->dq[query * plan->ldk + c] += *weight * x->panel.rows[at + c];
            if (run->want & ATTN_WANT_DTABLES)
                x->sums[at + c] += *weight * side[c];
        }
    }
}

/* ------------------------------------------------------------------------------------------- the softmax of a strip */

/* The part of a strip that any query attends: rows [row, row + rows) and the first `keys` keys. `full` is true if all
 * of these rows attend all of these keys. */
typedef struct extent {
    int64_t row, rows, keys;
    bool full;
} extent;

/* Finds the extent of the strip after bands and lengths are applied. */
static extent find_range(const attn__flash_backward_run *run, int64_t key, int64_t n)
{
    extent e = {.row = run->tile_n, .keys = 0, .full = true};
    int64_t end = 0;
    for (int64_t r = 0; r < run->tile_n; r++) {
        int64_t from = run->m.see.begin[r] - key, to = run->m.see.end[r] - key;
        e.full = e.full && from <= 0 && to >= n;
        if (from >= n || to <= 0 || from >= to)
            continue;
        e.row = r < e.row ? r : e.row;
        e.keys = to > e.keys ? to : e.keys;
        end = r + 1;
    }
    if (run->canonical->problem.mask_fill != 0.0) /* masked keys have a weight */
        return (extent){.rows = run->tile_n, .keys = n, .full = e.full};
    e.row -= e.row % run->plan->row_step;
    e.rows = end > e.row ? end - e.row : 0;
    e.keys = e.keys < n ? e.keys : n;
    return e;
}

static bool sees_block(const attn__flash_backward_run *run, int64_t row, int64_t first, int64_t n)
{
    attn__visible_tile tile = {&run->m.see, row, 1, &run->m.keys_of_block.see, first, n};
    return attn__visible_of(&tile, NULL) != ATTN__VISIBLE_NONE;
}

/* Finds the extent of the strip after ranges and the mask of blocks are applied. Rows at both ends are cut off if they
 * attend no key. */
static extent find_extent(const attn__flash_backward_run *run, int64_t first, int64_t n)
{
    extent e = find_range(run, run->block + first, n);
    bool cuts = run->canonical->has_blocks && run->canonical->problem.mask_fill == 0.0;
    while (cuts && e.rows > 0 && !sees_block(run, e.row + e.rows - 1, first, e.keys))
        e.rows--;
    int64_t skipped = 0;
    while (cuts && skipped < e.rows && !sees_block(run, e.row + skipped, first, e.keys))
        skipped++;
    skipped -= skipped % run->plan->row_step;
    e.row += skipped;
    e.rows -= skipped;
    return e;
}

/* Describes the extent of the strip. */
static attn__tile describe(attn__flash_backward_run *run, int64_t first, extent e)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    bool scores = run->want & (ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES);
    bool finite = run->keys.finite && run->queries.finite && attn__flash_tables_finite(&plan->tables, m->table, true);
    int64_t skip = e.row * plan->strip;
    return (attn__tile){.plan = &plan->tiles,
                        .canonical = run->canonical,
                        .arrays = run->arrays,
                        .see = &m->see,
                        .rows = &m->rows,
                        .row = e.row,
                        .nrows = e.rows,
                        .keys = &m->keys_of_block,
                        .key = first,
                        .nkeys = e.keys,
                        .ld = plan->strip,
                        .s = m->s + skip,
                        .ds = scores ? m->ds + skip : NULL,
                        .dbias = m->dbias != m->ds && (run->want & ATTN_WANT_DBIAS) ? m->dbias + skip : NULL,
                        .bias = m->bias + skip,
                        .mask = m->mask + skip,
                        .alive = finite ? NULL : m->alive + skip};
}

/* Describes a strip of n keys. Returns false if no query attends a key of the strip. */
static bool prepare_strip(strip *x, int64_t first, int64_t n)
{
    attn__flash_backward_run *run = x->run;
    const attn__tile_plan *tiles = &run->plan->tiles;
    const attn__visible *visible = &tiles->visible;
    extent e = find_extent(run, first, n);
    bool by_ranges = visible->ranges && !visible->mask && !visible->blocks; /* then `e` already includes all masks */
    if (!e.rows)
        return false;
    x->t = describe(run, first, e);
    if (!by_ranges) {
        attn__visible_span span = attn__visible_span_of(&run->m.see, e.row, e.rows);
        if (!attn__tile_sees(&x->t, &span))
            return false;
    }
    x->t.full = e.full;
    run->plain = tiles->kind == ATTN__WEIGHTS_SOFTMAX && !x->t.alive && e.full && !x->t.hidden &&
                 !tiles->visible.mask && visible->ranges && !tiles->has_bias && !tiles->has_dropout &&
                 !(tiles->softcap > 0.0f);
    return true;
}

/* ---------------------------------------------------------------------------------------------- products on vectors */

static void prefetch_portion(void *with)
{
    attn__flash_backward_run *run = with;
    for (int i = 0; i < ATTN__FLASH_BACKWARD_PREFETCHES; i++)
        attn__prefetch_portion(&run->prefetch[i]);
}

/* Computes S = Q K^T and dP = dO V^T for the rows of the strip, and adds the terms of tables. */
static void scores(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_scratch *m = &x->run->m;
    int64_t columns = attn__round_up(x->t.nkeys, plan->tile->lanes), packed = plan->amx || plan->pairs ? 0 : x->t.key;
    for (int value = 0; value < (x->t.ds ? 2 : 1); value++) {
        int64_t channels = value ? plan->dv : plan->d, ld = value ? plan->ldv : plan->ldk;
        float *to = value ? x->t.ds : x->t.s;
        plan->tile->run(&(attn__gemm_tile_args){.m = x->t.nrows,
                                                .n = columns,
                                                .k = channels,
                                                .a = (value ? m->dout : m->q) + x->t.row * ld,
                                                .am = ld,
                                                .ak = 1,
                                                .b = (value ? m->keys.vt : m->keys.kt) + packed * channels,
                                                .ldb = plan->strip,
                                                .c = to,
                                                .ldc = plan->strip,
                                                .accumulate = add_table_terms(x, value, columns, to),
                                                .hook = {prefetch_portion, x->run}});
    }
}

/* Adds dS K to dQ. */
static void query_gradients(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    attn__gemm_tile_args g = {.m = x->t.nrows,
                              .n = plan->dp,
                              .k = x->t.nkeys,
                              .a = x->t.ds,
                              .am = plan->strip,
                              .ak = 1,
                              .b = x->run->m.keys.k + x->t.key * plan->ldk,
                              .ldb = plan->ldk,
                              .c = x->run->dq + x->t.row * plan->ldk,
                              .ldc = plan->ldk,
                              .accumulate = true,
                              .hook = {prefetch_portion, x->run}};
    if (x->run->want & ATTN_WANT_DQ)
        plan->tile->run(&g);
}

/* Operands of a product with a row of results per key: dV += P^T dO or dK += dS^T Q. */
typedef struct key_product {
    unsigned want;
    const float *weights;         /* P or dS of the strip, [rows][strip] */
    const float *rows;            /* dout or q of the tile */
    float *sums;                  /* dV or dK of the block; on AMX transposed */
    int64_t ld, channels, padded; /* row stride of `rows` and `sums`; channels, exact and in whole vectors */
} key_product;

static key_product key_product_of(const strip *x, bool value)
{
    const attn__flash_backward_plan *p = x->run->plan;
    const attn__flash_backward_scratch *m = &x->run->m;
    if (value)
        return (key_product){x->run->want & ATTN_WANT_DV, x->t.s, m->dout, m->keys.dv, p->ldv, p->dv, p->dvp};
    return (key_product){x->run->want & ATTN_WANT_DK, x->t.ds, m->q, m->keys.dk, p->ldk, p->d, p->dp};
}

static void key_gradients(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    for (int value = 1; value >= 0; value--) {
        const key_product y = key_product_of(x, value);
        attn__gemm_tile_args g = {.m = x->t.nkeys,
                                  .n = y.padded,
                                  .k = x->t.nrows,
                                  .a = y.weights,
                                  .am = 1,
                                  .ak = plan->strip,
                                  .b = y.rows + x->t.row * y.ld,
                                  .ldb = y.ld,
                                  .c = y.sums + x->t.key * y.ld,
                                  .ldc = y.ld,
                                  .accumulate = true,
                                  .hook = {prefetch_portion, x->run}};
        if (plan->amx) { /* computes the transpose of the gradient */
            g.m = y.padded;
            g.n = attn__round_up(x->t.nkeys, plan->tile->lanes);
            g.a = y.rows + x->t.row * y.ld;
            g.ak = y.ld;
            g.b = y.weights;
            g.ldb = plan->strip;
            g.c = y.sums + x->t.key;
            g.ldc = plan->ld_keys;
        }
        if (y.want)
            plan->tile->run(&g);
    }
}

/* Adds a multiple of a row to another row, for pairs that are not masked. It replaces tile products if rows have NaN or
 * infinity, because 0 * NaN of a masked pair would be NaN. */
static void add(float *to, int64_t step, float weight, const float *from, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c * step] += weight * from[c];
}

static void add_guarded(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_scratch *m = &x->run->m;
    int64_t step = plan->amx ? plan->ld_keys : 1; /* stride between the channels of a sum */
    for (int64_t r = 0; r < x->t.nrows; r++)
        for (int64_t j = 0; j < x->t.nkeys; j++) {
            int64_t key = x->t.key + j, query = x->t.row + r, pair = r * x->t.ld + j;
            bool alive = x->t.alive[pair] & 1, counts = x->t.alive[pair] & 2;
            for (int value = 1; value >= 0; value--) {
                const key_product y = key_product_of(x, value);
                if (y.want && (value ? counts : alive))
                    add(y.sums + key * (plan->amx ? 1 : y.ld), step, y.weights[pair], y.rows + query * y.ld,
                        y.channels);
            }
            if ((x->run->want & ATTN_WANT_DQ) && alive)
                add(x->run->dq + query * plan->ldk, 1, x->t.ds[pair], m->keys.k + key * plan->ldk, plan->d);
            add_table_pair(x->run, query, key, counts ? x->t.s + pair : NULL, alive && x->t.ds ? x->t.ds + pair : NULL);
        }
}

/* -------------------------------------------------------------------------------- products on pairs of bf16 numbers */

enum { PAIR = 2 };

/* Returns the number of pairs of channels of a row, rounded up to whole vectors. */
static int64_t row_of_pairs(const attn__flash_backward_plan *p, int64_t channels)
{
    return attn__round_up(attn__ceil_div(channels, PAIR), p->tile->lanes);
}

static uint32_t *take_pairs(attn__arena *arena, int64_t n)
{
    return attn__arena_take(arena, n, sizeof(uint32_t));
}

static void place_pairs(const attn__flash_backward_plan *p, attn__arena *arena, attn__flash_backward_pairs *x)
{
    int64_t rows = attn__ceil_div(p->tile_q, PAIR), strips = p->block_k / p->strip;
    x->kt = take_pairs(arena, strips * attn__ceil_div(p->d, PAIR) * p->strip);
    x->vt = take_pairs(arena, strips * attn__ceil_div(p->dv, PAIR) * p->strip);
    x->k = take_pairs(arena, attn__ceil_div(p->block_k, PAIR) * p->ldk);
    x->q = take_pairs(arena, p->tile_q * row_of_pairs(p, p->d));
    x->dout = take_pairs(arena, p->tile_q * row_of_pairs(p, p->dv));
    x->q_rows = take_pairs(arena, rows * p->ldk);
    x->dout_rows = take_pairs(arena, rows * p->ldv);
    x->across = take_pairs(arena, rows * p->strip);
    x->along = attn__arena_take(arena, p->tile_q * p->strip, sizeof *x->along);
}

/* ------------------------------------------------------------------------------------------------- packing */

/* Packs an operand of the block's keys as pairs of channels and transposes it: [strips][pairs][strip]. */
static void transpose_pairs(attn__flash_backward_run *run, attn__operand op, int64_t channels, float *scratch,
                            uint32_t *to)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int64_t s = 0; s < run->block_n; s += plan->strip, to += attn__ceil_div(channels, PAIR) * plan->strip) {
        transpose(run, op, s, attn__min(plan->strip, run->block_n - s), 1.0f, scratch);
        plan->pairs->round_rows(scratch, channels, plan->strip, to); /* exact, because the numbers are bf16 */
    }
}

/* Packs rows of an operand as pairs of rows. Returns false if a number is not finite. */
static bool pair_rows(const attn__flash_backward_run *run, attn__operand op, int64_t ld, uint32_t *to)
{
    attn__rows x = attn__flash_backward_rows(run, op);
    return run->plan->pairs->pair_rows(x.data, x.at, x.rows, x.n, to, ld);
}

static void pack_key_pairs(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    transpose_pairs(run, ATTN__OP_K, plan->d, m->keys.kt, m->pairs.kt);
    transpose_pairs(run, ATTN__OP_V, plan->dv, m->keys.vt, m->pairs.vt);
    run->keys.finite = pair_rows(run, ATTN__OP_K, plan->ldk, m->pairs.k);
    /* Products do not read values as pairs of rows. The pairs are computed only to find infinity and NaN. */
    run->keys.finite = pair_rows(run, ATTN__OP_V, plan->ldv, (void *)m->keys.v) && run->keys.finite;
}

static void pack_query_pairs(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_pairs *m = &run->m.pairs;
    const attn__rows q = attn__flash_backward_rows(run, ATTN__OP_Q),
                     dout = attn__flash_backward_rows(run, ATTN__OP_DOUT);
    plan->pairs->copy_rows(q.data, q.at, q.rows, q.n, m->q, row_of_pairs(plan, q.n));
    plan->pairs->copy_rows(dout.data, dout.at, dout.rows, dout.n, m->dout, row_of_pairs(plan, dout.n));
    run->queries.finite = pair_rows(run, ATTN__OP_Q, plan->ldk, m->q_rows);
    run->queries.finite = pair_rows(run, ATTN__OP_DOUT, plan->ldv, m->dout_rows) && run->queries.finite;
}

/* ------------------------------------------------------------------------------------------------ products */

/* Computes S = Q K^T and dP = dO V^T for the rows of the strip. */
static void pair_scores(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_pairs *y = &x->run->m.pairs;
    for (int value = 0; value < (x->t.ds ? 2 : 1); value++) {
        int64_t channels = value ? plan->dv : plan->d, k = attn__ceil_div(channels, PAIR);
        int64_t ld = row_of_pairs(plan, channels);
        plan->pairs->run(&(attn__gemm_tile_bf16_args){.m = x->t.nrows,
                                                      .n = attn__round_up(x->t.nkeys, plan->tile->lanes),
                                                      .k = k,
                                                      .a = (value ? y->dout : y->q) + x->t.row * ld,
                                                      .am = ld,
                                                      .ak = 1,
                                                      .b = (value ? y->vt : y->kt) + x->t.key * k,
                                                      .ldb = plan->strip,
                                                      .c = value ? x->t.ds : x->t.s,
                                                      .ldc = plan->strip,
                                                      .factor = value ? 1.0f : plan->score_scale});
    }
}

/* Adds P^T dO to dV, and dS^T Q to dK. */
static void pair_key_gradients(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_pairs *m = &x->run->m.pairs;
    for (int value = 1; value >= 0; value--) {
        const key_product y = key_product_of(x, value);
        if (!y.want)
            continue;
        plan->pairs->round_rows(y.weights, x->t.nrows, plan->strip, m->across);
        plan->pairs->run(&(attn__gemm_tile_bf16_args){.m = x->t.nkeys,
                                                      .n = y.padded,
                                                      .k = attn__ceil_div(x->t.nrows, PAIR),
                                                      .a = m->across,
                                                      .am = 1,
                                                      .ak = plan->strip,
                                                      .b = (value ? m->dout_rows : m->q_rows) + x->t.row / PAIR * y.ld,
                                                      .ldb = y.ld,
                                                      .c = y.sums + x->t.key * y.ld,
                                                      .ldc = y.ld,
                                                      .factor = 1.0f,
                                                      .accumulate = true});
    }
}

/* Adds dS K to dQ. dS has zeros after the last key, up to whole vectors. */
static void pair_query_gradients(const strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_pairs *y = &x->run->m.pairs;
    int64_t columns = attn__round_up(x->t.nkeys, plan->tile->lanes);
    for (int64_t r = 0; r < x->t.nrows; r++)
        plan->tiles.backward->store_bf16(y->along + r * plan->strip, x->t.ds + r * plan->strip, columns, 1.0f, false);
    plan->pairs->run(&(attn__gemm_tile_bf16_args){.m = x->t.nrows,
                                                  .n = plan->dp,
                                                  .k = attn__ceil_div(x->t.nkeys, PAIR),
                                                  .a = (const uint32_t *)(const void *)y->along,
                                                  .am = plan->strip / PAIR,
                                                  .ak = 1,
                                                  .b = y->k + x->t.key / PAIR * plan->ldk,
                                                  .ldb = plan->ldk,
                                                  .c = x->run->dq + x->t.row * plan->ldk,
                                                  .ldc = plan->ldk,
                                                  .factor = 1.0f,
                                                  .accumulate = true});
}

/* Runs a strip with bf16 pairs. All operands must be finite. */
static void run_pairs(strip *x)
{
    pair_scores(x);
    attn__tile_weights(&x->t);
    pair_key_gradients(x);
    if (x->run->want & ATTN_WANT_DQ)
        pair_query_gradients(x);
}

/* -------------------------------------------------------------------------------------------------- products on AMX */

enum { AMX_TILE_Q = 128, AMX_STRIP = 64 };

/* Reports whether AMX is faster. Small heads leave most of each tile empty. In small problems, splitting numbers into
 * terms takes longer than the products save, most of all with three terms (docs/performance.md). */
static bool is_worth_it(const attn__flash_backward_plan *p)
{
    int64_t channels = p->bf16 ? 32 : 48, rows = p->bf16 ? 48 : 128;
    return p->d >= channels && p->dv >= channels && p->nq >= rows && p->nk >= rows;
}

/* Chooses tiles of queries, strips and blocks of keys for AMX. */
static void choose_amx(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    p->amx = attn__bf16x3_for(canonical->isa);
    p->terms = p->bf16 ? 1 : ATTN__BF16X3_F32;
    if (!p->amx || !is_worth_it(p)) {
        p->amx = NULL;
        return;
    }
    p->tile_q = attn__min(AMX_TILE_Q, attn__round_up(p->nq, ATTN__BF16X3_DEPTH));
    p->strip = attn__min(AMX_STRIP, attn__round_up(p->nk, ATTN__BF16X3_DEPTH));
    int64_t bytes = 2 * p->terms * (2 * p->dp + p->dvp) + (int64_t)sizeof(float) * (p->dp + p->dvp);
    int64_t strips = (int64_t)canonical->caches.l2 / 2 / (bytes * p->strip);
    p->block_k = attn__min(strips > 1 ? strips : 1, attn__ceil_div(p->nk, p->strip)) * p->strip;
}

static void place_amx(const attn__flash_backward_plan *p, attn__arena *s, attn__flash_backward_amx *x)
{
    const int64_t side = ATTN__BF16X3_SIDE, depth = ATTN__BF16X3_DEPTH;
    x->p = attn__flash_take_side(s, p->terms, p->strip / side, p->tile_q / depth);
    x->across = attn__flash_take_side(s, p->terms, p->strip / side, p->tile_q / depth);
    x->along = attn__flash_take_side(s, p->terms, p->tile_q / side, p->strip / depth);
    x->q = attn__flash_take_side(s, p->terms, p->tile_q / side, attn__ceil_div(p->d, depth));
    x->dout = attn__flash_take_side(s, p->terms, p->tile_q / side, attn__ceil_div(p->dv, depth));
    x->q_across = attn__flash_take_side(s, p->terms, p->dp / side, p->tile_q / depth);
    x->dout_across = attn__flash_take_side(s, p->terms, p->dvp / side, p->tile_q / depth);
    x->kt = attn__flash_take_side(s, p->terms, p->block_k / side, attn__ceil_div(p->d, depth));
    x->vt = attn__flash_take_side(s, p->terms, p->block_k / side, attn__ceil_div(p->dv, depth));
    x->k = attn__flash_take_side(s, p->terms, p->dp / side, p->block_k / depth);
    x->row = attn__arena_take(s, attn__max(p->block_k, p->tile_q), sizeof *x->row);
    x->ones = attn__arena_take(s, p->ld_keys, sizeof *x->ones);
}

/* ------------------------------------------------------------------------------------------------- packing */

/* Packs rows as tiles: the caller's rows, or `copies` if channels are not adjacent. Returns false if some number does
 * not fit. */
static bool pack_tiles(const attn__flash_backward_run *run, attn__operand op, const float *copies, int64_t ld,
                       attn__bf16x3_side along, attn__bf16x3_side across)
{
    attn__rows x = attn__flash_backward_rows(run, op);
    attn__bf16x3_pack pack = {.data = x.data,
                              .dtype = x.dtype,
                              .parts = run->plan->terms,
                              .row_at = x.at,
                              .rows = x.rows,
                              .columns = x.n,
                              .keyed = op == ATTN__OP_K,
                              .along = along,
                              .across = across};
    int64_t *at = run->m.amx.row;
    if (x.channel) {
        for (int64_t i = 0; i < x.rows; i++)
            at[i] = i * ld;
        pack.data = copies;
        pack.dtype = ATTN_F32;
        pack.row_at = at;
    }
    return attn__bf16x3_pack_rows(&pack, 0, attn__round_up(x.rows, ATTN__BF16X3_DEPTH));
}

/* Transposes packed tiles, because another product needs them as its other operand. */
static void transpose_tiles(const attn__flash_backward_plan *plan, const attn__bf16x3_side *side, int64_t rows)
{
    plan->amx->transpose(side->data, attn__ceil_div(rows, ATTN__BF16X3_SIDE) * side->block / ATTN__BF16X3_TILE);
}

/* Packs keys and values as tiles, or queries and dout if `keys` is false. */
static void pack_side(attn__flash_backward_run *run, bool keys)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    const attn__flash_backward_amx *x = &m->amx;
    const attn__bf16x3_side none = {0};
    attn__flash_backward_side *side = keys ? &run->keys : &run->queries;
    attn__operand op = keys ? ATTN__OP_K : ATTN__OP_Q, value = keys ? ATTN__OP_V : ATTN__OP_DOUT;
    side->finite = true;
    if (plan->channel[op] || plan->channel[value])
        copy_rows(run, keys);
    side->split =
        pack_tiles(run, op, keys ? m->keys.k : m->q, plan->dp, keys ? x->kt : x->q, keys ? x->k : x->q_across);
    side->split = pack_tiles(run, value, keys ? m->keys.v : m->dout, plan->dvp, keys ? x->vt : x->dout,
                             keys ? none : x->dout_across) &&
                  side->split;
    if (!side->split)
        copy_rows(run, keys);
    transpose_tiles(plan, keys ? &x->kt : &x->q_across, keys ? run->block_n : plan->d);
    transpose_tiles(plan, keys ? &x->vt : &x->dout_across, keys ? run->block_n : plan->dv);
}

static void transpose_back(const attn__flash_backward_run *run, const float *sums, int64_t channels, float *rows,
                           int64_t ld, int64_t n)
{
    attn__flash_backward_amx amx = run->m.amx;
    for (int64_t i = 0; i < n; i++)
        amx.row[i] = i * ld;
    attn__lane_view view = {rows, ATTN_F32, amx.row, NULL, channels, n};
    run->plan->tiles.lanes->scatter(&view, sums, run->plan->ld_keys, amx.ones);
}

static void transpose_sums(const attn__flash_backward_run *run, int64_t n)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    if (n == 0)
        return;
    for (int64_t i = 0; i < plan->ld_keys; i++)
        m->amx.ones[i] = 1.0f;
    transpose_back(run, m->keys.dk, plan->d, m->keys.dk_rows, plan->dp, n);
    transpose_back(run, m->keys.dv, plan->dv, m->keys.dv_rows, plan->dvp, n);
}

/* Stores transposed sums in the caller's rows. While it transposes a square of rows, it prefetches the next square. */
static void put_transposed(const attn__flash_backward_run *run, attn__operand op, const float *sums, float scale)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__rows to = attn__flash_backward_rows(run, op);
    attn__flash_backward_find(run, op, run->block, to.rows);
    for (int64_t i = 0; i < ATTN__BF16X3_SIDE; i++)
        run->m.amx.ones[i] = scale;
    for (int64_t i = 0; i < to.rows; i += ATTN__BF16X3_SIDE) {
        int64_t rows = attn__min(to.rows - i, ATTN__BF16X3_SIDE);
        for (int64_t r = i + rows; r < i + rows + ATTN__BF16X3_SIDE; r++)
            attn__rows_prefetch(&to, r);
        attn__lane_view view = {(void *)(uintptr_t)to.data, to.dtype, to.at + i, NULL, to.n, rows};
        plan->tiles.lanes->scatter(&view, sums + i, plan->ld_keys, run->m.amx.ones);
    }
}

bool attn__flash_backward_tile_store(const attn__flash_backward_run *run, int64_t n, int64_t size)
{
    const attn__flash_backward_plan *plan = run->plan;
    if (n < size || !plan->store_kv || !run->first || plan->channel[ATTN__OP_DK] || plan->channel[ATTN__OP_DV]) {
        transpose_sums(run, n);
        return false;
    }
    if (run->want & ATTN_WANT_DK)
        put_transposed(run, ATTN__OP_DK, run->m.keys.dk, (float)run->canonical->problem.scale);
    if (run->want & ATTN_WANT_DV)
        put_transposed(run, ATTN__OP_DV, run->m.keys.dv, 1.0f);
    return true;
}

/* ------------------------------------------------------------------------------------------------ products */

/* Returns the part of the tiles that begins at step `step`. */
static attn__bf16x3_side from_step(attn__bf16x3_side side, int64_t step)
{
    side.data += step * side.step;
    return side;
}

/* Computes S = Q K^T or dP = dO V^T. */
static void amx_scores(const strip *x, const attn__bf16x3_side *a, int64_t channels, const attn__bf16x3_side *b,
                       float *c, attn__interleaved *interleaved)
{
    attn__bf16x3_args s = {.m = attn__ceil_div(x->t.nrows, ATTN__BF16X3_SIDE),
                           .n = attn__ceil_div(x->t.nkeys, ATTN__BF16X3_SIDE),
                           .k = attn__ceil_div(channels, ATTN__BF16X3_DEPTH),
                           .parts = x->run->plan->terms,
                           .a = attn__flash_from_block(*a, x->t.row / ATTN__BF16X3_SIDE),
                           .b = attn__flash_from_block(*b, x->t.key / ATTN__BF16X3_SIDE),
                           .c = c,
                           .ldc = x->run->plan->strip};
    x->run->plan->amx->run_interleaved(&s, interleaved);
}

/* Adds dO^T P to dV^T, or Q^T dS to dK^T. */
static void amx_across(const strip *x, const attn__bf16x3_side *a, int64_t channels, const attn__bf16x3_side *b,
                       float *c, attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    attn__bf16x3_args g = {.m = channels / ATTN__BF16X3_SIDE,
                           .n = attn__ceil_div(x->t.nkeys, ATTN__BF16X3_SIDE),
                           .k = attn__ceil_div(x->t.nrows, ATTN__BF16X3_DEPTH),
                           .parts = plan->terms,
                           .a = from_step(*a, x->t.row / ATTN__BF16X3_DEPTH),
                           .b = *b,
                           .c = c + x->t.key,
                           .ldc = plan->ld_keys,
                           .accumulate = true};
    plan->amx->run_interleaved(&g, interleaved);
}

/* Adds dS K to dQ. */
static void amx_along(const strip *x, attn__interleaved *interleaved)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_amx *m = &x->run->m.amx;
    attn__bf16x3_args g = {.m = attn__ceil_div(x->t.nrows, ATTN__BF16X3_SIDE),
                           .n = plan->dp / ATTN__BF16X3_SIDE,
                           .k = attn__ceil_div(x->t.nkeys, ATTN__BF16X3_DEPTH),
                           .parts = plan->terms,
                           .a = m->along,
                           .b = from_step(m->k, x->t.key / ATTN__BF16X3_DEPTH),
                           .c = x->run->dq + x->t.row * plan->dp,
                           .ldc = plan->dp,
                           .accumulate = true};
    plan->amx->run_interleaved(&g, interleaved);
}

/* Computes the weights in a separate pass over the scores. It is used if no product computes them. */
static void amx_weigh_apart(strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__tile *t = &x->t;
    for (int64_t r = 0; r < t->nrows; r++)
        plan->tiles.backward->store(t->s + r * t->ld, t->s + r * t->ld, t->nkeys, plan->score_scale, false);
    attn__tile_weights(&x->t);
}

/* Computes S, dP and P. In plain strips of three terms, P is computed during the product for dP. Returns false if a
 * number does not fit in bf16 terms. */
static bool amx_weigh(strip *x)
{
    attn__bf16x3_softmax_backward w;
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_amx *m = &x->run->m.amx;
    bool fused = x->weights.lse, three = x->weights.parts > 1;
    amx_scores(x, &m->q, plan->d, &m->kt, x->t.s, NULL);
    attn__bf16x3_begin_p(&w, &x->weights);
    if (x->t.ds)
        amx_scores(x, &m->dout, plan->dv, &m->vt, x->t.ds, fused && three ? &w.interleaved : NULL);
    if (!fused)
        amx_weigh_apart(x);
    return three ? attn__bf16x3_finish(&w) : attn__bf16x3_weigh(&x->weights);
}

/* Computes dV and dS. With three terms, dS is computed during the product for dV. Returns false if a number of dS does
 * not fit in bf16 terms. */
static bool amx_gradients_of_weights(const strip *x)
{
    attn__bf16x3_softmax_backward w;
    const attn__flash_backward_run *run = x->run;
    const attn__flash_backward_amx *m = &run->m.amx;
    bool wanted = x->t.ds && x->weights.parts > 1;
    if (wanted)
        attn__bf16x3_begin_ds(&w, &x->weights);
    if (run->want & ATTN_WANT_DV)
        amx_across(x, &m->dout_across, run->plan->dvp, &m->p, run->m.keys.dv, wanted ? &w.interleaved : NULL);
    return !wanted || attn__bf16x3_finish(&w);
}

/* Runs a strip on AMX. Returns the gradients that it left out because a number does not fit in bf16 terms. */
static unsigned run_amx(strip *x)
{
    const attn__flash_backward_run *run = x->run;
    const attn__flash_backward_amx *m = &run->m.amx;
    const attn__tile_rows *rows = &run->m.rows;
    x->weights =
        (attn__bf16x3_weights){.rows = x->t.nrows,
                               .keys = x->t.nkeys,
                               .ld = x->t.ld,
                               .s = x->t.s,
                               .dp = x->t.ds,
                               .lse = run->plain && !(run->want & ATTN_WANT_DBIAS) ? rows->lse + x->t.row : NULL,
                               .delta = rows->delta + x->t.row,
                               .factor = run->plan->score_scale,
                               .parts = run->plan->terms,
                               .p = m->p,
                               .across = m->across,
                               .along = m->along};
    if (!run->keys.split || !run->queries.split || !amx_weigh(x))
        return run->want;
    if (!amx_gradients_of_weights(x))
        return run->want & ~(unsigned)ATTN_WANT_DV;
    if (run->want & ATTN_WANT_DK)
        amx_across(x, &m->q_across, run->plan->dp, &m->across, run->m.keys.dk, NULL);
    if (run->want & ATTN_WANT_DQ)
        amx_along(x, NULL);
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- a tile */

/* Packs the keys and values of the block, in the layouts that the products need. Clears dK and dV. */
void attn__flash_backward_tile_keys(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__flash_backward_scratch *m = &run->m;
    int64_t n = run->block_n;
    run->keys.copied = false;
    attn__flash_tables_keys(&plan->tables, run->canonical, run->block, n, run->m.table);
    if (plan->amx)
        pack_side(run, true);
    else if (plan->pairs)
        pack_key_pairs(run);
    else
        copy_rows(run, true);
    for (int64_t s = 0; s < n && !plan->pairs && !plan->amx; s += plan->strip)
        transpose_strip(run, s, attn__min(plan->strip, n - s), m->keys.kt + s * plan->d, m->keys.vt + s * plan->dv);
    memset(m->keys.dk, 0, (size_t)(plan->amx ? plan->ld_keys * plan->dp : n * plan->ldk) * sizeof(float));
    memset(m->keys.dv, 0, (size_t)(plan->amx ? plan->ld_keys * plan->dvp : n * plan->ldv) * sizeof(float));
}

void attn__flash_backward_tile_queries(attn__flash_backward_run *run)
{
    run->queries.copied = false;
    if (run->plan->amx)
        pack_side(run, false);
    else if (run->plan->pairs)
        pack_query_pairs(run);
    else
        copy_rows(run, false);
    multiply_tables(run);
}

static void multiply(strip *x, int64_t n)
{
    attn__flash_backward_run *run = x->run;
    if (run->plan->amx || run->plan->pairs) {
        copy_rows(run, true);
        copy_rows(run, false);
        transpose_strip(run, x->t.key, n, run->m.keys.kt, run->m.keys.vt); /* AMX or pairs cannot hold the numbers */
    }
    scores(x);
    attn__tile_weights(&x->t);
    if (x->t.alive) {
        add_guarded(x);
        return;
    }
    key_gradients(x);
    query_gradients(x);
    collect_table_weights(x);
}

/* Runs keys [first, first + n) of the block with the tile of queries. n is at most `strip`. */
static void run_strip(attn__flash_backward_run *run, int64_t first, int64_t n)
{
    strip x = {.run = run};
    if (!prepare_strip(&x, first, n))
        return;
    unsigned want = run->want;
    if (run->plan->amx)
        run->want = run_amx(&x);
    if (run->plan->pairs && !x.t.alive) {
        run_pairs(&x);
        run->want = 0;
    }
    if (run->want)
        multiply(&x, n);
    run->want = want;
    if (want & ATTN_WANT_DBIAS)
        attn__tile_dbias(&x.t, true);
}

void attn__flash_backward_tile_run(attn__flash_backward_run *run)
{
    for (int64_t s = 0; s < run->block_n; s += run->plan->strip)
        run_strip(run, s, attn__min(run->plan->strip, run->block_n - s));
    add_table_gradients(run);
}

void attn__flash_backward_tile_choose(attn__flash_backward_plan *plan, const attn__canonical *canonical)
{
    static const attn__operand ops[] = {ATTN__OP_Q, ATTN__OP_K, ATTN__OP_V, ATTN__OP_DOUT};
    choose_amx(plan, canonical);
    if (plan->bf16 && !plan->amx && attn__channels_adjacent(canonical, ops, 4) && attn__cpu_has(ATTN__CPU_BF16_DOT))
        plan->pairs = attn__gemm_tile_bf16_for(canonical->isa);
}

void attn__flash_backward_tile_place(const attn__flash_backward_plan *plan, attn__arena *arena,
                                     attn__flash_backward_scratch *m)
{
    if (plan->pairs)
        place_pairs(plan, arena, &m->pairs);
    if (plan->amx)
        place_amx(plan, arena, &m->amx);
}
