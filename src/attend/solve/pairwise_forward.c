/* SPDX-License-Identifier: MIT
 *
 * pairwise_forward.c - the pairwise solver forward: each row in one pass over its keys with a running maximum.
 */
#include "attend/solve/pairwise_rows.h"

#include "attend/block/element.h"
#include "base/normal.h"
#include "base/parallel.h"

#include <math.h>

typedef struct state {
    float max;
    double sum;
    int64_t keys;
} state;

static void add_key(attn__pairwise *r, const attn__spot *spot, float score, state *s)
{
    const attn__pairwise_kernel *kernel = r->plan->kernel;
    int64_t n = r->canonical->value.size;
    float weight = score;
    if (r->canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX) {
        if (s->keys == 0 || !(score <= s->max)) {
            float factor = s->keys ? attn__normal(expf(s->max - score)) : 0;
            s->max = score;
            s->sum *= (double)factor;
            kernel->scale(factor, r->sum, n);
        }
        weight = attn__normal(expf(score - s->max));
    }
    s->keys++;
    s->sum += (double)weight;
    float kept = weight * (float)attn__row_keep(&r->row, spot);
    if (kept == 0 && (spot->kind == ATTN__SPOT_FILL || r->canonical->has_dropout))
        return;
    const float *v = attn__pairwise_value(r, spot);
    if (v)
        kernel->axpy(kept, v, r->sum, n);
}

static void finish(attn__pairwise *r, const state *s)
{
    const attn_problem *p = &r->canonical->problem;
    bool empty = s->keys == 0 || (p->normalization == ATTN_NORMALIZATION_SUM && s->sum == 0);
    double whole = p->normalization == ATTN_NORMALIZATION_MEAN ? (double)s->keys : s->sum;
    int64_t n = r->canonical->value.size;
    if (empty)
        memset(r->sum, 0, (size_t)n * sizeof(float));
    else
        r->plan->kernel->scale((float)(1 / whole), r->sum, n);
    attn__side_write(&r->plan->side[ATTN__SIDE_O], r->arrays->o, r->row.offset[ATTN__OP_O], r->sum);
    if (p->flags & ATTN_WANT_LSE)
        ((float *)r->arrays->lse)[r->row.offset[ATTN__OP_LSE]] =
            empty ? -INFINITY : (float)((double)s->max + log(whole));
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__pairwise_plan *plan;
    const attn_arrays *arrays;
    char *workspace;
} job;

enum { BLOCK = 16 }; /* rows an item: enough to be worth a thread's turn */

static void run_block(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__canonical *canonical = j->canonical;
    int64_t rows = canonical->batch.size * canonical->query.size,
            end = (item + 1) * BLOCK < rows ? (item + 1) * BLOCK : rows;
    attn__pairwise r;
    attn__pairwise_start(&r, canonical, j->plan, j->arrays, j->workspace + (size_t)thread * j->plan->share);
    for (int64_t i = item * BLOCK; i < end; i++) {
        state s = {0};
        attn__pairwise_at(&r, i / canonical->query.size, i % canonical->query.size);
        memset(r.sum, 0, (size_t)canonical->value.size * sizeof(float));
        for (int64_t key = 0; key < canonical->key.size; key++) {
            attn__spot spot;
            attn__spot_at(&spot, &r.row, key);
            float score = spot.kind == ATTN__SPOT_OUT ? -INFINITY : attn__pairwise_score(&r, &spot);
            if (score != -INFINITY)
                add_key(&r, &spot, score, &s);
        }
        finish(&r, &s);
    }
}

void attn__pairwise_forward(const attn__canonical *canonical, const attn__pairwise_plan *plan,
                            const attn_arrays *arrays, void *workspace)
{
    job j = {canonical, plan, arrays, workspace};
    int64_t rows = canonical->batch.size * canonical->query.size;
    attn__parallel_items(canonical->threads, (rows + BLOCK - 1) / BLOCK, run_block, &j);
}
