/* SPDX-License-Identifier: MIT
 *
 * flash_backward_tables.c - relative tables by products with all rows that a tile reads.
 *
 * A tile of queries meets a block of keys at relative positions d = j - i + offset, which lie close together.  For each
 * table T of queries
 *
 *     X[q,d] = Q . T^T          A = rows of Q,  B = T^T;  S[q,k] starts as X[q, d(q,k)]
 *     D[q,d] = sum of dS[q,k]   over the keys with d(q,k) = d
 *     dQ[q,c] += D . T          A = D,              B = rows of T
 *     dT[d,c] += D^T . Q        A = D read across,  B = rows of Q
 *
 * and for one of values X = dO . T^T is where dP starts, D has the sums of P, and dT += D^T . dO.  With one KEY axis a
 * row of X or D and one of S differ by a shift alone.  dT is summed over one item in f32, over items in slots.
 */
#include "attend/solve/flash_backward.h"

#include "base/integers.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------------------- plan */

void attn__flash_backward_tables_choose(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    p->ntables = canonical->problem.nrelatives;
    for (int i = 0; i < p->ntables; i++) {
        attn__flash_backward_table *t = &p->table[i];
        t->value = canonical->problem.relatives[i].kind == ATTN_RELATIVE_VALUE;
        t->panel = attn__table_panel_make(canonical, i, t->value ? p->ldv : p->ldk, p->tile->lanes);
        t->width = t->value ? p->dvp : p->dp;
        t->ld_terms = attn__odd_lines(attn__table_most_rows(canonical, i, p->tile_q, p->block_k));
    }
}

void attn__flash_backward_tables_channels(attn__flash_backward_plan *p, const attn__canonical *canonical, int64_t *room)
{
    for (int i = 0; i < p->ntables; i++) {
        p->table[i].panel.channel = room;
        room = attn__table_channel_offsets(canonical, i, room);
    }
}

void attn__flash_backward_tables_place(const attn__flash_backward_plan *p, attn__arena *arena,
                                       attn__flash_backward_scratch *m)
{
    for (int i = 0; i < p->ntables; i++) {
        const attn__flash_backward_table *t = &p->table[i];
        attn__flash_backward_table_memory *x = &m->table[i];
        attn__table_memory_take(&t->panel, arena, true, &x->panel);
        x->sums = attn__arena_take(arena, t->panel.rows * t->panel.ld, sizeof(float));
        x->terms = attn__arena_take(arena, p->tile_q * t->ld_terms, sizeof(float));
        x->weights = attn__arena_take(arena, p->tile_q * t->ld_terms, sizeof(float));
        x->query = attn__arena_take(arena, p->tile_q, sizeof(int64_t));
        x->key = attn__arena_take(arena, p->block_k, sizeof(int64_t));
    }
}

/* --------------------------------------------------------------------------------------------------- an item */

void attn__flash_backward_tables_start(const attn__flash_backward_plan *plan, const attn__flash_backward_scratch *m)
{
    for (int i = 0; i < plan->ntables; i++)
        attn__table_memory_start(&m->table[i].panel);
}

void attn__flash_backward_tables_read(const attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int i = 0; i < plan->ntables; i++) {
        const attn__flash_backward_table *t = &plan->table[i];
        const attn__flash_backward_table_memory *x = &run->m.table[i];
        attn__table_panel_read(&t->panel, run->canonical, run->arrays, run->item.table[i],
                               t->value ? 1.0f : plan->score_scale, &x->panel);
        if (run->want & ATTN__FLASH_BACKWARD_TABLES)
            memset(x->sums, 0, (size_t)(t->panel.rows * t->panel.ld) * sizeof(float));
    }
}

