/* SPDX-License-Identifier: MIT
 *
 * flash_backward_run.c - a range of queries against a range of keys, and the order of such runs.
 */
#include "attend/solve/flash_backward.h"
#include "attend/block/packed_sequences.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/constants.h"

#include <math.h>
#include <string.h>

/* Where the keys of the block lie, in every array that has them. */
void attn__flash_backward_locate_keys(attn__flash_backward_run *run)
{
    const attn__canonical *canonical = run->canonical;
    const attn__group *key = &canonical->key;
    attn__flash_backward_scratch *m = &run->m;
    int64_t begin = run->block, n = run->block_n;
    attn__flash_backward_walk(key, ATTN__STRIDE(dim.k), begin, n, run->item.at.k, m->key_at.k);
    attn__flash_backward_walk(key, ATTN__STRIDE(dim.v), begin, n, run->item.at.v, m->key_at.v);
    attn__flash_backward_tables_keys(run);
    if (canonical->has_mask)
        attn__flash_backward_walk(key, ATTN__STRIDE(dim.mask), begin, n, 0, m->key_at.mask);
    if (canonical->has_bias)
        attn__flash_backward_walk(key, ATTN__STRIDE(dim.bias), begin, n, 0, m->key_at.bias);
    if (run->want & ATTN__FLASH_BACKWARD_BIAS)
        attn__flash_backward_walk(key, ATTN__STRIDE(dim.dbias), begin, n, 0, m->key_at.dbias);
    if (!attn__flash_backward_one_key_axis(canonical)) {
        for (int b = 0; b < canonical->problem.nbands; b++)
            attn__flash_backward_index(key, canonical->problem.bands[b].key_dim, begin, n,
                                       m->k_index + b * run->plan->block_k);
        if (canonical->has_lens)
            attn__flash_backward_index(key, canonical->problem.lens_dim, begin, n,
                                       m->k_index + ATTN_MAX_BANDS * run->plan->block_k);
    }
    if (canonical->has_dropout) {
        attn__flash_backward_walk(key, ATTN__STRIDE(drop), begin, n, 0, m->key_at.dk);
        for (int64_t j = 0; j < n; j++)
            m->drop_column[j] = (int32_t)(uint32_t)m->key_at.dk[j];
    }
}

void attn__flash_backward_copy_keys(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__flash_backward_scratch *m = &run->m;
    attn__flash_backward_rows k = {run->arrays->k, m->key_at.k, run->block_n, plan->channels.k, plan->d};
    attn__flash_backward_rows v = {run->arrays->v, m->key_at.v, run->block_n, plan->channels.v, plan->dv};
    if (run->keys_copied)
        return;
    run->keys_finite = attn__flash_backward_gather(plan, &k, m->keys.k, plan->ldk);
    run->keys_finite = attn__flash_backward_gather(plan, &v, m->keys.v, plan->ldv) && run->keys_finite;
    run->keys_copied = true;
}

/* Packs keys and values of the block: rows, and transposed strip by strip; clears dK and dV. */
static void pack_keys(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn_arrays *arrays = run->arrays;
    attn__flash_backward_scratch *m = &run->m;
    int64_t n = run->block_n;
    attn__flash_backward_locate_keys(run);
    if (plan->amx) {
        attn__flash_backward_amx_keys(run);
        return;
    }
    run->keys_copied = false;
    if (plan->pairs)
        attn__flash_backward_pairs_keys(run);
    else
        attn__flash_backward_copy_keys(run);
    for (int64_t s = 0; s < n && !plan->pairs; s += plan->strip) {
        int64_t keys = attn__least(plan->strip, n - s);
        attn_dtype dtype = run->canonical->problem.dtype;
        attn__lane_view k = {(void *)(uintptr_t)arrays->k, dtype, m->key_at.k + s, plan->channels.k, plan->d, keys};
        attn__lane_view v = {(void *)(uintptr_t)arrays->v, dtype, m->key_at.v + s, plan->channels.v, plan->dv, keys};
        plan->lanes->gather(&k, m->keys.kt + s * plan->d, plan->strip, plan->score_scale);
        plan->lanes->gather(&v, m->keys.vt + s * plan->dv, plan->strip, 1.0f);
    }
    memset(m->keys.dk, 0, (size_t)(n * plan->ldk) * sizeof(float));
    memset(m->keys.dv, 0, (size_t)(n * plan->ldv) * sizeof(float));
}

