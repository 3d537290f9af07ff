/* SPDX-License-Identifier: MIT
 *
 * small_head_forward.c - one item of narrow heads: rows to the stage, heads to their panels, and back.
 */
#include "attend/solve/small_head_plan.h"

#include "attend/block/rows.h"
#include "base/parallel.h"
#include "base/constants.h"

#include <math.h>
#include <string.h>

typedef struct item {
    const attn__canonical *canonical;
    const attn__small_head *small_head;
    const attn_arrays *arrays;
    attn__small_head_scratch s;
    int64_t batch; /* of the group's first head */
    int64_t index;
    int64_t first, count, padded; /* queries */
    const float *stage;           /* rows of this block */
    attn__prefetch prefetch;
} item;

/* Where rows [from, from + rows) of the item's first head lie. */
static void offsets(const item *t, const attn__group *group, size_t stride, int64_t batch, int64_t from, int64_t rows)
{
    int64_t base = attn__offsets_one(&t->canonical->batch, stride, batch);
    attn__offsets_fill(group, stride, from, rows, t->s.at);
    for (int64_t i = 0; i < rows; i++)
        t->s.at[i] += base;
}

/* Rows of all heads of the group, as f32; false if any of it is not finite. */
static bool to_stage(item *t, const void *base, const int64_t *column, int64_t rows, int64_t channels)
{
    const attn__small_head *n = t->small_head;
    t->stage = t->s.stage;
    return n->lanes->copy(base, t->canonical->problem.dtype, t->s.at, column, rows, n->heads * channels, t->s.stage,
                          n->stage_ld);
}

/* True if rows of `which` from number `at` on are there already. */
static bool take_kept(item *t, int which, int64_t at)
{
    const attn__small_head_kept *kept = t->s.kept;
    bool there = t->small_head->keeps && kept->index == t->index && kept->at == at;
    if (there)
        t->stage = t->s.kept_rows[which];
    return there;
}

static bool stage_keys(item *t, int64_t at, int64_t keys)
{
    const attn__small_head *n = t->small_head;
    offsets(t, &t->canonical->key, ATTN__STRIDE(dim.k), t->batch, at, keys);
    if (!take_kept(t, ATTN__SMALL_HEAD_K, at))
        return to_stage(t, t->arrays->k, n->k_column, keys, t->canonical->contract.size);
    float *rows = t->s.kept_rows[ATTN__SMALL_HEAD_K]; /* in place: to see whether they are finite */
    return n->lanes->copy(rows, ATTN_F32, t->s.stage_at, NULL, keys, n->heads * t->canonical->contract.size, rows,
                          n->stage_ld);
}

static void pack_queries(item *t)
{
    const attn__small_head *n = t->small_head;
    int64_t channels = t->canonical->contract.size, size = n->channels * n->query_block;
    offsets(t, &t->canonical->query, ATTN__STRIDE(dim.q), t->batch, t->first, t->count);
    if (!take_kept(t, ATTN__SMALL_HEAD_Q, 0))
        to_stage(t, t->arrays->q, n->q_column, t->count, channels);
    for (int64_t h = 0; h < n->heads; h++) {
        attn__lane_view view = {
            (void *)(uintptr_t)(t->stage + h * channels), ATTN_F32, t->s.stage_at, NULL, channels, t->count};
        float *q = t->s.q + h * size;
        n->lanes->gather(&view, q, n->query_block, (float)(t->canonical->problem.scale * ATTN__LOG2E));
        memset(q + channels * n->query_block, 0, (size_t)((n->channels - channels) * n->query_block) * sizeof *q);
    }
}

/* One head's part of the staged rows. */
static void pack_head(const item *t, int64_t head, int64_t rows, int64_t channels, float *panel)
{
    const attn__small_head *n = t->small_head;
    const float *in = t->stage + head * channels;
    if (channels == 8 && n->channels == 8) { /* the usual one, without calls */
        for (int64_t i = 0; i < rows; i++)
            memcpy(panel + i * 8, in + i * n->stage_ld, 8 * sizeof *panel);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        memcpy(panel + i * n->channels, in + i * n->stage_ld, (size_t)channels * sizeof *panel);
        for (int64_t c = channels; c < n->channels; c++)
            panel[i * n->channels + c] = 0.0f;
    }
}

