/* SPDX-License-Identifier: MIT
 *
 * solve_wide_head_backward.c - the solver for gradients of heads of thousands of channels: what it accepts, its plan.
 */
#include "attend/solve/wide_head_backward.h"

#include "base/integers.h"
#include "base/rng.h"

#include <stdio.h>

enum { BLOCK = 256, CHUNK = ATTN__WIDE_HEAD_CHUNK }; /* P and dS of a block fill half of a usual second cache */

static int64_t blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

static const char *refuse(const attn__canonical *canonical)
{
    bool one = canonical->query.size <= BLOCK && canonical->key.size <= BLOCK;
    if (canonical->backward && canonical->problem.dtype == ATTN_BF16 && !one)
        return "bf16 gradients summed over blocks";
    return attn__flash_backward_refuse(canonical);
}

/* Whether f32 can use AMX: each step along k must be a run of adjacent channels in every operand. */
static bool streams(const attn__canonical *canonical)
{
    const unsigned with = canonical->problem.flags;
    const struct {
        const attn__group *channels;
        size_t stride;
        bool wanted;
    } operands[] = {
        {&canonical->contract, ATTN__STRIDE(dim.q), true},
        {&canonical->contract, ATTN__STRIDE(dim.k), true},
        {&canonical->value, ATTN__STRIDE(dim.v), true},
        {&canonical->value, ATTN__STRIDE(dim.o), true},
        {&canonical->value, ATTN__STRIDE(dim.dout), true},
        {&canonical->contract, ATTN__STRIDE(dim.dq), with & ATTN_WANT_DQ},
        {&canonical->contract, ATTN__STRIDE(dim.dk), with & ATTN_WANT_DK},
        {&canonical->value, ATTN__STRIDE(dim.dv), with & ATTN_WANT_DV},
    };
    bool fit = attn__wide_head_stream_pays(canonical);
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
        attn__wide_head_operand x =
            attn__wide_head_operand_of(operands[i].channels, operands[i].stride, canonical->problem.dtype);
        fit = fit && (!operands[i].wanted || attn__wide_head_streams(&x, operands[i].channels->size));
    }
    return fit;
}

/* Cost per channel compared with flash_backward, which is slower from heads of 256 channels on, on AMX of 160, with a
 * single block of 128.  Bands leave the larger blocks here half empty. */
static double cost_of_channel(const attn__canonical *canonical)
{
    enum { PLAIN = 512, STREAM = 320, ONE = 256, SHORT = 128 };
    int64_t channels = canonical->contract.size + canonical->value.size;
    int64_t queries = canonical->query.size, keys = canonical->key.size;
    bool stream = streams(canonical), one = attn__most(queries, keys) <= BLOCK && attn__least(queries, keys) >= SHORT;
    if (stream && channels >= STREAM)
        return 0.8;
    return channels >= (stream && one ? ONE : PLAIN) ? 0.98 : 1.1;
}

static double cost(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    double channels = (double)(canonical->contract.size + canonical->value.size);
    return pairs * channels * cost_of_channel(canonical) * (canonical->problem.nbands ? 1.2 : 1);
}

/* True if two blocks of one batch item may add to one element. */
static bool blocks_share(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    for (int a = 0; a < canonical->query.n; a++) {
        const attn_dim *dim = &canonical->query.axis[a].dim;
        if (dim->n > 1 && (((p->flags & ATTN_WANT_DQ) && !dim->dq) || ((p->flags & ATTN_WANT_DBIAS) && !dim->dbias)))
            return true;
    }
    for (int a = 0; a < canonical->key.n; a++) {
        const attn_dim *dim = &canonical->key.axis[a].dim;
        if (dim->n > 1 && (((p->flags & ATTN_WANT_DK) && !dim->dk) || ((p->flags & ATTN_WANT_DV) && !dim->dv) ||
                           ((p->flags & ATTN_WANT_DBIAS) && !dim->dbias)))
            return true;
    }
    return false;
}

static void choose_sizes(attn__wide_head_backward_plan *w, const attn__canonical *canonical)
{
    attn__flash_backward_plan *p = &w->back;
    int64_t lanes = p->tile->lanes, wide_head = canonical->contract.size > canonical->value.size ? p->d : p->dv;
    w->chunk = wide_head < CHUNK ? attn__round_up(wide_head, 16) : CHUNK;
    w->waves = blocks_of(p->nq > p->nk ? p->nq : p->nk);
    p->dp = p->dvp = p->ldk = p->ldv = w->chunk;
    p->tile_q = (p->nq + blocks_of(p->nq) - 1) / blocks_of(p->nq);
    if (w->amx)
        p->tile_q = attn__round_up(p->tile_q, ATTN__BF16X3_SIDE);
    p->block_k = (p->nk + blocks_of(p->nk) - 1) / blocks_of(p->nk);
    p->strip = attn__round_up(p->block_k, lanes);
    if (p->strip * (int64_t)sizeof(float) % 128 == 0) /* columns of it must not share sets of the first cache */
        p->strip += 16;
    p->block_k = p->strip; /* of what is allocated; the blocks themselves are those of tile_q and chunk_k */
    p->chunk_k = (p->nk + blocks_of(p->nk) - 1) / blocks_of(p->nk);
    p->chunk_q = p->tile_q;
    w->once = w->waves == 1 && !canonical->problem.accumulate && !attn__flash_backward_sums(canonical);
    w->in_turn = blocks_share(canonical);
    w->may_hide = canonical->has_bias || canonical->has_mask || canonical->has_lens || canonical->has_dropout ||
                  canonical->problem.nbands;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn__wide_head_backward_plan *w = attn__alloc_zero(context, sizeof *w);
    if (!w)
        return ATTN_ERROR_MEMORY;
    attn__flash_backward_plan *p = &w->back;
    attn__flash_backward_plan_start(p, canonical);
    w->sums = attn__additive_for(p->tile->isa);
    w->amx = streams(canonical) ? attn__bf16x3_for(canonical->isa) : NULL;
    choose_sizes(w, canonical);
    recipe->data = w;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, attn__wide_head_backward_bytes(w, canonical));
    snprintf(recipe->text, sizeof recipe->text, "%s, blocks of %d queries x %d keys, %d channels a step, %d waves",
             attn__isa_text(w->amx ? w->amx->isa : p->tile->isa), (int)p->tile_q, (int)p->chunk_k, (int)w->chunk,
             (int)w->waves);
    return ATTN_OK;
}

/* Blocks of queries add to dK and dV, blocks of keys to dQ. */
static unsigned adds_often(const attn__canonical *canonical)
{
    return (canonical->query.size > BLOCK ? ATTN_WANT_DK | ATTN_WANT_DV : 0u) |
           (canonical->key.size > BLOCK ? ATTN_WANT_DQ : 0u);
}

const attn__solver attn__solver_wide_head_backward = {
    .name = "wide_head_backward",
    .refuse = refuse,
    .cost = cost,
    .adds_often = adds_often,
    .plan = plan,
    .apply = attn__wide_head_backward,
};
