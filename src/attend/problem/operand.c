/* SPDX-License-Identifier: MIT
 * The table of operands and its look-ups. */
#include "attend/problem/operand.h"
#include "attend/scores/score.h"

const attn__operand_info attn__operand_table[ATTN__OPERANDS] = {
#define ATTN_X(NAME, field, roles, positional)                                                                         \
    [ATTN__OP_##NAME] = {#field, offsetof(attn_dim, field), ATTN__IN_BATCH | (roles), positional},
    ATTN__OPERAND_MAP(ATTN_X)
#undef ATTN_X
};

bool attn__operand_used(const attn_problem *problem, attn__operand op)
{
    bool backward = problem->direction == ATTN_DIRECTION_BACKWARD;
    unsigned with = problem->flags;
    switch (op) {
    case ATTN__OP_BIAS:
        return with & ATTN_WITH_BIAS;
    case ATTN__OP_MASK:
        return with & ATTN_WITH_MASK;
    case ATTN__OP_LENS:
        return with & ATTN_WITH_LENS;
    case ATTN__OP_LSE:
        return backward || (with & ATTN_WANT_LSE);
    case ATTN__OP_WEIGHTS:
        return !backward && (with & ATTN_WANT_WEIGHTS);
    case ATTN__OP_W:
        return attn__score_of(problem)->vectors > 0;
    case ATTN__OP_SINKS:
        return (with & ATTN_WITH_SINKS) && (!backward || (with & ATTN_WANT_DSINKS));
    case ATTN__OP_BLOCKS:
        return with & ATTN_WITH_BLOCKS;
    case ATTN__OP_DQ:
        return backward && (with & ATTN_WANT_DQ);
    case ATTN__OP_DK:
        return backward && (with & ATTN_WANT_DK);
    case ATTN__OP_DV:
        return backward && (with & ATTN_WANT_DV);
    case ATTN__OP_DOUT:
        return backward;
    case ATTN__OP_DBIAS:
        return backward && (with & ATTN_WANT_DBIAS);
    default:
        return true;
    }
}

bool attn__operand_packed(attn__operand op, attn_role role)
{
    switch (op) {
    case ATTN__OP_Q:
    case ATTN__OP_O:
    case ATTN__OP_LSE:
    case ATTN__OP_DQ:
    case ATTN__OP_DOUT:
        return role == ATTN_ROLE_QUERY;
    case ATTN__OP_K:
    case ATTN__OP_V:
    case ATTN__OP_DK:
    case ATTN__OP_DV:
        return role == ATTN_ROLE_KEY;
    default:
        return false;
    }
}

int64_t attn__operand_length(const attn_problem *problem, int dim, attn__operand op)
{
    const attn_window *window = NULL;
    if (attn__operand_table[op].positional && problem->dims[dim].role == ATTN_ROLE_KEY)
        window = attn__window_of(problem, dim);
    if (window)
        return window->size;
    if (problem->flags & ATTN_WITH_PACKED) {
        if (dim == problem->packed.query_dim && attn__operand_packed(op, ATTN_ROLE_QUERY))
            return problem->packed.queries;
        if (dim == problem->packed.key_dim && attn__operand_packed(op, ATTN_ROLE_KEY))
            return problem->packed.keys;
    }
    if (op == ATTN__OP_BLOCKS && (problem->flags & ATTN_WITH_BLOCKS)) {
        if (dim == problem->blocks.query_dim)
            return attn__blocks_count(problem->dims[dim].n, problem->blocks.queries);
        if (dim == problem->blocks.key_dim)
            return attn__blocks_count(problem->dims[dim].n, problem->blocks.keys);
    }
    for (int i = 0; op == ATTN__OP_WEIGHTS && i < problem->npicks; i++)
        if (problem->picks[i].dim == dim)
            return problem->picks[i].n;
    return problem->dims[dim].n;
}

attn_dtype attn__operand_dtype(const attn_problem *problem, attn__operand op)
{
    attn_dtype dtype = problem->dtype;
    switch (op) {
    case ATTN__OP_MASK:
    case ATTN__OP_BLOCKS:
        return ATTN_U8;
    case ATTN__OP_LENS:
        return ATTN_I32;
    case ATTN__OP_BIAS:
    case ATTN__OP_LSE:
    case ATTN__OP_WEIGHTS:
    case ATTN__OP_W:
    case ATTN__OP_SINKS:
    case ATTN__OP_DBIAS:
        return dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    case ATTN__OP_K:
    case ATTN__OP_V:
        return problem->flags & ATTN_WITH_BF16_KEYS ? ATTN_BF16 : dtype;
    default:
        return dtype;
    }
}