/* A row without keys gets an lse of +inf, which makes its weights 0.  Where masked keys score a large fill and
 * there are no others of weight, lse = fill + log(count) has lost its last digits in f32; the masked keys' weights are
 * then 1 / count.  A key beside them whose score is near the fill keeps its own weight. */
void attn__flash_backward_set_lse(attn__flash_backward_run *run, int64_t r, float lse)
{
    double fill = run->canonical->problem.mask_fill, most = log((double)run->plan->nk), slack = 2.5e-7 * fabs(fill);
    bool alone = fabs(fill) > 256.0 && lse - fill >= -slack && lse - fill <= most + slack;
    double count = alone ? (double)attn__flash_backward_count_masked(run, r) : 0.0;
    alone = count > 0.0 && fabs(lse - fill - log(count)) <= slack;
    double weight = alone ? -log(count) : lse == -INFINITY ? -INFINITY : fill - (double)lse;
    run->m.lse[r] = lse == -INFINITY ? INFINITY : (float)((double)lse * ATTN__LOG2E);
    run->m.fill[r] = weight > 0.0 ? 0.0f : (float)(weight * ATTN__LOG2E);
}

/* A row of the caller's as floats: where it is, or `copy`. */
static const float *row_of(const attn__flash_backward_plan *plan, const attn__flash_backward_rows *x, int64_t r,
                           float *copy)
{
    attn__flash_backward_rows row = *x;
    if (!x->channel && !plan->bf16)
        return (const float *)x->data + x->at[r];
    row.at += r;
    row.rows = 1;
    attn__flash_backward_gather(plan, &row, copy, plan->dvp);
    return copy;
}

/* delta = sum over v of dout * o, less the gradient of the log-sum-exp. */
static void find_deltas(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn_arrays *x = run->arrays;
    attn__flash_backward_scratch *m = &run->m;
    const attn__flash_backward_rows o = {x->o, m->query_at.o, run->tile_n, plan->channels.o, plan->dv};
    const attn__flash_backward_rows dout = {x->dout, m->query_at.dout, run->tile_n, plan->channels.dout, plan->dv};
    for (int64_t r = 0; r < run->tile_n; r++) {
        float *copy = m->dout + r * plan->ldv;
        if (!o.channel)
            attn__flash_backward_prefetch_row(plan, &o, r + ATTN__FLASH_BACKWARD_PREFETCH_ROWS);
        const float *gradient = run->queries_copied ? copy : row_of(plan, &dout, r, copy);
        m->delta[r] = plan->backward->dot(gradient, row_of(plan, &o, r, m->row), plan->dv);
        if ((run->canonical->extras & ATTN__DLSE) && m->lse[r] != INFINITY) /* a row without keys has no use for it */
            m->delta[r] -= ((const float *)x->dlse)[m->query_at.lse[r]];
    }
}

/* Those, which the blocks of keys share, and the log-sum-exp. */
static void pack_row_numbers(attn__flash_backward_run *run)
{
    attn__flash_backward_scratch *m = &run->m;
    const float *lse = run->arrays->lse;
    int64_t at = run->tile - run->q_begin;
    uint8_t *known = m->known + at / run->plan->tile_q;
    for (int64_t r = 0; r < run->tile_n; r++)
        attn__flash_backward_set_lse(run, r, lse[m->query_at.lse[r]]);
    if (run->keeps && *known) {
        memcpy(m->delta, m->kept + at, (size_t)run->tile_n * sizeof(float));
        return;
    }
    find_deltas(run);
    if (run->keeps) {
        memcpy(m->kept + at, m->delta, (size_t)run->tile_n * sizeof(float));
        *known = 1;
    }
}

