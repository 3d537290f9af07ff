/* SPDX-License-Identifier: MIT
 *
 * small_head_backward.c - one group of narrow heads backwards: rows to the stage, heads to their panels, and back.
 */
#include "attend/solve/small_head_backward.h"

#include "attend/block/rows.h"
#include "attend/block/weight.h"
#include "base/normal.h"
#include "base/parallel.h"
#include "base/constants.h"

#include <math.h>
#include <string.h>

typedef struct item {
    const attn__canonical *canonical;
    const attn__small_head_backward_plan *small_head;
    const attn_arrays *arrays;
    attn__small_head_backward_scratch s;
    int64_t batch; /* of the group's first head */
    bool finite;   /* all inputs are */
} item;

static void offsets(const item *t, const attn__group *group, size_t stride, int64_t batch)
{
    int64_t base = attn__offsets_one(&t->canonical->batch, stride, batch);
    attn__offsets_fill(group, stride, 0, group->size, t->s.at);
    for (int64_t i = 0; i < group->size; i++)
        t->s.at[i] += base;
}

/* Rows of all heads of the group. */
static void to_stage(item *t, const void *base, const attn__group *group, size_t stride, int64_t channels, float *stage)
{
    const attn__small_head_backward_plan *n = t->small_head;
    offsets(t, group, stride, t->batch);
    t->finite = n->lanes->copy(base, ATTN_F32, t->s.at, NULL, group->size, n->heads * channels, stage, n->stage_ld) &&
                t->finite;
}

/* Zeros where rows or channels are padded. */
static void begin_panels(const attn__small_head_backward_plan *n, int64_t rows, int64_t padded, int64_t channels,
                         float *panel)
{
    if (rows < padded || channels < n->channels)
        memset(panel, 0, (size_t)(n->heads * padded * n->channels) * sizeof *panel);
}

/* Inlined, so that the compiler makes vectors of a number of channels that it knows. */
static inline __attribute__((always_inline)) void scale_head(const float *restrict in, int64_t ld, int64_t rows,
                                                             int64_t channels, float factor, float *restrict out,
                                                             int64_t out_ld)
{
    for (int64_t i = 0; i < rows; i++, in += ld, out += out_ld)
        for (int64_t c = 0; c < channels; c++)
            out[c] = factor * in[c];
}

/* Each head's part of the staged rows times `factor`, padded with zeros; panels are `padded` rows apart. */
static void pack_rows(const item *t, int64_t rows, int64_t padded, int64_t channels, float factor, float *panel)
{
    const attn__small_head_backward_plan *n = t->small_head;
    begin_panels(n, rows, padded, channels, panel);
    for (int64_t h = 0; h < n->heads; h++, panel += padded * n->channels) {
        const float *in = t->s.stage + h * channels;
        if (channels == 8 && n->channels == 8) /* the usual one */
            scale_head(in, n->stage_ld, rows, 8, factor, panel, 8);
        else
            scale_head(in, n->stage_ld, rows, channels, factor, panel, n->channels);
    }
}

/* The same, with rows in the lanes. */
static void pack_lanes(const item *t, int64_t rows, int64_t padded, int64_t channels, float *panel)
{
    const attn__small_head_backward_plan *n = t->small_head;
    begin_panels(n, rows, padded, channels, panel);
    for (int64_t h = 0; h < n->heads; h++) {
        attn__lane_view view = {t->s.stage + h * channels, ATTN_F32, t->s.stage_at, NULL, channels, rows};
        n->lanes->gather(&view, panel + h * padded * n->channels, padded, 1.0f);
    }
}

static void pack_keys(item *t)
{
    const attn__small_head_backward_plan *n = t->small_head;
    const attn__group *key = &t->canonical->key;
    int64_t channels = t->canonical->contract.size, values = t->canonical->value.size;
    to_stage(t, t->arrays->k, key, ATTN__STRIDE(dim.k), channels, t->s.stage);
    pack_rows(t, key->size, n->keys, channels, 1.0f, t->s.k);
    pack_lanes(t, key->size, n->keys, channels, t->s.kt);
    to_stage(t, t->arrays->v, key, ATTN__STRIDE(dim.v), values, t->s.stage);
    pack_lanes(t, key->size, n->keys, values, t->s.vt);
}

