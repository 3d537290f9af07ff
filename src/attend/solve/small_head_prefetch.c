/* SPDX-License-Identifier: MIT
 *
 * small_head_prefetch.c - prefetches rows into the second cache: with so few products per element, waiting for memory
 * would take a quarter of the time.
 */
#include "attend/solve/small_head_plan.h"

#include "attend/block/rows.h"
#include "base/integers.h"

bool attn__small_head_prefetch(const attn__canonical *canonical, attn__prefetch *prefetch, const void *base,
                               int64_t batch, const attn__group *group, int64_t from, int64_t rows, size_t stride,
                               int64_t bytes)
{
    if (group->n != 1) /* left to the machine */
        return false;
    int64_t size = (int64_t)attn_dtype_size(canonical->problem.dtype);
    int64_t step = group->size > 1 ? attn__offsets_one(group, stride, 1) : 0;
    int64_t at = attn__offsets_one(&canonical->batch, stride, batch) + from * step;
    attn__prefetch_add(prefetch, (const char *)base + at * size, step * size, NULL,
                       attn__least(rows, group->size - from), bytes);
    return rows > 0 && group->size > from;
}
