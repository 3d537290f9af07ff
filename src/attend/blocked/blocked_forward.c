/* SPDX-License-Identifier: MIT
 * Forward: items are blocks of queries; a running maximum and sum for each row. */
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
    int64_t blocks;
} job;

/* S becomes P; what the row has so far is scaled to a larger maximum. */
static void weigh_row(const attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__blocked_plan *plan = b->plan;
    double *s = attn__blocked_at(b, plan->at.s) + i * ATTN__BLOCKED_KEYS, *max = attn__blocked_at(b, plan->at.max) + i;
    double *sum = attn__blocked_at(b, plan->at.sum) + i;
    int64_t values = b->canonical->value.size;
    double most = plan->kernel->largest(s, t->keys);
    if (most <= *max)
        most = *max;
    if (most == -(double)INFINITY) { /* no key so far */
        memset(s, 0, (size_t)t->keys * sizeof *s);
        return;
    }
    if (most != *max) {
        double factor = *max == -(double)INFINITY ? 0 : exp(*max - most);
        *sum *= factor;
        plan->kernel->scale(attn__blocked_at(b, plan->at.o) + i * values, values, factor);
        *max = most;
    }
    *sum += plan->kernel->exponentials(s, t->keys, most);
}

static void weigh_plainly(const attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const double *s = attn__blocked_at(b, b->plan->at.s) + i * ATTN__BLOCKED_KEYS;
    for (int64_t j = 0; j < t->keys; j++)
        attn__blocked_at(b, b->plan->at.sum)[i] += s[j];
}

static void run_tile(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t values = b->canonical->value.size;
    attn__blocked_scores(b, t);
    for (int64_t i = 0; i < t->queries; i++) {
        if (b->canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX)
            weigh_row(b, t, i);
        else
            weigh_plainly(b, t, i);
        attn__blocked_drop(b, t, i, attn__blocked_at(b, at->s) + i * ATTN__BLOCKED_KEYS);
    }
    attn__blocked_multiply(b,
                           &(attn__blocked_product){.a = attn__blocked_at(b, at->s),
                                                    .lda = ATTN__BLOCKED_KEYS,
                                                    .b = attn__blocked_at(b, at->v) + t->key * values,
                                                    .ldb = values,
                                                    .c = attn__blocked_at(b, at->o),
                                                    .ldc = values,
                                                    .m = t->queries,
                                                    .n = values,
                                                    .k = t->keys,
                                                    .add = true},
                           t);
}

/* Keys that a row sees, and what its sums are divided by; 0: it has nothing to give. */
static double whole_of(const attn__blocked *b, int64_t i)
{
    const attn__blocked_places *at = &b->plan->at;
    const int64_t *from = (const int64_t *)(const void *)attn__blocked_at(b, at->from),
                  *to = (const int64_t *)(const void *)attn__blocked_at(b, at->to);
    double sum = attn__blocked_at(b, at->sum)[i];
    if (b->canonical->problem.normalization == ATTN_NORMALIZATION_MEAN)
        return to[i] > from[i] ? (double)(to[i] - from[i]) : 0;
    bool none = b->canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX &&
                attn__blocked_at(b, at->max)[i] == -(double)INFINITY;
    return none ? 0 : sum;
}

static void finish(const attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    int64_t values = canonical->value.size;
    attn__strides o = attn__operand_strides(&canonical->value, ATTN__OP_O);
    for (int64_t i = 0; i < t->queries; i++) {
        double *row = attn__blocked_at(b, at->o) + i * values, whole = whole_of(b, i);
        int64_t at_o = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.o), b->batch) +
                       attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.o), t->query + i);
        int64_t at_lse = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.lse), b->batch) +
                         attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.lse), t->query + i);
        for (int64_t c = 0; c < values; c++)
            row[c] = whole == 0 ? 0 : row[c] / whole;
        attn__scatter(&canonical->value, &o, canonical->problem.dtype, b->arrays->o, at_o, row);
        if (canonical->problem.flags & ATTN_WANT_LSE)
            attn__store(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->lse, at_lse,
                        whole == 0 ? -(double)INFINITY : attn__blocked_at(b, at->max)[i] + log(whole));
    }
}

/* A sink is a key of value 0 before all others. */
static void start_rows(const attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    bool softmax = canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX;
    for (int64_t i = 0; i < t->queries; i++) {
        double sink = -(double)INFINITY;
        if (canonical->extras & ATTN__SINKS)
            sink = ((const double *)
                        b->arrays->sinks)[attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.sinks), b->batch) +
                                          attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.sinks), t->query + i)];
        attn__blocked_at(b, at->max)[i] = softmax ? sink : 0;
        attn__blocked_at(b, at->sum)[i] = sink > -(double)INFINITY || sink != sink;
    }
    memset(attn__blocked_at(b, at->o), 0, (size_t)(t->queries * canonical->value.size) * sizeof(double));
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
    int64_t *gathered = (int64_t *)(void *)attn__blocked_at(&b, at->gathered); /* batch index, careful */
    int64_t batch = item / j->blocks, first = item % j->blocks * j->plan->queries;
    attn__blocked_tile t = {.query = first, .queries = attn__least(canonical->query.size - first, j->plan->queries)};
    b.batch = gathered[0];
    b.careful = gathered[1];
    if (b.batch != batch) {
        attn__blocked_keys(&b, batch);
        gathered[0] = batch;
        gathered[1] = b.careful;
    }
    attn__blocked_queries(&b, &t, false);
    start_rows(&b, &t);
    for (; t.key < canonical->key.size; t.key += ATTN__BLOCKED_KEYS) {
        t.keys = attn__least(canonical->key.size - t.key, ATTN__BLOCKED_KEYS);
        if (attn__blocked_meets(&b, &t))
            run_tile(&b, &t);
    }
    finish(&b, &t);
}

void attn__blocked_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                           void *workspace)
{
    const attn__blocked_plan *plan = recipe->data;
    job j = {canonical, plan, arrays, workspace, attn__pieces(canonical->query.size, plan->queries)};
    for (int i = 0; i < canonical->threads; i++)
        *(int64_t *)(void *)(j.workspace + i * plan->at.all + plan->at.gathered) = -1;
    attn__parallel_items(canonical->threads, canonical->batch.size * j.blocks, run_item, &j);
}
