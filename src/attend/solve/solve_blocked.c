/* SPDX-License-Identifier: MIT
 * The solver of blocks in float64: what it accepts, its cost, its plan. */
#include "attend/solve/blocked.h"

#include "attend/block/packed_sequences.h"
#include "attend/block/slots.h"
#include "attend/block/table.h"
#include "attend/block/window_base.h"
#include "base/integers.h"

#include <stdio.h>

/* The largest workspace of a thread, in doubles. */
static const double MOST_NUMBERS = 0x1p32;

static bool is_distance(attn_score score)
{
    return score == ATTN_SCORE_GAUSSIAN || score == ATTN_SCORE_BOXCAR || score == ATTN_SCORE_TRIANGULAR;
}

/* Tokens move along the axis of packed sequences though their strides are 0 there. */
static bool repeats(const attn__canonical *canonical, const attn__group *group, attn__operand op)
{
    for (int i = 0; i < group->n; i++) {
        bool moves = attn__stride(&group->axis[i].dim, op) != 0 || (group->axis[i].packed && op != ATTN__OP_DBIAS);
        if (!moves && attn__extent_length(canonical, group, i, op) > 1)
            return true;
    }
    return false;
}

unsigned attn__blocked_broadcast(const attn__canonical *canonical)
{
    const struct {
        unsigned want;
        attn__operand op;
        const attn__group *groups[3];
    } gradients[] = {{ATTN_WANT_DQ, ATTN__OP_DQ, {&canonical->batch, &canonical->query, &canonical->contract}},
                     {ATTN_WANT_DK, ATTN__OP_DK, {&canonical->batch, &canonical->key, &canonical->contract}},
                     {ATTN_WANT_DV, ATTN__OP_DV, {&canonical->batch, &canonical->key, &canonical->value}},
                     {ATTN_WANT_DBIAS, ATTN__OP_DBIAS, {&canonical->batch, &canonical->query, &canonical->key}}};
    unsigned shared = canonical->extras & ATTN__BIAS_MEETS ? ATTN_WANT_DBIAS : 0u;
    for (int i = 0; i < 4; i++)
        for (int g = 0; g < 3; g++)
            shared |= repeats(canonical, gradients[i].groups[g], gradients[i].op) ? gradients[i].want : 0u;
    return shared & canonical->problem.flags;
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

/* Backward and with windows the size of a block fixes the order of sums: it depends on neither threads nor lengths. */
static int64_t query_block(const attn__canonical *canonical, int64_t run)
{
    enum { TILE = 12 };
    if (canonical->problem.nwindows)
        return attn__least(run, window_queries(canonical));
    if (canonical->backward)
        return attn__least(attn__round_up(run, TILE), ATTN__BLOCKED_QUERIES);
    int64_t pieces = attn__pieces(run, ATTN__BLOCKED_QUERIES);
    if (canonical->batch.size * (canonical->query.size / run) < canonical->threads)
        pieces = attn__most(pieces, canonical->threads);
    return attn__round_up(attn__pieces(run, pieces), TILE);
}

static int64_t reserve(int64_t *all, int64_t n)
{
    int64_t at = *all;
    *all += attn__round_up(n, 8);
    return at;
}

/* How many indices along a key axis the pairs of a tile have. */
static int64_t keys_along(const attn__canonical *canonical, const attn__blocked_plan *p, int axis)
{
    int64_t inner = 1, n = canonical->key.axis[axis].dim.n;
    for (int a = axis + 1; a < canonical->key.n; a++)
        inner *= canonical->key.axis[a].dim.n;
    return attn__least(n, p->pairs / inner + 2);
}

/* The rows that any pair may read, and how many hold all that a tile's pairs read. */
static void find_rows(const attn__canonical *canonical, const attn__blocked_plan *p, const attn_relative *r,
                      attn__blocked_table *table)
{
    const attn_window *w = attn__window_of(&canonical->problem, r->key_dim);
    int64_t queries = canonical->query.axis[r->query_dim].dim.n, keys = canonical->key.axis[r->key_dim].dim.n;
    int64_t low = 1 - queries, high = keys - 1, queries_along = 1; /* of a block */
    if (w)
        attn__window_reach(w, keys, queries, &low, &high);
    if (r->query_dim == canonical->query.n - 1)
        queries_along = attn__least(queries, p->queries);
    int64_t first = attn__most(attn__least(low + r->offset, r->rows - 1), 0);
    table->begin = first / ATTN__BLOCKED_ROWS * ATTN__BLOCKED_ROWS;
    table->rows = attn__most(attn__least(high + r->offset + 1, r->rows) - table->begin, 1);
    int64_t distances = w ? high - low + 1 : queries_along + keys_along(canonical, p, r->key_dim) - 1;
    table->most = attn__least(table->rows, distances + ATTN__BLOCKED_ROWS - 1);
}

static void place_tables(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        const attn_relative *r = &canonical->problem.relatives[i];
        attn__blocked_table *table = &p->table[i];
        int64_t channels = attn__table_channels(canonical, i)->size;
        bool by_key = r->kind == ATTN_RELATIVE_KEY;
        find_rows(canonical, p, r, table);
        table->ld = attn__round_up(table->most, 8);
        table->ld_t = attn__round_up(table->rows, 8);
        table->t = reserve(all, table->rows * channels);
        table->t_t = reserve(all, table->ld_t * channels);
        table->x = reserve(all, (by_key ? p->columns : p->queries) * table->ld);
        table->g = reserve(all, by_key && canonical->backward ? p->columns * table->ld : 0);
        table->dt = reserve(all, canonical->backward ? table->rows * channels : 0);
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

/* The largest of rows times a matrix of n rows of channels, and of the products for its gradients. */
static int64_t largest_product(int64_t rows, int64_t n, int64_t channels)
{
    return attn__most(product_size(rows, n, channels),
                      attn__most(product_size(rows, channels, n), product_size(n, channels, rows)));
}

static void place_product(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    int64_t channels = attn__most(canonical->contract.size, canonical->value.size);
    int64_t rows = attn__most(p->queries, p->columns), largest = largest_product(p->queries, p->columns, channels);
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        bool by_key = canonical->problem.relatives[i].kind == ATTN_RELATIVE_KEY;
        rows = attn__most(rows, p->table[i].most);
        largest = attn__most(largest, largest_product(by_key ? p->columns : p->queries, p->table[i].most, channels));
    }
    if (p->linear) {
        int64_t most = attn__most(p->queries, canonical->key.size);
        largest = attn__most(
            largest, attn__most(product_size(most, channels, channels), product_size(channels, channels, most)));
    }
    p->at.product_size = largest;
    p->at.product = reserve(all, largest);
    p->at.finite = reserve(all, rows * channels);
}

/* Memory for the rows of all positions, and of the columns of a block. */
static void place_operands(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    attn__blocked_places *at = &p->at;
    int64_t channels = canonical->contract.size, values = canonical->value.size, queries = p->queries;
    int64_t backward = canonical->backward, windows = canonical->problem.nwindows > 0;
    int64_t positions = windows ? p->positions.size : canonical->key.size, plain = windows ? 0 : p->ld;
    int64_t of_block = windows ? p->columns : 0, block_ld = windows ? p->ld : 0;
    at->k = reserve(all, positions * channels);
    at->k_t = reserve(all, plain * channels);
    at->v = reserve(all, positions * values);
    at->v_t = reserve(all, backward * plain * values);
    at->block_k = reserve(all, of_block * channels);
    at->block_k_t = reserve(all, block_ld * channels);
    at->block_v = reserve(all, of_block * values);
    at->block_v_t = reserve(all, backward * block_ld * values);
    at->block_dk = reserve(all, backward * of_block * channels);
    at->block_dv = reserve(all, backward * of_block * values);
    at->q = reserve(all, queries * channels);
    at->o = reserve(all, queries * values);
    at->dout = reserve(all, backward * queries * values);
    at->s = reserve(all, queries * p->ld_s);
    at->dp = reserve(all, backward * queries * p->ld_s);
    at->dq = reserve(all, backward * queries * channels);
    at->m = reserve(all, p->linear ? channels * values : 0);
    at->dm = reserve(all, p->linear ? channels * values : 0);
    at->dk = reserve(all, backward * positions * channels);
    at->dv = reserve(all, backward * positions * values);
}

/* Memory along the queries of a block, and along the pairs of a row. */
static void place_rows(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    attn__blocked_places *at = &p->at;
    int64_t backward = canonical->backward, windows = canonical->problem.nwindows > 0, pairs = p->pairs;
    bool product = canonical->problem.score == ATTN_SCORE_DOT,
         additive = canonical->problem.score == ATTN_SCORE_ADDITIVE;
    at->max = reserve(all, p->queries);
    at->sum = reserve(all, p->queries);
    at->count = reserve(all, p->queries);
    at->from = reserve(all, p->queries);
    at->to = reserve(all, p->queries);
    at->pairs = reserve(all, windows * pairs);
    at->dpairs = reserve(all, backward * windows * pairs);
    at->slope = reserve(all, canonical->problem.softcap != 0 ? pairs : 0);
    at->seen = reserve(all, attn__pieces(2 * pairs, (int64_t)sizeof(double)));
    at->position = reserve(all, canonical->key.n * pairs);
    at->column = reserve(all, windows * pairs);
    at->position_of = reserve(all, windows * p->columns);
    at->bias_at = reserve(all, canonical->has_bias ? pairs : 0);
    at->dbias_at = reserve(all, canonical->problem.flags & ATTN_WANT_DBIAS ? pairs : 0);
    at->mask_at = reserve(all, canonical->has_mask ? pairs : 0);
    at->block_at = reserve(all, canonical->has_blocks ? pairs : 0);
    at->drop_at = reserve(all, canonical->has_dropout ? pairs : 0);
    at->w = reserve(all, product ? 0 : 2 * canonical->contract.size);
    at->dw = reserve(all, product ? 0 : 2 * canonical->contract.size);
    at->dk_t = reserve(all, product || additive ? 0 : backward * canonical->contract.size * p->ld_s);
    at->scratch = reserve(all, product || additive ? 0 : p->ld_s);
}

/* Additive scores: tanh of a pair's channels, or of all pairs of a tile if these stay in the cache. */
static void place_tanh(const attn__canonical *canonical, attn__blocked_plan *p, int64_t *all)
{
    enum { MOST = 65536 };
    int64_t pairs = attn__least(p->queries, p->segment) * p->columns, channels = canonical->contract.size;
    p->keeps_tanh = canonical->backward && pairs <= MOST / channels;
    p->at.tanh = reserve(all, canonical->problem.score != ATTN_SCORE_ADDITIVE ? 0
                              : p->keeps_tanh                                 ? pairs * channels
                                                                              : channels);
}

static void lay_out(attn__blocked_plan *p, const attn__canonical *canonical)
{
    const attn_problem *problem = &canonical->problem;
    int64_t all = 0;
    bool windows = problem->nwindows > 0;
    p->positions = canonical->key;
    for (int i = 0; i < problem->nwindows; i++) {
        attn__axis *axis = &p->positions.axis[problem->windows[i].key_dim];
        p->positions.size = p->positions.size / axis->dim.n * problem->windows[i].size;
        axis->dim.n = problem->windows[i].size;
    }
    p->linear = attn__blocked_is_linear(canonical);
    p->segment = attn__blocked_segment(canonical);
    p->queries = query_block(canonical, p->segment);
    p->pairs = windows ? canonical->key.size : attn__least(canonical->key.size, ATTN__BLOCKED_KEYS);
    p->columns = windows ? (int64_t)columns_of(canonical, p->queries) : p->pairs;
    p->ld = attn__round_up(windows ? p->columns : canonical->key.size, 8) + 8;
    p->ld_s = attn__round_up(p->columns, 8);
    place_operands(canonical, p, &all);
    place_rows(canonical, p, &all);
    place_tanh(canonical, p, &all);
    place_tables(canonical, p, &all);
    p->at.state = reserve(&all, attn__pieces(sizeof(attn__blocked), sizeof(double)));
    int64_t rows = attn__most(p->positions.size, attn__most(canonical->key.size, p->queries));
    p->at.offsets = reserve(&all, attn__most(rows, attn__most(canonical->contract.size, canonical->value.size)));
    place_product(canonical, p, &all);
    p->at.all = all;
}

/* ------------------------------------------------------------------------------------------ what it takes */

/* In floating point, so that no size overflows before it is refused. */
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
    unsigned shared = canonical->backward ? attn__blocked_broadcast(canonical) : 0;
    if (shared && (p->accumulate || p->dtype == ATTN_BF16))
        return "gradients that are broadcast, in bf16 or added to given ones";
    if (packed && (shared & ATTN_WANT_DQ))
        return "packed queries that are broadcast";
    return is_large(canonical) ? "rows of many gigabytes" : NULL;
}

