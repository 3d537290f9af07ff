/* SPDX-License-Identifier: MIT
 *
 * solve_small_sequence.c - the solver for heads with few queries and keys: what it accepts, its cost.
 */
#include "attend/solve/small_sequence_plan.h"

#include "attend/solve/flash.h"
#include "base/integers.h"

static const char *refuse(const attn__canonical *canonical)
{
    const char *why = attn__flash_refuse(canonical);
    return why ? why : attn__small_sequence_refuse(canonical);
}

enum { FEW = 16 }; /* tokens */

/* A single query leaves nothing to multiply an element by twice, and `few` reads it once.  Heads of up to 8 channels
 * leave half of a vector of values empty, and `small_head` is the quicker as soon as it can fill its lanes with queries.
 * Heads of 9 to 16 channels do too, but for a few tokens.  The number of heads does not matter: their bits must not
 * depend on it. */
static double cost(const attn__canonical *canonical)
{
    double keys = (double)canonical->batch.size * (double)canonical->key.size,
           queries = (double)canonical->query.size + 0.2;
    int64_t most = attn__most(canonical->contract.size, canonical->value.size), filled = most <= 4 ? 32 : 16;
    bool few = canonical->query.size <= FEW && canonical->key.size <= FEW;
    double wide = few && most <= 16 ? 0.4 : 0.8;
    double each = most > 8 ? wide : canonical->query.size > filled ? 0.99 : 0.4;
    return each * keys * queries * (double)(canonical->contract.size + canonical->value.size);
}

extern const attn__solver attn__solver_small_sequence;
const attn__solver attn__solver_small_sequence = {.name = "small_sequence",
                                                  .refuse = refuse,
                                                  .cost = cost,
                                                  .plan = attn__small_sequence_plan_make,
                                                  .apply = attn__small_sequence_forward};
