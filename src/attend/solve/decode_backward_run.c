/* SPDX-License-Identifier: MIT
 *
 * decode_backward_run.c - the gradients of attention of a few queries over many keys:
 *
 *     P = 2^(q k - lse)     dS = P (dout v - delta)     dq = sum over keys of dS k     dk = dS q     dv = P dout
 *
 * Each key and value is read once and each of their gradients written once, in memory order.  Work items are those of
 * the forward pass; dq is summed over the parts in their order.
 */
#include "attend/solve/decode_plan.h"

#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "base/arena.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/constants.h"

#include <math.h>
#include <string.h>

typedef struct scratch {
    float *q, *dout, *dq; /* [heads][queries][channels or values]; q times scale * log2(e) */
    float *o;             /* [queries][values] */
    float *lse, *delta;   /* [heads][queries], lse in powers of two */
    float *s, *ds;        /* [queries][block] */
    float *bias;          /* as s, with a bias or mask, ... */
    uint8_t *seen;        /* ... else NULL */
    attn__decode_view view;
    int64_t *k_at, *v_at, *dk_at, *dv_at;
    int64_t *from, *to;        /* [queries]: the range in the block, */
    int32_t *from32, *to32;    /* and as the weights want it */
    attn__decode_range *range; /* [heads][queries] */
} scratch;

typedef struct job {
    const attn__canonical *canonical;
    const attn__decode *decode;
    const attn_arrays *arrays;
    char *workspace;
    size_t each, sums; /* bytes of a thread's memory; of dq of one part and head */
} job;

static size_t divide(const attn__decode *decode, const attn__canonical *canonical, char *base, scratch *s)
{
    attn__arena p = {base, 0};
    int64_t n = canonical->query.size, all = decode->heads * n;
    s->q = attn__arena_take(&p, all * decode->channels, sizeof(float));
    s->dout = attn__arena_take(&p, all * decode->values, sizeof(float));
    s->dq = attn__arena_take(&p, all * decode->channels, sizeof(float));
    s->o = attn__arena_take(&p, n * decode->values, sizeof(float));
    s->lse = attn__arena_take(&p, all, sizeof(float));
    s->delta = attn__arena_take(&p, all, sizeof(float));
    s->s = attn__arena_take(&p, n * ATTN__DECODE_BLOCK, sizeof(float));
    s->ds = attn__arena_take(&p, n * ATTN__DECODE_BLOCK, sizeof(float));
    bool views = canonical->has_bias || canonical->has_mask;
    s->bias = attn__arena_take(&p, views ? n * ATTN__DECODE_BLOCK : 0, sizeof(float));
    s->seen = attn__arena_take(&p, views ? n * ATTN__DECODE_BLOCK : 0, 1);
    if (!views)
        s->seen = NULL;
    attn__decode_view_take(canonical, &p, &s->view);
    int64_t **const tables[] = {&s->k_at, &s->v_at, &s->dk_at, &s->dv_at};
    for (int i = 0; i < 4; i++)
        *tables[i] = attn__arena_take(&p, 2 * ATTN__DECODE_BLOCK, sizeof(int64_t));
    s->from = attn__arena_take(&p, n, sizeof(int64_t));
    s->to = attn__arena_take(&p, n, sizeof(int64_t));
    s->from32 = attn__arena_take(&p, n, sizeof(int32_t));
    s->to32 = attn__arena_take(&p, n, sizeof(int32_t));
    s->range = attn__arena_take(&p, all, sizeof(attn__decode_range));
    return p.used;
}

size_t attn__decode_backward_thread_size(const attn__decode *decode, const attn__canonical *canonical)
{
    scratch unused;
    return divide(decode, canonical, NULL, &unused);
}

size_t attn__decode_backward_part_size(const attn__decode *decode, const attn__canonical *canonical)
{
    return ((size_t)(canonical->query.size * decode->channels) * sizeof(float) + 63) / 64 * 64;
}

static float *part_sums(const job *j, int64_t batch, int64_t part)
{
    size_t number = (size_t)(batch * j->decode->parts + part);
    return (float *)(void *)(j->workspace + (size_t)j->canonical->threads * j->each + number * j->sums);
}

