/* SPDX-License-Identifier: MIT
 *
 * solve_few_backward.c - gradients of a few queries against many keys.  There is one product or so for each number that
 * is read, so that tiles and their panels would only be copies: each row of k and v is read once, and each row of dk
 * and dv written once, where they lie.
 */
#include "attend/flash_backward.h"

#include "attend/integers.h"
#include "attend/offsets.h"
#include "attend/pile.h"
#include "base/parallel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { QUERIES = 4, BLOCK = 64 }; /* beyond as many queries the products decide; keys located at a time */

static const double log2_e = 1.44269504088896340736;

typedef struct scratch {
    float *dq, *delta, *lse;            /* [queries][contract], and [queries] */
    int64_t *at[5];                     /* of queries: q, o, dout, lse, dq */
    int64_t *k_at, *v_at, *dk_at, *dv_at;
} scratch;

static size_t divide(const attn__task *task, char *base, scratch *s)
{
    attn__pile p = {base, 0};
    int64_t queries = task->query.size;
    int64_t **const of_keys[] = {&s->k_at, &s->v_at, &s->dk_at, &s->dv_at};
    s->dq = attn__pile_take(&p, queries * task->contract.size, sizeof(float));
    s->delta = attn__pile_take(&p, queries, sizeof(float));
    s->lse = attn__pile_take(&p, queries, sizeof(float));
    for (int i = 0; i < 5; i++)
        s->at[i] = attn__pile_take(&p, queries, sizeof(int64_t));
    for (int i = 0; i < 4; i++)
        *of_keys[i] = attn__pile_take(&p, BLOCK, sizeof(int64_t));
    return p.used;
}

static const char *refuse(const attn__task *task)
{
    static const size_t contract[] = {ATTN__STRIDE(dim.q), ATTN__STRIDE(dim.k), ATTN__STRIDE(dim.dq),
                                      ATTN__STRIDE(dim.dk)};
    static const size_t value[] = {ATTN__STRIDE(dim.v), ATTN__STRIDE(dim.o), ATTN__STRIDE(dim.dout),
                                   ATTN__STRIDE(dim.dv)};
    const char *why = attn__back_refuse(task);
    if (why)
        return why;
    if (task->query.size > QUERIES)
        return "more than 4 queries";
    if (task->has_bias || task->has_mask || task->has_lens || task->problem.nbands || task->has_dropout)
        return "has a bias, mask, lengths, bands or dropout";
    if (task->problem.dtype != ATTN_F32)
        return "f32 only";
    if (attn__back_sums(task))
        return "gradients summed over broadcast dims";
    for (int i = 0; i < 4; i++)
        if (!attn__offsets_adjacent(&task->contract, contract[i]) || !attn__offsets_adjacent(&task->value, value[i]))
            return "channels are not adjacent";
    return NULL;
}

/* With short rows and several queries calls and exponentials, one at a time, are what it takes. */
static double cost(const attn__task *task)
{
    double pairs = (double)task->batch.size * (double)task->query.size * (double)task->key.size;
    double channels = (double)(task->contract.size + task->value.size);
    return pairs * (task->query.size <= 2 && channels >= 64 ? 0.9 : 2.5) * channels;
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    scratch unused;
    (void)context;
    recipe->workspace = attn__size_mul((size_t)task->threads, divide(task, NULL, &unused));
    snprintf(recipe->text, sizeof recipe->text, "%d queries, rows in place", (int)task->query.size);
    return ATTN_OK;
}

typedef struct item {
    const attn__task *task;
    const attn_arrays *arrays;
    const attn__backward_kernel *kernel;
    int64_t batch;
    scratch s;
} item;

static void locate(const item *t, const attn__group *group, size_t stride, int64_t first, int64_t n, int64_t *at)
{
    int64_t base = attn__offsets_one(&t->task->batch, stride, t->batch);
    attn__offsets_fill(group, stride, first, n, at);
    for (int64_t i = 0; i < n; i++)
        at[i] += base;
}

