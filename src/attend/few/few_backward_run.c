/* SPDX-License-Identifier: MIT
 *
 * few_backward_run.c - the gradients of attention of a few queries over many keys:
 *
 *     P = 2^(q k - lse)     dS = P (dout v - delta)     dq = sum over keys of dS k     dk = dS q     dv = P dout
 *
 * Each key and value is read once and each of their gradients written once, in memory order.  Work items are those of
 * the forward pass; dq is summed over the parts in their order.
 */
#include "attend/few/few.h"

#include "attend/task/element.h"
#include "attend/task/offsets.h"
#include "attend/task/pile.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <math.h>
#include <string.h>

static const double log2_e = 1.44269504088896340736;

typedef struct scratch {
    float *q, *dout, *dq; /* [heads][queries][channels or values]; q times scale * log2(e) */
    float *o;             /* [queries][values] */
    float *lse, *delta;   /* [heads][queries], lse in powers of two */
    float *s, *ds;        /* [queries][block] */
    int64_t *k_at, *v_at, *dk_at, *dv_at;
    int64_t *from, *to;     /* [queries]: the range in the block, */
    int32_t *from32, *to32; /* and as the weights want it */
    attn__few_range *range; /* [heads][queries] */
} scratch;

typedef struct job {
    const attn__task *task;
    const attn__few *few;
    const attn_arrays *arrays;
    char *workspace;
    size_t each, sums; /* bytes of a thread's memory; of dq of one part and head */
} job;

static size_t divide(const attn__few *few, const attn__task *task, char *base, scratch *s)
{
    attn__pile p = {base, 0};
    int64_t n = task->query.size, all = few->heads * n;
    s->q = attn__pile_take(&p, all * few->channels, sizeof(float));
    s->dout = attn__pile_take(&p, all * few->values, sizeof(float));
    s->dq = attn__pile_take(&p, all * few->channels, sizeof(float));
    s->o = attn__pile_take(&p, n * few->values, sizeof(float));
    s->lse = attn__pile_take(&p, all, sizeof(float));
    s->delta = attn__pile_take(&p, all, sizeof(float));
    s->s = attn__pile_take(&p, n * ATTN__FEW_BLOCK, sizeof(float));
    s->ds = attn__pile_take(&p, n * ATTN__FEW_BLOCK, sizeof(float));
    int64_t **const tables[] = {&s->k_at, &s->v_at, &s->dk_at, &s->dv_at};
    for (int i = 0; i < 4; i++)
        *tables[i] = attn__pile_take(&p, 2 * ATTN__FEW_BLOCK, sizeof(int64_t));
    s->from = attn__pile_take(&p, n, sizeof(int64_t));
    s->to = attn__pile_take(&p, n, sizeof(int64_t));
    s->from32 = attn__pile_take(&p, n, sizeof(int32_t));
    s->to32 = attn__pile_take(&p, n, sizeof(int32_t));
    s->range = attn__pile_take(&p, all, sizeof(attn__few_range));
    return p.used;
}

size_t attn__few_backward_thread_size(const attn__few *few, const attn__task *task)
{
    scratch unused;
    return divide(few, task, NULL, &unused);
}

size_t attn__few_backward_part_size(const attn__few *few, const attn__task *task)
{
    return ((size_t)(task->query.size * few->channels) * sizeof(float) + 63) / 64 * 64;
}

static float *part_sums(const job *j, int64_t batch, int64_t part)
{
    size_t number = (size_t)(batch * j->few->parts + part);
    return (float *)(void *)(j->workspace + (size_t)j->task->threads * j->each + number * j->sums);
}

/* ---------------------------------------------------------------------------------------------- one head */

/* A row without keys gets an lse of +inf, which makes its weights 0; delta = sum over v of dout * o. */
static void begin_head(const job *j, int64_t batch, int64_t head, int64_t part, const scratch *s)
{
    const attn__few *f = j->few;
    const attn__task *task = j->task;
    const attn_arrays *a = j->arrays;
    int64_t n = task->query.size, begin = part * f->part, end = attn__least(begin + f->part, task->key.size);
    int64_t lse_at = attn__offsets_one(&task->batch, ATTN__STRIDE(dim.lse), batch);
    const float *lse = a->lse;
    float *dout = s->dout + head * n * f->values;
    attn__few_operand q = {a->q, ATTN__STRIDE(dim.q), &task->contract, f->channels,
                           (float)(task->problem.scale * log2_e)};
    attn__few_operand d = {a->dout, ATTN__STRIDE(dim.dout), &task->value, f->values, 1.0f};
    attn__few_operand o = {a->o, ATTN__STRIDE(dim.o), &task->value, f->values, 1.0f};
    attn__few_load(f, task, &q, batch, s->q + head * n * f->channels);
    attn__few_load(f, task, &d, batch, dout);
    attn__few_load(f, task, &o, batch, s->o);
    for (int64_t i = 0; i < n; i++) {
        float x = lse[lse_at + attn__offsets_one(&task->query, ATTN__STRIDE(dim.lse), i)];
        s->lse[head * n + i] = x == -INFINITY ? INFINITY : (float)((double)x * log2_e);
        s->delta[head * n + i] = f->backward->dot(dout + i * f->values, s->o + i * f->values, f->values);
    }
    attn__few_find_ranges(task, a->lens, batch, begin, end, s->range + head * n);
    memset(s->dq + head * n * f->channels, 0, (size_t)(n * f->channels) * sizeof(float));
}

