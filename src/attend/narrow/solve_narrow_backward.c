/* SPDX-License-Identifier: MIT
 *
 * solve_narrow_backward.c - the solver for gradients of heads of at most 16 channels: what it accepts, its plan.
 */
#include "attend/narrow/narrow_backward.h"

#include "attend/flash_backward/flash_backward.h"
#include "attend/task/offsets.h"
#include "attend/task/pile.h"
#include "base/integers.h"

#include <stdio.h>

enum { COLUMNS = 128, ITEMS = 32 }; /* the most columns of a staged row; items that keep most machines busy */

static const size_t q_strides[] = {ATTN__STRIDE(dim.q), ATTN__STRIDE(dim.k), ATTN__STRIDE(dim.dq),
                                   ATTN__STRIDE(dim.dk)};
static const size_t v_strides[] = {ATTN__STRIDE(dim.v), ATTN__STRIDE(dim.o), ATTN__STRIDE(dim.dout),
                                   ATTN__STRIDE(dim.dv)};

static bool adjacent(const attn__task *task)
{
    bool all = true;
    for (int i = 0; i < 4; i++)
        all = all && attn__offsets_adjacent(&task->contract, q_strides[i]) &&
              attn__offsets_adjacent(&task->value, v_strides[i]);
    return all;
}

static const char *refuse(const attn__task *task)
{
    const char *why = attn__back_refuse(task);
    if (why)
        return why;
    if (task->contract.size > ATTN__NARROW_MOST || task->value.size > ATTN__NARROW_MOST)
        return "head size above 16";
    if (task->has_bias || task->has_mask || task->has_lens || task->problem.nbands || task->has_dropout)
        return "has a bias, mask, lengths, bands or dropout";
    if (task->query.size > ATTN__NARROW_ROWS || task->key.size > ATTN__NARROW_ROWS)
        return "more than 1024 queries or keys";
    if (task->problem.dtype != ATTN_F32)
        return "f32 only";
    if (attn__back_sums(task))
        return "gradients summed over broadcast dims";
    return adjacent(task) ? NULL : "channels are not adjacent";
}

static int64_t padded(const attn__task *task)
{
    int64_t most = attn__most(task->contract.size, task->value.size);
    return most <= 4 ? 4 : most <= 8 ? 8 : 16;
}

/* Squares of 32 queries and keys are done whole; padded channels are multiplied too.  With 16 a tile is as quick or
 * quicker. */
static double cost(const attn__task *task)
{
    double queries = (double)attn__round_up(task->query.size, 32), keys = (double)attn__round_up(task->key.size, 32);
    double each = padded(task) == 16 ? 1.03 * (double)(task->contract.size + task->value.size) : (double)padded(task);
    return (double)task->batch.size * queries * keys * each;
}

/* Channels of neighbours along the last batch axis form one run, in every operand. */
static bool joins(const attn__task *task)
{
    const attn__axis *head = &task->batch.axis[task->batch.n - 1];
    for (int i = 0; i < 4; i++) {
        const char *base = (const char *)head;
        if (*(const int64_t *)(const void *)(base + q_strides[i]) != task->contract.size ||
            *(const int64_t *)(const void *)(base + v_strides[i]) != task->value.size)
            return false;
    }
    return true;
}

/* The largest divisor of the last batch axis whose heads fit a row of the stage and leave enough items. */
static int64_t heads_together(const attn__task *task)
{
    if (task->batch.n == 0 || !joins(task))
        return 1;
    int64_t n = task->batch.axis[task->batch.n - 1].dim.n, heads = 1;
    for (int64_t i = 2; i <= n && i * attn__most(task->contract.size, task->value.size) <= COLUMNS; i++)
        if (n % i == 0 && task->batch.size / i >= ITEMS)
            heads = i;
    return heads;
}

size_t attn__narrow_back_divide(const attn__narrow_back *n, char *base, attn__narrow_back_scratch *s)
{
    attn__pile p = {base, 0};
    int64_t rows = attn__most(n->queries, n->keys), q = n->heads * n->queries, k = n->heads * n->keys;
    int64_t width = n->kernel->width[n->size];
    float **const by_query[] = {&s->q, &s->dout, &s->dq}, **const by_key[] = {&s->k, &s->kt, &s->vt, &s->dk, &s->dv};
    s->stage = attn__pile_take(&p, rows * n->stage_ld, sizeof(float));
    s->o_stage = attn__pile_take(&p, n->queries * n->stage_ld, sizeof(float));
    for (int i = 0; i < 3; i++)
        *by_query[i] = attn__pile_take(&p, q * n->channels, sizeof(float));
    for (int i = 0; i < 5; i++)
        *by_key[i] = attn__pile_take(&p, k * n->channels, sizeof(float));
    s->lse = attn__pile_take(&p, q, sizeof(float));
    s->delta = attn__pile_take(&p, q, sizeof(float));
    s->p = attn__pile_take(&p, ATTN__NARROW_STEP * width, sizeof(float));
    s->ds = attn__pile_take(&p, ATTN__NARROW_STEP * width, sizeof(float));
    s->turned = attn__pile_take(&p, ATTN__NARROW_STEP * width, sizeof(float));
    s->factor = attn__pile_take(&p, rows, sizeof(float));
    s->at = attn__pile_take(&p, rows, sizeof(int64_t));
    s->stage_at = attn__pile_take(&p, rows, sizeof(int64_t));
    return p.used;
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    attn__narrow_back *n = attn__alloc_zero(context, sizeof *n);
    if (!n)
        return ATTN_MEMORY;
    n->kernel = attn__narrow_for(task->isa);
    n->lanes = attn__lanes_for(task->isa);
    n->channels = padded(task);
    n->size = n->channels == 4 ? 0 : n->channels == 8 ? 1 : 2;
    n->heads = heads_together(task);
    n->queries = attn__round_up(task->query.size, ATTN__NARROW_STEP);
    n->keys = attn__round_up(task->key.size, n->kernel->width[n->size]);
    n->stage_ld = attn__round_up(n->heads * attn__most(task->contract.size, task->value.size), 16);
    recipe->data = n;
    attn__narrow_back_scratch unused;
    recipe->workspace = attn__size_mul((size_t)task->threads, attn__narrow_back_divide(n, NULL, &unused));
    snprintf(recipe->text, sizeof recipe->text, "%s heads of %d, %d together", attn__isa_text(n->kernel->isa),
             (int)n->channels, (int)n->heads);
    return ATTN_OK;
}

extern const attn__solver attn__solver_narrow_backward;
const attn__solver attn__solver_narrow_backward = {
    .name = "narrow_backward", .refuse = refuse, .cost = cost, .plan = plan, .apply = attn__narrow_back_run};
