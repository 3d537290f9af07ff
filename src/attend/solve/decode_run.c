/* SPDX-License-Identifier: MIT
 *
 * decode_run.c - the forward pass of a few queries over their keys, part by part, and the merging of the parts.
 */
#include "attend/solve/decode_plan.h"

#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "attend/problem/operand.h"
#include "base/arena.h"
#include "base/integers.h"
#include "base/normal.h"
#include "base/parallel.h"
#include "base/constants.h"

#include <math.h>
#include <string.h>

typedef struct scratch {
    float *q, *s; /* q: [heads][queries][channels] */
    int64_t *k_at, *v_at;
    attn__decode_range *range; /* [heads][queries] */
    attn__decode_view view;
    attn__decode_sums sums[ATTN__DECODE_HEADS];
} scratch;

typedef struct job {
    const attn__canonical *canonical;
    const attn__decode *decode;
    const attn_arrays *arrays;
    char *workspace;
    size_t each, sums; /* bytes of a thread's memory; of the sums of one part and head */
} job;

static void take_sums(attn__arena *p, const attn__decode *decode, const attn__canonical *canonical,
                      attn__decode_sums *sums)
{
    int64_t n = canonical->query.size;
    sums->o = attn__arena_take(p, n * decode->values, sizeof(float));
    sums->m = attn__arena_take(p, n, sizeof(float));
    sums->l = attn__arena_take(p, n, sizeof(float));
}

size_t attn__decode_sums_size(const attn__decode *decode, const attn__canonical *canonical)
{
    attn__arena p = {NULL, 0};
    attn__decode_sums sums;
    take_sums(&p, decode, canonical, &sums);
    return p.used;
}

static size_t divide(const attn__decode *decode, const attn__canonical *canonical, char *base, scratch *s)
{
    attn__arena p = {base, 0};
    s->q = attn__arena_take(&p, decode->heads * canonical->query.size * decode->channels, sizeof(float));
    s->s = attn__arena_take(&p, canonical->query.size * ATTN__DECODE_BLOCK, sizeof(float));
    s->k_at = attn__arena_take(&p, 2 * ATTN__DECODE_BLOCK, sizeof(int64_t));
    s->v_at = attn__arena_take(&p, 2 * ATTN__DECODE_BLOCK, sizeof(int64_t));
    s->range = attn__arena_take(&p, decode->heads * canonical->query.size, sizeof(attn__decode_range));
    attn__decode_view_take(canonical, &p, &s->view);
    for (int64_t h = 0; h < decode->heads && decode->parts == 1; h++)
        take_sums(&p, decode, canonical, &s->sums[h]);
    return p.used;
}

size_t attn__decode_thread_size(const attn__decode *decode, const attn__canonical *canonical)
{
    scratch unused;
    return divide(decode, canonical, NULL, &unused);
}

/* Adds bias and mask to a query's scores: -infinity where it does not see the key. */
static void add_view(const attn__decode_view *view, int64_t from, int64_t to, float *s)
{
    for (int64_t j = from; j < to; j++)
        s[j] = view->seen[j] ? s[j] + view->bias[j] * (float)ATTN__LOG2E : -INFINITY;
}

/* Adds the values that the query sees: what others hold, NaN perhaps, is not looked at. */
static void add_seen(const attn__decode *f, const attn__decode_rows *v, const attn__decode_view *view, int64_t from,
                     int64_t to, const float *p, float shrink, float *o)
{
    for (int64_t at = from, end; attn__decode_next_run(view->seen, to, &at, &end); at = end, shrink = 1.0f)
        f->kernel->add(v, at, end, p, shrink, o);
}

/* Keys [at, at + keys) of one head.  Each query computes weights for its own range only, so that no other key can leak
 * into its output. */