/* Where the queries of the tile lie, and their keys for dropout. */
void attn__flash_backward_locate_queries(attn__flash_backward_run *run)
{
    const attn__canonical *canonical = run->canonical;
    const attn__group *query = &canonical->query;
    const attn_dim *at = &run->item.at;
    attn__flash_backward_scratch *m = &run->m;
    int64_t begin = run->tile, n = run->tile_n;
    attn__flash_backward_walk(query, ATTN__STRIDE(dim.q), begin, n, at->q, m->query_at.q);
    attn__flash_backward_walk(query, ATTN__STRIDE(dim.o), begin, n, at->o, m->query_at.o);
    attn__flash_backward_walk(query, ATTN__STRIDE(dim.dout), begin, n, at->dout, m->query_at.dout);
    attn__flash_backward_walk(query, ATTN__STRIDE(dim.lse), begin, n, at->lse, m->query_at.lse);
    if (canonical->has_mask)
        attn__flash_backward_walk(query, ATTN__STRIDE(dim.mask), begin, n, at->mask, m->query_at.mask);
    if (canonical->has_bias)
        attn__flash_backward_walk(query, ATTN__STRIDE(dim.bias), begin, n, at->bias, m->query_at.bias);
    if (run->want & ATTN__FLASH_BACKWARD_BIAS)
        attn__flash_backward_walk(query, ATTN__STRIDE(dim.dbias), begin, n, at->dbias, m->query_at.dbias);
    if (canonical->has_dropout) {
        uint64_t seed = canonical->problem.seed + run->arrays->seed_offset;
        attn__flash_backward_walk(query, ATTN__STRIDE(drop), begin, n, (int64_t)run->item.drop, m->query_at.dq);
        for (int64_t r = 0; r < n; r++)
            m->drop_key[r] = attn__dropout_key(seed, canonical->problem.stream,
                                               attn__drop_row(&run->arrays->drop_rows, (uint64_t)m->query_at.dq[r]));
    }
}

void attn__flash_backward_copy_queries(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    attn__flash_backward_scratch *m = &run->m;
    const attn_arrays *x = run->arrays;
    attn__flash_backward_rows q = {x->q, m->query_at.q, run->tile_n, plan->channels.q, plan->d};
    attn__flash_backward_rows dout = {x->dout, m->query_at.dout, run->tile_n, plan->channels.dout, plan->dv};
    if (run->queries_copied)
        return;
    run->queries_finite = attn__flash_backward_gather(plan, &q, m->q, plan->ldk);
    run->queries_finite = attn__flash_backward_gather(plan, &dout, m->dout, plan->ldv) && run->queries_finite;
    run->queries_copied = true;
}

/* Everything of the tile's queries but what decides whether the tile is needed at all. */
static void pack_queries(attn__flash_backward_run *run)
{
    attn__flash_backward_locate_queries(run);
    run->queries_copied = false;
    if (run->plan->amx)
        attn__flash_backward_amx_queries(run);
    else if (run->plan->pairs)
        attn__flash_backward_pairs_queries(run);
    else
        attn__flash_backward_copy_queries(run);
    pack_row_numbers(run);
}

bool attn__flash_backward_tile_is_needed(const attn__flash_backward_run *run)
{
    if (run->canonical->problem.mask_fill != 0.0)
        return run->block_n > 0;
    if (attn__flash_backward_blocks_seen(run, 0, run->tile_n, 0, run->block_n) == ATTN__BLOCKS_NONE)
        return false;
    for (int64_t r = 0; r < run->tile_n; r++)
        if (run->m.from[r] < run->m.to[r] && run->m.from[r] < run->block + run->block_n && run->m.to[r] > run->block)
            return true;
    return false;
}

