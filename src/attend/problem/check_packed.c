/* SPDX-License-Identifier: MIT
 * Checks packed sequences: roles, sizes, and that tokens do not move along the sequences. */
#include "attend/problem/problem.h"

static attn_status check_dims(attn_context *context, const attn_problem *p)
{
    const attn_packed *packed = &p->packed;
    attn_status status = attn__check_role(context, p, packed->batch_dim, ATTN_ROLE_BATCH, "packed.batch_dim");
    if (status == ATTN_OK)
        status = attn__check_role(context, p, packed->query_dim, ATTN_ROLE_QUERY, "packed.query_dim");
    if (status == ATTN_OK)
        status = attn__check_role(context, p, packed->key_dim, ATTN_ROLE_KEY, "packed.key_dim");
    for (int i = 0; status == ATTN_OK && i < p->nwindows; i++)
        if (p->windows[i].query_dim == packed->query_dim || p->windows[i].key_dim == packed->key_dim)
            status = attn__fail(context, ATTN_ERROR_UNSUPPORTED, "window %d slides along a dim of packed sequences", i);
    return status;
}

static attn_status check_counts(attn_context *context, const attn_problem *p)
{
    const attn_packed *packed = &p->packed;
    const struct {
        const char *name;
        int64_t positions, longest;
    } sides[] = {{"queries", packed->queries, p->dims[packed->query_dim].n},
                 {"keys", packed->keys, p->dims[packed->key_dim].n}};
    for (int i = 0; i < 2; i++)
        if (sides[i].positions < 0 || sides[i].positions > INT32_MAX || sides[i].longest > INT32_MAX)
            return attn__fail(context, ATTN_ERROR_SHAPE,
                              "packed.%s is %lld and the longest sequence %lld: both must lie between 0 and 2^31 - 1",
                              sides[i].name, (long long)sides[i].positions, (long long)sides[i].longest);
    return ATTN_OK;
}

/* Along the sequences tokens do not move, along their positions they do. */
static attn_status check_strides(attn_context *context, const attn_problem *p, attn__operand op)
{
    const attn_packed *packed = &p->packed;
    int along = attn__operand_packed(op, ATTN_ROLE_QUERY) ? packed->query_dim : packed->key_dim;
    int64_t stride = attn__stride(&p->dims[packed->batch_dim], op);
    if (stride != 0)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "dim %d counts packed sequences: %s has stride %lld along it, but the offsets say where a "
                          "sequence starts, and the stride must be 0",
                          packed->batch_dim, attn__operand_table[op].name, (long long)stride);
    if (attn__stride(&p->dims[along], op) == 0 && attn__operand_length(p, along, op) > 1)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "dim %d holds packed positions: %s must not have stride 0 along it", along,
                          attn__operand_table[op].name);
    return ATTN_OK;
}

attn_status attn__check_packed(attn_context *context, const attn_problem *p)
{
    if (!(p->flags & ATTN_WITH_PACKED))
        return ATTN_OK;
    attn_status status = check_dims(context, p);
    if (status == ATTN_OK)
        status = check_counts(context, p);
    for (attn__operand op = 0; status == ATTN_OK && op < ATTN__OPERANDS; op++) {
        bool token = attn__operand_packed(op, ATTN_ROLE_QUERY) || attn__operand_packed(op, ATTN_ROLE_KEY);
        if (token && attn__operand_used(p, op) && (op < ATTN__OP_DQ || p->own_grad_strides))
            status = check_strides(context, p, op);
    }
    return status;
}