/* ---------------------------------------------------------------------------------------------- one head */

/* A row without keys gets an lse of +inf, which makes its weights 0; delta = sum over v of dout * o. */
static void begin_head(const job *j, int64_t batch, int64_t head, int64_t part, const scratch *s)
{
    const attn__decode *f = j->decode;
    const attn__canonical *canonical = j->canonical;
    const attn_arrays *a = j->arrays;
    int64_t n = canonical->query.size, begin = part * f->part, end = attn__least(begin + f->part, canonical->key.size);
    int64_t lse_at = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.lse), batch);
    const float *lse = a->lse;
    float *dout = s->dout + head * n * f->values;
    attn__decode_operand q = {a->q, ATTN__STRIDE(dim.q), &canonical->contract, f->channels,
                              (float)(canonical->problem.scale * ATTN__LOG2E)};
    attn__decode_operand d = {a->dout, ATTN__STRIDE(dim.dout), &canonical->value, f->values, 1.0f};
    attn__decode_operand o = {a->o, ATTN__STRIDE(dim.o), &canonical->value, f->values, 1.0f};
    attn__decode_load(f, canonical, &q, batch, s->q + head * n * f->channels);
    attn__decode_load(f, canonical, &d, batch, dout);
    attn__decode_load(f, canonical, &o, batch, s->o);
    for (int64_t i = 0; i < n; i++) {
        float x = lse[lse_at + attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.lse), i)];
        s->lse[head * n + i] = x == -INFINITY ? INFINITY : (float)((double)x * ATTN__LOG2E);
        s->delta[head * n + i] = f->backward->dot(dout + i * f->values, s->o + i * f->values, f->values);
    }
    attn__decode_find_ranges(canonical, a->lens, batch, begin, end, s->range + head * n);
    memset(s->dq + head * n * f->channels, 0, (size_t)(n * f->channels) * sizeof(float));
}

/* Stores channels that are not adjacent. */
static void store_elements(const job *j, int64_t row, const float *dq)
{
    const attn__canonical *canonical = j->canonical;
    attn_dtype dtype = canonical->problem.dtype;
    for (int64_t c = 0; c < canonical->contract.size; c++) {
        int64_t at = row + attn__offsets_one(&canonical->contract, ATTN__STRIDE(dim.dq), c);
        double was = canonical->problem.accumulate ? attn__load(dtype, j->arrays->dq, at) : 0.0;
        attn__store(dtype, j->arrays->dq, at, was + (double)dq[c] * canonical->problem.scale);
    }
}

static void store_dq(const job *j, int64_t batch, const float *dq)
{
    const attn__canonical *canonical = j->canonical;
    const attn__decode *f = j->decode;
    int64_t base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.dq), batch), n = canonical->contract.size;
    bool adjacent = attn__offsets_adjacent(&canonical->contract, ATTN__STRIDE(dim.dq)),
         add = canonical->problem.accumulate;
    float scale = (float)canonical->problem.scale;
    for (int64_t i = 0; i < canonical->query.size; i++, dq += f->channels) {
        int64_t row = base + attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.dq), i);
        if (!adjacent)
            store_elements(j, row, dq);
        else if (canonical->problem.dtype == ATTN_BF16)
            f->backward->store_bf16((uint16_t *)j->arrays->dq + row, dq, n, scale, add);
        else
            f->backward->store((float *)j->arrays->dq + row, dq, n, scale, add);
    }
}

static void end_head(const job *j, int64_t batch, int64_t head, int64_t part, const scratch *s)
{
    int64_t floats = j->canonical->query.size * j->decode->channels;
    if (!(j->canonical->problem.flags & ATTN_WANT_DQ))
        return;
    if (j->decode->parts == 1)
        store_dq(j, batch, s->dq + head * floats);
    else
        memcpy(part_sums(j, batch, part), s->dq + head * floats, (size_t)floats * sizeof(float));
}

/* --------------------------------------------------------------------------------------------- one block */

