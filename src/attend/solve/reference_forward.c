/* SPDX-License-Identifier: MIT
 * Reference forward: each row in one pass over its keys, the running maximum subtracted (Milakov and
 * Gimelshein 2018, arXiv:1805.02867), all of it in float64.  Rows are independent, so threads do not show. */
#include "attend/solve/reference.h"

#include "attend/block/weight.h"
#include "base/parallel.h"

#include <math.h>

typedef struct state {
    double max, sum; /* softmax: sum of exp(score - max); otherwise max stays 0 */
    int64_t keys;
} state;

/* A sink is a key of value 0 before all others. */
static state start_state(const attn__pair *pair, const attn__row *row)
{
    state s = {0};
    if (!(pair->canonical->extras & ATTN__SINKS))
        return s;
    double sink = attn__load(pair->side, pair->arrays->sinks, row->offset[ATTN__OP_SINKS]);
    return sink == (double)-INFINITY ? s : (state){.max = sink, .sum = 1, .keys = 1};
}

static bool is_softmax(const attn__canonical *canonical)
{
    return canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX;
}

static void rescale(attn__pair *pair, state *s, double max)
{
    double factor = s->keys ? exp(s->max - max) : 0;
    s->max = max;
    s->sum *= factor;
    for (int64_t c = 0; c < pair->canonical->value.size; c++)
        pair->sum[c] *= factor;
}

static void add_key(attn__pair *pair, const attn__row *row, const attn__spot *spot, double score, state *s)
{
    bool softmax = is_softmax(pair->canonical);
    if (softmax && (s->keys == 0 || !(score <= s->max)))
        rescale(pair, s, score);
    double weight = softmax ? exp(score - s->max) : score;
    s->keys++;
    s->sum += weight;
    double kept = weight * attn__row_keep(row, spot);
    if (kept == 0 && (spot->kind == ATTN__SPOT_FILL || pair->canonical->has_dropout))
        return;
    attn__pair_value(pair, spot);
    for (int64_t c = 0; c < pair->canonical->value.size; c++)
        pair->sum[c] += kept * pair->vs[c];
}

static double normalizer_of(const attn__canonical *canonical, const state *s)
{
    return canonical->problem.normalization == ATTN_NORMALIZATION_MEAN ? (double)s->keys : s->sum;
}

/* True where the row has nothing to give: no keys, or a kernel sum of 0. */
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
    attn__strides o = attn__operand_strides(&canonical->value, ATTN__OP_O);
    attn__scatter(&canonical->value, &o, pair->dtype, pair->arrays->o, row->offset[ATTN__OP_O], pair->sum);
    if (canonical->problem.flags & ATTN_WANT_LSE)
        attn__store(pair->side, pair->arrays->lse, row->offset[ATTN__OP_LSE],
                    empty ? (double)-INFINITY : s->max + log(whole));
}

typedef struct job {
    const attn__canonical *canonical;
    const attn_arrays *arrays;
    char *workspace;
    size_t share;
} job;

static void run_row(void *user, int64_t item, int thread)
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
    attn__pair_row(&pair, &row);
    state s = start_state(&pair, &row);
    memset(pair.sum, 0, (size_t)canonical->value.size * sizeof *pair.sum);
    for (int64_t key = 0; key < canonical->key.size; key++) {
        attn__spot_at(&spot, &row, key);
        if (spot.kind == ATTN__SPOT_OUT)
            continue;
        double score = attn__pair_score(&pair, &spot);
        if (score != (double)-INFINITY) /* a bias of -inf masks, too */
            add_key(&pair, &row, &spot, score, &s);
    }
    finish_row(&pair, &row, &s);
}

void attn__reference_forward(const attn__canonical *canonical, const attn_arrays *arrays, void *workspace)
{
    job j = {canonical, arrays, workspace, attn__pair_size(canonical)};
    attn__parallel_items(canonical->threads, canonical->batch.size * canonical->query.size, run_row, &j);
}

/* -------------------------------------------------------------------------- the normalizer, once more */

static attn__normalizer normalizer_from_scores(attn__pair *pair, const attn__row *row)
{
    state s = {0};
    attn__spot spot;
    for (int64_t key = 0; key < pair->canonical->key.size; key++) {
        attn__spot_at(&spot, row, key);
        double score = spot.kind == ATTN__SPOT_OUT ? (double)-INFINITY : attn__pair_score(pair, &spot);
        if (score == (double)-INFINITY)
            continue;
        if (s.keys == 0 || !(score <= s.max)) {
            s.sum *= s.keys ? exp(s.max - score) : 0;
            s.max = score;
        }
        s.sum += exp(score - s.max);
        s.keys++;
    }
    return (attn__normalizer){s.keys ? s.max : (double)-INFINITY, s.keys ? log(s.sum) : 0};
}

attn__normalizer attn__row_normalizer(attn__pair *pair, const attn__row *row)
{
    if (pair->canonical->problem.mask_fill != 0)
        return normalizer_from_scores(pair, row);
    return (attn__normalizer){attn__load(pair->side, pair->arrays->lse, row->offset[ATTN__OP_LSE]), 0};
}

double attn__row_weight(const attn__row *row, const attn__normalizer *normalizer, double score)
{
    if (is_softmax(row->canonical))
        return exp(attn__log_weight(score - normalizer->max - normalizer->log_sum));
    return score * exp(-normalizer->max - normalizer->log_sum);
}
