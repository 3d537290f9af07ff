/* SPDX-License-Identifier: MIT
 *
 * rows.c - index to offset, one by one and for runs.
 */
#include "attend/block/rows.h"

static int64_t stride_of(const attn__axis *axis, size_t stride)
{
    return *(const int64_t *)(const void *)((const char *)axis + stride);
}

int64_t attn__offsets_one(const attn__group *group, size_t stride, int64_t index)
{
    int64_t offset = 0;
    for (int a = group->n - 1; a >= 0; a--) {
        int64_t n = group->axis[a].dim.n;
        if (n <= 1)
            continue;
        offset += index % n * stride_of(&group->axis[a], stride);
        index /= n;
    }
    return offset;
}

int64_t attn__offsets_index(const attn__group *group, int axis, int64_t index)
{
    for (int a = group->n - 1; a > axis; a--)
        index /= group->axis[a].dim.n;
    return index % group->axis[axis].dim.n;
}

/* Runs along the last axis, with one division for each. */
void attn__offsets_fill(const attn__group *group, size_t stride, int64_t first, int64_t count, int64_t *out)
{
    const attn__axis *last = &group->axis[group->n - 1];
    int64_t n = last->dim.n, step = stride_of(last, stride);
    for (int64_t i = 0; i < count;) {
        int64_t at = attn__offsets_one(group, stride, first + i);
        int64_t run = n - (first + i) % n;
        for (int64_t end = run < count - i ? i + run : count; i < end; i++, at += step)
            out[i] = at;
    }
}

bool attn__offsets_adjacent(const attn__group *group, size_t stride)
{
    return attn__offsets_even(group, stride, 1);
}

bool attn__offsets_even(const attn__group *group, size_t stride, int64_t step)
{
    for (int a = group->n - 1; a >= 0; a--) {
        if (group->axis[a].dim.n > 1 && stride_of(&group->axis[a], stride) != step)
            return false;
        step *= group->axis[a].dim.n;
    }
    return true;
}