/* The queries' ranges inside the block; false if none sees any of it. */
static bool clip(const job *j, int64_t head, int64_t at, int64_t keys, const scratch *s)
{
    const attn__canonical *canonical = j->canonical;
    const attn__decode_range *range = s->range + head * canonical->query.size;
    bool any = false;
    for (int64_t i = 0; i < canonical->query.size; i++) {
        s->from[i] = attn__least(attn__most(range[i].from - at, 0), keys);
        s->to[i] = attn__most(s->from[i], attn__least(range[i].to - at, keys));
        s->from32[i] = (int32_t)s->from[i];
        s->to32[i] = (int32_t)s->to[i];
        any = any || s->from[i] < s->to[i];
        if (s->seen) {
            attn__decode_view row = s->view;
            row.bias = s->bias + i * ATTN__DECODE_BLOCK;
            row.seen = s->seen + i * ATTN__DECODE_BLOCK;
            attn__decode_view_read(canonical, j->arrays, &range[i], s->from[i], s->to[i], &row);
        }
    }
    return any;
}

/* P to s->s and dS to s->ds. */
static void weigh(const job *j, const attn__decode_rows *k, const attn__decode_rows *v, int64_t head, const scratch *s)
{
    const attn__decode *f = j->decode;
    int64_t n = j->canonical->query.size;
    bool gradients = j->canonical->problem.flags & (ATTN_WANT_DQ | ATTN_WANT_DK),
         plain = k->rows % f->kernel->lanes == 0 && !s->seen;
    f->kernel->score(k, s->q + head * n * f->channels, f->channels, n, s->s, ATTN__DECODE_BLOCK);
    if (gradients)
        f->kernel->score(v, s->dout + head * n * f->values, f->values, n, s->ds, ATTN__DECODE_BLOCK);
    for (int64_t i = 0; i < n; i++)
        plain = plain && s->from[i] == 0 && s->to[i] == k->rows;
    attn__softmax_backward_args args = {.rows = n,
                                        .keys = k->rows,
                                        .ld = ATTN__DECODE_BLOCK,
                                        .s = s->s,
                                        .dp = gradients ? s->ds : NULL,
                                        .lse = s->lse + head * n,
                                        .delta = s->delta + head * n,
                                        .plain = plain,
                                        .mask = s->seen,
                                        .bias = j->canonical->has_bias ? s->bias : NULL,
                                        .from = s->from32,
                                        .to = s->to32};
    f->backward->weights(&args);
}

/* Writes the gradients of the block's keys and values; zeros if no query sees them. */
static void spread(const job *j, int64_t batch, int64_t head, int64_t keys, int64_t queries, const scratch *s)
{
    const attn__decode *f = j->decode;
    const attn__canonical *canonical = j->canonical;
    int64_t n = canonical->query.size, size = (int64_t)attn_dtype_size(canonical->problem.dtype);
    attn__decode_spread args = {.dtype = canonical->problem.dtype,
                                .rows = keys,
                                .queries = queries,
                                .ldw = ATTN__DECODE_BLOCK,
                                .from = s->from,
                                .to = s->to,
                                .seen = s->seen,
                                .add = canonical->problem.accumulate,
                                .stream = f->stream};
    if (canonical->problem.flags & ATTN_WANT_DK) {
        args.out = (char *)j->arrays->dk + attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.dk), batch) * size;
        args.at = s->dk_at;
        args.channels = canonical->contract.size;
        args.w = s->ds;
        args.x = s->q + head * n * f->channels;
        args.ldx = f->channels;
        args.factor = (float)(1.0 / ATTN__LOG2E); /* q has the scale already */
        f->kernel->spread(&args);
    }
    if (canonical->problem.flags & ATTN_WANT_DV) {
        args.out = (char *)j->arrays->dv + attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.dv), batch) * size;
        args.at = s->dv_at;
        args.channels = canonical->value.size;
        args.w = s->s;
        args.x = s->dout + head * n * f->values;
        args.ldx = f->values;
        args.factor = 1.0f;
        f->kernel->spread(&args);
    }
}

