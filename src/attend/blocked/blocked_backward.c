/* SPDX-License-Identifier: MIT
 * Backward of the softmax of dot products: an item is a batch index, whose gradients are its own.
 *
 *     P = exp(S - lse)    dP = dO V^T    dS = scale P (dP - sum of O dO)
 *     dQ = dS K           dK = dS^T Q    dV = P^T dO
 */
#include "attend/blocked/blocked.h"

#include "attend/canonical/element.h"
#include "attend/canonical/offsets.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <math.h>

typedef struct job {
    const attn__canonical *canonical;
    const attn__blocked_plan *plan;
    const attn_arrays *arrays;
    double *workspace;
} job;

/* Row i of the bias's gradient, which is that of the scores: each pair has an element of its own. */
static void store_bias(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, const double *ds)
{
    const int64_t *key = (const int64_t *)(const void *)attn__blocked_at(b, b->plan->at.dbias_at);
    double *to = (double *)b->arrays->dbias +
                 attn__offsets_one(&b->canonical->batch, ATTN__STRIDE(dim.dbias), b->batch) +
                 attn__offsets_one(&b->canonical->query, ATTN__STRIDE(dim.dbias), t->query + i);
    for (int64_t j = 0; j < t->keys; j++)
        to[key[j]] = ds ? ds[j] : 0;
}

/* From the gradient of what the softmax sees to that of the dot products. */
static void scale_row(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *ds)
{
    const attn_problem *p = &b->canonical->problem;
    const double *slope = attn__blocked_at(b, b->plan->at.slope) + i * ATTN__BLOCKED_KEYS;
    for (int64_t j = 0; j < t->keys && p->softcap != 0; j++)
        ds[j] = ds[j] == 0 ? 0 : ds[j] * slope[j]; /* a pair that is masked may have any slope */
    b->plan->kernel->scale(ds, t->keys, p->scale);
}

/* P and the gradient of a row of scores, whose places hold S and dP. */
static void weigh_row(const attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    int64_t values = canonical->value.size;
    const double *o = attn__blocked_at(b, at->o) + i * values, *dout = attn__blocked_at(b, at->dout) + i * values;
    double *s = attn__blocked_at(b, at->s) + i * ATTN__BLOCKED_KEYS,
           *dp = attn__blocked_at(b, at->dp) + i * ATTN__BLOCKED_KEYS, delta = 0;
    int64_t place = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.lse), b->batch) +
                    attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.lse), t->query + i);
    double lse = attn__load(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->lse, place);
    if (lse == -(double)INFINITY) { /* no keys */
        memset(s, 0, (size_t)t->keys * sizeof *s);
        memset(dp, 0, (size_t)t->keys * sizeof *dp);
        return;
    }
    if (lse != lse) { /* NaN, in every key that the row sees */
        for (int64_t j = 0; j < t->keys; j++)
            s[j] = dp[j] = s[j] == -(double)INFINITY ? 0 : lse;
        return;
    }
    for (int64_t c = 0; c < values; c++)
        delta += o[c] * dout[c];
    if (canonical->extras & ATTN__DLSE)
        delta -= ((const double *)b->arrays->dlse)[place];
    attn__blocked_drop(b, t, i, dp);
    b->plan->kernel->gradients(s, dp, t->keys, lse, delta);
    for (int64_t j = 0; j < t->keys && b->careful; j++)
        dp[j] = s[j] == 0 ? 0 : dp[j];
    attn__blocked_drop(b, t, i, s);
}

