/* SPDX-License-Identifier: MIT
 * Lengths, strides and span of the arrays of a problem. */
#include "attend/problem/extent.h"

#include <string.h>

static void widen(attn__extent *e, int64_t length, int64_t stride)
{
    if (stride == 0)
        return;
    e->length[e->n] = length;
    e->stride[e->n++] = stride;
    if (stride < 0)
        e->low += (length - 1) * stride;
    else
        e->high += (length - 1) * stride;
}

int64_t attn__extent_length(const attn__canonical *canonical, const attn__group *group, int i, attn__operand op)
{
    const attn_problem *p = &canonical->problem;
    if (canonical->extras & ATTN__PACKED) {
        if (group == &canonical->query && i == p->packed.query_dim && attn__operand_packed(op, ATTN_ROLE_QUERY))
            return p->packed.queries;
        if (group == &canonical->key && i == p->packed.key_dim && attn__operand_packed(op, ATTN_ROLE_KEY))
            return p->packed.keys;
    }
    if (op == ATTN__OP_BLOCKS && canonical->has_blocks) {
        if (group == &canonical->query && i == p->blocks.query_dim)
            return attn__blocks_count(group->axis[i].dim.n, p->blocks.queries);
        if (group == &canonical->key && i == p->blocks.key_dim)
            return attn__blocks_count(group->axis[i].dim.n, p->blocks.keys);
    }
    const attn_window *window = NULL;
    if (group == &canonical->key && attn__operand_table[op].positional)
        window = attn__window_of(p, i);
    return window ? window->size : group->axis[i].dim.n;
}

attn__extent attn__operand_extent(const attn__canonical *canonical, attn__operand op)
{
    attn__extent e = {0};
    for (attn_role role = ATTN_ROLE_BATCH; role <= ATTN_ROLE_VALUE; role++) {
        const attn__group *group = attn__group_of(canonical, role);
        for (int i = 0; i < group->n; i++)
            widen(&e, attn__extent_length(canonical, group, i, op), attn__stride(&group->axis[i].dim, op));
    }
    return e;
}

attn__extent attn__table_extent(const attn__canonical *canonical, int t)
{
    const attn_relative *r = &canonical->problem.relatives[t];
    const attn__group *channels = r->kind == ATTN_RELATIVE_VALUE ? &canonical->value : &canonical->contract;
    attn__extent e = {0};
    widen(&e, r->rows, r->row_stride);
    for (int i = 0; i < canonical->batch.n; i++)
        widen(&e, canonical->batch.axis[i].dim.n, canonical->batch.axis[i].table[t]);
    for (int i = 0; i < channels->n; i++)
        widen(&e, i == channels->n - 1 ? r->end - r->begin : channels->axis[i].dim.n, channels->axis[i].table[t]);
    return e;
}

void attn__extent_zero(const attn__extent *e, size_t size, void *array)
{
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, offset = 0;
    int i = attn__extent_size(e) ? 0 : -1;
    bool runs = e->n > 0 && e->stride[e->n - 1] == 1;
    int outer = runs ? e->n - 1 : e->n;
    size_t run = runs ? (size_t)e->length[outer] : 1;
    while (i >= 0) {
        memset((char *)array + offset * (int64_t)size, 0, run * size);
        for (i = outer - 1; i >= 0; i--) {
            offset += e->stride[i];
            if (++index[i] < e->length[i])
                break;
            offset -= e->stride[i] * e->length[i];
            index[i] = 0;
        }
    }
}