/* A row whose scores all were -inf has weights of 0, as if its log-sum-exp were +inf. */
static void read_queries(const item *t)
{
    static const size_t strides[] = {ATTN__STRIDE(dim.q), ATTN__STRIDE(dim.o), ATTN__STRIDE(dim.dout),
                                     ATTN__STRIDE(dim.lse), ATTN__STRIDE(dim.dq)};
    const attn__task *task = t->task;
    const float *o = t->arrays->o, *dout = t->arrays->dout, *lse = t->arrays->lse;
    for (int i = 0; i < 5; i++)
        locate(t, &task->query, strides[i], 0, task->query.size, t->s.at[i]);
    for (int64_t i = 0; i < task->query.size; i++) {
        float row = lse[t->s.at[3][i]];
        t->s.lse[i] = row == -INFINITY ? INFINITY : (float)(row * log2_e);
        t->s.delta[i] = t->kernel->dot(o + t->s.at[1][i], dout + t->s.at[2][i], task->value.size);
    }
    memset(t->s.dq, 0, (size_t)(task->query.size * task->contract.size) * sizeof *t->s.dq);
}

/* Rows of nothing, for a pair of which nothing comes: put would multiply what is infinite by 0. */
static void put_row(const item *t, float *out, const float *row, int64_t n, float factor, bool add, bool counts)
{
    if (counts)
        t->kernel->put(out, row, n, factor, add);
    else if (!add)
        memset(out, 0, (size_t)n * sizeof *out);
}

/* Query i and the key at place j of the block. */
static void see_pair(const item *t, int64_t i, int64_t j)
{
    const attn__task *task = t->task;
    const attn_problem *p = &task->problem;
    const float *q = (const float *)t->arrays->q + t->s.at[0][i], *k = (const float *)t->arrays->k + t->s.k_at[j];
    const float *dout = (const float *)t->arrays->dout + t->s.at[2][i];
    const float *v = (const float *)t->arrays->v + t->s.v_at[j];
    int64_t channels = task->contract.size, values = task->value.size;
    float s = (float)(p->scale * log2_e) * t->kernel->dot(q, k, channels);
    float weight = exp2f(s - t->s.lse[i]), ds = weight * (t->kernel->dot(dout, v, values) - t->s.delta[i]);
    bool counts = s != -INFINITY, add = i > 0 || p->accumulate;
    if (p->with & ATTN_WANT_DK)
        put_row(t, (float *)t->arrays->dk + t->s.dk_at[j], q, channels, ds * (float)p->scale, add, counts);
    if (p->with & ATTN_WANT_DV)
        put_row(t, (float *)t->arrays->dv + t->s.dv_at[j], dout, values, weight, add, counts);
    if (p->with & ATTN_WANT_DQ)
        put_row(t, t->s.dq + i * channels, k, channels, ds, true, counts);
}

typedef struct job {
    const attn__task *task;
    const attn_arrays *arrays;
    char *workspace;
    size_t each;
} job;

static void run_item(void *user, int64_t index, int thread)
{
    const job *w = user;
    const attn__task *task = w->task;
    const attn__group *key = &task->key;
    item t = {.task = task, .arrays = w->arrays, .kernel = attn__backward_for(task->isa), .batch = index};
    divide(task, w->workspace + (size_t)thread * w->each, &t.s);
    read_queries(&t);
    for (int64_t first = 0; first < key->size; first += BLOCK) {
        int64_t n = attn__least(BLOCK, key->size - first);
        locate(&t, key, ATTN__STRIDE(dim.k), first, n, t.s.k_at);
        locate(&t, key, ATTN__STRIDE(dim.v), first, n, t.s.v_at);
        locate(&t, key, ATTN__STRIDE(dim.dk), first, n, t.s.dk_at);
        locate(&t, key, ATTN__STRIDE(dim.dv), first, n, t.s.dv_at);
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < task->query.size; i++)
                see_pair(&t, i, j);
    }
    for (int64_t i = 0; i < task->query.size && (task->problem.with & ATTN_WANT_DQ); i++)
        t.kernel->put((float *)w->arrays->dq + t.s.at[4][i], t.s.dq + i * task->contract.size, task->contract.size,
                      (float)task->problem.scale, task->problem.accumulate);
}

static void run(const attn__task *task, const attn__recipe *recipe, const attn_arrays *arrays, void *workspace)
{
    (void)recipe;
    scratch unused;
    job w = {.task = task, .arrays = arrays, .workspace = workspace, .each = divide(task, NULL, &unused)};
    attn__parallel_items(task->threads, task->batch.size, run_item, &w);
}

extern const attn__solver attn__solver_few_backward;
const attn__solver attn__solver_few_backward = {"few_backward", refuse, cost, plan, run};
