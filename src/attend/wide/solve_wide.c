/* SPDX-License-Identifier: MIT
 *
 * solve_wide.c - the solver for heads of thousands of channels: what it accepts, its cost, its plan.
 */
#include "attend/wide/wide_stream.h"

#include "attend/task/offsets.h"
#include "base/integers.h"

#include <stdio.h>

enum { STREAMED = 256 }; /* keys of a block on AMX, whose weights and chunks take three halves of the bytes */

/* Whether f32 can use AMX: each step along k must be a run of adjacent channels in every operand. */
static bool streams(const attn__task *task)
{
    const attn_dtype dtype = task->problem.dtype;
    const attn__wide_operand q = attn__wide_operand_of(&task->contract, ATTN__STRIDE(dim.q), dtype),
                             k = attn__wide_operand_of(&task->contract, ATTN__STRIDE(dim.k), dtype),
                             v = attn__wide_operand_of(&task->value, ATTN__STRIDE(dim.v), dtype),
                             o = attn__wide_operand_of(&task->value, ATTN__STRIDE(dim.o), dtype);
    int64_t channels = task->contract.size, values = task->value.size;
    return attn__wide_stream_pays(task) && attn__wide_streams(&q, channels) && attn__wide_streams(&k, channels) &&
           attn__wide_streams(&v, values) && attn__wide_streams(&o, values);
}

/* The number of channels from which flash is slower.  Channels are copied as often as in flash, and scores are stored
 * after each chunk, which pays only when a head fills the second cache.  On AMX the vector units do that during the
 * products, so that it pays sooner, soonest with a single block. */
static int64_t least_channels(const attn__task *task)
{
    enum { PLAIN = 641, STREAM = 512, BLOCK = 256, SHORT = 128 };
    int64_t queries = task->query.size, keys = task->key.size;
    if (!streams(task))
        return PLAIN;
    return attn__most(queries, keys) <= STREAMED && attn__least(queries, keys) >= SHORT ? BLOCK : STREAM;
}

/* Beside flash.  Blocks are larger, so bands leave more of them half empty. */
static double cost(const attn__task *task)
{
    double pairs = (double)task->batch.size * (double)task->query.size * (double)task->key.size;
    int64_t channels = task->contract.size + task->value.size;
    return pairs * (double)channels * (channels >= least_channels(task) ? 0.98 : 1.1) *
           (task->problem.nbands ? 1.2 : 1);
}

/* The length of equal parts of n, at most `most` each, rounded up to `unit`. */
static int64_t part(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = (n + most - 1) / most;
    return parts > 1 ? attn__round_up((n + parts - 1) / parts, unit) : attn__round_up(n, unit);
}

/* The scores of a block of queries against one of keys fill half of the second cache, panels and what comes after
 * them the rest. */
static void choose_blocks(attn__wide *w, const attn__task *task)
{
    attn__flash *f = w->flash;
    int64_t wide = f->tile->lanes * f->vectors;
    int64_t room = (int64_t)task->caches.l2 / 2 / (int64_t)sizeof(float);
    f->key_block = w->unit ? part(task->key.size, STREAMED, ATTN__PARTS_DEPTH)
                           : part(task->key.size, 512, f->parts ? ATTN__PARTS_DEPTH : 8);
    int64_t most = room / f->key_block;
    most = most < wide ? wide : most > 288 ? 288 : most / wide * wide;
    f->query_block = part(task->query.size, most, f->tile->lanes);
    f->query_blocks = (task->query.size + f->query_block - 1) / f->query_block;
    f->subtiles = (f->query_block + wide - 1) / wide + 1;
    w->key_blocks = (task->key.size + f->key_block - 1) / f->key_block;
    w->sums_apart = w->key_blocks > 1 && task->problem.dtype == ATTN_BF16;
}

static attn_status plan(attn_context *context, const attn__task *task, attn__recipe *recipe)
{
    attn__wide *w = attn__alloc_zero(context, sizeof *w + sizeof *w->flash);
    if (!w)
        return ATTN_MEMORY;
    attn__flash *f = w->flash = (attn__flash *)(void *)(w + 1);
    attn__flash_describe(f, task);
    w->put = attn__backward_for(f->tile->isa);
    w->sums = attn__channels_for(f->tile->isa);
    w->channels = f->channels;
    w->values = f->values;
    if (task->problem.dtype == ATTN_BF16 && attn__flash_in_parts(f, task))
        attn__flash_use_parts(f, task);
    if (streams(task)) {
        w->unit = attn__parts_for(task->isa);
        f->vectors = 2; /* a subtile is as wide as a square of tiles */
    }
    int64_t chunk = f->parts ? ATTN__WIDE_PARTS_CHUNK : ATTN__WIDE_CHUNK;
    f->channels = attn__least(w->channels, chunk);
    f->values = attn__least(attn__round_up(w->values, 16), chunk);
    f->ldk = attn__round_up(f->channels, 16);
    f->ldv = f->values;
    f->held = f->values;
    choose_blocks(w, task);
    recipe->data = w;
    recipe->workspace = attn__size_mul((size_t)task->threads, attn__wide_bytes(w, task));
    char unit[40];
    int nparts = w->unit ? ATTN__PARTS_F32 : f->nparts;
    if (f->parts || w->unit)
        snprintf(unit, sizeof unit, "%s, %d part%s of a number", attn__isa_text(task->isa), nparts,
                 nparts == 1 ? "" : "s");
    else
        snprintf(unit, sizeof unit, "%s tile %dx%d", attn__isa_text(f->tile->isa), f->tile->rows,
                 f->tile->lanes * f->tile->vectors);
    snprintf(recipe->text, sizeof recipe->text, "%s, blocks of %d queries x %d keys, %d + %d channels a step", unit,
             (int)f->query_block, (int)f->key_block, (int)f->channels, (int)f->values);
    return ATTN_OK;
}

const attn__solver attn__solver_wide = {
    .name = "wide", .refuse = attn__flash_refuse, .cost = cost, .plan = plan, .apply = attn__wide_forward};
