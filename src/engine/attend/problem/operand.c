/* SPDX-License-Identifier: MIT */
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
        return backward ? problem->normalization != ATTN_NORMALIZATION_SIGMOID : with & ATTN_WANT_LSE;
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

int64_t attn__operand_length(const attn_problem *problem, const attn_dim *dim, int number, attn__operand op)
{
    bool query = dim->role == ATTN_ROLE_QUERY, key = dim->role == ATTN_ROLE_KEY;
    const attn_packed *packed = &problem->packed;
    const attn_blocks *blocks = &problem->blocks;
    const attn_window *window = key && attn__operand_table[op].positional ? attn__window_of(problem, number) : NULL;
    if (window)
        return window->size;
    if ((problem->flags & ATTN_WITH_PACKED) && attn__operand_packed(op, dim->role)) {
        if (query && number == packed->query_dim)
            return packed->queries;
        if (key && number == packed->key_dim)
            return packed->keys;
    }
    if (op == ATTN__OP_BLOCKS && (problem->flags & ATTN_WITH_BLOCKS)) {
        if (query && number == blocks->query_dim)
            return attn__blocks_count(dim->n, blocks->queries);
        if (key && number == blocks->key_dim)
            return attn__blocks_count(dim->n, blocks->keys);
    }
    for (int i = 0; op == ATTN__OP_WEIGHTS && i < problem->npicks; i++)
        if (problem->picks[i].dim == number)
            return problem->picks[i].n;
    return dim->n;
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
