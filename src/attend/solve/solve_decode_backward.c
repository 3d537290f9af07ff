/* SPDX-License-Identifier: MIT
 *
 * solve_decode_backward.c - the solver for gradients of a few queries over many keys: what it accepts, its plan.
 */
#include "attend/solve/decode_plan.h"

#include "attend/solve/flash_backward.h"
#include "attend/block/rows.h"

/* Gradients larger than this many second caches will be evicted before they are read, and go past the caches.  The
 * third cache is no measure: the system may report that of the whole socket. */
enum { STREAM_L2 = 16 };

static const char *refuse(const attn__canonical *canonical)
{
    const char *why = attn__flash_backward_refuse(canonical);
    if (!why)
        why = attn__decode_refuse(canonical);
    if (why)
        return why;
    if (canonical->problem.flags & ATTN_WANT_DBIAS)
        return "wants the gradient of a bias";
    if (attn__flash_backward_sums(canonical))
        return "gradients summed over broadcast dims";
    if (!attn__offsets_adjacent(&canonical->contract, ATTN__STRIDE(dim.dk)) ||
        !attn__offsets_adjacent(&canonical->value, ATTN__STRIDE(dim.dv)))
        return "channels of dk or dv are not adjacent";
    return NULL;
}

/* A tile packs each key, which takes as long as multiplying by this many queries; with more of them its products share
 * loads.  (2,048 keys of 64 channels, this solver and tiles: 6.6 and 15 ms for one query, 13.3 and 17 for 8, 34 and 20
 * for 16.)  Heads of 16 and fewer channels leave most of a vector empty. */
static double cost(const attn__canonical *canonical)
{
    double keys = (double)canonical->batch.size * (double)canonical->key.size, queries = (double)canonical->query.size;
    double channels = (double)(canonical->contract.size + canonical->value.size);
    bool small = canonical->contract.size <= 16 && canonical->value.size <= 16;
    int64_t most = canonical->key.size < 64 ? 2 : 8;
    return keys * channels * queries * (small ? 20 : canonical->query.size <= most ? 0.9 : 2);
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn__decode *f = attn__alloc_zero(context, sizeof *f);
    if (!f)
        return ATTN_ERROR_MEMORY;
    attn__decode_describe(f, canonical);
    f->backward = attn__softmax_backward_for(canonical->isa);
    double bytes = (double)canonical->batch.size * (double)canonical->key.size *
                   (double)(canonical->contract.size + canonical->value.size) * sizeof(float);
    f->stream = bytes > STREAM_L2 * (double)canonical->caches.l2;
    recipe->data = f;
    attn__decode_settle(recipe, f, canonical, attn__decode_backward_thread_size(f, canonical),
                        attn__decode_backward_part_size(f, canonical));
    return ATTN_OK;
}

const attn__solver attn__solver_decode_backward = {
    .name = "decode_backward", .refuse = refuse, .cost = cost, .plan = plan, .apply = attn__decode_backward_run};