static void run_tile(attn__blocked *b, const attn__blocked_tile *t)
{
    enum { LD = ATTN__BLOCKED_KEYS };
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    double *s = attn__blocked_at(b, at->s), *dp = attn__blocked_at(b, at->dp), *dout = attn__blocked_at(b, at->dout);
    const attn__blocked_product products[] = {
        {dout, attn__blocked_at(b, at->v_t) + t->key, dp, values, b->plan->ld, LD, t->queries, t->keys, values, false,
         false},
        {dp, attn__blocked_at(b, at->k) + t->key * channels, attn__blocked_at(b, at->dq), LD, channels, channels,
         t->queries, channels, t->keys, false, true},
        {dp, attn__blocked_at(b, at->q), attn__blocked_at(b, at->dk) + t->key * channels, LD, channels, channels,
         t->keys, channels, t->queries, true, true},
        {s, dout, attn__blocked_at(b, at->dv) + t->key * values, LD, values, values, t->keys, values, t->queries, true,
         true},
    };
    attn__blocked_scores(b, t);
    attn__blocked_multiply(b, &products[0], NULL);
    for (int64_t i = 0; i < t->queries; i++) {
        weigh_row(b, t, i);
        if (b->canonical->problem.flags & ATTN_WANT_DBIAS)
            store_bias(b, t, i, dp + i * LD);
        scale_row(b, t, i, dp + i * LD);
    }
    for (int i = 1; i < 4; i++)
        attn__blocked_multiply(b, &products[i], t);
}

/* Of a tile whose pairs are all masked. */
static void clear_bias(attn__blocked *b, const attn__blocked_tile *t)
{
    attn__blocked_find_pairs(b, t);
    for (int64_t i = 0; i < t->queries; i++)
        store_bias(b, t, i, NULL);
}

/* Rows [first, first + n) of a gradient, where it is wanted. */
static void store(const attn__blocked *b, unsigned want, attn__operand op, void *to, int64_t first, int64_t n,
                  const double *rows)
{
    const attn__canonical *canonical = b->canonical;
    const attn__group *group = op == ATTN__OP_DQ ? &canonical->query : &canonical->key;
    const attn__group *channels = op == ATTN__OP_DV ? &canonical->value : &canonical->contract;
    size_t stride = op == ATTN__OP_DQ   ? ATTN__STRIDE(dim.dq)
                    : op == ATTN__OP_DK ? ATTN__STRIDE(dim.dk)
                                        : ATTN__STRIDE(dim.dv);
    attn__strides strides = attn__operand_strides(channels, op);
    int64_t base = attn__offsets_one(&canonical->batch, stride, b->batch);
    for (int64_t i = 0; i < n && (canonical->problem.flags & want); i++)
        attn__scatter(channels, &strides, canonical->problem.dtype, to,
                      base + attn__offsets_one(group, stride, first + i), rows + i * channels->size);
}

static void run_item(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__canonical *canonical = j->canonical;
    const attn__blocked_places *at = &j->plan->at;
    attn__blocked b = {.canonical = canonical,
                       .plan = j->plan,
                       .arrays = j->arrays,
                       .memory = j->workspace + (int64_t)thread * at->all};
    int64_t keys = canonical->key.size, channels = canonical->contract.size;
    attn__blocked_tile t = {0};
    attn__blocked_keys(&b, item);
    memset(attn__blocked_at(&b, at->dk), 0, (size_t)(keys * channels) * sizeof(double));
    memset(attn__blocked_at(&b, at->dv), 0, (size_t)(keys * canonical->value.size) * sizeof(double));
    for (; t.query < canonical->query.size; t.query += j->plan->queries) {
        t.queries = attn__least(canonical->query.size - t.query, j->plan->queries);
        attn__blocked_queries(&b, &t, true);
        memset(attn__blocked_at(&b, at->dq), 0, (size_t)(t.queries * channels) * sizeof(double));
        for (t.key = 0; t.key < keys; t.key += ATTN__BLOCKED_KEYS) {
            t.keys = attn__least(keys - t.key, ATTN__BLOCKED_KEYS);
            if (attn__blocked_meets(&b, &t))
                run_tile(&b, &t);
            else if (canonical->problem.flags & ATTN_WANT_DBIAS)
                clear_bias(&b, &t);
        }
        store(&b, ATTN_WANT_DQ, ATTN__OP_DQ, j->arrays->dq, t.query, t.queries, attn__blocked_at(&b, at->dq));
    }
    store(&b, ATTN_WANT_DK, ATTN__OP_DK, j->arrays->dk, 0, keys, attn__blocked_at(&b, at->dk));
    store(&b, ATTN_WANT_DV, ATTN__OP_DV, j->arrays->dv, 0, keys, attn__blocked_at(&b, at->dv));
}

void attn__blocked_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                            void *workspace)
{
    job j = {canonical, recipe->data, arrays, workspace};
    attn__parallel_items(canonical->threads, canonical->batch.size, run_item, &j);
}
