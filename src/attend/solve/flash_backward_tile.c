/* SPDX-License-Identifier: MIT
 *
 * flash_backward_tile.c - one tile: the packed queries against one strip of the packed keys.
 */
#include "attend/solve/flash_backward.h"

#include "base/integers.h"

/* The part of a strip that any query attends: rows [row, row + rows) and the first `keys` keys, and whether all
 * of the rows attend all of the keys. */
typedef struct extent {
    int64_t row, rows, keys;
    bool full;
    bool open; /* the mask of blocks hides none of them */
} extent;

/* By bands and lengths. */
static extent find_range(const attn__flash_backward_run *run, int64_t key, int64_t n)
{
    extent e = {.row = run->tile_n, .keys = 0, .full = true};
    int64_t end = 0;
    for (int64_t r = 0; r < run->tile_n; r++) {
        int64_t from = run->m.from[r] - key, to = run->m.to[r] - key;
        e.full = e.full && from <= 0 && to >= n;
        if (from >= n || to <= 0 || from >= to)
            continue;
        e.row = r < e.row ? r : e.row;
        e.keys = to > e.keys ? to : e.keys;
        end = r + 1;
    }
    if (run->canonical->problem.mask_fill != 0.0) /* masked keys have weight: nothing may be skipped */
        return (extent){.rows = run->tile_n, .keys = n, .full = e.full};
    e.row -= e.row % run->plan->row_step;
    e.rows = end > e.row ? end - e.row : 0;
    e.keys = e.keys < n ? e.keys : n;
    return e;
}

static bool sees_block(const attn__flash_backward_run *run, int64_t row, int64_t first, int64_t n)
{
    return attn__flash_backward_blocks_seen(run, row, 1, first, n) != ATTN__BLOCKS_NONE;
}

/* By blocks as well: rows at the ends that see none of the keys are cut off. */
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
    e.open = attn__flash_backward_blocks_seen(run, e.row, e.rows, first, e.keys) == ATTN__BLOCKS_ALL;
    return e;
}

static bool has_mask_bytes(const attn__canonical *canonical)
{
    return canonical->has_mask || (canonical->key.n > 1 && (canonical->problem.nbands || canonical->has_lens));
}

static attn__softmax_backward_args describe(attn__flash_backward_run *run, int64_t first, extent e)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__canonical *canonical = run->canonical;
    bool scores = run->want & (ATTN__FLASH_BACKWARD_Q | ATTN__FLASH_BACKWARD_K | ATTN__FLASH_BACKWARD_BIAS |
                               ATTN__FLASH_BACKWARD_TABLES),
         bytes = has_mask_bytes(canonical) || !e.open;
    int64_t skip = e.row * plan->strip;
    attn__softmax_backward_args t = {
        .rows = e.rows,
        .keys = e.keys,
        .ld = plan->strip,
        .s = run->m.s + skip,
        .dp = scores ? run->m.ds + skip : NULL,
        .lse = run->m.lse + e.row,
        .delta = run->m.delta + e.row,
        .from = run->m.from + e.row,
        .to = run->m.to + e.row,
        .first = (int32_t)(run->block + first),
        .mask = bytes ? run->m.mask + skip : NULL,
        .softcap = plan->softcap,
        .bias = canonical->has_bias ? run->m.bias + skip : NULL,
        .fill = canonical->problem.mask_fill != 0.0 ? run->m.fill + e.row : NULL,
    };
    if (run->m.dbias != run->m.ds && (run->want & ATTN__FLASH_BACKWARD_BIAS))
        t.dbias = run->m.dbias + skip;
    if (canonical->has_dropout) {
        t.drop_key = run->m.drop_key + e.row;
        t.drop_column = run->m.drop_column + first;
        t.drop_below = plan->drop_below;
        t.drop_scale = plan->drop_scale;
    }
    if (!run->keys_finite || !run->queries_finite || !attn__flash_backward_tables_finite(run))
        t.alive = run->m.alive + skip;
    run->plain = !t.alive && e.full && !bytes && !canonical->has_bias && !canonical->has_dropout && !(t.softcap > 0.0f);
    t.plain = run->plain && e.keys % plan->tile->lanes == 0;
    return t;
}