static void store_queries(const attn__flash_backward_run *run, int64_t begin, int64_t n, const float *dq, bool add)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int64_t i = 0; i < n; i += plan->tile_q) {
        int64_t rows = attn__least(plan->tile_q, n - i);
        attn__flash_backward_walk(&run->canonical->query, ATTN__STRIDE(dim.dq), begin + i, rows, run->item.at.dq,
                                  run->m.query_at.dq);
        attn__flash_backward_rows to = {run->arrays->dq, run->m.query_at.dq, rows, plan->channels.dq, plan->d};
        attn__flash_backward_scatter(plan, &to, dq + i * plan->ldk, plan->ldk, (float)run->canonical->problem.scale,
                                     add);
    }
}

static void store_keys(const attn__flash_backward_run *run, int64_t n)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    bool add = !plan->store_kv || !run->first;
    if (run->want & ATTN__FLASH_BACKWARD_K) {
        attn__flash_backward_walk(&run->canonical->key, ATTN__STRIDE(dim.dk), run->block, n, run->item.at.dk,
                                  m->key_at.dk);
        attn__flash_backward_rows to = {run->arrays->dk, m->key_at.dk, n, plan->channels.dk, plan->d};
        attn__flash_backward_scatter(plan, &to, m->keys.dk_rows, plan->ldk, (float)run->canonical->problem.scale, add);
    }
    if (run->want & ATTN__FLASH_BACKWARD_V) {
        attn__flash_backward_walk(&run->canonical->key, ATTN__STRIDE(dim.dv), run->block, n, run->item.at.dv,
                                  m->key_at.dv);
        attn__flash_backward_rows to = {run->arrays->dv, m->key_at.dv, n, plan->channels.dv, plan->dv};
        attn__flash_backward_scatter(plan, &to, m->keys.dv_rows, plan->ldv, 1.0f, add);
    }
}

/* The tile at run->tile against every strip of the block. */
static void run_tile(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    bool wants_q = run->want & ATTN__FLASH_BACKWARD_Q;
    pack_queries(run);
    if (plan->resident_q && wants_q)
        run->dq = run->m.dq + (run->tile - run->q_begin) * plan->ldk;
    else if (wants_q)
        memset(run->dq = run->m.dq, 0, (size_t)(run->tile_n * plan->ldk) * sizeof(float));
    attn__flash_backward_tables_terms(run);
    if (!plan->amx) /* whose own loads leave no room for others: what came early came at their cost */
        attn__flash_backward_next_tile(run);
    for (int64_t s = 0; s < run->block_n; s += plan->strip)
        attn__flash_backward_strip(run, s, attn__least(plan->strip, run->block_n - s));
    attn__flash_backward_tables_gradients(run);
    if (wants_q && !plan->resident_q)
        store_queries(run, run->tile, run->tile_n, run->dq, true);
}

/* One block of `size` keys, block_n of which may be attended, against all queries of the run. */
static void run_block(attn__flash_backward_run *run, int64_t size)
{
    const attn__flash_backward_plan *plan = run->plan;
    bool packed = false;
    if (run->canonical->has_blocks)
        attn__block_columns(run->canonical, run->block, run->block_n, run->m.key_at.block);
    for (run->tile = run->q_begin; run->tile < run->q_end; run->tile += plan->tile_q) {
        run->tile_n = attn__least(plan->tile_q, run->q_end - run->tile);
        attn__flash_backward_limits(run);
        if (!attn__flash_backward_tile_is_needed(run))
            continue;
        if (!packed) {
            pack_keys(run);
            if (!plan->amx)
                attn__flash_backward_next_block(run);
        }
        packed = true;
        run_tile(run);
    }
    bool writes = run->want & (ATTN__FLASH_BACKWARD_K | ATTN__FLASH_BACKWARD_V);
    if (!writes || (!packed && !(plan->store_kv && run->first)))
        return;
    int64_t done = packed ? run->block_n : 0;
    if (plan->amx && done == size && attn__flash_backward_amx_store(run))
        return;
    if (plan->amx)
        attn__flash_backward_amx_rows(run, done);
    memset(run->m.keys.dk_rows + done * plan->ldk, 0, (size_t)((size - done) * plan->ldk) * sizeof(float));
    memset(run->m.keys.dv_rows + done * plan->ldv, 0, (size_t)((size - done) * plan->ldv) * sizeof(float));
    store_keys(run, size);
}

