/* SPDX-License-Identifier: MIT
 *
 * solve_small_head_backward.c - the solver for gradients of heads of at most 16 channels: what it accepts, its plan.
 */
#include "attend/solve/small_head_backward.h"

#include "attend/solve/flash_backward.h"
#include "attend/block/rows.h"
#include "base/arena.h"
#include "base/integers.h"

#include <stdio.h>

enum { COLUMNS = 128, ITEMS = 32 }; /* the most columns of a staged row; items that keep most machines busy */

static const size_t q_strides[] = {ATTN__STRIDE(dim.q), ATTN__STRIDE(dim.k), ATTN__STRIDE(dim.dq),
                                   ATTN__STRIDE(dim.dk)};
static const size_t v_strides[] = {ATTN__STRIDE(dim.v), ATTN__STRIDE(dim.o), ATTN__STRIDE(dim.dout),
                                   ATTN__STRIDE(dim.dv)};

static bool adjacent(const attn__canonical *canonical)
{
    bool all = true;
    for (int i = 0; i < 4; i++)
        all = all && attn__offsets_adjacent(&canonical->contract, q_strides[i]) &&
              attn__offsets_adjacent(&canonical->value, v_strides[i]);
    return all;
}

static const char *refuse(const attn__canonical *canonical)
{
    const char *why = attn__flash_backward_refuse(canonical);
    if (why)
        return why;
    if (canonical->contract.size > ATTN__SMALL_HEAD_MOST || canonical->value.size > ATTN__SMALL_HEAD_MOST)
        return "head size above 16";
    if (canonical->has_bias || canonical->has_mask || canonical->has_lens || canonical->problem.nbands ||
        canonical->has_dropout)
        return "has a bias, mask, lengths, bands or dropout";
    if (canonical->query.size > ATTN__SMALL_HEAD_ROWS || canonical->key.size > ATTN__SMALL_HEAD_ROWS)
        return "more than 1024 queries or keys";
    if (canonical->problem.dtype != ATTN_F32)
        return "f32 only";
    if (attn__flash_backward_sums(canonical))
        return "gradients summed over broadcast dims";
    return adjacent(canonical) ? NULL : "channels are not adjacent";
}

static int64_t padded(const attn__canonical *canonical)
{
    int64_t most = attn__most(canonical->contract.size, canonical->value.size);
    return most <= 4 ? 4 : most <= 8 ? 8 : 16;
}

/* Squares of 32 queries and keys are done whole; padded channels are multiplied too.  With 16 a tile is as quick or
 * quicker. */
static double cost(const attn__canonical *canonical)
{
    double queries = (double)attn__round_up(canonical->query.size, 32),
           keys = (double)attn__round_up(canonical->key.size, 32);
    double each = padded(canonical) == 16 ? 1.03 * (double)(canonical->contract.size + canonical->value.size)
                                          : (double)padded(canonical);
    return (double)canonical->batch.size * queries * keys * each;
}

/* Channels of neighbours along the last batch axis form one run, in every operand. */
static bool joins(const attn__canonical *canonical)
{
    const attn__axis *head = &canonical->batch.axis[canonical->batch.n - 1];
    for (int i = 0; i < 4; i++) {
        const char *base = (const char *)head;
        if (*(const int64_t *)(const void *)(base + q_strides[i]) != canonical->contract.size ||
            *(const int64_t *)(const void *)(base + v_strides[i]) != canonical->value.size)
            return false;
    }
    return true;
}

/* The largest divisor of the last batch axis whose heads fit a row of the stage and leave enough items. */
static int64_t heads_together(const attn__canonical *canonical)
{
    if (canonical->batch.n == 0 || !joins(canonical))
        return 1;
    int64_t n = canonical->batch.axis[canonical->batch.n - 1].dim.n, heads = 1;
    for (int64_t i = 2; i <= n && i * attn__most(canonical->contract.size, canonical->value.size) <= COLUMNS; i++)
        if (n % i == 0 && canonical->batch.size / i >= ITEMS)
            heads = i;
    return heads;
}

size_t attn__small_head_backward_divide(const attn__small_head_backward_plan *n, char *base,
                                        attn__small_head_backward_scratch *s)
{
    attn__arena p = {base, 0};
    int64_t rows = attn__most(n->queries, n->keys), q = n->heads * n->queries, k = n->heads * n->keys;
    int64_t width = n->kernel->width[n->size];
    float **const by_query[] = {&s->q, &s->dout, &s->dq}, **const by_key[] = {&s->k, &s->kt, &s->vt, &s->dk, &s->dv};
    s->stage = attn__arena_take(&p, rows * n->stage_ld, sizeof(float));
    s->o_stage = attn__arena_take(&p, n->queries * n->stage_ld, sizeof(float));
    for (int i = 0; i < 3; i++)
        *by_query[i] = attn__arena_take(&p, q * n->channels, sizeof(float));
    for (int i = 0; i < 5; i++)
        *by_key[i] = attn__arena_take(&p, k * n->channels, sizeof(float));
    s->lse = attn__arena_take(&p, q, sizeof(float));
    s->delta = attn__arena_take(&p, q, sizeof(float));
    s->p = attn__arena_take(&p, ATTN__SMALL_HEAD_STEP * width, sizeof(float));
    s->ds = attn__arena_take(&p, ATTN__SMALL_HEAD_STEP * width, sizeof(float));
    s->transposed = attn__arena_take(&p, ATTN__SMALL_HEAD_STEP * width, sizeof(float));
    s->factor = attn__arena_take(&p, rows, sizeof(float));
    s->at = attn__arena_take(&p, rows, sizeof(int64_t));
    s->stage_at = attn__arena_take(&p, rows, sizeof(int64_t));
    return p.used;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn__small_head_backward_plan *n = attn__alloc_zero(context, sizeof *n);
    if (!n)
        return ATTN_ERROR_MEMORY;
    n->kernel = attn__small_head_for(canonical->isa);
    n->lanes = attn__online_softmax_for(canonical->isa);
    n->channels = padded(canonical);
    n->size = n->channels == 4 ? 0 : n->channels == 8 ? 1 : 2;
    n->heads = heads_together(canonical);
    n->queries = attn__round_up(canonical->query.size, ATTN__SMALL_HEAD_STEP);
    n->keys = attn__round_up(canonical->key.size, n->kernel->width[n->size]);
    n->stage_ld = attn__round_up(n->heads * attn__most(canonical->contract.size, canonical->value.size), 16);
    recipe->data = n;
    attn__small_head_backward_scratch unused;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, attn__small_head_backward_divide(n, NULL, &unused));
    snprintf(recipe->text, sizeof recipe->text, "%s heads of %d, %d together", attn__isa_text(n->kernel->isa),
             (int)n->channels, (int)n->heads);
    return ATTN_OK;
}

extern const attn__solver attn__solver_small_head_backward;
const attn__solver attn__solver_small_head_backward = {.name = "small_head_backward",
                                                       .refuse = refuse,
                                                       .cost = cost,
                                                       .plan = plan,
                                                       .apply = attn__small_head_backward_run};