static attn__flash_backward_part part_of(const attn__softmax_backward_args *t, int64_t first, int64_t row)
{
    return (attn__flash_backward_part){.row = row, .rows = t->rows, .first = first, .keys = t->keys};
}

/* S and dP of the rows. */
static void scores(attn__flash_backward_run *run, const attn__softmax_backward_args *t, int64_t first, int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    int64_t columns = attn__round_up(t->keys, plan->tile->lanes), packed = plan->amx || plan->pairs ? 0 : first;
    attn__flash_backward_part part = part_of(t, first, row);
    attn__gemm_tile_args s = {.m = t->rows,
                              .n = columns,
                              .k = plan->d,
                              .a = run->m.q + row * plan->ldk,
                              .am = plan->ldk,
                              .ak = 1,
                              .b = run->m.keys.kt + packed * plan->d,
                              .ldb = plan->strip,
                              .c = t->s,
                              .ldc = plan->strip,
                              .accumulate = attn__flash_backward_tables_serve(run, false),
                              .hook = {attn__flash_backward_prefetch_portion, run}};
    attn__flash_backward_tables_add(run, false, &part, columns, t->s);
    plan->tile->run(&s);
    if (!t->dp)
        return;
    attn__gemm_tile_args dp = {.m = t->rows,
                               .n = columns,
                               .k = plan->dv,
                               .a = run->m.dout + row * plan->ldv,
                               .am = plan->ldv,
                               .ak = 1,
                               .b = run->m.keys.vt + packed * plan->dv,
                               .ldb = plan->strip,
                               .c = t->dp,
                               .ldc = plan->strip,
                               .accumulate = attn__flash_backward_tables_serve(run, true),
                               .hook = {attn__flash_backward_prefetch_portion, run}};
    attn__flash_backward_tables_add(run, true, &part, columns, t->dp);
    plan->tile->run(&dp);
}

/* dQ += dS K. */
static void query_gradients(attn__flash_backward_run *run, const attn__softmax_backward_args *t, int64_t first,
                            int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__gemm_tile_args g = {.m = t->rows,
                              .n = plan->dp,
                              .k = t->keys,
                              .a = t->dp,
                              .am = plan->strip,
                              .ak = 1,
                              .b = run->m.keys.k + first * plan->ldk,
                              .ldb = plan->ldk,
                              .c = run->dq + row * plan->ldk,
                              .ldc = plan->ldk,
                              .accumulate = true,
                              .hook = {attn__flash_backward_prefetch_portion, run}};
    if (run->want & ATTN__FLASH_BACKWARD_Q)
        plan->tile->run(&g);
}

/* dV^T += dO^T P, dK^T += Q^T dS. */
static void gradients_across(attn__flash_backward_run *run, const attn__softmax_backward_args *t, int64_t first,
                             int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__gemm_tile_args g = {.n = attn__round_up(t->keys, plan->tile->lanes),
                              .k = t->rows,
                              .am = 1,
                              .ldb = plan->strip,
                              .ldc = plan->ld_keys,
                              .accumulate = true};
    if (run->want & ATTN__FLASH_BACKWARD_V) {
        g.a = run->m.dout + row * plan->ldv;
        g.m = plan->dvp;
        g.ak = plan->ldv;
        g.b = t->s;
        g.c = run->m.keys.dv + first;
        plan->tile->run(&g);
    }
    if (run->want & ATTN__FLASH_BACKWARD_K) {
        g.a = run->m.q + row * plan->ldk;
        g.m = plan->dp;
        g.ak = plan->ldk;
        g.b = t->dp;
        g.c = run->m.keys.dk + first;
        plan->tile->run(&g);
    }
    query_gradients(run, t, first, row);
}

