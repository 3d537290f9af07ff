/* SPDX-License-Identifier: MIT
 * Forward: items are blocks of queries; a running maximum and sum for each row. */
#include "attend/solve/blocked.h"

#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "attend/block/packed_sequences.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <math.h>

typedef struct job {
    const attn__canonical *canonical;
    const attn__blocked_plan *plan;
    const attn_arrays *arrays;
    double *workspace;
    int64_t blocks; /* of a segment */
} job;

static void run_tile(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t values = b->canonical->value.size;
    attn__blocked_scores(b, t);
    attn__blocked_multiply_tables(b, t);
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = attn__blocked_finish_scores(b, t, i);
        attn__blocked_softmax_step(b, t, i, s, attn__blocked_at(b, at->o) + i * values);
        attn__blocked_drop(b, t, i, s);
        attn__blocked_sum_tables(b, t, i, true, s);
        attn__blocked_scatter_pairs(b, t, at->s, i);
    }
    attn__blocked_multiply_masked(b, &(attn__blocked_product){.a = attn__blocked_at(b, at->s),
                                                              .lda = b->plan->ld_s,
                                                              .b = t->v,
                                                              .ldb = values,
                                                              .c = attn__blocked_at(b, at->o),
                                                              .ldc = values,
                                                              .m = t->queries,
                                                              .n = values,
                                                              .k = t->columns,
                                                              .add = true});
    attn__blocked_apply_value_tables(b, t);
}

/* What a row's sums are divided by; 0: it has nothing to give. */
static double whole_of(const attn__blocked *b, int64_t i)
{
    const attn__blocked_places *at = &b->plan->at;
    attn_normalization normalization = b->canonical->problem.normalization;
    if (normalization == ATTN_NORMALIZATION_MEAN)
        return attn__blocked_at(b, at->count)[i];
    bool none = normalization == ATTN_NORMALIZATION_SOFTMAX && attn__blocked_at(b, at->max)[i] == -(double)INFINITY;
    return none ? 0 : attn__blocked_at(b, at->sum)[i];
}

static void finish(const attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    int64_t values = canonical->value.size;
    attn__strides o = attn__operand_strides(&canonical->value, ATTN__OP_O);
    for (int64_t i = 0; i < t->queries; i++) {
        double *row = attn__blocked_at(b, at->o) + i * values, whole = whole_of(b, i);
        for (int64_t c = 0; c < values; c++)
            row[c] = whole == 0 ? 0 : row[c] / whole;
        attn__scatter(&canonical->value, &o, canonical->problem.dtype, b->arrays->o,
                      attn__blocked_offset(b, ATTN__STRIDE(dim.o), t->query + i), row);
        if (canonical->problem.flags & ATTN_WANT_LSE)
            attn__store(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->lse,
                        attn__blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i),
                        whole == 0 ? -(double)INFINITY : attn__blocked_at(b, at->max)[i] + log(whole));
    }
}

static void run_block(attn__blocked *b, int64_t batch, int64_t query, int64_t queries)
{
    attn__blocked_tile t = {.query = query, .queries = queries};
    if (b->batch != batch)
        attn__blocked_gather_batch(b, batch);
    attn__blocked_gather_queries(b, &t);
    attn__blocked_reset_softmax(b, &t);
    if (b->plan->linear) {
        attn__blocked_linear_queries(b, &t);
        finish(b, &t);
        return;
    }
    memset(attn__blocked_at(b, b->plan->at.o), 0, (size_t)(queries * b->canonical->value.size) * sizeof(double));
    attn__blocked_start_block(b, &t);
    for (; t.pair < b->canonical->key.size; t.pair += b->plan->pairs)
        if (attn__blocked_start_tile(b, &t))
            run_tile(b, &t);
    finish(b, &t);
}

/* What a thread keeps from one item to the next. */
static attn__blocked *state_of(const job *j, int thread)
{
    return (attn__blocked *)(void *)(j->workspace + thread * j->plan->at.all + j->plan->at.state);
}

static void run_item(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__blocked_plan *plan = j->plan;
    int64_t segments = j->canonical->query.size / plan->segment, block = item % (segments * j->blocks);
    int64_t batch = item / (segments * j->blocks), first = block % j->blocks * plan->queries;
    attn__sequence one;
    attn__blocked *b = state_of(j, thread);
    b->canonical = j->canonical;
    b->arrays = j->arrays;
    if (attn__is_packed(j->canonical)) {
        attn__sequence_at(&one, j->canonical, j->arrays, attn__packed_sequence(j->canonical, batch));
        b->canonical = &one.canonical;
        b->arrays = &one.arrays;
    }
    int64_t segment = attn__blocked_segment(b->canonical), begin = block / j->blocks * segment;
    if (first < segment && begin < b->canonical->query.size)
        run_block(b, batch, begin + first, attn__least(segment - first, plan->queries));
}

void attn__blocked_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                           void *workspace)
{
    const attn__blocked_plan *plan = recipe->data;
    job j = {canonical, plan, arrays, workspace, attn__pieces(plan->segment, plan->queries)};
    for (int i = 0; i < canonical->threads; i++)
        *state_of(&j, i) =
            (attn__blocked){.plan = plan, .memory = j.workspace + (int64_t)i * plan->at.all, .batch = -1};
    attn__parallel_items(canonical->threads, canonical->batch.size * (canonical->query.size / plan->segment) * j.blocks,
                         run_item, &j);
}
