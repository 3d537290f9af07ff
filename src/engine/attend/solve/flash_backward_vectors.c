/* SPDX-License-Identifier: MIT
 *
 * flash_backward_vectors.c - products of the backward pass on vectors, and those of relative tables.
 */
#include "attend/solve/flash_backward.h"

#include "base/integers.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------ operands as rows of f32 */

void attn__flash_backward_copy(attn__flash_backward_run *run, bool keys)
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

static void transpose_strip(const attn__flash_backward_run *run, int64_t first, int64_t n, float *kt, float *vt)
{
    attn__flash_backward_transpose(run, ATTN__OP_K, first, n, run->plan->score_scale, kt);
    attn__flash_backward_transpose(run, ATTN__OP_V, first, n, 1.0f, vt);
}

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
static bool add_table_terms(const attn__flash_backward_strip *x, bool value, int64_t columns, float *s)
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
static void collect_table_weights(const attn__flash_backward_strip *x)
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

/* ---------------------------------------------------------------------------------------------- products on vectors */

static void prefetch_portion(void *with)
{
    attn__flash_backward_run *run = with;
    for (int i = 0; i < ATTN__FLASH_BACKWARD_PREFETCHES; i++)
        attn__prefetch_portion(&run->prefetch[i]);
}

/* Computes S = Q K^T and dP = dO V^T for the rows of the strip, and adds the terms of tables. */
static void scores(const attn__flash_backward_strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_scratch *m = &x->run->m;
    int64_t columns = attn__round_up(x->t.nkeys, plan->tile->lanes), packed = plan->products->apart ? 0 : x->t.key;
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
static void query_gradients(const attn__flash_backward_strip *x)
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

static void key_gradients(const attn__flash_backward_strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    for (int value = 1; value >= 0; value--) {
        const attn__flash_backward_key_product y = attn__flash_backward_key_product_of(x, value);
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
        if (plan->products->transposed) {
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

static void add_guarded(const attn__flash_backward_strip *x)
{
    const attn__flash_backward_plan *plan = x->run->plan;
    const attn__flash_backward_scratch *m = &x->run->m;
    bool transposed = plan->products->transposed;
    int64_t step = transposed ? plan->ld_keys : 1; /* stride between the channels of a sum */
    for (int64_t r = 0; r < x->t.nrows; r++)
        for (int64_t j = 0; j < x->t.nkeys; j++) {
            int64_t key = x->t.key + j, query = x->t.row + r, pair = r * x->t.ld + j;
            bool alive = x->t.alive[pair] & 1, counts = x->t.alive[pair] & 2;
            for (int value = 1; value >= 0; value--) {
                const attn__flash_backward_key_product y = attn__flash_backward_key_product_of(x, value);
                if (y.want && (value ? counts : alive))
                    add(y.sums + key * (transposed ? 1 : y.ld), step, y.weights[pair], y.rows + query * y.ld,
                        y.channels);
            }
            if ((x->run->want & ATTN_WANT_DQ) && alive)
                add(x->run->dq + query * plan->ldk, 1, x->t.ds[pair], m->keys.k + key * plan->ldk, plan->d);
            add_table_pair(x->run, query, key, counts ? x->t.s + pair : NULL, alive && x->t.ds ? x->t.ds + pair : NULL);
        }
}

/* --------------------------------------------------------------------------------------------------------- a strip */

static void pack(attn__flash_backward_run *run, bool keys)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_keys *m = &run->m.keys;
    int64_t n = run->block_n;
    attn__flash_backward_copy(run, keys);
    if (!keys) {
        multiply_tables(run);
        return;
    }
    attn__flash_tables_keys(&plan->tables, run->canonical, run->block, n, run->m.table);
    for (int64_t s = 0; s < n; s += plan->strip)
        transpose_strip(run, s, attn__min(plan->strip, n - s), m->kt + s * plan->d, m->vt + s * plan->dv);
}

static unsigned run_vectors(attn__flash_backward_strip *x)
{
    attn__flash_backward_run *run = x->run;
    int64_t n = attn__min(run->plan->strip, run->block_n - x->t.key);
    if (run->plan->products->apart) {
        attn__flash_backward_copy(run, true);
        attn__flash_backward_copy(run, false);
        transpose_strip(run, x->t.key, n, run->m.keys.kt, run->m.keys.vt);
    }
    scores(x);
    attn__tile_weights(&x->t);
    if (x->t.alive) {
        add_guarded(x);
        return 0;
    }
    key_gradients(x);
    query_gradients(x);
    collect_table_weights(x);
    return 0;
}

static bool choose(attn__flash_backward_plan *plan, const attn__canonical *canonical)
{
    (void)plan;
    (void)canonical;
    return true;
}

const attn__flash_backward_products attn__flash_backward_by_vectors = {.choose = choose,
                                                                       .pack = pack,
                                                                       .run = run_vectors,
                                                                       .finish = add_table_gradients,
                                                                       .row_step = 1,
                                                                       .prefetches = true};
