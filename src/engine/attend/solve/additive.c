/* SPDX-License-Identifier: MIT
 *
 * additive.c - attention with additive scores, w . tanh(q + k).  Pairs are computed one by one, with channels in the
 * lanes. The scores are no matrix product, because each channel of a pair needs a tanh.  Rows of adjacent channels are
 * read in place, and other rows are gathered.
 *
 * This solver also handles windows, relative tables and all normalizations. The blocked solver supports these features
 * too, but it is mostly slower, because it computes each tanh in float64.
 *
 * The backward pass adds to the gradients of q, k, v and the bias in place. Batch indices that share none of these
 * gradients run in parallel.  Gradients of tables and of w are summed in double, in slots (gradient_sums.h).
 */
#include "attend/block/gradient_sums.h"
#include "attend/block/row.h"
#include "attend/block/rows.h"
#include "attend/block/table.h"
#include "attend/block/scores.h"
#include "attend/plan/solver.h"
#include "base/arena.h"
#include "base/integers.h"
#include "base/normal.h"
#include "base/parallel.h"
#include "kernels/additive/additive.h"

#include <math.h>
#include <stdio.h>

enum {
    ROWS = 16, /* forward: rows per item; fewer rows would not be worth waking a thread */
    KEYS = 64  /* backward: number of keys over which terms of dw are summed in f32 */
};

typedef struct additive_plan {
    const attn__additive_kernel *kernel;
    const int64_t *channel[ATTN__OPERANDS];  /* offsets of channels; NULL: the channels are adjacent */
    const int64_t *table[ATTN_MAX_RELATIVE]; /* offsets of a table's channels; INT64_MIN: not in the table */
    int64_t memory[];
} additive_plan;

/* Scratch rows of one thread. Each row has room for the larger of the numbers of contract and value channels. */
typedef struct scratch {
    float *q, *k, *v, *w, *o, *dout, *dk, *dv; /* copies of rows, for operands whose channels are not adjacent */
    float *table[ATTN_MAX_RELATIVE];
    float *tanh; /* tanh(q + k) of a pair */
    float *sum;  /* forward: sum of weights times values; backward: sum of terms of dq */
    float *dw;
} scratch;

/* The state of one thread for one row. */
typedef struct work {
    const attn__canonical *canonical;
    const additive_plan *plan;
    const attn__execution *arrays;
    scratch s;
    attn__row row;
    int64_t channels, values;
    const float *q, *w, *k;
    const float *table[ATTN_MAX_RELATIVE];
    float slope; /* derivative of the softcap at the last computed score */
    /* Forward: the running maximum of a softmax, the sum of weights, and the number of attended keys. */
    float max;
    double total;
    int64_t keys;
    bool fills; /* masked keys have a weight that is not 0 */
    /* The following fields are for the backward pass. */
    attn__sums sums; /* sums of the slot that the thread runs */
    const float *o, *dout;
    double normalizer; /* log of the row's sum (mean: log of the number of keys) minus `max` */
    double inverse;    /* 1 / the row's sum (mean: 1 / the number of keys) */
    float delta;
} work;

/* ------------------------------------------------------------------------------------------------ rows of channels */

/* Returns a pointer to the channels of an operand's row at an offset, which are in the array or copied to `to`. */
static const float *read_channels(const work *w, attn__operand op, int64_t offset, float *to)
{
    const float *from = (const float *)attn__operand_array(w->arrays, op) + offset;
    const int64_t *channel = w->plan->channel[op];
    if (!channel)
        return from;
    for (int64_t c = 0; c < attn__channels_of(w->canonical, op)->size; c++)
        to[c] = from[channel[c]];
    return to;
}

static void add_channels(const work *w, attn__operand op, int64_t offset, float a, const float *row)
{
    float *to = (float *)attn__operand_array(w->arrays, op) + offset;
    const int64_t *channel = w->plan->channel[op], n = attn__channels_of(w->canonical, op)->size;
    if (!channel)
        w->plan->kernel->axpy(a, row, to, n);
    for (int64_t c = 0; channel && c < n; c++)
        to[channel[c]] += a * row[c];
}

static const float *read_table(const work *w, int i, int64_t offset)
{
    const int64_t *channel = w->plan->table[i];
    for (int64_t c = 0; c < attn__table_channels(w->canonical, i)->size; c++)
        w->s.table[i][c] = channel[c] == INT64_MIN ? 0 : ((const float *)w->arrays->at.table[i])[offset + channel[c]];
    return w->s.table[i];
}