void attn__flash_backward_tables_store(const attn__flash_backward_run *run, const attn__sums *sums)
{
    for (int i = 0; i < run->plan->ntables && (run->want & ATTN__FLASH_BACKWARD_TABLES); i++) {
        const attn__table_panel *t = &run->plan->table[i].panel;
        const attn_relative *r = &run->canonical->problem.relatives[i];
        double *to = sums->at[ATTN__SUM_TABLE + i] + run->item.table[i];
        double factor = run->plan->table[i].value ? 1.0 : run->canonical->problem.scale;
        for (int64_t row = attn__most(0, -t->first); row < attn__least(t->rows, r->rows - t->first); row++) {
            const float *from = run->m.table[i].sums + row * t->ld;
            double *at = to + (t->first + row) * r->row_stride;
            for (int64_t c = 0; c < t->channels; c++)
                if (t->channel[c] != INT64_MIN)
                    at[t->channel[c]] += factor * (double)from[c];
        }
    }
}

/* ---------------------------------------------------------------------------------------------------- a tile */

bool attn__flash_backward_tables_finite(const attn__flash_backward_run *run)
{
    bool finite = true;
    for (int i = 0; i < run->plan->ntables; i++)
        finite = finite && *run->m.table[i].panel.finite;
    return finite;
}

void attn__flash_backward_tables_keys(const attn__flash_backward_run *run)
{
    for (int i = 0; i < run->plan->ntables; i++)
        attn__flash_backward_index(&run->canonical->key, run->canonical->problem.relatives[i].key_dim, run->block,
                                   run->block_n, run->m.table[i].key);
}

/* The rows that the tile and the block of keys reach.  Afterwards key j of the block and query r of the tile meet at
 * place key[j] - query[r] of the query's row of terms. */
static void find_rows(attn__flash_backward_run *run, int i)
{
    const attn__table_panel *panel = &run->plan->table[i].panel;
    attn__flash_backward_table_memory *x = &run->m.table[i];
    attn__flash_backward_index(&run->canonical->query, run->canonical->problem.relatives[i].query_dim, run->tile,
                               run->tile_n, x->query);
    x->reach = attn__table_reach_of(panel, x->query, run->tile_n, x->key, run->block_n);
    for (int64_t r = 0; r < run->tile_n; r++)
        x->query[r] += x->reach.low - (panel->queries - 1);
}

/* X of the tile; D starts at zero. */
void attn__flash_backward_tables_terms(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int i = 0; i < plan->ntables; i++) {
        const attn__flash_backward_table *t = &plan->table[i];
        const attn__flash_backward_table_memory *x = &run->m.table[i];
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
                                                .ldc = t->ld_terms});
        for (int64_t r = 0; r < run->tile_n; r++)
            memset(x->weights + r * t->ld_terms, 0, (size_t)x->reach.n * sizeof(float));
    }
}

bool attn__flash_backward_tables_serve(const attn__flash_backward_run *run, bool value)
{
    for (int i = 0; i < run->plan->ntables; i++)
        if (run->plan->table[i].value == value)
            return true;
    return false;
}

typedef void store_function(float *dst, const float *src, int64_t n, float scale, bool add);

/* The terms of a run of keys, set or added to a row of s.  Keys of the same index have one term. */
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

void attn__flash_backward_tables_add(const attn__flash_backward_run *run, bool value,
                                     const attn__flash_backward_part *part, int64_t columns, float *s)
{
    const attn__flash_backward_plan *plan = run->plan;
    bool first = true;
    for (int i = 0; i < plan->ntables; i++) {
        const attn__flash_backward_table_memory *x = &run->m.table[i];
        const int64_t *key = x->key + part->first, *query = x->query + part->row;
        const float *terms = x->terms + part->row * plan->table[i].ld_terms;
        if (plan->table[i].value != value)
            continue;
        for (int64_t from = 0, end = 0; from < part->keys; from = end) {
            bool steps = attn__table_run(key, from, part->keys, &end);
            for (int64_t r = 0; r < part->rows; r++)
                add_row(plan->backward->store, terms + r * plan->table[i].ld_terms + (key[from] - query[r]), steps,
                        end - from, first, s + r * plan->strip + from);
        }
        first = false;
    }
    for (int64_t r = 0; r < part->rows && !first; r++)
        memset(s + r * plan->strip + part->keys, 0, (size_t)(columns - part->keys) * sizeof *s);
}