/* Stores channels that are not adjacent. */
static void put_elements(const job *j, int64_t row, const float *dq)
{
    const attn__task *task = j->task;
    attn_dtype dtype = task->problem.dtype;
    for (int64_t c = 0; c < task->contract.size; c++) {
        int64_t at = row + attn__offsets_one(&task->contract, ATTN__STRIDE(dim.dq), c);
        double was = task->problem.accumulate ? attn__load(dtype, j->arrays->dq, at) : 0.0;
        attn__store(dtype, j->arrays->dq, at, was + (double)dq[c] * task->problem.scale);
    }
}

static void put_dq(const job *j, int64_t batch, const float *dq)
{
    const attn__task *task = j->task;
    const attn__few *f = j->few;
    int64_t base = attn__offsets_one(&task->batch, ATTN__STRIDE(dim.dq), batch), n = task->contract.size;
    bool adjacent = attn__offsets_adjacent(&task->contract, ATTN__STRIDE(dim.dq)), add = task->problem.accumulate;
    float scale = (float)task->problem.scale;
    for (int64_t i = 0; i < task->query.size; i++, dq += f->channels) {
        int64_t row = base + attn__offsets_one(&task->query, ATTN__STRIDE(dim.dq), i);
        if (!adjacent)
            put_elements(j, row, dq);
        else if (task->problem.dtype == ATTN_BF16)
            f->backward->put_bf16((uint16_t *)j->arrays->dq + row, dq, n, scale, add);
        else
            f->backward->put((float *)j->arrays->dq + row, dq, n, scale, add);
    }
}

static void end_head(const job *j, int64_t batch, int64_t head, int64_t part, const scratch *s)
{
    int64_t floats = j->task->query.size * j->few->channels;
    if (!(j->task->problem.with & ATTN_WANT_DQ))
        return;
    if (j->few->parts == 1)
        put_dq(j, batch, s->dq + head * floats);
    else
        memcpy(part_sums(j, batch, part), s->dq + head * floats, (size_t)floats * sizeof(float));
}

/* --------------------------------------------------------------------------------------------- one block */

static attn__few_rows rows_of(const job *j, size_t stride, const void *base, int64_t batch, const int64_t *at,
                              int64_t keys, int64_t channels)
{
    attn_dtype dtype = j->task->problem.dtype;
    int64_t start = attn__offsets_one(&j->task->batch, stride, batch) * (int64_t)attn_dtype_size(dtype);
    return (attn__few_rows){(const char *)base + start, dtype, at, keys, channels, true};
}

/* The queries' ranges inside the block; false if none sees any of it. */
static bool clip(const job *j, int64_t head, int64_t at, int64_t keys, const scratch *s)
{
    const attn__few_range *range = s->range + head * j->task->query.size;
    bool any = false;
    for (int64_t i = 0; i < j->task->query.size; i++) {
        s->from[i] = attn__least(attn__most(range[i].from - at, 0), keys);
        s->to[i] = attn__most(s->from[i], attn__least(range[i].to - at, keys));
        s->from32[i] = (int32_t)s->from[i];
        s->to32[i] = (int32_t)s->to[i];
        any = any || s->from[i] < s->to[i];
    }
    return any;
}

/* P to s->s and dS to s->ds. */
static void weigh(const job *j, const attn__few_rows *k, const attn__few_rows *v, int64_t head, const scratch *s)
{
    const attn__few *f = j->few;
    int64_t n = j->task->query.size;
    bool gradients = j->task->problem.with & (ATTN_WANT_DQ | ATTN_WANT_DK), plain = k->rows % f->kernel->lanes == 0;
    f->kernel->score(k, s->q + head * n * f->channels, f->channels, n, s->s, ATTN__FEW_BLOCK);
    if (gradients)
        f->kernel->score(v, s->dout + head * n * f->values, f->values, n, s->ds, ATTN__FEW_BLOCK);
    for (int64_t i = 0; i < n; i++)
        plain = plain && s->from[i] == 0 && s->to[i] == k->rows;
    attn__weights_args args = {.rows = n,
                               .keys = k->rows,
                               .ld = ATTN__FEW_BLOCK,
                               .s = s->s,
                               .dp = gradients ? s->ds : NULL,
                               .lse = s->lse + head * n,
                               .delta = s->delta + head * n,
                               .plain = plain,
                               .from = s->from32,
                               .to = s->to32};
    f->backward->weights(&args);
}