static void add_to_table(const work *w, int i, int64_t offset, float a, const float *row)
{
    double *to = w->sums.at[ATTN__SUM_TABLE + i];
    const int64_t *channel = w->plan->table[i];
    for (int64_t c = 0; to && c < attn__table_channels(w->canonical, i)->size; c++)
        if (channel[c] != INT64_MIN)
            to[offset + channel[c]] += (double)a * (double)row[c];
}

/* ----------------------------------------------------------------------------------------------------------- pairs */

static void row_start(work *w, int64_t batch, int64_t query)
{
    attn__row_at(&w->row, w->canonical, w->arrays, batch, query);
    w->q = read_channels(w, ATTN__OP_Q, w->row.offset[ATTN__OP_Q], w->s.q);
    w->w = read_channels(w, ATTN__OP_W, w->row.offset[ATTN__OP_W], w->s.w);
    memset(w->s.sum, 0, (size_t)attn__max(w->channels, w->values) * sizeof(float));
}

static float capped(work *w, float score)
{
    float cap = (float)w->canonical->problem.softcap;
    w->slope = 1;
    if (cap == 0)
        return score;
    float t = tanhf(score / cap);
    w->slope = 1 - t * t;
    return cap * t;
}

/* A masked key has the score -infinity. */
static float score_of(work *w, const attn__spot *spot)
{
    const attn_problem *p = &w->canonical->problem;
    const attn__additive_kernel *kernel = w->plan->kernel;
    if (spot->kind != ATTN__SPOT_KEY)
        return spot->kind == ATTN__SPOT_FILL ? (float)p->mask_fill : -INFINITY;
    w->k = spot->outside ? memset(w->s.k, 0, (size_t)w->channels * sizeof(float))
                         : read_channels(w, ATTN__OP_K, spot->offset[ATTN__OP_K], w->s.k);
    float sum = kernel->additive(w->q, w->k, w->w, w->s.tanh, w->channels);
    for (int i = 0; i < p->nrelatives; i++) {
        if (p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            continue;
        w->table[i] = read_table(w, i, spot->table[i]);
        sum += kernel->dot(p->relatives[i].kind == ATTN_RELATIVE_QUERY ? w->q : w->k, w->table[i], w->channels);
    }
    float score = capped(w, (float)p->scale * sum);
    return w->canonical->has_bias ? score + ((const float *)w->arrays->at.bias)[spot->offset[ATTN__OP_BIAS]] : score;
}

/* Returns the value of a key plus the rows of value tables. */
static const float *value_of(work *w, const attn__spot *spot)
{
    const attn_problem *p = &w->canonical->problem;
    size_t size = (size_t)w->values * sizeof(float);
    const float *v =
        spot->outside ? memset(w->s.v, 0, size) : read_channels(w, ATTN__OP_V, spot->offset[ATTN__OP_V], w->s.v);
    for (int i = 0; i < p->nrelatives; i++) {
        if (p->relatives[i].kind != ATTN_RELATIVE_VALUE)
            continue;
        v = v == w->s.v ? v : memcpy(w->s.v, v, size);
        w->plan->kernel->axpy(1, read_table(w, i, spot->table[i]), w->s.v, w->values);
    }
    return v;
}

/* --------------------------------------------------------------------------------------------------------- forward */

static float largest_score(work *w)
{
    attn__spot spot;
    float max = -INFINITY;
    for (int64_t key = 0; key < w->canonical->key.size; key++) {
        attn__spot_at(&spot, &w->row, key);
        float score = score_of(w, &spot);
        max = score > max ? score : max;
    }
    return max;
}

/* Reports whether masked keys have the score mask_fill and a weight that is not 0. */
static bool fill_counts(work *w)
{
    float fill = (float)w->canonical->problem.mask_fill;
    return fill != 0 && attn__normal(expf(fill - largest_score(w))) != 0;
}

/* A sink is a key of value 0 that comes before all others. */
static void start_sum(work *w)
{
    w->keys = 0;
    w->total = 0;
    w->fills = fill_counts(w);
    w->max = 0;
    if (!(w->canonical->extras & ATTN__SINKS))
        return;
    float sink = ((const float *)w->arrays->at.sinks)[w->row.offset[ATTN__OP_SINKS]];
    if (sink == -INFINITY)
        return;
    w->max = sink;
    w->total = 1;
    w->keys = 1;
}

static void add_key(work *w, const attn__spot *spot, float score)
{
    const attn__additive_kernel *kernel = w->plan->kernel;
    float weight = score;
    if (attn__is_softmax(w->canonical)) {
        if (w->keys == 0 || !(score <= w->max)) {
            float factor = w->keys ? attn__normal(expf(w->max - score)) : 0;
            w->max = score;
            w->total *= (double)factor;
            kernel->scale(factor, w->s.sum, w->values);
        }
        weight = attn__normal(expf(score - w->max));
    }
    w->keys++;
    w->total += (double)weight;
    float keep = (float)attn__row_keep(&w->row, spot);
    if (keep != 0 && (spot->kind != ATTN__SPOT_FILL || w->fills))
        kernel->axpy(weight * keep, value_of(w, spot), w->s.sum, w->values);
}

static void finish_row(work *w)
{
    const attn_problem *p = &w->canonical->problem;
    bool empty = w->keys == 0 || (p->normalization == ATTN_NORMALIZATION_SUM && w->total == 0);
    double whole = p->normalization == ATTN_NORMALIZATION_MEAN   ? (double)w->keys
                   : p->normalization == ATTN_NORMALIZATION_NONE ? 1
                                                                 : w->total;
    float *o = (float *)w->arrays->at.o + w->row.offset[ATTN__OP_O];
    const int64_t *channel = w->plan->channel[ATTN__OP_O];
    if (empty)
        memset(w->s.sum, 0, (size_t)w->values * sizeof(float));
    else
        w->plan->kernel->scale((float)(1 / whole), w->s.sum, w->values);
    for (int64_t c = 0; c < w->values; c++)
        o[channel ? channel[c] : c] = w->s.sum[c];
    if (p->flags & ATTN_WANT_LSE)
        ((float *)w->arrays->at.lse)[w->row.offset[ATTN__OP_LSE]] =
            empty ? -INFINITY : (float)((double)w->max + log(whole));
}

static void forward_row(work *w, int64_t batch, int64_t query)
{
    attn__spot spot;
    row_start(w, batch, query);
    start_sum(w);
    for (int64_t key = 0; key < w->canonical->key.size; key++) {
        attn__spot_at(&spot, &w->row, key);
        float score = score_of(w, &spot);
        if (score != -INFINITY) /* a bias of -infinity also masks */
            add_key(w, &spot, score);
    }
    finish_row(w);
}

/* -------------------------------------------------------------------------------------------------------- backward */

/* Adds to the gradients of q, k, w and tables. `gradient` is the gradient of score + tables. Sums dq over the row's
 * keys. */
static void add_score_gradient(work *w, const attn__spot *spot, float gradient)
{
    const attn_problem *p = &w->canonical->problem;
    const attn__additive_kernel *kernel = w->plan->kernel;
    bool wanted = (p->flags & ATTN_WANT_DK) && !spot->outside, gather = !wanted || w->plan->channel[ATTN__OP_DK];
    float *dk = gather ? memset(w->s.dk, 0, (size_t)w->channels * sizeof(float)) /* NOLINT: scratch is never NULL */
                       : (float *)w->arrays->at.dk + spot->offset[ATTN__OP_DK];
    kernel->additive_gradient(gradient, w->w, w->s.tanh, w->s.sum, dk, w->s.dw, w->channels);
    for (int i = 0; i < p->nrelatives; i++) {
        bool of_query = p->relatives[i].kind == ATTN_RELATIVE_QUERY;
        if (p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            continue;
        add_to_table(w, i, spot->table[i], gradient, of_query ? w->q : w->k);
        kernel->axpy(gradient, w->table[i], of_query ? w->s.sum : dk, w->channels);
    }
    if (wanted && gather)
        add_channels(w, ATTN__OP_DK, spot->offset[ATTN__OP_DK], 1, dk);
}

static void add_value_gradient(work *w, const attn__spot *spot, float kept)
{
    const attn_problem *p = &w->canonical->problem;
    if ((p->flags & ATTN_WANT_DV) && !spot->outside)
        add_channels(w, ATTN__OP_DV, spot->offset[ATTN__OP_DV], kept, w->dout);
    for (int i = 0; i < p->nrelatives; i++)
        if (p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            add_to_table(w, i, spot->table[i], kept, w->dout);
}

static float weight_of(const work *w, float score)
{
    if (!attn__is_softmax(w->canonical))
        return (float)((double)score * w->inverse);
    return attn__normal((float)exp(attn__log_weight((double)score - (double)w->max - w->normalizer)));
}

/* Returns the gradient of a score from `weight` and its gradient `by_weight`, according to the normalization. */
static float gradient_of(const work *w, float weight, float by_weight)
{
    switch (w->canonical->problem.normalization) {
    case ATTN_NORMALIZATION_SUM:
        return (float)((double)(by_weight - w->delta) * w->inverse);
    case ATTN_NORMALIZATION_MEAN:
    case ATTN_NORMALIZATION_NONE:
        return (float)((double)by_weight * w->inverse);
    default:
        return attn__normal((float)((double)weight * ((double)by_weight - (double)w->delta)));
    }
}

static void backward_key(work *w, int64_t key)
{
    const attn_problem *p = &w->canonical->problem;
    attn__spot spot;
    attn__spot_at(&spot, &w->row, key);
    float score = score_of(w, &spot);
    if (score == -INFINITY)
        return;
    float weight = weight_of(w, score), keep = (float)attn__row_keep(&w->row, &spot), by_weight = 0;
    if (keep != 0 && (weight != 0 || spot.kind != ATTN__SPOT_FILL)) {
        by_weight = keep * w->plan->kernel->dot(w->dout, value_of(w, &spot), w->values);
        add_value_gradient(w, &spot, weight * keep);
    }
    if (spot.kind == ATTN__SPOT_FILL)
        return;
    float gradient = gradient_of(w, weight, by_weight);
    if (p->flags & ATTN_WANT_DBIAS)
        ((float *)w->arrays->at.dbias)[spot.offset[ATTN__OP_DBIAS]] += gradient;
    add_score_gradient(w, &spot, gradient * w->slope * (float)p->scale);
}

/* Finds the logarithm of the row's sum. If the f32 lse has too few digits because of mask_fill, computes the sum
 * again. */
static void find_normalizer(work *w, float lse)
{
    w->max = 0;
    w->normalizer = (double)lse;
    w->inverse = exp(-w->normalizer);
    if (w->canonical->problem.mask_fill == 0 || !attn__is_softmax(w->canonical) || !(fabsf(lse) > 1000))
        return;
    double sum = 0;
    w->max = largest_score(w);
    for (int64_t key = 0; key < w->canonical->key.size; key++) {
        attn__spot spot;
        attn__spot_at(&spot, &w->row, key);
        float score = score_of(w, &spot);
        if (score != -INFINITY)
            sum += exp((double)score - (double)w->max);
    }
    w->normalizer = log(sum);
}

static void backward_row(work *w, int64_t batch, int64_t query)
{
    const attn__additive_kernel *kernel = w->plan->kernel;
    const attn_arrays *a = &w->arrays->at;
    row_start(w, batch, query);
    float lse = ((const float *)a->lse)[w->row.offset[ATTN__OP_LSE]];
    if (lse == -INFINITY)
        return;
    find_normalizer(w, lse);
    w->o = read_channels(w, ATTN__OP_O, w->row.offset[ATTN__OP_O], w->s.o);
    w->dout = read_channels(w, ATTN__OP_DOUT, w->row.offset[ATTN__OP_DOUT], w->s.dout);
    double delta = kernel->dot_f64(w->o, w->dout, w->values); /* float64, since delta may cancel with other terms */
    if (w->canonical->extras & ATTN__DLSE)
        delta -= (double)((const float *)a->dlse)[w->row.offset[ATTN__OP_LSE]];
    w->delta = (float)delta;
    for (int64_t key = 0, end; key < w->canonical->key.size; key = end) {
        end = attn__min(key + KEYS, w->canonical->key.size);
        memset(w->s.dw, 0, (size_t)w->channels * sizeof(float));
        for (int64_t i = key; i < end; i++)
            backward_key(w, i);
        double *to = w->sums.at[ATTN__SUM_W];
        const int64_t *channel = w->plan->channel[ATTN__OP_W];
        for (int64_t c = 0; to && c < w->channels; c++)
            to[w->row.offset[ATTN__OP_W] + (channel ? channel[c] : c)] += (double)w->s.dw[c];
    }
    if (w->canonical->problem.flags & ATTN_WANT_DQ)
        add_channels(w, ATTN__OP_DQ, w->row.offset[ATTN__OP_DQ], 1, w->s.sum);
}

/* ----------------------------------------------------------------------------------------------------------- items */

typedef struct job {
    const attn__canonical *canonical;
    const additive_plan *plan;
    const attn__execution *arrays;
    char *memory;
    size_t share;
    attn__slots slots;
} job;

/* Places the scratch rows of one thread and returns their bytes. If `memory` is NULL, it only counts bytes. */
static size_t take_scratch(scratch *s, const attn__canonical *canonical, char *memory)
{
    float **const rows[] = {&s->q, &s->k, &s->v, &s->w, &s->o, &s->dout, &s->dk, &s->dv, &s->tanh, &s->sum, &s->dw};
    int64_t n = attn__max(canonical->contract.size, canonical->value.size);
    attn__arena arena = {memory, 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = attn__arena_floats(&arena, n);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        s->table[i] = attn__arena_floats(&arena, n);
    return arena.used;
}

static work work_of(const job *j, int thread)
{
    work w = {.canonical = j->canonical,
              .plan = j->plan,
              .arrays = j->arrays,
              .channels = j->canonical->contract.size,
              .values = j->canonical->value.size};
    (void)take_scratch(&w.s, j->canonical, j->memory + (size_t)thread * j->share);
    return w;
}

static void run_rows(void *user, int64_t item, int thread)
{
    const job *j = user;
    int64_t queries = j->canonical->query.size, rows = j->canonical->batch.size * queries;
    work w = work_of(j, thread);
    for (int64_t i = item * ROWS; i < attn__min((item + 1) * ROWS, rows); i++)
        forward_row(&w, i / queries, i % queries);
}

static void run_slot(void *user, int64_t slot, int thread)
{
    const job *j = user;
    const attn__slots *slots = &j->slots;
    work w = work_of(j, thread);
    int64_t item, end;
    for (attn__slots_start(slots, slot, &w.sums, &item, &end); item < end; item++) {
        if (!j->canonical->problem.accumulate) /* cleared shortly before use, so that the gradients stay in the cache */
            attn__gradients_clear(j->canonical, j->arrays,
                                  attn__batch_split_index(&slots->split, j->canonical, item, 0), ATTN__WANT_OWN,
                                  slots->split.apart);
        for (int64_t rest = 0; rest < slots->split.rest; rest++)
            for (int64_t query = 0; query < j->canonical->query.size; query++)
                backward_row(&w, attn__batch_split_index(&slots->split, j->canonical, item, rest), query);
    }
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    scratch unused;
    job j = {.canonical = canonical, .plan = recipe->data, .arrays = arrays, .memory = workspace};
    j.share = take_scratch(&unused, canonical, NULL);
    if (!canonical->backward) {
        int64_t rows = canonical->batch.size * canonical->query.size;
        attn__parallel_items(canonical->threads, attn__ceil_div(rows, ROWS), run_rows, &j);
        return;
    }
    j.slots = attn__slots_make(canonical, j.memory + (size_t)canonical->threads * j.share);
    attn__parallel_items(canonical->threads, j.slots.n, run_slot, &j);
    attn__slots_store(&j.slots, arrays);
}

/* ------------------------------------------------------------------------------------------------------------ plan */

static const char *refuse(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    if (p->score != ATTN_SCORE_ADDITIVE)
        return "supports additive scores only";
    if (p->dtype != ATTN_F32)
        return "supports f32 only";
    if (canonical->backward && p->accumulate && p->nwindows)
        return "does not support accumulate with windows";
    return attn__refuse_normalization(canonical, ATTN__SUMS_TOO & ~(1U << ATTN_NORMALIZATION_SIGMOID));
}

/* Estimates the time. A key takes as long as about 400 multiply-adds, and a tanh as long as 40. */
static double cost(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    return pairs * (400 + 40 * (double)canonical->contract.size + 4 * (double)canonical->value.size);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    static const attn__operand ops[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,   ATTN__OP_W,
                                        ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
    enum { OPS = sizeof ops / sizeof *ops };
    size_t most = (size_t)attn__max(canonical->contract.size, canonical->value.size);
    size_t channels = attn__size_mul(most, OPS + (size_t)canonical->problem.nrelatives);
    additive_plan *made =
        attn__alloc_zero(context, attn__size_add(sizeof *made, attn__size_mul(channels, sizeof(int64_t))));
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->kernel = attn__additive_for(canonical->isa);
    int64_t *next = attn__channels_find(canonical, ops, OPS, made->channel, made->memory);
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        made->table[i] = next;
        next = attn__table_channel_offsets(canonical, i, next);
    }
    scratch unused;
    recipe->data = made;
    recipe->workspace = attn__size_mul(take_scratch(&unused, canonical, NULL), (size_t)canonical->threads);
    if (canonical->backward)
        recipe->workspace = attn__size_add(recipe->workspace, attn__slots_make(canonical, NULL).bytes);
    snprintf(recipe->text, sizeof recipe->text, "%s", attn__isa_text(made->kernel->isa));
    return ATTN_OK;
}

/* Returns dk and dv, because every query adds to them. */
static unsigned adds_often(const attn__canonical *canonical)
{
    (void)canonical;
    return ATTN_WANT_DK | ATTN_WANT_DV;
}

const attn__solver attn__solver_additive = {.name = "additive",
                                            .refuse = refuse,
                                            .cost = cost,
                                            .plan = plan,
                                            .apply = apply,
                                            .adds_often = adds_often,
                                            .extras = ATTN__SOFTCAP | ATTN__SINKS | ATTN__DLSE | ATTN__BLOCKS};
