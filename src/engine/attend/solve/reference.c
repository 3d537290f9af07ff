/* SPDX-License-Identifier: MIT
 *
 * reference.c - the solver that runs every problem. It computes everything that attn.h describes in float64, one pair
 * at a time.
 *
 * Forward: each row is computed in one pass over its keys, with the running maximum subtracted (Milakov and Gimelshein
 * 2018, arXiv:1805.02867).  Rows are independent, so results do not depend on the number of threads. Backward: the
 * weights of each row are computed again from the log-sum-exp (Dao et al. 2022, arXiv:2205.14135, section 3.1). Only
 * batch indices that share no gradient run in parallel, so that every sum has a fixed order.
 */
#include "attend/block/gradient_sums.h"
#include "attend/block/pair.h"
#include "attend/plan/solver.h"
#include "base/parallel.h"

#include <math.h>

/* --------------------------------------------------------------------------------------------- forward */

typedef struct state {
    double max, sum; /* softmax: sum of exp(score - max); otherwise: sum of scores, and max is 0 */
    int64_t keys;
    bool fills; /* masked keys have a weight that is not 0 */
} state;

/* A sink is a key of value 0 that comes before all others. `normalizer` belongs to the row if there is a mask_fill. */
static state start_state(const attn__pair *pair, const attn__row *row, const attn__normalizer *normalizer)
{
    double fill = pair->canonical->problem.mask_fill;
    state s = {.fills = fill != 0 && attn__row_weight(row, normalizer, fill) != 0};
    if (!(pair->canonical->extras & ATTN__SINKS))
        return s;
    double sink = attn__load(pair->side, pair->arrays->at.sinks, row->offset[ATTN__OP_SINKS]);
    return sink == (double)-INFINITY ? s : (state){.max = sink, .sum = 1, .keys = 1};
}

static void rescale(attn__pair *pair, state *s, double max)
{
    double factor = s->keys ? exp(s->max - max) : 0;
    s->max = max;
    s->sum *= factor;
    for (int64_t c = 0; c < pair->canonical->value.size; c++)
        pair->sum[c] *= factor;
}

static void sum_key(attn__pair *pair, const attn__row *row, const attn__spot *spot, const attn__normalizer *normalizer,
                    double score, state *s)
{
    bool softmax = attn__is_softmax(pair->canonical);
    if (softmax && (s->keys == 0 || !(score <= s->max)))
        rescale(pair, s, score);
    double weight = softmax ? exp(score - s->max) : score;
    if (pair->canonical->problem.normalization == ATTN_NORMALIZATION_HARDMAX)
        weight = score != score ? score : 1;
    if (pair->canonical->problem.normalization == ATTN_NORMALIZATION_SIGMOID)
        weight = attn__row_weight(row, normalizer, score);
    s->keys++;
    s->sum += weight;
    double keep = attn__row_keep(row, spot), kept = weight * keep;
    if (keep == 0 || (spot->kind == ATTN__SPOT_FILL && !s->fills))
        return;
    attn__pair_value(pair, spot);
    for (int64_t c = 0; c < pair->canonical->value.size; c++)
        pair->sum[c] += kept * pair->vs[c];
}

static double normalizer_of(const attn__canonical *canonical, const state *s)
{
    attn_normalization normalization = canonical->problem.normalization;
    return normalization == ATTN_NORMALIZATION_MEAN ? (double)s->keys : attn__is_sum(canonical) ? 1 : s->sum;
}

/* Reports whether the row's output is 0, because the row has no keys or the sum of a kernel is 0. */
static bool is_empty(const attn__canonical *canonical, const state *s)
{
    return s->keys == 0 || (canonical->problem.normalization == ATTN_NORMALIZATION_SUM && s->sum == 0);
}

