/* SPDX-License-Identifier: MIT
 * The elements of each array that a plan reads or writes. */
#include "attend/plan/plan.h"
#include "attend/scores/score.h"
#include "attend/problem/extent.h"
#include "attend/block/packed_sequences.h"

static const attn__operand operands[ATTN_ARRAY_TABLE] = {
    [ATTN_ARRAY_Q] = ATTN__OP_Q,
    [ATTN_ARRAY_K] = ATTN__OP_K,
    [ATTN_ARRAY_V] = ATTN__OP_V,
    [ATTN_ARRAY_BIAS] = ATTN__OP_BIAS,
    [ATTN_ARRAY_MASK] = ATTN__OP_MASK,
    [ATTN_ARRAY_LENS] = ATTN__OP_LENS,
    [ATTN_ARRAY_W] = ATTN__OP_W,
    [ATTN_ARRAY_W2] = ATTN__OP_W,
    [ATTN_ARRAY_O] = ATTN__OP_O,
    [ATTN_ARRAY_LSE] = ATTN__OP_LSE,
    [ATTN_ARRAY_DOUT] = ATTN__OP_DOUT,
    [ATTN_ARRAY_DQ] = ATTN__OP_DQ,
    [ATTN_ARRAY_DK] = ATTN__OP_DK,
    [ATTN_ARRAY_DV] = ATTN__OP_DV,
    [ATTN_ARRAY_DBIAS] = ATTN__OP_DBIAS,
    [ATTN_ARRAY_Q_OFFSETS] = ATTN__OP_LENS,
    [ATTN_ARRAY_K_OFFSETS] = ATTN__OP_LENS,
    [ATTN_ARRAY_BIAS_INDEX] = ATTN__OP_BIAS,
    [ATTN_ARRAY_SINKS] = ATTN__OP_SINKS,
    [ATTN_ARRAY_DLSE] = ATTN__OP_LSE,
    [ATTN_ARRAY_DSINKS] = ATTN__OP_SINKS,
    [ATTN_ARRAY_BLOCKS] = ATTN__OP_BLOCKS,
    [ATTN_ARRAY_DW] = ATTN__OP_W,
    [ATTN_ARRAY_DW2] = ATTN__OP_W,
};

static bool is_output(const attn__canonical *canonical, attn_array array)
{
    if (array == ATTN_ARRAY_O || array == ATTN_ARRAY_LSE)
        return !canonical->backward;
    return (array >= ATTN_ARRAY_DQ && array < ATTN_ARRAY_TABLE) || array >= ATTN_ARRAY_DTABLE;
}

/* An own log-sum-exp of the plan's is not the caller's. */
static bool is_used(const attn_plan *plan, attn_array array)
{
    const attn_problem *p = &plan->canonical.problem;
    bool second = attn__score_of(p)->vectors > 1, dw = plan->canonical.backward && (p->flags & ATTN_WANT_DW);
    switch (array) {
    case ATTN_ARRAY_LSE:
        return !plan->own_lse && attn__operand_used(p, ATTN__OP_LSE);
    case ATTN_ARRAY_Q_OFFSETS:
    case ATTN_ARRAY_K_OFFSETS:
        return attn__is_packed(&plan->canonical);
    case ATTN_ARRAY_BIAS_INDEX:
        return plan->bias_index.used;
    case ATTN_ARRAY_DLSE:
        return plan->canonical.extras & ATTN__DLSE;
    case ATTN_ARRAY_DSINKS:
        return plan->canonical.backward && (p->flags & ATTN_WANT_DSINKS);
    case ATTN_ARRAY_W2:
        return second;
    case ATTN_ARRAY_DW:
        return dw;
    case ATTN_ARRAY_DW2:
        return dw && second;
    default:
        return attn__operand_used(p, operands[array]);
    }
}

static bool table_used(const attn_plan *plan, attn_array array)
{
    const attn_problem *p = &plan->canonical.problem;
    if (array >= ATTN_ARRAY_DTABLE)
        return plan->canonical.backward && (p->flags & ATTN_WANT_DTABLES) &&
               (int)array - (int)ATTN_ARRAY_DTABLE < p->nrelatives;
    return (int)array - (int)ATTN_ARRAY_TABLE < p->nrelatives;
}

bool attn_plan_span(const attn_plan *plan, attn_array array, attn_span *span)
{
    const attn__canonical *canonical = &plan->canonical;
    attn__extent extent;
    *span = (attn_span){0};
    if ((int)array < 0 || array >= ATTN_ARRAY_COUNT)
        return false;
    bool table = array >= ATTN_ARRAY_TABLE;
    if ((array == ATTN_ARRAY_Q_OFFSETS || array == ATTN_ARRAY_K_OFFSETS) && is_used(plan, array)) {
        *span = (attn_span){ATTN_I32, false, 0, canonical->batch.axis[canonical->problem.packed.batch_dim].dim.n + 1};
        return true;
    }
    if (!(table ? table_used(plan, array) : is_used(plan, array)))
        return false;
    if (array == ATTN_ARRAY_BIAS_INDEX) {
        *span = (attn_span){ATTN_I32, false, plan->bias_index.low, plan->bias_index.high + 1};
        return true;
    }
    if (table)
        extent = attn__table_extent(canonical, (int)(array - ATTN_ARRAY_TABLE) % ATTN_MAX_RELATIVE);
    else if (plan->bias_index.used && (array == ATTN_ARRAY_BIAS || array == ATTN_ARRAY_DBIAS))
        extent = plan->bias_index.table;
    else if (attn__private_gradients_extent(&plan->private_gradients, operands[array]))
        extent = *attn__private_gradients_extent(&plan->private_gradients, operands[array]);
    else
        extent = attn__operand_extent(canonical, operands[array]);
    span->dtype = attn__operand_dtype(&canonical->problem, table ? ATTN__OP_W : operands[array]);
    span->output = is_output(canonical, array);
    if (attn__extent_size(&extent) > 0) {
        span->low = extent.low;
        span->high = extent.high + 1;
    }
    return true;
}