static void see_block(const job *j, const attn__decode_place *place, int64_t at, scratch *s)
{
    const attn__decode *f = j->decode;
    const attn__canonical *canonical = j->canonical;
    const attn__decode_range *range = s->range + place->head * canonical->query.size;
    attn__decode_sums *sums = &s->sums[place->head];
    attn__decode_rows k, v;
    attn__decode_block(&k, &v, f, canonical, j->arrays, place);
    f->kernel->score(&k, s->q + place->head * canonical->query.size * f->channels, f->channels, canonical->query.size,
                     s->s, ATTN__DECODE_BLOCK);
    for (int64_t i = 0; i < canonical->query.size; i++) {
        int64_t from = attn__most(range[i].from - at, 0), to = attn__least(range[i].to - at, place->keys);
        float *p = s->s + i * ATTN__DECODE_BLOCK;
        if (from >= to)
            continue;
        bool viewed = attn__decode_view_read(canonical, j->arrays, &range[i], from, to, &s->view);
        if (viewed)
            add_view(&s->view, from, to, p);
        float shrink = f->kernel->weigh(p + from, to - from, &sums->m[i], &sums->l[i]);
        if (viewed)
            add_seen(f, &v, &s->view, from, to, p, shrink, sums->o + i * f->values);
        else
            f->kernel->add(&v, from, to, p, shrink, sums->o + i * f->values);
        v.next = NULL;
    }
}

/* Adds the sums of another part. */
static void merge(const job *j, attn__decode_sums *into, const attn__decode_sums *part)
{
    int64_t values = j->decode->values;
    for (int64_t i = 0; i < j->canonical->query.size; i++) {
        float m = into->m[i] > part->m[i] ? into->m[i] : part->m[i]; /* NOLINT: the arena is on the workspace */
        if (part->l[i] == 0.0f)
            continue;
        float mine = into->l[i] == 0.0f ? 0.0f : attn__normal(exp2f(into->m[i] - m));
        float its = attn__normal(exp2f(part->m[i] - m));
        into->m[i] = m;
        into->l[i] = into->l[i] * mine + part->l[i] * its;
        for (int64_t c = 0; c < values; c++)
            into->o[i * values + c] = into->o[i * values + c] * mine + part->o[i * values + c] * its;
    }
}

/* One query's output, from element `at` on. */
static void write_row(const job *j, int64_t at, const float *sums, float factor)
{
    const attn__canonical *canonical = j->canonical;
    if (canonical->problem.dtype == ATTN_F32 && attn__offsets_adjacent(&canonical->value, ATTN__STRIDE(dim.o))) {
        float *o = (float *)j->arrays->o + at;
        for (int64_t c = 0; c < canonical->value.size; c++)
            o[c] = sums[c] * factor;
        return;
    }
    for (int64_t c = 0; c < canonical->value.size; c++)
        attn__store(canonical->problem.dtype, j->arrays->o,
                    at + attn__offsets_one(&canonical->value, ATTN__STRIDE(dim.o), c), (double)(sums[c] * factor));
}

static void write(const job *j, int64_t batch, const attn__decode_sums *sums)
{
    const attn__canonical *canonical = j->canonical;
    int64_t o_base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.o), batch);
    int64_t lse_base = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.lse), batch);
    float *lse = j->arrays->lse;
    for (int64_t i = 0; i < canonical->query.size; i++) {
        int64_t at = o_base + attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.o), i);
        float l = sums->l[i], factor = l == 0.0f ? 0.0f : 1.0f / l; /* NOLINT: as above */
        write_row(j, at, sums->o + i * j->decode->values, factor);
        if (canonical->problem.flags & ATTN_WANT_LSE)
            lse[lse_base + attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.lse), i)] =
                l == 0.0f ? -INFINITY : (float)(log((double)l) + (double)sums->m[i] / ATTN__LOG2E);
    }
}

static attn__decode_sums part_sums(const job *j, int64_t batch, int64_t part)
{
    attn__decode_sums sums;
    size_t number = (size_t)(batch * j->decode->parts + part);
    attn__arena p = {j->workspace + (size_t)j->canonical->threads * j->each + number * j->sums, 0};
    take_sums(&p, j->decode, j->canonical, &sums);
    return sums;
}