static void finish_row(attn__pair *pair, const attn__row *row, const state *s)
{
    const attn__canonical *canonical = pair->canonical;
    bool empty = is_empty(canonical, s);
    double whole = normalizer_of(canonical, s);
    for (int64_t c = 0; c < canonical->value.size; c++)
        pair->sum[c] = empty ? 0 : pair->sum[c] / whole;
    attn__scatter(&canonical->value, ATTN__OP_O, pair->dtype, pair->arrays->at.o, row->offset[ATTN__OP_O], pair->sum,
                  false);
    if (canonical->problem.flags & ATTN_WANT_LSE)
        attn__store(pair->side, pair->arrays->at.lse, row->offset[ATTN__OP_LSE],
                    empty ? (double)-INFINITY : s->max + log(whole));
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__execution *arrays;
    char *workspace;
    size_t share;
    attn__sums sums; /* the sums of gradients; backward only */
    attn__batch_split split;
} job;

static void run_forward_row(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__canonical *canonical = j->canonical;
    attn__pair pair;
    attn__row row;
    attn__spot spot;
    attn__pair_start(&pair, canonical, j->arrays, j->workspace + (size_t)thread * j->share);
    attn__row_at(&row, canonical, j->arrays, item / canonical->query.size, item % canonical->query.size);
    if (row.absent)
        return;
    attn__normalizer normalizer = {0};
    bool first = canonical->problem.mask_fill != 0 || canonical->problem.normalization == ATTN_NORMALIZATION_SIGMOID;
    attn__pair_row(&pair, &row, first ? &normalizer : NULL);
    state s = start_state(&pair, &row, &normalizer);
    memset(pair.sum, 0, (size_t)canonical->value.size * sizeof *pair.sum);
    for (int64_t key = 0; key < canonical->key.size; key++) {
        attn__spot_at(&spot, &row, key);
        if (spot.kind == ATTN__SPOT_OUT)
            continue;
        double score = attn__pair_score(&pair, &spot);
        if (score != (double)-INFINITY) /* a bias of -infinity also masks */
            sum_key(&pair, &row, &spot, &normalizer, score, &s);
    }
    finish_row(&pair, &row, &s);
}

/* -------------------------------------------------------------------------------------------- backward */

/* The state of a thread in the backward pass of one row. */
typedef struct work {
    job *job;
    attn__pair pair;
    attn__row row;
    attn__normalizer normalizer;
    double delta; /* sum of o * dout minus dlse; the softmax derivative subtracts it */
} work;

static void add_row(work *w, int which, attn__operand op, const attn__group *group, int64_t offset, const double *row)
{
    if (w->job->sums.at[which])
        attn__scatter(group, op, ATTN_F64, w->job->sums.at[which], offset, row, true);
}

static void add_table_row(work *w, int i, int64_t offset, double factor, const double *row)
{
    if (w->job->sums.at[ATTN__SUM_TABLE + i])
        attn__table_add(w->job->canonical, i, w->job->sums.at[ATTN__SUM_TABLE + i], offset, factor, row);
}

static void add_score_tables(work *w, const attn__spot *spot, double gradient)
{
    const attn_problem *p = &w->job->canonical->problem;
    for (int i = 0; i < p->nrelatives; i++)
        if (p->relatives[i].kind != ATTN_RELATIVE_VALUE)
            add_table_row(w, i, spot->table[i], gradient * p->scale,
                          p->relatives[i].kind == ATTN_RELATIVE_QUERY ? w->pair.qs : w->pair.ks);
}

static void add_value_gradient(work *w, const attn__spot *spot, double weight)
{
    const attn__canonical *canonical = w->job->canonical;
    attn__pair *pair = &w->pair;
    for (int64_t c = 0; c < canonical->value.size; c++)
        pair->vs[c] = weight * pair->douts[c];
    if (!spot->outside)
        add_row(w, ATTN__SUM_V, ATTN__OP_DV, &canonical->value, spot->offset[ATTN__OP_DV], pair->vs);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        if (canonical->problem.relatives[i].kind == ATTN_RELATIVE_VALUE)
            add_table_row(w, i, spot->table[i], weight, pair->douts);
}