static void run_range(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    int64_t end = attn__flash_backward_key_end(run), queries = run->q_end - run->q_begin;
    bool holds_q = plan->resident_q && (run->want & ATTN__FLASH_BACKWARD_Q);
    if (holds_q)
        memset(run->m.dq, 0, (size_t)(queries * plan->ldk) * sizeof(float));
    run->keeps = plan->resident_q && queries <= plan->chunk_q;
    if (run->keeps)
        memset(run->m.known, 0, (size_t)attn__pieces(queries, plan->tile_q));
    for (run->block = run->k_begin; run->block < run->k_end; run->block += plan->block_k) {
        int64_t size = attn__least(plan->block_k, run->k_end - run->block), alive = end - run->block;
        run->block_n = alive < 0 ? 0 : attn__least(size, alive);
        run_block(run, size);
    }
    if (holds_q)
        store_queries(run, run->q_begin, queries, run->m.dq, !plan->store_q || !run->first);
}

/* ------------------------------------------------------------------------------------- the order of runs */

typedef struct work {
    const attn__canonical *canonical;
    const attn__flash_backward_plan *plan;
    const attn_arrays *arrays;
    char *workspace;
    int64_t step;
    attn__slots slots; /* of the gradients of tables, if they are wanted; each runs some items in turn */
} work;

/* `cell` is the number after this thread's own, mostly its next one too. */
static void find_next(const work *w, int64_t cell, attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = w->plan;
    int64_t chunk = cell % plan->waves;
    run->has_next = cell < plan->items * plan->waves && plan->shared == 1;
    if (!run->has_next)
        return;
    attn__flash_backward_item_find(w->canonical, cell / plan->waves, 0, &run->next);
    run->next_q = (chunk + w->step) % plan->waves * plan->chunk_q;
    run->next_k = chunk * plan->chunk_k;
}

/* Chunks of queries and keys, -1: all of them. */
static void run_chunks(attn__flash_backward_run *run, int64_t chunk_q, int64_t chunk_k)
{
    const attn__flash_backward_plan *plan = run->plan;
    run->q_begin = chunk_q < 0 ? 0 : attn__least(plan->nq, chunk_q * plan->chunk_q);
    run->q_end = chunk_q < 0 ? plan->nq : attn__least(plan->nq, run->q_begin + plan->chunk_q);
    run->k_begin = chunk_k < 0 ? 0 : attn__least(plan->nk, chunk_k * plan->chunk_k);
    run->k_end = chunk_k < 0 ? plan->nk : attn__least(plan->nk, run->k_begin + plan->chunk_k);
    run_range(run);
}

/* The same of the item's sequence, whose chunks past its end are empty. */
static void run_sequence(const attn__flash_backward_run *run, int64_t chunk_q, int64_t chunk_k)
{
    attn__sequence one;
    attn__flash_backward_run of_one = *run;
    attn__flash_backward_plan plan = *run->plan;
    attn__sequence_at(&one, run->canonical, run->arrays, run->item.sequence);
    plan.nq = one.canonical.query.size;
    plan.nk = one.canonical.key.size;
    of_one.canonical = &one.canonical;
    of_one.arrays = &one.arrays;
    of_one.plan = &plan;
    run_chunks(&of_one, chunk_q, chunk_k);
}

static void place_scratch(const work *w, int thread, attn__flash_backward_scratch *m)
{
    attn__flash_backward_scratch_place(w->plan, w->workspace + (size_t)thread * w->plan->thread_bytes, m);
}

/* `next` is the number of the cell that follows, negative if that is not known.  `sums` are those of the slot that runs
 * the cell, or NULL. */