/* Loads a head's queries and clears its sums; widens [*first, *last) by its key range. */
static void begin_head(const job *j, int64_t batch, int64_t head, int64_t part, scratch *s, int64_t *first,
                       int64_t *last)
{
    const attn__decode *f = j->decode;
    const attn__canonical *canonical = j->canonical;
    int64_t begin = part * f->part, end = attn__least(begin + f->part, canonical->key.size), n = canonical->query.size;
    attn__decode_range *range = s->range + head * n;
    attn__decode_operand q = {j->arrays->q, ATTN__STRIDE(dim.q), &canonical->contract, f->channels,
                              (float)(canonical->problem.scale * ATTN__LOG2E)};
    if (f->parts > 1)
        s->sums[head] = part_sums(j, batch, part);
    attn__decode_sums *sums = &s->sums[head];
    attn__decode_load(f, canonical, &q, batch, s->q + head * n * f->channels);
    attn__decode_find_ranges(canonical, j->arrays->lens, batch, begin, end, range);
    if (!sums->o) /* NULL only where an arena counts bytes */
        return;
    memset(sums->o, 0, (size_t)(n * f->values) * sizeof *sums->o);
    for (int64_t i = 0; i < n; i++) {
        sums->m[i] = -INFINITY;
        sums->l[i] = 0.0f;
        *first = range[i].from < range[i].to ? attn__least(*first, range[i].from) : *first;
        *last = range[i].from < range[i].to ? attn__most(*last, range[i].to) : *last;
    }
}

static void run_part(void *user, int64_t item, int thread)
{
    const job *j = user;
    const attn__decode *f = j->decode;
    int64_t batch = item / f->parts * f->heads, part = item % f->parts, first = INT64_MAX, last = 0;
    scratch s;
    divide(f, j->canonical, j->workspace + (size_t)thread * j->each, &s);
    for (int64_t h = 0; h < f->heads; h++)
        begin_head(j, batch + h, h, part, &s, &first, &last);
    first -= first % ATTN__DECODE_BLOCK; /* blocks begin at the same keys whatever the ranges */
    attn__decode_place place = {
        .item = batch, .k_at = s.k_at, .v_at = s.v_at, .only_block = last - first <= ATTN__DECODE_BLOCK};
    for (int64_t at = first; at < last; at += ATTN__DECODE_BLOCK) {
        attn__decode_locate(j->canonical, ATTN__STRIDE(dim.k), at, s.k_at);
        attn__decode_locate(j->canonical, ATTN__STRIDE(dim.v), at, s.v_at);
        attn__decode_view_start(j->canonical, at, &s.view);
        place.keys = attn__least(ATTN__DECODE_BLOCK, last - at);
        for (place.head = 0; place.head < f->heads; place.head++)
            see_block(j, &place, at, &s);
    }
    for (int64_t h = 0; h < f->heads && f->parts == 1; h++)
        write(j, batch + h, &s.sums[h]);
}

static void run_merger(void *user, int64_t batch, int thread)
{
    const job *j = user;
    (void)thread;
    attn__decode_sums all = part_sums(j, batch, 0);
    for (int64_t i = 1; i < j->decode->parts; i++) {
        attn__decode_sums part = part_sums(j, batch, i);
        merge(j, &all, &part);
    }
    write(j, batch, &all);
}

void attn__decode_run(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                      void *workspace)
{
    job j = {.canonical = canonical, .decode = recipe->data, .arrays = arrays, .workspace = workspace};
    j.each = attn__decode_thread_size(j.decode, canonical);
    j.sums = attn__decode_sums_size(j.decode, canonical);
    attn__parallel_items(canonical->threads, canonical->batch.size / j.decode->heads * j.decode->parts, run_part, &j);
    if (j.decode->parts > 1)
        attn__parallel_items(canonical->threads, canonical->batch.size, run_merger, &j);
}
