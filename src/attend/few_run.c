/* SPDX-License-Identifier: MIT
 *
 * few_run.c - a few queries against their keys, part by part, and the parts' merger.
 */
#include "attend/few.h"

#include "attend/element.h"
#include "attend/integers.h"
#include "attend/offsets.h"
#include "attend/pile.h"
#include "base/parallel.h"

#include <math.h>
#include <string.h>

static const double log2_e = 1.44269504088896340736;

typedef struct scratch {
    float *q, *s;
    int64_t *at, *channel;
    int64_t from[ATTN__FEW_QUERIES], to[ATTN__FEW_QUERIES];
    attn__few_sums sums;
} scratch;

typedef struct job {
    const attn__task *task;
    const attn__few *few;
    const attn_arrays *arrays;
    char *workspace;
    size_t each, sums; /* bytes of a thread's memory, without its sums; of one part's sums */
} job;

static void take_sums(attn__pile *p, const attn__few *few, const attn__task *task, attn__few_sums *sums)
{
    int64_t n = task->query.size;
    sums->o = attn__pile_take(p, n * few->values, sizeof(float));
    sums->m = attn__pile_take(p, n, sizeof(float));
    sums->l = attn__pile_take(p, n, sizeof(float));
}

size_t attn__few_sums_size(const attn__few *few, const attn__task *task)
{
    attn__pile p = {NULL, 0};
    attn__few_sums sums;
    take_sums(&p, few, task, &sums);
    return p.used;
}

static size_t divide(const attn__few *few, const attn__task *task, char *base, scratch *s)
{
    attn__pile p = {base, 0};
    s->q = attn__pile_take(&p, task->query.size * few->channels, sizeof(float));
    s->s = attn__pile_take(&p, task->query.size * ATTN__FEW_BLOCK, sizeof(float));
    s->at = attn__pile_take(&p, 2 * ATTN__FEW_BLOCK, sizeof(int64_t));
    s->channel = attn__pile_take(&p, attn__most(task->contract.size, task->value.size), sizeof(int64_t));
    take_sums(&p, few, task, &s->sums);
    return p.used;
}

size_t attn__few_thread_size(const attn__few *few, const attn__task *task)
{
    scratch unused;
    return divide(few, task, NULL, &unused);
}

static void load_queries(const job *j, int64_t batch, scratch *s)
{
    const attn__task *task = j->task;
    int64_t base = attn__offsets_one(&task->batch, ATTN__STRIDE(dim.q), batch), channels = task->contract.size;
    attn__offsets_fill(&task->contract, ATTN__STRIDE(dim.q), 0, channels, s->channel);
    float factor = (float)(task->problem.scale * log2_e);
    for (int64_t i = 0; i < task->query.size; i++) {
        int64_t at = base + attn__offsets_one(&task->query, ATTN__STRIDE(dim.q), i);
        float *q = s->q + i * j->few->channels;
        for (int64_t c = 0; c < channels; c++)
            q[c] = (float)attn__load(task->problem.dtype, j->arrays->q, at + s->channel[c]) * factor;
        for (int64_t c = channels; c < j->few->channels; c++)
            q[c] = 0.0f;
    }
}

static int64_t clamp(int64_t x, int64_t from, int64_t to)
{
    return x < from ? from : x > to ? to : x;
}

/* The keys in [from, to) that a query may see; bounds of bands may be open ends. */
static void find_range(const job *j, int64_t batch, int64_t query, int64_t *from, int64_t *to)
{
    const attn__task *task = j->task;
    const attn_problem *p = &task->problem;
    for (int i = 0; i < p->nbands; i++) {
        int64_t at = attn__offsets_index(&task->query, p->bands[i].query_dim, query), low, high;
        if (__builtin_add_overflow(at, p->bands[i].lo, &low))
            low = p->bands[i].lo;
        if (__builtin_add_overflow(at, p->bands[i].hi, &high) || high == INT64_MAX)
            high = p->bands[i].hi > 0 ? INT64_MAX - 1 : INT64_MIN;
        *from = clamp(low, *from, *to);
        *to = clamp(high + 1, *from, *to);
    }
    if (task->has_lens) {
        int64_t at = attn__offsets_one(&task->batch, ATTN__STRIDE(dim.lens), batch) +
                     attn__offsets_one(&task->query, ATTN__STRIDE(dim.lens), query);
        *to = clamp(j->arrays->lens[at], *from, *to);
    }
}

static attn__few_rows rows_at(const job *j, size_t stride, const void *base, int64_t batch, int64_t at, int64_t keys,
                              int64_t channels, scratch *s)
{
    int64_t start = attn__offsets_one(&j->task->batch, stride, batch);
    int64_t ahead = attn__least(j->task->key.size - at, ATTN__FEW_BLOCK + ATTN__FEW_AHEAD);
    attn__offsets_fill(&j->task->key, stride, at, ahead, s->at);
    for (int64_t i = 0; i < ahead; i++)
        s->at[i] += start;
    for (int64_t i = ahead; i < 2 * ATTN__FEW_BLOCK; i++)
        s->at[i] = s->at[ahead - 1];
    return (attn__few_rows){base, j->task->problem.dtype, s->at, keys, channels};
}