/* In multiply-adds of f32: one of float64 takes as long as two and a half, an exponential as sixty, a tanh as fifty, the
 * gathering of a number as ten. */
static double cost(const attn__canonical *canonical)
{
    attn__blocked_plan p = {0};
    lay_out(&p, canonical);
    double queries = (double)canonical->query.size, keys = (double)canonical->key.size;
    double contract = (double)canonical->contract.size, channels = contract + (double)canonical->value.size;
    double tiles = (double)attn__pieces(canonical->key.size, p.pairs), rows = (double)p.positions.size;
    double columns = canonical->problem.nwindows ? (double)p.columns : keys;
    double products = columns * (channels + (canonical->problem.score == ATTN_SCORE_ADDITIVE ? 20 * contract : 0));
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        bool by_key = canonical->problem.relatives[i].kind == ATTN_RELATIVE_KEY;
        double sides = by_key ? (double)p.columns / (double)p.queries : 1;
        products += tiles * sides * (double)p.table[i].most * (double)attn__table_channels(canonical, i)->size;
        rows += (double)p.table[i].rows;
    }
    double each = queries * (2.5 * products + 60 * keys) + 10 * (queries + rows) * channels;
    if (p.linear)
        each = (queries + keys) * (2.5 * contract * (double)canonical->value.size + 10 * channels);
    return (canonical->backward ? 2.5 : 1) * (double)canonical->batch.size * each;
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