/* The largest magnitude in each channel; infinity if the block has an infinite or NaN element. */
static void find_reach(const attn__small_head *n, const float *k, int64_t keys, bool finite, float *reach)
{
    float most[ATTN__SMALL_HEAD_MOST];
    n->kernel->reach(k, keys * n->channels, most);
    for (int64_t c = 0; c < n->channels; c++) {
        reach[c] = finite ? most[c] : INFINITY;
        for (int64_t i = c + n->channels; i < ATTN__SMALL_HEAD_MOST; i += n->channels)
            reach[c] = most[i] > reach[c] ? most[i] : reach[c];
    }
}

static void pack_keys(item *t, int64_t at, int64_t keys)
{
    const attn__small_head *n = t->small_head;
    int64_t size = n->key_block * n->channels;
    bool finite = stage_keys(t, at, keys);
    for (int64_t h = 0; h < n->heads; h++) {
        pack_head(t, h, keys, t->canonical->contract.size, t->s.k + h * size);
        find_reach(n, t->s.k + h * size, keys, finite, t->s.reach + h * n->channels);
    }
    offsets(t, &t->canonical->key, ATTN__STRIDE(dim.v), t->batch, at, keys);
    if (!take_kept(t, ATTN__SMALL_HEAD_V, at))
        to_stage(t, t->arrays->v, n->v_column, keys, t->canonical->value.size);
    for (int64_t h = 0; h < n->heads; h++)
        pack_head(t, h, keys, t->canonical->value.size, t->s.v + h * size);
}

static void see_keys(item *t, int64_t keys)
{
    const attn__small_head *n = t->small_head;
    int64_t size = n->key_block * n->channels;
    for (int64_t h = 0; h < n->heads; h++) {
        for (int64_t i = 0; i < t->count; i += n->width) {
            int64_t at = h * n->query_block, tile = at * n->channels + i;
            attn__small_head_args args = {t->s.q + tile,
                                          t->s.o + tile,
                                          t->s.m + at + i,
                                          t->s.l + at + i,
                                          n->query_block,
                                          t->s.k + h * size,
                                          t->s.v + h * size,
                                          t->s.reach + h * n->channels,
                                          keys,
                                          t->s.p,
                                          {attn__prefetch_portion, &t->prefetch}};
            n->kernel->see[n->size](&args);
        }
    }
}

static void write_lse(const item *t, int64_t head)
{
    const float *l = t->s.l + head * t->small_head->query_block, *m = t->s.m + head * t->small_head->query_block;
    float *lse = t->arrays->lse;
    offsets(t, &t->canonical->query, ATTN__STRIDE(dim.lse), t->batch + head, t->first, t->count);
    for (int64_t i = 0; i < t->count; i++)
        lse[t->s.at[i]] = l[i] == 0.0f ? -INFINITY : (float)((double)logf(l[i]) + (double)m[i] / ATTN__LOG2E);
}

/* o / l of each head; by way of the stage where rows of the group are runs of floats. */
static void write_outputs(const item *t)
{
    const attn__small_head *n = t->small_head;
    int64_t values = t->canonical->value.size;
    bool staged = t->canonical->problem.dtype == ATTN_F32 && !n->o_column;
    offsets(t, &t->canonical->query, ATTN__STRIDE(dim.o), t->batch, t->first, t->count);
    for (int64_t h = 0; h < n->heads; h++) {
        const float *l = t->s.l + h * n->query_block, *o = t->s.o + h * n->channels * n->query_block;
        for (int64_t i = 0; i < t->padded; i++)
            t->s.factor[i] = l[i] == 0.0f ? 0.0f : 1.0f / l[i];
        attn__lane_view view = {staged ? t->s.stage + h * values : t->arrays->o,
                                t->canonical->problem.dtype,
                                staged ? t->s.stage_at : t->s.at,
                                n->o_column,
                                values,
                                t->count};
        if (!staged && h > 0)
            for (int64_t i = 0; i < t->count; i++)
                t->s.at[i] += values;
        n->lanes->scatter(&view, o, n->query_block, t->s.factor);
    }
    float *out = t->arrays->o;
    for (int64_t i = 0; staged && i < t->count; i++)
        memcpy(out + t->s.at[i], t->s.stage + i * n->stage_ld, (size_t)(n->heads * values) * sizeof *out);
}

typedef struct job {
    const attn__canonical *canonical;
    const attn__small_head *small_head;
    const attn_arrays *arrays;
    char *workspace;
    size_t each;
} job;

