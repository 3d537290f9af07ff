/* SPDX-License-Identifier: MIT
 *
 * solve_wide_head.c - the solver for heads of thousands of channels: what it accepts, its cost, its plan.
 */
#include "attend/solve/wide_head_stream.h"

#include "attend/block/rows.h"
#include "base/integers.h"

#include <stdio.h>

enum { STREAMED = 256 }; /* keys of a block on AMX, whose weights and chunks take three halves of the bytes */

/* Whether f32 can use AMX: each step along k must be a run of adjacent channels in every operand. */
static bool streams(const attn__canonical *canonical)
{
    const attn_dtype dtype = canonical->problem.dtype;
    const attn__wide_head_operand q = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.q), dtype),
                                  k = attn__wide_head_operand_of(&canonical->contract, ATTN__STRIDE(dim.k), dtype),
                                  v = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.v), dtype),
                                  o = attn__wide_head_operand_of(&canonical->value, ATTN__STRIDE(dim.o), dtype);
    int64_t channels = canonical->contract.size, values = canonical->value.size;
    return attn__wide_head_stream_pays(canonical) && attn__wide_head_streams(&q, channels) &&
           attn__wide_head_streams(&k, channels) && attn__wide_head_streams(&v, values) &&
           attn__wide_head_streams(&o, values);
}

/* The number of channels from which flash is slower.  Channels are copied as often as in flash, and scores are stored
 * after each chunk, which pays only when a head fills the second cache.  On AMX the vector units do that during the
 * products, so that it pays sooner, soonest with a single block. */
static int64_t least_channels(const attn__canonical *canonical)
{
    enum { PLAIN = 641, STREAM = 512, BLOCK = 256, SHORT = 128 };
    int64_t queries = canonical->query.size, keys = canonical->key.size;
    if (!streams(canonical))
        return PLAIN;
    return attn__most(queries, keys) <= STREAMED && attn__least(queries, keys) >= SHORT ? BLOCK : STREAM;
}

/* Beside flash.  Blocks are larger, so bands leave more of them half empty. */
static double cost(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    int64_t channels = canonical->contract.size + canonical->value.size;
    return pairs * (double)channels * (channels >= least_channels(canonical) ? 0.98 : 1.1) *
           (canonical->problem.nbands ? 1.2 : 1);
}

/* The length of equal parts of n, at most `most` each, rounded up to `unit`. */
static int64_t part(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = (n + most - 1) / most;
    return parts > 1 ? attn__round_up((n + parts - 1) / parts, unit) : attn__round_up(n, unit);
}

/* The scores of a block of queries against one of keys fill half of the second cache, panels and what comes after
 * them the rest. */
static void choose_blocks(attn__wide_head *w, const attn__canonical *canonical)
{
    attn__flash *f = w->flash;
    int64_t wide_head = f->tile->lanes * f->vectors;
    int64_t room = (int64_t)canonical->caches.l2 / 2 / (int64_t)sizeof(float);
    f->key_block = w->amx ? part(canonical->key.size, STREAMED, ATTN__BF16X3_DEPTH)
                          : part(canonical->key.size, 512, f->amx ? ATTN__BF16X3_DEPTH : 8);
    int64_t most = room / f->key_block;
    most = most < wide_head ? wide_head : most > 288 ? 288 : most / wide_head * wide_head;
    f->query_block = part(canonical->query.size, most, f->tile->lanes);
    f->query_blocks = (canonical->query.size + f->query_block - 1) / f->query_block;
    f->subtiles = (f->query_block + wide_head - 1) / wide_head + 1;
    w->key_blocks = (canonical->key.size + f->key_block - 1) / f->key_block;
    w->private_sums = w->key_blocks > 1 && canonical->problem.dtype == ATTN_BF16;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn__wide_head *w = attn__alloc_zero(context, sizeof *w + sizeof *w->flash);
    if (!w)
        return ATTN_ERROR_MEMORY;
    attn__flash *f = w->flash = (attn__flash *)(void *)(w + 1);
    attn__flash_describe(f, canonical);
    w->store = attn__softmax_backward_for(f->tile->isa);
    w->sums = attn__additive_for(f->tile->isa);
    w->channels = f->channels;
    w->values = f->values;
    if (canonical->problem.dtype == ATTN_BF16 && attn__flash_amx_pays(f, canonical))
        attn__flash_use_amx(f, canonical);
    if (streams(canonical)) {
        w->amx = attn__bf16x3_for(canonical->isa);
        f->vectors = 2; /* a subtile is as wide as a square of tiles */
    }
    int64_t chunk = f->amx ? ATTN__WIDE_HEAD_AMX_CHUNK : ATTN__WIDE_HEAD_CHUNK;
    f->channels = attn__least(w->channels, chunk);
    f->values = attn__least(attn__round_up(w->values, 16), chunk);
    f->ldk = attn__round_up(f->channels, 16);
    f->ldv = f->values;
    f->held = f->values;
    choose_blocks(w, canonical);
    recipe->data = w;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, attn__wide_head_bytes(w, canonical));
    char unit[40];
    int terms = w->amx ? ATTN__BF16X3_F32 : f->terms;
    if (f->amx || w->amx)
        snprintf(unit, sizeof unit, "%s, %d bf16 term%s", attn__isa_text(canonical->isa), terms,
                 terms == 1 ? "" : "s");
    else
        snprintf(unit, sizeof unit, "%s tile %dx%d", attn__isa_text(f->tile->isa), f->tile->rows,
                 f->tile->lanes * f->tile->vectors);
    snprintf(recipe->text, sizeof recipe->text, "%s, blocks of %d queries x %d keys, %d + %d channels a step", unit,
             (int)f->query_block, (int)f->key_block, (int)f->channels, (int)f->values);
    return ATTN_OK;
}

const attn__solver attn__solver_wide_head = {
    .name = "wide_head", .refuse = attn__flash_refuse, .cost = cost, .plan = plan, .apply = attn__wide_head_forward};