/* Keys [at, at + keys).  A query's own range bounds its weights, so that what it may not see cannot leak. */
static void see_block(const job *j, int64_t batch, int64_t at, int64_t keys, scratch *s)
{
    const attn__few *f = j->few;
    const attn__task *task = j->task;
    attn__few_rows k = rows_at(j, ATTN__STRIDE(dim.k), j->arrays->k, batch, at, keys, task->contract.size, s);
    f->kernel->score(&k, s->q, f->channels, task->query.size, s->s, ATTN__FEW_BLOCK);
    attn__few_rows v = rows_at(j, ATTN__STRIDE(dim.v), j->arrays->v, batch, at, keys, task->value.size, s);
    for (int64_t i = 0; i < task->query.size; i++) {
        int64_t from = clamp(s->from[i] - at, 0, keys), to = clamp(s->to[i] - at, from, keys);
        float *p = s->s + i * ATTN__FEW_BLOCK;
        if (from == to)
            continue;
        float shrink = f->kernel->weigh(p + from, to - from, &s->sums.m[i], &s->sums.l[i]);
        f->kernel->add(&v, from, to, p, shrink, s->sums.o + i * f->values);
    }
}

/* Adds the sums of another part. */
static void merge(const job *j, attn__few_sums *into, const attn__few_sums *part)
{
    int64_t values = j->few->values;
    for (int64_t i = 0; i < j->task->query.size; i++) {
        float m = into->m[i] > part->m[i] ? into->m[i] : part->m[i]; /* NOLINT: the pile stands on the workspace */
        if (part->l[i] == 0.0f)
            continue;
        float mine = into->l[i] == 0.0f ? 0.0f : exp2f(into->m[i] - m), its = exp2f(part->m[i] - m);
        into->m[i] = m;
        into->l[i] = into->l[i] * mine + part->l[i] * its;
        for (int64_t c = 0; c < values; c++)
            into->o[i * values + c] = into->o[i * values + c] * mine + part->o[i * values + c] * its;
    }
}

static void write(const job *j, int64_t batch, const attn__few_sums *sums)
{
    const attn__task *task = j->task;
    int64_t o_base = attn__offsets_one(&task->batch, ATTN__STRIDE(dim.o), batch);
    int64_t lse_base = attn__offsets_one(&task->batch, ATTN__STRIDE(dim.lse), batch);
    float *lse = j->arrays->lse;
    for (int64_t i = 0; i < task->query.size; i++) {
        int64_t at = o_base + attn__offsets_one(&task->query, ATTN__STRIDE(dim.o), i);
        float l = sums->l[i], factor = l == 0.0f ? 0.0f : 1.0f / l; /* NOLINT: as above */
        for (int64_t c = 0; c < task->value.size; c++)
            attn__store(task->problem.dtype, j->arrays->o,
                        at + attn__offsets_one(&task->value, ATTN__STRIDE(dim.o), c),
                        (double)(sums->o[i * j->few->values + c] * factor));
        if (task->problem.with & ATTN_WANT_LSE)
            lse[lse_base + attn__offsets_one(&task->query, ATTN__STRIDE(dim.lse), i)] =
                l == 0.0f ? -INFINITY : (float)(log((double)l) + (double)sums->m[i] / log2_e);
    }
}

static attn__few_sums part_sums(const job *j, int64_t item)
{
    attn__few_sums sums;
    attn__pile p = {j->workspace + (size_t)j->task->threads * j->each + (size_t)item * j->sums, 0};
    take_sums(&p, j->few, j->task, &sums);
    return sums;
}

static void run_part(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__few *f = j->few;
    int64_t batch = item / f->parts, begin = item % f->parts * f->part;
    int64_t end = attn__least(begin + f->part, j->task->key.size), first = end, last = begin;
    scratch s;
    divide(f, j->task, j->workspace + (size_t)thread * j->each, &s);
    if (f->parts > 1)
        s.sums = part_sums(j, item);
    load_queries(j, batch, &s);
    memset(s.sums.o, 0, (size_t)(j->task->query.size * f->values) * sizeof *s.sums.o);
    for (int64_t i = 0; i < j->task->query.size; i++) {
        s.sums.m[i] = -INFINITY;
        s.sums.l[i] = 0.0f;
        s.from[i] = begin;
        s.to[i] = end;
        find_range(j, batch, i, &s.from[i], &s.to[i]);
        first = s.from[i] < s.to[i] ? attn__least(first, s.from[i]) : first;
        last = s.from[i] < s.to[i] ? attn__most(last, s.to[i]) : last;
    }
    /* Blocks begin at the same keys whatever the ranges. */
    for (int64_t at = first - first % ATTN__FEW_BLOCK; at < last; at += ATTN__FEW_BLOCK)
        see_block(j, batch, at, attn__least(ATTN__FEW_BLOCK, last - at), &s);
    if (f->parts == 1)
        write(j, batch, &s.sums);
}

static void run_merger(void *user, int64_t batch, int thread)
{
    const job *j = user;
    (void)thread;
    attn__few_sums all = part_sums(j, batch * j->few->parts);
    for (int64_t i = 1; i < j->few->parts; i++) {
        attn__few_sums part = part_sums(j, batch * j->few->parts + i);
        merge(j, &all, &part);
    }
    write(j, batch, &all);
}

void attn__few_run(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace)
{
    job j = {.task = task, .few = recipe->data, .arrays = arrays, .workspace = workspace};
    j.each = attn__few_thread_size(j.few, task);
    j.sums = attn__few_sums_size(j.few, task);
    attn__parallel_items(task->threads, task->batch.size * j.few->parts, run_part, &j);
    if (j.few->parts > 1)
        attn__parallel_items(task->threads, task->batch.size, run_merger, &j);
}