/* Rows of one operand that come next, and room for them. */
static void want(item *t, int which, const void *base, int64_t batch, const attn__group *group, int64_t from,
                 int64_t rows, size_t stride, int64_t channels)
{
    int64_t bytes = t->small_head->heads * channels * (int64_t)attn_dtype_size(t->canonical->problem.dtype);
    bool any = attn__small_head_prefetch(t->canonical, &t->prefetch, base, batch, group, from, rows, stride, bytes);
    if (any && which < ATTN__SMALL_HEAD_KEPT && t->small_head->keeps)
        attn__prefetch_copy(&t->prefetch, t->s.kept_rows[which], t->small_head->stage_ld * (int64_t)sizeof(float));
}

/* Plans what to prefetch during the `keys` keys before `at`: the next block or, after the last one, the output rows and
 * the first rows of the item that this thread will probably run next. */
static void prefetch_next(item *t, int64_t at, int64_t keys)
{
    const attn__canonical *canonical = t->canonical;
    const attn__small_head *n = t->small_head;
    const attn__group *query = &canonical->query, *key = &canonical->key;
    int64_t channels = canonical->contract.size, values = canonical->value.size;
    bool ends = at >= key->size;
    int64_t next = ends ? t->index + 1 : t->index, from = ends ? 0 : at;
    int64_t first = next % n->query_blocks * n->query_block, b = next / n->query_blocks * n->heads;
    bool any = b < canonical->batch.size;
    attn__prefetch_clear(&t->prefetch);
    if (ends && !n->q_column && any)
        want(t, ATTN__SMALL_HEAD_Q, t->arrays->q, b, query, first, n->query_block, ATTN__STRIDE(dim.q), channels);
    if (!n->k_column && any)
        want(t, ATTN__SMALL_HEAD_K, t->arrays->k, b, key, from, n->key_block, ATTN__STRIDE(dim.k), channels);
    if (!n->v_column && any)
        want(t, ATTN__SMALL_HEAD_V, t->arrays->v, b, key, from, n->key_block, ATTN__STRIDE(dim.v), values);
    if (ends && !n->o_column)
        want(t, ATTN__SMALL_HEAD_KEPT, t->arrays->o, t->batch, query, t->first, t->count, ATTN__STRIDE(dim.o), values);
    *t->s.kept = (attn__small_head_kept){any ? next : -1, from};
    int64_t steps = (keys + ATTN__SMALL_HEAD_STEP - 1) / ATTN__SMALL_HEAD_STEP;
    attn__prefetch_divide(&t->prefetch, n->heads * (t->padded / n->width) * steps);
}

static void run_item(void *user, int64_t index, int thread)
{
    const job *j = user;
    const attn__small_head *n = j->small_head;
    item t = {.canonical = j->canonical, .small_head = n, .arrays = j->arrays, .index = index};
    t.batch = index / n->query_blocks * n->heads;
    t.first = index % n->query_blocks * n->query_block;
    t.count = j->canonical->query.size - t.first < n->query_block ? j->canonical->query.size - t.first : n->query_block;
    t.padded = (t.count + n->width - 1) / n->width * n->width;
    attn__small_head_divide(n, j->workspace + (size_t)thread * j->each, &t.s);
    for (int64_t i = 0; i < n->query_block || i < n->key_block; i++)
        t.s.stage_at[i] = i * n->stage_ld;
    pack_queries(&t);
    int64_t queries = n->heads * n->query_block;
    memset(t.s.o, 0, (size_t)(queries * n->channels) * sizeof *t.s.o);
    for (int64_t i = 0; i < queries; i++) {
        t.s.m[i] = -INFINITY;
        t.s.l[i] = 0.0f;
    }
    for (int64_t at = 0; at < j->canonical->key.size; at += n->key_block) {
        int64_t keys = j->canonical->key.size - at < n->key_block ? j->canonical->key.size - at : n->key_block;
        pack_keys(&t, at, keys);
        prefetch_next(&t, at + keys, keys);
        see_keys(&t, keys);
        attn__prefetch_finish(&t.prefetch);
    }
    write_outputs(&t);
    for (int64_t h = 0; h < n->heads && (j->canonical->problem.flags & ATTN_WANT_LSE); h++)
        write_lse(&t, h);
}

void attn__small_head_forward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                              void *workspace)
{
    job j = {.canonical = canonical, .small_head = recipe->data, .arrays = arrays, .workspace = workspace};
    attn__small_head_scratch unused;
    j.each = attn__small_head_divide(j.small_head, NULL, &unused);
    for (int i = 0; i < canonical->threads; i++) {
        attn__small_head_divide(j.small_head, j.workspace + (size_t)i * j.each, &unused);
        unused.kept->index = -1;
    }
    attn__parallel_items(canonical->threads, canonical->batch.size / j.small_head->heads * j.small_head->query_blocks,
                         run_item, &j);
}