/* dq += dS k of one query, over the keys that it sees. */
static void add_keys(const attn__decode *f, const attn__decode_rows *k, const scratch *s, int64_t i, float *dq)
{
    const float *ds = s->ds + i * ATTN__DECODE_BLOCK;
    int64_t to = s->to[i], end;
    for (int64_t at = s->from[i]; s->seen && attn__decode_next_run(s->seen + i * ATTN__DECODE_BLOCK, to, &at, &end);
         at = end)
        f->kernel->add(k, at, end, ds, 1.0f, dq);
    if (!s->seen && s->from[i] < to)
        f->kernel->add(k, s->from[i], to, ds, 1.0f, dq);
}

static void see_block(const job *j, const attn__decode_place *place, int64_t at, const scratch *s)
{
    const attn__decode *f = j->decode;
    const attn__canonical *canonical = j->canonical;
    int64_t n = canonical->query.size, head = place->head;
    bool seen = clip(j, head, at, place->keys, s);
    if (seen) {
        attn__decode_rows k, v;
        attn__decode_block(&k, &v, f, canonical, j->arrays, place);
        weigh(j, &k, &v, head, s);
        k.next = NULL;
        float *dq = s->dq + head * n * f->channels;
        for (int64_t i = 0; i < n && (canonical->problem.flags & ATTN_WANT_DQ); i++)
            add_keys(f, &k, s, i, dq + i * f->channels);
    }
    if (seen || !canonical->problem.accumulate)
        spread(j, place->item + head, head, place->keys, seen ? n : 0, s);
}

/* -------------------------------------------------------------------------------------------- work items */

static void run_part(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__decode *f = j->decode;
    const attn__canonical *canonical = j->canonical;
    int64_t batch = item / f->parts * f->heads, part = item % f->parts;
    int64_t begin = part * f->part, end = attn__least(begin + f->part, canonical->key.size);
    scratch s;
    divide(f, canonical, j->workspace + (size_t)thread * j->each, &s);
    attn__decode_place place = {
        .item = batch, .k_at = s.k_at, .v_at = s.v_at, .only_block = end - begin <= ATTN__DECODE_BLOCK};
    for (int64_t h = 0; h < f->heads; h++)
        begin_head(j, batch + h, h, part, &s);
    for (int64_t at = begin; at < end; at += ATTN__DECODE_BLOCK) {
        attn__decode_locate(canonical, ATTN__STRIDE(dim.k), at, s.k_at);
        attn__decode_locate(canonical, ATTN__STRIDE(dim.v), at, s.v_at);
        attn__decode_view_start(canonical, at, &s.view);
        attn__decode_locate(canonical, ATTN__STRIDE(dim.dk), at, s.dk_at);
        attn__decode_locate(canonical, ATTN__STRIDE(dim.dv), at, s.dv_at);
        place.keys = attn__least(ATTN__DECODE_BLOCK, end - at);
        for (place.head = 0; place.head < f->heads; place.head++)
            see_block(j, &place, at, &s);
    }
    for (int64_t h = 0; h < f->heads; h++)
        end_head(j, batch + h, h, part, &s);
    if (f->stream)
        f->kernel->settle();
}

static void run_merger(void *user, int64_t batch, int thread)
{
    const job *j = user;
    float *sum = part_sums(j, batch, 0);
    (void)thread;
    for (int64_t p = 1; p < j->decode->parts; p++) {
        const float *next = part_sums(j, batch, p);
        for (int64_t i = 0; i < j->canonical->query.size * j->decode->channels; i++)
            sum[i] += next[i];
    }
    store_dq(j, batch, sum);
}

void attn__decode_backward_run(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                               void *workspace)
{
    job j = {.canonical = canonical, .decode = recipe->data, .arrays = arrays, .workspace = workspace};
    j.each = attn__decode_backward_thread_size(j.decode, canonical);
    j.sums = attn__decode_backward_part_size(j.decode, canonical);
    attn__parallel_items(canonical->threads, canonical->batch.size / j.decode->heads * j.decode->parts, run_part, &j);
    if (j.decode->parts > 1 && (canonical->problem.flags & ATTN_WANT_DQ))
        attn__parallel_items(canonical->threads, canonical->batch.size, run_merger, &j);
}