/* A row whose scores all were -inf has weights of 0: as if its log-sum-exp were +inf. */
static void read_lse(const item *t)
{
    const attn__small_head_backward_plan *n = t->small_head;
    const float *lse = t->arrays->lse;
    for (int64_t h = 0; h < n->heads; h++) {
        float *out = t->s.lse + h * n->queries;
        offsets(t, &t->canonical->query, ATTN__STRIDE(dim.lse), t->batch + h);
        for (int64_t i = 0; i < n->queries; i++)
            out[i] = i >= t->canonical->query.size || lse[t->s.at[i]] == -INFINITY
                         ? INFINITY
                         : (float)(lse[t->s.at[i]] * ATTN__LOG2E);
    }
}

/* delta = sum over channels of dout * o, both staged. */
static void find_delta(const item *t)
{
    const attn__small_head_backward_plan *n = t->small_head;
    int64_t queries = t->canonical->query.size;
    n->kernel->delta(&(attn__small_head_delta_args){.dout = t->s.stage,
                                                    .o = t->s.o_stage,
                                                    .ld = n->stage_ld,
                                                    .rows = queries,
                                                    .heads = n->heads,
                                                    .values = t->canonical->value.size,
                                                    .delta = t->s.delta,
                                                    .delta_ld = n->queries});
    for (int64_t h = 0; h < n->heads; h++)
        memset(t->s.delta + h * n->queries + queries, 0, (size_t)(n->queries - queries) * sizeof(float));
}

static void pack_queries(item *t)
{
    const attn__small_head_backward_plan *n = t->small_head;
    const attn__group *query = &t->canonical->query;
    int64_t channels = t->canonical->contract.size, values = t->canonical->value.size;
    to_stage(t, t->arrays->q, query, ATTN__STRIDE(dim.q), channels, t->s.stage);
    pack_rows(t, query->size, n->queries, channels, (float)(t->canonical->problem.scale * ATTN__LOG2E), t->s.q);
    to_stage(t, t->arrays->dout, query, ATTN__STRIDE(dim.dout), values, t->s.stage);
    pack_rows(t, query->size, n->queries, values, 1.0f, t->s.dout);
    to_stage(t, t->arrays->o, query, ATTN__STRIDE(dim.o), values, t->s.o_stage);
    find_delta(t);
    read_lse(t);
}

static attn__small_head_backward_args head_args(const item *t, int64_t head)
{
    const attn__small_head_backward_plan *n = t->small_head;
    const attn__small_head_backward_scratch *s = &t->s;
    int64_t q = head * n->queries * n->channels, k = head * n->keys * n->channels;
    return (attn__small_head_backward_args){.q = s->q + q,
                                            .dout = s->dout + q,
                                            .lse = s->lse + head * n->queries,
                                            .delta = s->delta + head * n->queries,
                                            .k = s->k + k,
                                            .kt = s->kt + k,
                                            .vt = s->vt + k,
                                            .dq = s->dq + q,
                                            .dk = s->dk + k,
                                            .dv = s->dv + k,
                                            .queries = n->queries,
                                            .query_ld = n->queries,
                                            .keys = t->canonical->key.size,
                                            .key_ld = n->keys,
                                            .p = s->p,
                                            .ds = s->ds,
                                            .transposed = s->transposed};
}

/* One pair where some input is not finite: a score of -inf takes no part, and must not meet an infinity with its 0. */
static void guarded_pair(const item *t, const attn__small_head_backward_args *a, int64_t i, int64_t j)
{
    int64_t channels = t->small_head->channels;
    float s = 0.0f, dp = 0.0f;
    for (int64_t c = 0; c < t->canonical->contract.size; c++)
        s += a->q[i * channels + c] * a->kt[c * a->key_ld + j];
    if (s == -INFINITY)
        return;
    for (int64_t c = 0; c < t->canonical->value.size; c++)
        dp += a->dout[i * channels + c] * a->vt[c * a->key_ld + j];
    float p = attn__normal(exp2f((float)attn__log_weight((double)(s - a->lse[i]))));
    float ds = attn__normal((float)((double)p * ((double)dp - (double)a->delta[i]) / 2));
    for (int64_t c = 0; c < t->canonical->value.size; c++)
        a->dv[c * a->key_ld + j] += p * a->dout[i * channels + c];
    for (int64_t c = 0; c < t->canonical->contract.size; c++) {
        a->dk[c * a->key_ld + j] += ds * a->q[i * channels + c];
        a->dq[c * a->query_ld + i] += ds * a->kt[c * a->key_ld + j];
    }
}