/* dV += P^T dO, dK += dS^T Q, dQ += dS K. */
static void gradients(attn__flash_backward_run *run, const attn__softmax_backward_args *t, int64_t first, int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__gemm_tile_args g = {.m = t->keys,
                              .k = t->rows,
                              .am = 1,
                              .ak = plan->strip,
                              .accumulate = true,
                              .hook = {attn__flash_backward_prefetch_portion, run}};
    if (run->want & ATTN__FLASH_BACKWARD_V) {
        g.a = t->s;
        g.n = plan->dvp;
        g.ldb = g.ldc = plan->ldv;
        g.b = run->m.dout + row * plan->ldv;
        g.c = run->m.keys.dv + first * plan->ldv;
        plan->tile->run(&g);
    }
    g.a = t->dp;
    g.n = plan->dp;
    g.ldb = g.ldc = plan->ldk;
    if (run->want & ATTN__FLASH_BACKWARD_K) {
        g.b = run->m.q + row * plan->ldk;
        g.c = run->m.keys.dk + first * plan->ldk;
        plan->tile->run(&g);
    }
    query_gradients(run, t, first, row);
}

/* Packs K^T and V^T of keys that bf16 terms cannot hold, or of tiles with infinity or NaN. */
static void pack_strip(attn__flash_backward_run *run, int64_t first, int64_t n)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn_dtype dtype = run->canonical->problem.dtype;
    void *k = (void *)(uintptr_t)run->arrays->k, *v = (void *)(uintptr_t)run->arrays->v;
    attn__lane_view keys = {k, dtype, run->m.key_at.k + first, plan->channels.k, plan->d, n};
    attn__lane_view values = {v, dtype, run->m.key_at.v + first, plan->channels.v, plan->dv, n};
    plan->lanes->gather(&keys, run->m.keys.kt, plan->strip, plan->score_scale);
    plan->lanes->gather(&values, run->m.keys.vt, plan->strip, 1.0f);
}

static void multiply(attn__flash_backward_run *run, attn__softmax_backward_args *t, int64_t first, int64_t n,
                     int64_t row)
{
    if (run->plan->amx || run->plan->pairs) {
        attn__flash_backward_copy_keys(run);
        attn__flash_backward_copy_queries(run);
        pack_strip(run, first, n);
    }
    scores(run, t, first, row);
    run->plan->backward->weights(t);
    if (t->alive)
        attn__flash_backward_guarded(run, t, first, row);
    else if (run->plan->amx)
        gradients_across(run, t, first, row);
    else
        gradients(run, t, first, row);
    attn__flash_backward_part part = part_of(t, first, row);
    if (!t->alive)
        attn__flash_backward_tables_collect(run, &part, t->s, t->dp);
}

/* Sets the arguments of a strip's softmax step.  False if no query attends any of its keys. */
bool attn__flash_backward_describe(attn__flash_backward_run *run, int64_t first, int64_t n,
                                   attn__softmax_backward_args *t, int64_t *row)
{
    extent e = find_extent(run, first, n);
    if (!e.rows)
        return false;
    *row = e.row;
    *t = describe(run, first, e);
    if (t->mask && attn__flash_backward_mask_seen(run, first, e.keys, e.row, e.rows) == ATTN__BLOCKS_ALL)
        t->mask = NULL;
    if (t->mask)
        attn__flash_backward_mask(run, first, e.keys);
    if (t->bias)
        attn__flash_backward_bias(run, first, e.keys);
    return true;
}

/* Keys first .. first + n of the block, n at most a strip, against the tile of queries. */
void attn__flash_backward_strip(attn__flash_backward_run *run, int64_t first, int64_t n)
{
    attn__softmax_backward_args t;
    int64_t row;
    if (!attn__flash_backward_describe(run, first, n, &t, &row))
        return;
    if (t.mask && !t.fill && attn__flash_backward_mask_seen(run, first, t.keys, row, t.rows) == ATTN__BLOCKS_NONE)
        return;
    unsigned want = run->want;
    if (run->plan->amx)
        run->want = attn__flash_backward_amx_strip(run, &t, first, row);
    if (run->plan->pairs && !t.alive) {
        attn__flash_backward_pairs_strip(run, &t, first, row);
        run->want = 0;
    }
    if (run->want)
        multiply(run, &t, first, n, row);
    run->want = want;
    if (want & ATTN__FLASH_BACKWARD_BIAS)
        attn__flash_backward_add_dbias(run, first, row, t.rows, t.keys);
}