static double score_gradient(const work *w, double weight, double by_weight)
{
    switch (w->job->canonical->problem.normalization) {
    case ATTN_NORMALIZATION_SOFTMAX:
        return weight * (by_weight - w->delta);
    case ATTN_NORMALIZATION_SUM:
        return (by_weight - w->delta) * exp(-w->normalizer.max - w->normalizer.log_sum);
    case ATTN_NORMALIZATION_MEAN:
    case ATTN_NORMALIZATION_NONE:
        return by_weight * exp(-w->normalizer.max - w->normalizer.log_sum);
    case ATTN_NORMALIZATION_SIGMOID:
        return weight * (1 - weight) * by_weight;
    case ATTN_NORMALIZATION_HARDMAX:
        break;
    }
    return 0;
}

/* Computes the gradients of q, k, w and w2 from `gradient`, the gradient of scale * (score + tables). Sets dks, and
 * adds to dqs, dws and dw2s. attn__pair_score must have run for the same key. */
static void add_row_gradients(attn__pair *pair, double gradient)
{
    const attn_problem *p = &pair->canonical->problem;
    double g = gradient * p->scale;
    int64_t n = pair->canonical->contract.size;
    memset(pair->dks, 0, (size_t)n * sizeof *pair->dks);
    const attn__score_kind *kind = attn__score_of(p);
    if (kind->gradient)
        kind->gradient(&pair->rows, g, &(attn__score_slopes){pair->dqs, pair->dks, pair->dws, pair->dw2s});
    for (int i = 0; i < p->nrelatives; i++) {
        if (p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            continue;
        double *to = p->relatives[i].kind == ATTN_RELATIVE_QUERY ? pair->dqs : pair->dks;
        for (int64_t c = 0; c < n; c++)
            to[c] += g * pair->table_row[i][c];
    }
}

static void add_score_gradient(work *w, const attn__spot *spot, double gradient)
{
    const attn__canonical *canonical = w->job->canonical;
    if (w->job->sums.at[ATTN__SUM_BIAS])
        w->job->sums.at[ATTN__SUM_BIAS][spot->offset[ATTN__OP_DBIAS]] += gradient;
    gradient *= w->pair.slope;
    add_row_gradients(&w->pair, gradient);
    if (!spot->outside)
        add_row(w, ATTN__SUM_K, ATTN__OP_DK, &canonical->contract, spot->offset[ATTN__OP_DK], w->pair.dks);
    add_score_tables(w, spot, gradient);
}

static void add_key(work *w, attn__spot *spot)
{
    attn__pair *pair = &w->pair;
    double score = attn__pair_score(pair, spot);
    if (score == (double)-INFINITY)
        return;
    double weight = attn__row_weight(&w->row, &w->normalizer, score), keep = attn__row_keep(&w->row, spot);
    double by_weight = 0;
    bool fill = spot->kind == ATTN__SPOT_FILL;
    if (keep != 0 && (!fill || weight != 0)) {
        attn__pair_value(pair, spot);
        by_weight = keep * attn__dot_channels(pair->vs, pair->douts, w->job->canonical->value.size);
        add_value_gradient(w, spot, weight * keep);
    }
    if (!fill && w->job->canonical->problem.normalization != ATTN_NORMALIZATION_HARDMAX)
        add_score_gradient(w, spot, score_gradient(w, weight, by_weight));
}

static void start_row(work *w)
{
    const attn__canonical *canonical = w->job->canonical;
    attn__pair *pair = &w->pair;
    attn__gather(&canonical->value, ATTN__OP_O, pair->dtype, pair->arrays->at.o, w->row.offset[ATTN__OP_O], pair->vs);
    attn__gather(&canonical->value, ATTN__OP_DOUT, pair->dtype, pair->arrays->at.dout, w->row.offset[ATTN__OP_DOUT],
                 pair->douts);
    w->delta = attn__dot_channels(pair->vs, pair->douts, canonical->value.size);
    if (canonical->extras & ATTN__DLSE)
        w->delta -= attn__load(pair->side, pair->arrays->at.dlse, w->row.offset[ATTN__OP_LSE]);
    memset(pair->dqs, 0, (size_t)canonical->contract.size * sizeof *pair->dqs);
    memset(pair->dws, 0, (size_t)canonical->contract.size * sizeof *pair->dws);
    memset(pair->dw2s, 0, (size_t)canonical->contract.size * sizeof *pair->dw2s);
}

static void run_row(work *w, int64_t batch, int64_t query)
{
    const attn__canonical *canonical = w->job->canonical;
    attn__row_at(&w->row, canonical, w->job->arrays, batch, query);
    if (w->row.absent)
        return;
    attn__pair_row(&w->pair, &w->row, &w->normalizer);
    if (w->normalizer.max == (double)-INFINITY)
        return; /* no key has a weight, so the gradients are 0 */
    start_row(w);
    for (int64_t key = 0; key < canonical->key.size; key++) {
        attn__spot spot;
        attn__spot_at(&spot, &w->row, key);
        if (spot.kind != ATTN__SPOT_OUT)
            add_key(w, &spot);
    }
    add_row(w, ATTN__SUM_Q, ATTN__OP_DQ, &canonical->contract, w->row.offset[ATTN__OP_DQ], w->pair.dqs);
    add_row(w, ATTN__SUM_W, ATTN__OP_W, &canonical->contract, w->row.offset[ATTN__OP_W], w->pair.dws);
    add_row(w, ATTN__SUM_W2, ATTN__OP_W, &canonical->contract, w->row.offset[ATTN__OP_W], w->pair.dw2s);
}

static void run_item(void *user, int64_t item, int thread)
{
    work w = {.job = user};
    const job *j = w.job;
    attn__pair_start(&w.pair, j->canonical, j->arrays, j->workspace + (size_t)thread * j->share);
    for (int64_t rest = 0; rest < j->split.rest; rest++) {
        int64_t batch = attn__batch_split_index(&j->split, j->canonical, item, rest);
        for (int64_t query = 0; query < j->canonical->query.size; query++)
            run_row(&w, batch, query);
    }
}

/* ---------------------------------------------------------------------------------------------- solver */

static const char *refuse(const attn__canonical *canonical)
{
    (void)canonical;
    return NULL;
}

/* Estimates the time: about a hundred times the machine's best, because scalar float64 code gathers each key. */
static double cost(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    return 100 * pairs * (8 + (double)canonical->contract.size + (double)canonical->value.size);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    (void)context;
    recipe->workspace = attn__size_mul(attn__pair_size(canonical), (size_t)canonical->threads);
    if (canonical->backward)
        recipe->workspace = attn__size_add(recipe->workspace, attn__sums_size(canonical, ~0u));
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    job j = {.canonical = canonical, .arrays = arrays, .workspace = workspace, .share = attn__pair_size(canonical)};
    int64_t rows = canonical->batch.size * canonical->query.size;
    (void)recipe;
    if (!canonical->backward) {
        attn__parallel_items(canonical->threads, rows, run_forward_row, &j);
        return;
    }
    j.split = attn__batch_split_make(canonical, ~0u);
    char *sums = j.workspace + (size_t)canonical->threads * j.share;
    memset(sums, 0, attn__sums_size(canonical, ~0u));
    attn__sums_start(&j.sums, canonical, ~0u, sums);
    attn__parallel_items(canonical->threads, j.split.items, run_item, &j);
    attn__sums_store(&j.sums, canonical, arrays);
}

const attn__solver attn__solver_reference = {
    .name = "reference", .refuse = refuse, .cost = cost, .plan = plan, .apply = apply, .extras = ~0u};
