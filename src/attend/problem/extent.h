/* SPDX-License-Identifier: MIT
 *
 * extent.h - which elements of an array a problem touches.
 */
#ifndef ATTN_ATTEND_EXTENT_H
#define ATTN_ATTEND_EXTENT_H

#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"

/* The elements of one array: its axes of nonzero stride, and the offsets that they span. */
typedef struct attn__extent {
    int n;
    int64_t length[ATTN_MAX_DIMS + 1], stride[ATTN_MAX_DIMS + 1];
    int64_t low, high;
} attn__extent;

/* How many indices the operand has along axis i of a group: the length, or positions. */
int64_t attn__extent_length(const attn__canonical *canonical, const attn__group *group, int i, attn__operand op);
attn__extent attn__operand_extent(const attn__canonical *canonical, attn__operand op);
attn__extent attn__table_extent(const attn__canonical *canonical, int relative);
/* high - low + 1, or 0 if some axis has no elements. */
static inline size_t attn__extent_size(const attn__extent *e)
{
    for (int i = 0; i < e->n; i++)
        if (e->length[i] == 0)
            return 0;
    return (size_t)(e->high - e->low) + 1;
}

/* Sets the elements of an array to zeros of `size` bytes. */
void attn__extent_zero(const attn__extent *extent, size_t size, void *array);

#endif