/* Writes the gradients of the block's keys and values; zeros if no query sees them. */
static void spread(const job *j, int64_t batch, int64_t head, int64_t keys, int64_t queries, const scratch *s)
{
    const attn__few *f = j->few;
    const attn__task *task = j->task;
    int64_t n = task->query.size, size = (int64_t)attn_dtype_size(task->problem.dtype);
    attn__few_spread args = {.dtype = task->problem.dtype,
                             .rows = keys,
                             .queries = queries,
                             .ldw = ATTN__FEW_BLOCK,
                             .from = s->from,
                             .to = s->to,
                             .add = task->problem.accumulate,
                             .stream = f->stream};
    if (task->problem.with & ATTN_WANT_DK) {
        args.out = (char *)j->arrays->dk + attn__offsets_one(&task->batch, ATTN__STRIDE(dim.dk), batch) * size;
        args.at = s->dk_at;
        args.channels = task->contract.size;
        args.w = s->ds;
        args.x = s->q + head * n * f->channels;
        args.ldx = f->channels;
        args.factor = (float)(1.0 / log2_e); /* q has the scale already */
        f->kernel->spread(&args);
    }
    if (task->problem.with & ATTN_WANT_DV) {
        args.out = (char *)j->arrays->dv + attn__offsets_one(&task->batch, ATTN__STRIDE(dim.dv), batch) * size;
        args.at = s->dv_at;
        args.channels = task->value.size;
        args.w = s->s;
        args.x = s->dout + head * n * f->values;
        args.ldx = f->values;
        args.factor = 1.0f;
        f->kernel->spread(&args);
    }
}

static void see_block(const job *j, int64_t batch, int64_t head, int64_t at, int64_t keys, const scratch *s)
{
    const attn__few *f = j->few;
    const attn__task *task = j->task;
    int64_t n = task->query.size;
    bool seen = clip(j, head, at, keys, s);
    if (seen) {
        attn__few_rows k = rows_of(j, ATTN__STRIDE(dim.k), j->arrays->k, batch, s->k_at, keys, task->contract.size);
        attn__few_rows v = rows_of(j, ATTN__STRIDE(dim.v), j->arrays->v, batch, s->v_at, keys, task->value.size);
        weigh(j, &k, &v, head, s);
        k.fetch = false;
        float *dq = s->dq + head * n * f->channels;
        for (int64_t i = 0; i < n && (task->problem.with & ATTN_WANT_DQ); i++)
            if (s->from[i] < s->to[i])
                f->kernel->add(&k, s->from[i], s->to[i], s->ds + i * ATTN__FEW_BLOCK, 1.0f, dq + i * f->channels);
    }
    if (seen || !task->problem.accumulate)
        spread(j, batch, head, keys, seen ? n : 0, s);
}

/* -------------------------------------------------------------------------------------------- work items */

static void run_part(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__few *f = j->few;
    const attn__task *task = j->task;
    int64_t batch = item / f->parts * f->heads, part = item % f->parts;
    int64_t begin = part * f->part, end = attn__least(begin + f->part, task->key.size);
    scratch s;
    divide(f, task, j->workspace + (size_t)thread * j->each, &s);
    for (int64_t h = 0; h < f->heads; h++)
        begin_head(j, batch + h, h, part, &s);
    for (int64_t at = begin; at < end; at += ATTN__FEW_BLOCK) {
        attn__few_locate(task, ATTN__STRIDE(dim.k), at, s.k_at);
        attn__few_locate(task, ATTN__STRIDE(dim.v), at, s.v_at);
        attn__few_locate(task, ATTN__STRIDE(dim.dk), at, s.dk_at);
        attn__few_locate(task, ATTN__STRIDE(dim.dv), at, s.dv_at);
        for (int64_t h = 0; h < f->heads; h++)
            see_block(j, batch + h, h, at, attn__least(ATTN__FEW_BLOCK, end - at), &s);
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
    for (int64_t p = 1; p < j->few->parts; p++) {
        const float *next = part_sums(j, batch, p);
        for (int64_t i = 0; i < j->task->query.size * j->few->channels; i++)
            sum[i] += next[i];
    }
    put_dq(j, batch, sum);
}

void attn__few_backward_run(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays,
                            void *workspace)
{
    job j = {.task = task, .few = recipe->data, .arrays = arrays, .workspace = workspace};
    j.each = attn__few_backward_thread_size(j.few, task);
    j.sums = attn__few_backward_part_size(j.few, task);
    attn__parallel_items(task->threads, task->batch.size / j.few->heads * j.few->parts, run_part, &j);
    if (j.few->parts > 1 && (task->problem.with & ATTN_WANT_DQ))
        attn__parallel_items(task->threads, task->batch.size, run_merger, &j);
}
