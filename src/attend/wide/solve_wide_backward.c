/* SPDX-License-Identifier: MIT
 *
 * solve_wide_backward.c - the solver for gradients of heads of thousands of channels: what it accepts, its plan.
 */
#include "attend/wide/wide_backward.h"

#include "base/integers.h"
#include "base/rng.h"

#include <stdio.h>

enum { BLOCK = 256, CHUNK = ATTN__WIDE_CHUNK }; /* P and dS of a block fill half of a usual second cache */

static int64_t blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

static const char *refuse(const attn__task *task)
{
    bool one = task->query.size <= BLOCK && task->key.size <= BLOCK;
    if (task->backward && task->problem.dtype == ATTN_BF16 && !one)
        return "bf16 gradients summed over blocks";
    return attn__back_refuse(task);
}

/* Whether f32 can use AMX: each step along k must be a run of adjacent channels in every operand. */
static bool streams(const attn__task *task)
{
    const unsigned with = task->problem.with;
    const struct {
        const attn__group *channels;
        size_t stride;
        bool wanted;
    } operands[] = {
        {&task->contract, ATTN__STRIDE(dim.q), true},
        {&task->contract, ATTN__STRIDE(dim.k), true},
        {&task->value, ATTN__STRIDE(dim.v), true},
        {&task->value, ATTN__STRIDE(dim.o), true},
        {&task->value, ATTN__STRIDE(dim.dout), true},
        {&task->contract, ATTN__STRIDE(dim.dq), with & ATTN_WANT_DQ},
        {&task->contract, ATTN__STRIDE(dim.dk), with & ATTN_WANT_DK},
        {&task->value, ATTN__STRIDE(dim.dv), with & ATTN_WANT_DV},
    };
    bool fit = attn__wide_stream_pays(task);
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
        attn__wide_operand x = attn__wide_operand_of(operands[i].channels, operands[i].stride, task->problem.dtype);
        fit = fit && (!operands[i].wanted || attn__wide_streams(&x, operands[i].channels->size));
    }
    return fit;
}

/* Cost per channel compared with flash_backward, which is slower from heads of 256 channels on, on AMX of 160, with a
 * single block of 128.  Bands leave the larger blocks here half empty. */
static double cost_of_channel(const attn__task *task)
{
    enum { PLAIN = 512, STREAM = 320, ONE = 256, SHORT = 128 };
    int64_t channels = task->contract.size + task->value.size;
    int64_t queries = task->query.size, keys = task->key.size;
    bool stream = streams(task), one = attn__most(queries, keys) <= BLOCK && attn__least(queries, keys) >= SHORT;
    if (stream && channels >= STREAM)
        return 0.8;
    return channels >= (stream && one ? ONE : PLAIN) ? 0.98 : 1.1;
}

static double cost(const attn__task *task)
{
    double pairs = (double)task->batch.size * (double)task->query.size * (double)task->key.size;
    double channels = (double)(task->contract.size + task->value.size);
    return pairs * channels * cost_of_channel(task) * (task->problem.nbands ? 1.2 : 1);
}

/* True if two blocks of one batch item may add to one element. */
static bool blocks_share(const attn__task *task)
{
    const attn_problem *p = &task->problem;
    for (int a = 0; a < task->query.n; a++) {
        const attn_dim *dim = &task->query.axis[a].dim;
        if (dim->n > 1 && (((p->with & ATTN_WANT_DQ) && !dim->dq) || ((p->with & ATTN_WANT_DBIAS) && !dim->dbias)))
            return true;
    }
    for (int a = 0; a < task->key.n; a++) {
        const attn_dim *dim = &task->key.axis[a].dim;
        if (dim->n > 1 && (((p->with & ATTN_WANT_DK) && !dim->dk) || ((p->with & ATTN_WANT_DV) && !dim->dv) ||
                           ((p->with & ATTN_WANT_DBIAS) && !dim->dbias)))
            return true;
    }
    return false;
}

static void choose_sizes(attn__wide_back *w, const attn__task *task)
{
    attn__back_plan *p = &w->back;
    int64_t lanes = p->tile->lanes, wide = task->contract.size > task->value.size ? p->d : p->dv;
    w->chunk = wide < CHUNK ? attn__round_up(wide, 16) : CHUNK;
    w->waves = blocks_of(p->nq > p->nk ? p->nq : p->nk);
    p->dp = p->dvp = w->chunk;
    p->tile_q = (p->nq + blocks_of(p->nq) - 1) / blocks_of(p->nq);
    if (w->unit)
        p->tile_q = attn__round_up(p->tile_q, ATTN__PARTS_SIDE);
    p->block_k = (p->nk + blocks_of(p->nk) - 1) / blocks_of(p->nk);
    p->strip = attn__round_up(p->block_k, lanes);
    if (p->strip * (int64_t)sizeof(float) % 128 == 0) /* columns of it must not share sets of the first cache */
        p->strip += 16;
    p->block_k = p->strip; /* of what is allocated; the blocks themselves are those of tile_q and chunk_k */
    p->chunk_k = (p->nk + blocks_of(p->nk) - 1) / blocks_of(p->nk);
    p->chunk_q = p->tile_q;
    w->once = w->waves == 1 && !task->problem.accumulate && !attn__back_sums(task);
    w->in_turn = blocks_share(task);
    w->may_hide = task->has_bias || task->has_mask || task->has_lens || task->has_dropout || task->problem.nbands;
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    attn__wide_back *w = attn__alloc_zero(context, sizeof *w);
    if (!w)
        return ATTN_MEMORY;
    attn__back_plan *p = &w->back;
    attn__back_plan_start(p, task);
    w->sums = attn__channels_for(p->tile->isa);
    w->unit = streams(task) ? attn__parts_for(task->isa) : NULL;
    choose_sizes(w, task);
    recipe->data = w;
    recipe->workspace = attn__size_mul((size_t)task->threads, attn__wide_back_bytes(w, task));
    snprintf(recipe->text, sizeof recipe->text, "%sblocks of %d queries x %d keys, %d channels a step, %d waves",
             w->unit ? "matrix unit, " : "", (int)p->tile_q, (int)p->chunk_k, (int)w->chunk, (int)w->waves);
    return ATTN_OK;
}

/* Blocks of queries add to dK and dV, blocks of keys to dQ. */
static unsigned adds_often(const attn__task *task)
{
    return (task->query.size > BLOCK ? ATTN_WANT_DK | ATTN_WANT_DV : 0u) | (task->key.size > BLOCK ? ATTN_WANT_DQ : 0u);
}

const attn__solver attn__solver_wide_backward = {
    .name = "wide_backward",
    .refuse = refuse,
    .cost = cost,
    .adds_often = adds_often,
    .plan = plan,
    .apply = attn__wide_backward,
};
