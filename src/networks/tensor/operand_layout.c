/* SPDX-License-Identifier: MIT */
#include "tensor/operand_layout.h"

#include "base/integers.h"

static int64_t axis_length(const attn_problem *problem, int dim, bool positions)
{
    for (int i = 0; i < problem->nwindows && positions; i++)
        if (problem->windows[i].key_dim == dim)
            return problem->windows[i].size;
    return problem->dims[dim].n;
}

/* Returns the number of packed positions along a dim of an operand whose strides are at offset `member` of attn_dim.
 * Returns -1 if the operand's positions are not packed along the dim. */
static int64_t packed_length(const attn_problem *problem, size_t member, int dim)
{
    bool queries =
        member == offsetof(attn_dim, q) || member == offsetof(attn_dim, o) || member == offsetof(attn_dim, lse);
    bool keys = member == offsetof(attn_dim, k) || member == offsetof(attn_dim, v);
    if (!(problem->flags & ATTN_WITH_PACKED))
        return -1;
    return queries && dim == problem->packed.query_dim ? problem->packed.queries
           : keys && dim == problem->packed.key_dim    ? problem->packed.keys
                                                       : -1;
}

int attn__operand_extents(const attn_problem *problem, size_t member, bool positions,
                          attn__operand_dim extents[ATTN_MAX_DIMS])
{
    int n = 0;
    for (int i = 0; i < problem->ndims && i < ATTN_MAX_DIMS; i++) {
        int64_t stride = *(const int64_t *)((const char *)&problem->dims[i] + member);
        int64_t packed = packed_length(problem, member, i);
        int64_t length = packed >= 0 ? packed : axis_length(problem, i, positions);
        if (length == 0 || (stride != 0 && length > 1))
            extents[n++] = (attn__operand_dim){length, stride};
    }
    return n;
}

bool attn__operand_bounds(int n, const attn__operand_dim *extents, int64_t *lowest, int64_t *highest)
{
    *lowest = *highest = 0;
    for (int i = 0; i < n; i++) {
        if (extents[i].n == 0)
            return false;
        int64_t far;
        if (__builtin_mul_overflow(extents[i].n - 1, extents[i].stride, &far))
            far = extents[i].stride < 0 ? INT64_MIN / ATTN_MAX_DIMS : INT64_MAX / ATTN_MAX_DIMS;
        if (__builtin_add_overflow(far < 0 ? *lowest : *highest, far, far < 0 ? lowest : highest)) {
            *lowest = INT64_MIN;
            *highest = INT64_MAX;
            return true;
        }
    }
    return true;
}

static void sort_by_stride(int n, attn__operand_dim *extents)
{
    for (int i = 1; i < n; i++) {
        attn__operand_dim moved = extents[i];
        int j = i;
        for (; j > 0 && extents[j - 1].stride > moved.stride; j--)
            extents[j] = extents[j - 1];
        extents[j] = moved;
    }
}

attn__blocks attn__operand_blocks(int n, const attn__operand_dim *extents)
{
    attn__operand_dim sorted[ATTN_MAX_DIMS];
    attn__blocks blocks = {.simple = true, .block = 1, .row = 0, .count = 1};
    for (int i = 0; i < n; i++)
        sorted[i] = extents[i];
    sort_by_stride(n, sorted);
    int64_t span = 1; /* span: number of elements from the first to the last, along the dims so far */
    for (int i = 0; i < n; i++) {
        if (sorted[i].n == 0 || sorted[i].stride < span)
            return (attn__blocks){0};
        if (sorted[i].stride == blocks.block && blocks.row == 0)
            blocks.block *= sorted[i].n;
        else
            blocks.row = attn__gcd(sorted[i].stride, blocks.row);
        span += (sorted[i].n - 1) * sorted[i].stride;
        blocks.count *= sorted[i].n;
    }
    return blocks;
}

bool attn__blocks_disjoint(const attn__blocks *a, const attn__blocks *b, int64_t distance)
{
    if (!a->simple || !b->simple)
        return false;
    int64_t row = attn__gcd(a->row, b->row);
    if (row == 0)
        return distance >= a->block || -distance >= b->block;
    int64_t shift = ((distance % row) + row) % row;
    return shift >= a->block && shift + b->block <= row;
}