static void run_heads(const item *t)
{
    const attn__small_head_backward_plan *n = t->small_head;
    memset(t->s.dq, 0, (size_t)(n->heads * n->queries * n->channels) * sizeof(float));
    memset(t->s.dk, 0, (size_t)(n->heads * n->keys * n->channels) * sizeof(float));
    memset(t->s.dv, 0, (size_t)(n->heads * n->keys * n->channels) * sizeof(float));
    for (int64_t h = 0; h < n->heads; h++) {
        attn__small_head_backward_args args = head_args(t, h);
        if (t->finite) {
            n->kernel->back[n->size](&args);
            continue;
        }
        for (int64_t i = 0; i < t->canonical->query.size; i++)
            for (int64_t j = 0; j < t->canonical->key.size; j++)
                guarded_pair(t, &args, i, j);
    }
}

/* factor * the panels, by way of the stage, so that rows of all heads are written at once. */
static void write_rows(const item *t, const float *panel, int64_t padded, const attn__group *group, size_t stride,
                       int64_t channels, double factor, float *out)
{
    const attn__small_head_backward_plan *n = t->small_head;
    int64_t columns = n->heads * channels;
    for (int64_t i = 0; i < padded; i++)
        t->s.factor[i] = (float)factor;
    for (int64_t h = 0; h < n->heads; h++) {
        attn__lane_view view = {t->s.stage + h * channels, ATTN_F32, t->s.stage_at, NULL, channels, group->size};
        n->lanes->scatter(&view, panel + h * padded * n->channels, padded, t->s.factor);
    }
    offsets(t, group, stride, t->batch);
    for (int64_t i = 0; i < group->size; i++) {
        const float *row = t->s.stage + i * n->stage_ld;
        float *to = out + t->s.at[i];
        if (!t->canonical->problem.accumulate)
            memcpy(to, row, (size_t)columns * sizeof *to);
        else
            for (int64_t c = 0; c < columns; c++)
                to[c] += row[c];
    }
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__small_head_backward_plan *small_head;
    const attn_arrays *arrays;
    char *workspace;
    size_t each;
} job;

static void run_item(void *user, int64_t index, int thread)
{
    const job *j = user;
    const attn__canonical *canonical = j->canonical;
    const attn__small_head_backward_plan *n = j->small_head;
    item t = {.canonical = canonical, .small_head = n, .arrays = j->arrays, .batch = index * n->heads, .finite = true};
    attn__small_head_backward_divide(n, j->workspace + (size_t)thread * j->each, &t.s);
    for (int64_t i = 0; i < n->queries || i < n->keys; i++)
        t.s.stage_at[i] = i * n->stage_ld;
    pack_keys(&t);
    pack_queries(&t);
    run_heads(&t);
    unsigned want = canonical->problem.flags;
    if (want & ATTN_WANT_DQ)
        write_rows(&t, t.s.dq, n->queries, &canonical->query, ATTN__STRIDE(dim.dq), canonical->contract.size,
                   2 * canonical->problem.scale, j->arrays->dq);
    if (want & ATTN_WANT_DK) /* q came scaled to powers of two, and scores have half their gradients */
        write_rows(&t, t.s.dk, n->keys, &canonical->key, ATTN__STRIDE(dim.dk), canonical->contract.size,
                   2 / ATTN__LOG2E, j->arrays->dk);
    if (want & ATTN_WANT_DV)
        write_rows(&t, t.s.dv, n->keys, &canonical->key, ATTN__STRIDE(dim.dv), canonical->value.size, 1.0,
                   j->arrays->dv);
}

void attn__small_head_backward_run(const attn__canonical *canonical, const attn__recipe *recipe,
                                   const attn_arrays *arrays, void *workspace)
{
    job j = {.canonical = canonical, .small_head = recipe->data, .arrays = arrays, .workspace = workspace};
    attn__small_head_backward_scratch unused;
    j.each = attn__small_head_backward_divide(j.small_head, NULL, &unused);
    attn__parallel_items(canonical->threads, canonical->batch.size / j.small_head->heads, run_item, &j);
}
