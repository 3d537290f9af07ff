/* SPDX-License-Identifier: MIT
 * The solver of blocks in float64: what it accepts, its cost, its plan. */
#include "attend/blocked/blocked.h"

#include "attend/canonical/packed_sequences.h"
#include "attend/canonical/slots.h"
#include "attend/canonical/table.h"
#include "base/integers.h"

#include <stdio.h>

/* Of a thread, in double. */
static const double MOST_NUMBERS = 0x1p32;

static bool is_distance(attn_score score)
{
    return score == ATTN_SCORE_GAUSSIAN || score == ATTN_SCORE_BOXCAR || score == ATTN_SCORE_TRIANGULAR;
}

static bool repeats(const attn__canonical *canonical, const attn__group *group, attn__operand op)
{
    for (int i = 0; i < group->n; i++) {
        if (attn__extent_length(canonical, group, i, op) > 1 && !group->axis[i].packed &&
            attn__stride(&group->axis[i].dim, op) == 0)
            return true;
    }
    return false;
}

bool attn__blocked_shares(const attn__canonical *canonical)
{
    const struct {
        unsigned want;
        attn__operand op;
        const attn__group *groups[2];
    } gradients[] = {{ATTN_WANT_DQ, ATTN__OP_DQ, {&canonical->query, &canonical->contract}},
                     {ATTN_WANT_DK, ATTN__OP_DK, {&canonical->key, &canonical->contract}},
                     {ATTN_WANT_DV, ATTN__OP_DV, {&canonical->key, &canonical->value}},
                     {ATTN_WANT_DBIAS, ATTN__OP_DBIAS, {&canonical->query, &canonical->key}}};
    for (int i = 0; i < 4; i++) {
        attn__operand op = gradients[i].op;
        if ((canonical->problem.flags & gradients[i].want) &&
            (repeats(canonical, &canonical->batch, op) || repeats(canonical, gradients[i].groups[0], op) ||
             repeats(canonical, gradients[i].groups[1], op)))
            return true;
    }
    return canonical->extras & ATTN__BIAS_MEETS;
}

/* ----------------------------------------------------------------------------------------------- its plan */

/* The columns that a run of queries along the last QUERY axis touches along a key axis. */
static double columns_along(const attn__canonical *canonical, int axis, int64_t queries)
{
    const attn_window *w = attn__window_of(&canonical->problem, axis);
    double taps = (double)canonical->key.axis[axis].dim.n;
    if (!w || w->query_dim != canonical->query.n - 1 || queries == 1)
        return taps;
    /* A window that is moved inwards goes up to a dilation further. */
    return (double)(queries - 1) * (double)w->step + (taps + 1) * (double)w->dilation;
}

static double columns_of(const attn__canonical *canonical, int64_t queries)
{
    double columns = 1;
    for (int a = 0; a < canonical->key.n; a++)
        columns *= columns_along(canonical, a, queries);
    return columns;
}

/* As many queries as the taps of a window along their axis: then half of the columns are a query's own. */
static int64_t window_queries(const attn__canonical *canonical)
{
    int64_t reach = 16;
    for (int i = 0; i < canonical->problem.nwindows; i++) {
        const attn_window *w = &canonical->problem.windows[i];
        if (w->query_dim == canonical->query.n - 1)
            reach = attn__most(reach, canonical->key.axis[w->key_dim].dim.n * w->dilation / w->step);
    }
    return attn__least(reach, 96);
}

/* Even blocks of a run of queries.  Where sums depend on the blocks, backward, neither threads nor lengths may show. */
static int64_t query_block(const attn__canonical *canonical, int64_t run)
{
    enum { TILE = 12 };
    if (canonical->problem.nwindows)
        return attn__pieces(run, attn__pieces(run, window_queries(canonical)));
    if (canonical->backward)
        return attn__least(attn__round_up(run, TILE), ATTN__BLOCKED_QUERIES);
    int64_t pieces = attn__pieces(run, ATTN__BLOCKED_QUERIES);
    if (canonical->batch.size < canonical->threads)
        pieces = attn__most(pieces, canonical->threads);
    return attn__round_up(attn__pieces(run, pieces), TILE);
}

static int64_t take(int64_t *all, int64_t n)
{
    int64_t at = *all;
    *all += attn__round_up(n, 8);
    return at;
}

/* Rows of a table between the first and the last that a tile's pairs may read, and up to the K block before them. */
static int64_t most_rows(const attn__canonical *canonical, const attn__blocked_plan *p, const attn_relative *r)
{
    const attn_window *w = attn__window_of(&canonical->problem, r->key_dim);
    int64_t queries = canonical->query.axis[r->query_dim].dim.n, keys = canonical->key.axis[r->key_dim].dim.n;
    if (canonical->query.n == 1)
        queries = attn__least(queries, p->queries);
    if (canonical->key.n == 1)
        keys = attn__least(keys, p->keys);
    if (w && w->border == ATTN_BORDER_SHIFT)
        return r->rows;
    int64_t distances = w ? (keys - 1) * w->dilation + 1 : queries + keys - 1;
    return attn__least(r->rows, distances + ATTN__BLOCKED_ROWS - 1);
}