static void run_cell(const work *w, int thread, int64_t item, unsigned want, int64_t chunk_q, int64_t chunk_k,
                     int64_t next, const attn__sums *sums)
{
    const attn__flash_backward_plan *plan = w->plan;
    attn__flash_backward_run run = {
        .canonical = w->canonical, .plan = plan, .arrays = w->arrays, .want = plan->want & want, .first = w->step == 0};
    bool packed = attn__is_packed(w->canonical);
    place_scratch(w, thread, &run.m);
    if (next >= 0 && !packed)
        find_next(w, next, &run);
    if (plan->amx)
        plan->amx->begin();
    for (int64_t s = 0; s < plan->shared; s++) {
        attn__flash_backward_item_find(w->canonical, item, s, &run.item);
        attn__flash_backward_tables_read(&run);
        if (packed)
            run_sequence(&run, chunk_q, chunk_k);
        else
            run_chunks(&run, chunk_q, chunk_k);
        attn__flash_backward_tables_store(&run, sums);
    }
    if (plan->amx)
        plan->amx->end();
}

static void zero_item(void *user, int64_t item, int thread)
{
    const work *w = user;
    attn__flash_backward_scratch m;
    place_scratch(w, thread, &m);
    attn__flash_backward_zero(w->canonical, w->plan, w->arrays, item, &m);
}

static void wave_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    int64_t chunk = number % w->plan->waves;
    run_cell(w, thread, number / w->plan->waves, ~0u, (chunk + w->step) % w->plan->waves, chunk, number + 1, NULL);
}

static void key_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    run_cell(w, thread, number / w->plan->chunks_k, ~(unsigned)ATTN__FLASH_BACKWARD_Q, -1, number % w->plan->chunks_k,
             -1, NULL);
}

static void query_cell(void *user, int64_t number, int thread)
{
    const work *w = user;
    run_cell(w, thread, number / w->plan->chunks_q, ATTN__FLASH_BACKWARD_Q, number % w->plan->chunks_q, -1, -1, NULL);
}

/* The items of a slot, one after another: what wave_cell or key_cell would run, and the tables' gradients.  Slots and
 * the plan count the same items: BATCH indices that share a gradient of q, k, v or the bias are one. */
static void slot_cells(void *user, int64_t slot, int thread)
{
    const work *w = user;
    const attn__flash_backward_plan *plan = w->plan;
    unsigned want = plan->two_pass ? ~(unsigned)ATTN__FLASH_BACKWARD_Q : ~0u;
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
    unsigned others = plan->want & ~(unsigned)(ATTN__FLASH_BACKWARD_Q | ATTN__FLASH_BACKWARD_TABLES);
    int threads = w->canonical->threads;
    if (others && !(plan->want & ATTN__FLASH_BACKWARD_TABLES))
        attn__parallel_items(threads, plan->items * plan->chunks_k, key_cell, w);
    if (plan->want & ATTN__FLASH_BACKWARD_Q)
        attn__parallel_items(threads, plan->items * plan->chunks_q, query_cell, w);
}

void attn__flash_backward_execute(const attn__canonical *canonical, const attn__flash_backward_plan *plan,
                                  const attn_arrays *arrays, void *workspace)
{
    work w = {.canonical = canonical, .plan = plan, .arrays = arrays, .workspace = workspace};
    bool tables = plan->want & ATTN__FLASH_BACKWARD_TABLES;
    for (int thread = 0; plan->ntables && thread < canonical->threads; thread++) {
        attn__flash_backward_scratch m;
        place_scratch(&w, thread, &m);
        attn__flash_backward_tables_start(plan, &m);
    }
    if (plan->clears)
        attn__parallel_items(canonical->threads, plan->items, zero_item, &w);
    if (tables) {
        attn__slots_make(&w.slots, canonical, w.workspace + (size_t)canonical->threads * plan->thread_bytes);
        attn__parallel_items(canonical->threads, w.slots.n, slot_cells, &w);
        attn__slots_store(&w.slots, arrays);
    }
    if (plan->two_pass)
        run_passes(&w);
    else if (!tables)
        run_waves(&w);
}
