/* SPDX-License-Identifier: MIT
 * Computes the requested attention weights, for the selected rows and heads, from the log-sum-exp that the solver
 * stored: no solver has to store weights. */
#include "attend/plan/plan.h"

#include "attend/plan/attention_weights_dot.h"
#include "attend/solve/reference.h"
#include "base/normal.h"
#include "base/parallel.h"

#include <math.h>

typedef struct job {
    const attn__canonical *canonical;
    const attn_arrays *arrays;
    char *workspace;
    size_t share;
} job;

static int64_t picked_length(const attn__canonical *canonical, const attn__axis *axis)
{
    return axis->pick < 0 ? axis->dim.n : canonical->problem.picks[axis->pick].n;
}

static int64_t picked_size(const attn__canonical *canonical, const attn__group *group)
{
    int64_t size = 1;
    for (int i = 0; i < group->n; i++)
        size *= picked_length(canonical, &group->axis[i]);
    return size;
}

/* From a linear index over the picked rows to the linear index over all; *offset gets the place in weights. */
static int64_t picked_index(const attn__canonical *canonical, const attn__group *group, int64_t picked, int64_t *offset)
{
    int64_t linear = 0, scale = 1;
    for (int i = group->n - 1; i >= 0; i--) {
        const attn__axis *axis = &group->axis[i];
        int64_t n = picked_length(canonical, axis), at = picked % n;
        picked /= n;
        *offset += at * axis->dim.weights;
        linear += scale * (axis->pick < 0 ? at : canonical->problem.picks[axis->pick].index[at]);
        scale *= axis->dim.n;
    }
    return linear;
}

static double weight_at(attn__pair *pair, const attn__row *row, const attn__spot *spot,
                        const attn__normalizer *normalizer)
{
    if (spot->kind == ATTN__SPOT_OUT || normalizer->max == (double)-INFINITY)
        return 0;
    bool plain = spot->kind == ATTN__SPOT_KEY && !spot->outside && attn__dot_applies(row->canonical);
    double score = plain ? attn__dot_score(row, spot) : attn__pair_score(pair, spot);
    if (score == (double)-INFINITY)
        return 0;
    double weight = attn__row_weight(row, normalizer, score);
    if (row->canonical->problem.weights_dropped)
        weight *= attn__row_keep(row, spot);
    return pair->side == ATTN_F64 ? weight : (double)attn__normal((float)weight);
}

/* A key left out has no offsets of its own; its place among the weights is found here. */
static int64_t tap_offset(const attn__group *key, int64_t linear)
{
    int64_t index[ATTN_MAX_DIMS], offset = 0;
    attn__split(key, linear, index);
    for (int i = 0; i < key->n; i++)
        offset += index[i] * key->axis[i].dim.weights;
    return offset;
}

static void run_row(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__canonical *canonical = j->canonical;
    attn__pair pair;
    attn__row row;
    int64_t queries = picked_size(canonical, &canonical->query), offset = 0;
    int64_t batch = picked_index(canonical, &canonical->batch, item / queries, &offset);
    int64_t query = picked_index(canonical, &canonical->query, item % queries, &offset);
    attn__pair_start(&pair, canonical, j->arrays, j->workspace + (size_t)thread * j->share);
    attn__row_at(&row, canonical, j->arrays, batch, query);
    attn__normalizer normalizer = {(double)-INFINITY, 0};
    if (!row.absent) {
        attn__pair_row(&pair, &row);
        normalizer = attn__row_normalizer(&pair, &row);
    }
    for (int64_t key = 0; key < canonical->key.size; key++) {
        attn__spot spot;
        attn__spot_at(&spot, &row, key);
        attn__store(pair.side, j->arrays->weights, offset + tap_offset(&canonical->key, key),
                    weight_at(&pair, &row, &spot, &normalizer));
    }
}

size_t attn__weights_size(const attn__canonical *canonical)
{
    return attn__size_mul(attn__pair_size(canonical), (size_t)canonical->threads);
}

void attn__weights_run(const attn__canonical *canonical, const attn_arrays *arrays, void *workspace)
{
    job j = {canonical, arrays, workspace, attn__pair_size(canonical)};
    int64_t rows = picked_size(canonical, &canonical->batch) * picked_size(canonical, &canonical->query);
    attn__parallel_items(canonical->threads, rows, run_row, &j);
}