static void place_tables(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        const attn_relative *r = &canonical->problem.relatives[i];
        attn__blocked_table *table = &p->table[i];
        int64_t channels = attn__table_channels(canonical, i)->size;
        bool by_key = r->kind == ATTN_RELATIVE_KEY;
        table->most = most_rows(canonical, p, r);
        table->ld = attn__round_up(table->most, 8);
        table->ld_t = attn__round_up(r->rows, 8);
        table->t = take(all, r->rows * channels);
        table->t_t = take(all, table->ld_t * channels);
        table->x = take(all, (by_key ? p->columns : p->queries) * table->ld);
        table->g = take(all, by_key && canonical->backward ? p->columns * table->ld : 0);
        table->dt = take(all, canonical->backward ? r->rows * channels : 0);
    }
}

/* An upper bound of what src/gemm wants for a product of no more rows, columns and terms: both operands in panels, and
 * the result. */
static int64_t product_size(int64_t m, int64_t n, int64_t k)
{
    enum { PANEL = 64, SLACK = 1024 };
    m = attn__round_up(m, PANEL);
    n = attn__round_up(n, PANEL);
    k = attn__round_up(k, PANEL);
    return (m + n) * k + m * n + SLACK;
}

static void place_product(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    int64_t rows = attn__most(p->queries, p->columns);
    int64_t channels = attn__most(canonical->contract.size, canonical->value.size);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        rows = attn__most(rows, p->table[i].most);
    p->at.product = take(all, attn__most(product_size(rows, rows, channels), product_size(rows, channels, rows)));
    p->at.finite = take(all, rows * channels);
}

/* Of all positions, and of the columns of a block. */
static void place_operands(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    attn__blocked_places *at = &p->at;
    int64_t channels = canonical->contract.size, values = canonical->value.size, queries = p->queries;
    int64_t again = canonical->backward, windows = canonical->problem.nwindows > 0;
    int64_t positions = windows ? p->positions.size : canonical->key.size, plain = windows ? 0 : p->ld;
    int64_t near = windows ? p->columns : 0, near_ld = windows ? p->ld : 0;
    at->k = take(all, positions * channels);
    at->k_t = take(all, plain * channels);
    at->v = take(all, positions * values);
    at->v_t = take(all, again * plain * values);
    at->near_k = take(all, near * channels);
    at->near_k_t = take(all, near_ld * channels);
    at->near_v = take(all, near * values);
    at->near_v_t = take(all, again * near_ld * values);
    at->near_dk = take(all, again * near * channels);
    at->near_dv = take(all, again * near * values);
    at->q = take(all, queries * channels);
    at->o = take(all, queries * values);
    at->dout = take(all, again * queries * values);
    at->s = take(all, queries * p->ld_s);
    at->dp = take(all, again * queries * p->ld_s);
    at->dq = take(all, again * queries * channels);
    at->dk = take(all, again * positions * channels);
    at->dv = take(all, again * positions * values);
}

/* Along the queries of a block, and along the pairs of a row. */
static void place_rows(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    attn__blocked_places *at = &p->at;
    int64_t again = canonical->backward, windows = canonical->problem.nwindows > 0, pairs = p->keys;
    bool product = canonical->problem.score == ATTN_SCORE_DOT;
    at->max = take(all, p->queries);
    at->sum = take(all, p->queries);
    at->count = take(all, p->queries);
    at->from = take(all, p->queries);
    at->to = take(all, p->queries);
    at->pairs = take(all, windows * pairs);
    at->dpairs = take(all, again * windows * pairs);
    at->slope = take(all, canonical->problem.softcap != 0 ? pairs : 0);
    at->seen = take(all, attn__pieces(2 * pairs, (int64_t)sizeof(double)));
    at->position = take(all, canonical->key.n * pairs);
    at->column = take(all, windows * pairs);
    at->place = take(all, windows * p->columns);
    at->bias_at = take(all, canonical->has_bias ? pairs : 0);
    at->dbias_at = take(all, canonical->problem.flags & ATTN_WANT_DBIAS ? pairs : 0);
    at->mask_at = take(all, canonical->has_mask ? pairs : 0);
    at->block_at = take(all, canonical->has_blocks ? pairs : 0);
    at->drop_at = take(all, canonical->has_dropout ? pairs : 0);
    at->w = take(all, product ? 0 : 2 * canonical->contract.size);
    at->dw = take(all, product ? 0 : 2 * canonical->contract.size);
    at->dk_t = take(all, product ? 0 : again * canonical->contract.size * p->ld_s);
    at->distance = take(all, product ? 0 : again * p->ld_s);
}