/* The same, back.  Sums in four chains, each of which waits for its own last one. */
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

void attn__flash_backward_tables_collect(const attn__flash_backward_run *run, const attn__flash_backward_part *part,
                                         const float *p, const float *ds)
{
    const attn__flash_backward_plan *plan = run->plan;
    bool one_axis = attn__flash_backward_one_key_axis(run->canonical);
    for (int i = 0; i < plan->ntables; i++) {
        const attn__flash_backward_table *t = &plan->table[i];
        const attn__flash_backward_table_memory *x = &run->m.table[i];
        const int64_t *key = x->key + part->first, *query = x->query + part->row;
        const float *weights = t->value ? p : ds;
        for (int64_t from = 0, end = 0; weights && from < part->keys; from = end) {
            bool steps = attn__table_run(key, from, part->keys, &end);
            for (int64_t r = 0; r < part->rows; r++) {
                float *to = x->weights + (part->row + r) * t->ld_terms + (key[from] - query[r]);
                if (one_axis) /* then all keys are one run, and each pair has a place of its own */
                    memcpy(to, weights + r * plan->strip, (size_t)part->keys * sizeof *to);
                else
                    collect_row(plan->backward->store, weights + r * plan->strip + from, steps, end - from, to);
            }
        }
    }
}

/* dQ += D T and dT += D^T Q, or dT += D^T dO. */
void attn__flash_backward_tables_gradients(const attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    if (!run->keys_finite || !run->queries_finite || !attn__flash_backward_tables_finite(run))
        return; /* they went pair by pair */
    for (int i = 0; i < plan->ntables; i++) {
        const attn__flash_backward_table *t = &plan->table[i];
        const attn__flash_backward_table_memory *x = &run->m.table[i];
        int64_t ld = t->panel.ld;
        attn__gemm_tile_args g = {.n = t->width, .a = x->weights, .ldb = ld, .accumulate = true};
        if (!t->value && (run->want & ATTN__FLASH_BACKWARD_Q)) {
            g.m = run->tile_n;
            g.k = x->reach.n;
            g.am = t->ld_terms;
            g.ak = 1;
            g.b = x->panel.rows + x->reach.low * ld;
            g.c = run->dq;
            g.ldc = plan->ldk;
            plan->tile->run(&g);
        }
        if (run->want & ATTN__FLASH_BACKWARD_TABLES) {
            g.m = x->reach.n;
            g.k = run->tile_n;
            g.am = 1;
            g.ak = t->ld_terms;
            g.b = t->value ? run->m.dout : run->m.q;
            g.c = x->sums + x->reach.low * ld;
            g.ldc = ld;
            plan->tile->run(&g);
        }
    }
}

void attn__flash_backward_tables_pair(const attn__flash_backward_run *run, int64_t query, int64_t key, const float *p,
                                      const float *ds)
{
    const attn__flash_backward_plan *plan = run->plan;
    for (int i = 0; i < plan->ntables; i++) {
        const attn__flash_backward_table *t = &plan->table[i];
        const attn__flash_backward_table_memory *x = &run->m.table[i];
        const float *weight = t->value ? p : ds, *side = (t->value ? run->m.dout : run->m.q) + query * t->panel.ld;
        int64_t at = (x->reach.low + x->key[key] - x->query[query]) * t->panel.ld;
        for (int64_t c = 0; weight && c < t->panel.channels; c++) {
            if (!t->value && (run->want & ATTN__FLASH_BACKWARD_Q))
                run->dq[query * plan->ldk + c] += *weight * x->panel.rows[at + c];
            if (run->want & ATTN__FLASH_BACKWARD_TABLES)
                x->sums[at + c] += *weight * side[c];
        }
    }
}
