/* SPDX-License-Identifier: MIT
 *
 * weights.c - the wrapper that computes requested attention weights, so that no solver needs to store weights.  It
 * computes weights of the selected rows and heads from the log-sum-exp that the child stored.  If the caller did not
 * request a log-sum-exp, the child stores it in the workspace. The weights of a sigmoid need no log-sum-exp.
 */
#include "attend/plan/plan.h"

#include "attend/block/pair.h"
#include "attend/problem/arrays.h"
#include "base/normal.h"
#include "base/parallel.h"

#include <math.h>

typedef struct job {
    const attn__canonical *canonical;
    const attn__execution *arrays;
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

/* Converts an index over the picked rows to an index over all rows. Adds the row's offset in `weights` to *offset. */
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

/* The dot product has sixteen partial sums, so that the compiler can vectorize it. */
enum { LANES = 16 };

/* Reports whether scores are dot products of adjacent f32 channels, which dot_score computes without gathers. Bias,
 * masks, bands and windows are allowed, but relative tables are not. */
static bool dot_applies(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    const attn_dim *last = &canonical->contract.axis[canonical->contract.n - 1].dim;
    return p->score == ATTN_SCORE_DOT && p->dtype == ATTN_F32 && p->nrelatives == 0 && p->softcap == 0 &&
           p->top_k == 0 && last->q == 1 && last->k == 1;
}

static double dot(const float *a, const float *b, int64_t n)
{
    float sums[LANES] = {0};
    int64_t whole = n / LANES * LANES;
    for (int64_t c = 0; c < whole; c += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += a[c + lane] * b[c + lane];
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += (double)sums[lane];
    for (int64_t c = whole; c < n; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* Returns scale * q.k + bias of a key. The key must be visible and inside of the axis. */
static double dot_score(const attn__row *row, const attn__spot *spot)
{
    const attn__canonical *canonical = row->canonical;
    const attn__group *group = &canonical->contract;
    const float *q = (const float *)row->arrays->at.q + row->offset[ATTN__OP_Q];
    const float *k = (const float *)row->arrays->at.k + spot->offset[ATTN__OP_K];
    int64_t inner = group->axis[group->n - 1].dim.n, runs = inner ? group->size / inner : 0;
    double sum = 0;
    for (int64_t run = 0; run < runs; run++)
        sum += dot(q + attn__offsets_one(group, ATTN__STRIDE(dim.q), run * inner),
                   k + attn__offsets_one(group, ATTN__STRIDE(dim.k), run * inner), inner);
    if (canonical->has_bias)
        return canonical->problem.scale * sum +
               (double)((const float *)row->arrays->at.bias)[spot->offset[ATTN__OP_BIAS]];
    return canonical->problem.scale * sum;
}

static double weight_at(attn__pair *pair, const attn__row *row, attn__spot *spot, const attn__normalizer *normalizer)
{
    if (spot->kind == ATTN__SPOT_OUT || normalizer->max == (double)-INFINITY)
        return 0;
    bool plain = spot->kind == ATTN__SPOT_KEY && !spot->outside && dot_applies(row->canonical);
    double score = plain ? dot_score(row, spot) : attn__pair_score(pair, spot);
    if (score == (double)-INFINITY)
        return 0;
    double weight = attn__row_weight(row, normalizer, score);
    if (row->canonical->problem.weights_dropped)
        weight *= attn__row_keep(row, spot);
    return pair->side == ATTN_F64 ? weight : (double)attn__normal((float)weight);
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
    attn__normalizer normalizer = {.max = (double)-INFINITY};
    if (!row.absent)
        attn__pair_row(&pair, &row, &normalizer);
    for (int64_t key = 0; key < canonical->key.size; key++) {
        attn__spot spot;
        attn__spot_at(&spot, &row, key);
        /* The offset is computed here, since `spot` has no offsets for a masked key. */
        attn__store(pair.side, j->arrays->at.weights,
                    offset + attn__offsets_one(&canonical->key, ATTN__STRIDE(dim.weights), key),
                    weight_at(&pair, &row, &spot, &normalizer));
    }
}

/* ------------------------------------------------------------------------------------------------ plan */

typedef struct weights {
    bool own_lse;    /* whether the workspace holds the log-sum-exp */
    int64_t index[]; /* copies of the caller's lists of picked indices */
} weights;

/* Requests a contiguous log-sum-exp. The weights are computed from it. */
static void add_own_lse(attn_problem *p)
{
    int64_t stride = 1;
    p->flags |= ATTN_WANT_LSE;
    for (int i = p->ndims - 1; i >= 0; i--) {
        if (p->dims[i].role > ATTN_ROLE_QUERY)
            continue;
        if ((p->flags & ATTN_WITH_PACKED) && i == p->packed.batch_dim)
            continue; /* packed sequences need no stride, because q_offsets locate their rows */
        p->dims[i].lse = stride;
        stride *= attn__operand_length(p, &p->dims[i], i, ATTN__OP_LSE);
    }
}

static attn_status resolve(attn_context *context, attn_problem *p, void **data)
{
    size_t size = sizeof(weights);
    if (!(p->flags & ATTN_WANT_WEIGHTS))
        return ATTN_OK;
    for (int i = 0; i < p->npicks; i++)
        size = attn__size_add(size, attn__size_mul((size_t)p->picks[i].n, sizeof(int64_t)));
    weights *w = *data = attn__alloc(context, size);
    if (!w)
        return ATTN_ERROR_MEMORY;
    int64_t *copy = w->index;
    for (int i = 0; i < p->npicks; i++) {
        for (int64_t at = 0; at < p->picks[i].n; at++)
            copy[at] = p->picks[i].index[at];
        p->picks[i].index = copy;
        copy += p->picks[i].n;
    }
    w->own_lse = !(p->flags & ATTN_WANT_LSE) && p->normalization != ATTN_NORMALIZATION_SIGMOID;
    if (w->own_lse)
        add_own_lse(p);
    return ATTN_OK;
}

static size_t lse_bytes(const weights *w, const attn__canonical *canonical)
{
    attn__extent rows = attn__operand_extent(canonical, ATTN__OP_LSE, NULL);
    size_t bytes = attn__size_add(attn__size_mul(attn__extent_size(&rows), sizeof(double)), 63);
    return !w->own_lse ? 0 : bytes == SIZE_MAX ? SIZE_MAX : bytes / 64 * 64;
}

static size_t workspace(const void *data, const attn__canonical *canonical)
{
    size_t pairs = attn__size_mul(attn__pair_size(canonical), (size_t)canonical->threads);
    return attn__size_add(lse_bytes(data, canonical), pairs);
}

static bool span(const void *data, attn_array array, attn_span *span)
{
    (void)span;
    return !(((const weights *)data)->own_lse && array == ATTN_ARRAY_LSE);
}

static void run(const attn__step *step, const attn__execution *given, char *workspace)
{
    const attn__canonical *canonical = &step->plan->canonical;
    const weights *w = step->data;
    attn__execution mine = *given;
    char *memory = workspace + step->workspace_at;
    if (w->own_lse)
        mine.at.lse = memory;
    attn__step_run(step->child, &mine, workspace);
    job j = {canonical, &mine, memory + lse_bytes(w, canonical), attn__pair_size(canonical)};
    int64_t rows = picked_size(canonical, &canonical->batch) * picked_size(canonical, &canonical->query);
    attn__parallel_items(canonical->threads, rows, run_row, &j);
}

const attn__wrapper attn__wrapper_weights = {.resolve = resolve, .workspace = workspace, .span = span, .run = run};
