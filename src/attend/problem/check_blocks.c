/* SPDX-License-Identifier: MIT
 * Checks the mask of blocks: roles and sizes. */
#include "attend/problem/problem.h"

static attn_status check_size(attn_context *context, const char *name, int64_t size)
{
    if (size > 0)
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_SHAPE, "blocks.%s is %lld; a block has at least 1", name, (long long)size);
}

attn_status attn__check_blocks(attn_context *context, const attn_problem *p)
{
    if (!(p->flags & ATTN_WITH_BLOCKS))
        return ATTN_OK;
    attn_status status = attn__check_role(context, p, p->blocks.query_dim, ATTN_ROLE_QUERY, "blocks.query_dim");
    if (status == ATTN_OK)
        status = attn__check_role(context, p, p->blocks.key_dim, ATTN_ROLE_KEY, "blocks.key_dim");
    if (status == ATTN_OK)
        status = check_size(context, "queries", p->blocks.queries);
    if (status == ATTN_OK)
        status = check_size(context, "keys", p->blocks.keys);
    if (status != ATTN_OK)
        return status;
    if (p->nwindows)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "a mask of blocks with a window");
    if (p->flags & ATTN_WITH_PACKED)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "a mask of blocks with packed sequences");
    return ATTN_OK;
}
