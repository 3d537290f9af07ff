/* SPDX-License-Identifier: MIT
 *
 * solve_decode.c - the solver for a few queries over many keys: which problems it accepts, its cost, its plan.
 */
#include "attend/solve/decode_plan.h"

#include "attend/solve/flash.h"
#include "attend/block/rows.h"
#include "base/integers.h"

static const char *refuse(const attn__canonical *canonical)
{
    const char *why = attn__decode_refuse(canonical);
    return why ? why : attn__flash_refuse(canonical);
}

/* Reading keys and values from memory takes as long as multiplying by this many queries.  Each further query needs a
 * load per product, which a tile would share.  Long rows and large blocks read faster.  Heads of 16 and fewer channels
 * leave most of a vector empty, so that any other solver is faster. */
static int64_t most_queries(const attn__canonical *canonical)
{
    return (canonical->contract.size + canonical->value.size >= 192 ? 8 : 4) - (canonical->key.size < 128 ? 2 : 0);
}

static double cost(const attn__canonical *canonical)
{
    double keys = (double)canonical->batch.size * (double)canonical->key.size, queries = (double)canonical->query.size;
    bool small = canonical->contract.size <= 16 && canonical->value.size <= 16;
    double each = small ? 20 : canonical->query.size <= most_queries(canonical) ? 0.9 : 2;
    return keys * (double)(canonical->contract.size + canonical->value.size) * queries * each;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    attn__decode *f = attn__alloc_zero(context, sizeof *f);
    if (!f)
        return ATTN_ERROR_MEMORY;
    attn__decode_describe(f, canonical);
    recipe->data = f;
    attn__decode_settle(recipe, f, canonical, attn__decode_thread_size(f, canonical),
                        attn__decode_sums_size(f, canonical));
    return ATTN_OK;
}

const attn__solver attn__solver_decode = {.name = "decode",
                                          .refuse = refuse,
                                          .cost = cost,
                                          .plan = plan,
                                          .apply = attn__decode_run,
                                          .extras = ATTN__BF16_KEYS};