static void lay_out(attn__blocked_plan *p, const attn__canonical *canonical)
{
    const attn_problem *problem = &canonical->problem;
    int64_t all = 0, n = canonical->query.n;
    bool windows = problem->nwindows > 0;
    p->positions = canonical->key;
    for (int i = 0; i < problem->nwindows; i++) {
        attn__axis *axis = &p->positions.axis[problem->windows[i].key_dim];
        p->positions.size = p->positions.size / axis->dim.n * problem->windows[i].size;
        axis->dim.n = problem->windows[i].size;
    }
    p->run = windows ? canonical->query.axis[n - 1].dim.n : canonical->query.size;
    p->queries = query_block(canonical, p->run);
    p->keys = windows ? canonical->key.size : attn__least(canonical->key.size, ATTN__BLOCKED_KEYS);
    p->columns = windows ? (int64_t)columns_of(canonical, p->queries) : p->keys;
    p->ld = attn__round_up(windows ? p->columns : canonical->key.size, 8) + 8;
    p->ld_s = attn__round_up(p->columns, 8);
    place_operands(canonical, p, &all);
    place_rows(canonical, p, &all);
    place_tables(canonical, p, &all);
    p->at.gathered = take(&all, 2);
    p->at.offsets = take(&all, attn__most(canonical->contract.size, canonical->value.size) +
                                   attn__most(p->positions.size, attn__most(canonical->key.size, p->queries)));
    place_product(canonical, p, &all);
    p->at.all = all;
}

/* ------------------------------------------------------------------------------------------ what it takes */

/* In double, so that no size overflows before it is refused. */
static bool is_large(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    double positions = (double)canonical->key.size, tables = 0;
    double columns = p->nwindows ? columns_of(canonical, window_queries(canonical)) : ATTN__BLOCKED_KEYS;
    double channels = (double)canonical->contract.size + (double)canonical->value.size;
    for (int i = 0; i < p->nwindows; i++)
        positions *= (double)p->windows[i].size / (double)canonical->key.axis[p->windows[i].key_dim].dim.n;
    for (int i = 0; i < p->nrelatives; i++)
        tables += (double)p->relatives[i].rows;
    return (positions + columns + ATTN__BLOCKED_QUERIES) * (channels + 1) > MOST_NUMBERS ||
           columns * (columns + ATTN__BLOCKED_QUERIES + channels) > MOST_NUMBERS ||
           tables * (channels + columns + ATTN__BLOCKED_QUERIES) > MOST_NUMBERS;
}

static const char *refuse(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    bool packed = attn__is_packed(canonical);
    if (p->score > ATTN_SCORE_CONCAT && !is_distance(p->score))
        return "scores that no block of it computes";
    for (int i = 0; i < p->nwindows; i++)
        if (packed || p->windows[i].size == 0)
            return "windows over packed sequences, or over no position";
    bool shares = canonical->backward && attn__blocked_shares(canonical);
    if (shares && (p->accumulate || p->dtype == ATTN_BF16))
        return "gradients that are broadcast, in bf16 or added to given ones";
    if (packed && (shares || (canonical->backward && (p->flags & ATTN_WANT_DBIAS))))
        return "packed sequences that share gradients, or have those of a bias";
    return is_large(canonical) ? "rows of many gigabytes" : NULL;
}

/* Beside the reference, which is the other one that takes these: an exponential is as many as forty multiply-adds, one of
 * float64 as two. */
static double cost(const attn__canonical *canonical)
{
    double rows = (double)canonical->batch.size * (double)canonical->query.size;
    double channels = (double)canonical->contract.size + (double)canonical->value.size;
    double columns = columns_of(canonical, canonical->problem.nwindows ? window_queries(canonical) : 1);
    if (canonical->problem.score != ATTN_SCORE_DOT)
        channels += (canonical->problem.score == ATTN_SCORE_ADDITIVE ? 20 : 2) * (double)canonical->contract.size;
    channels *= 1 + 2 * canonical->problem.nrelatives;
    return (canonical->backward ? 2.5 : 1) * rows * (2.5 * columns * channels + 60 * (double)canonical->key.size);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn__blocked_plan *p = attn__alloc_zero(context, sizeof *p);
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->kernel = attn__rows_f64_for(canonical->isa);
    lay_out(p, canonical);
    recipe->data = p;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, (size_t)p->at.all * sizeof(double));
    if (canonical->backward)
        recipe->workspace = attn__size_add(recipe->workspace, attn__slots_size(canonical));
    snprintf(recipe->text, sizeof recipe->text, "%s in f64, blocks of %d queries x %d keys",
             attn__isa_text(p->kernel->isa), (int)p->queries, (int)p->columns);
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                  void *workspace)
{
    if (canonical->backward)
        attn__blocked_backward(canonical, recipe, arrays, workspace);
    else
        attn__blocked_forward(canonical, recipe, arrays, workspace);
}

const attn__solver attn__solver_blocked = {.name = "blocked",
                                           .refuse = refuse,
                                           .cost = cost,
                                           .plan = plan,
                                           .apply = apply,
                                           .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__DLSE |
                                                     ATTN__BIAS_MEETS | ATTN__BLOCKS | ATTN__BATCH_INVARIANT};
