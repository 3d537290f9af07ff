/* SPDX-License-Identifier: MIT
 *
 * narrow_ahead.c - rows brought to the second cache before they are asked for: with so few products per element the
 * way from memory is a quarter of the time else.
 */
#include "attend/narrow/narrow.h"

#include "attend/task/integers.h"
#include "attend/task/offsets.h"

enum { LINE = 64 };

void attn__narrow_look(const attn__narrow *narrow, const attn__task *task, attn__narrow_ahead *ahead, const void *base,
                       const int64_t *column, int64_t batch, const attn__group *group, int64_t from, int64_t rows,
                       size_t stride)
{
    if (group->n != 1 || column) /* left to the machine */
        return;
    int64_t size = (int64_t)attn_dtype_size(task->problem.dtype);
    int64_t step = group->size > 1 ? attn__offsets_one(group, stride, 1) : 0, i = ahead->streams++;
    int64_t at = attn__offsets_one(&task->batch, stride, batch) + from * step;
    rows = attn__least(rows, group->size - from);
    ahead->stream[i].row = (const char *)base + at * size;
    ahead->stream[i].step = step * size;
    ahead->stream[i].rows = rows;
    ahead->stream[i].each = (rows + ahead->calls - 1) / ahead->calls;
    ahead->bytes = narrow->heads * attn__most(task->contract.size, task->value.size) * size;
}

void attn__narrow_fetch_ahead(attn__narrow_ahead *ahead)
{
    for (int i = 0; i < ahead->streams; i++) {
        int64_t rows = attn__least(ahead->stream[i].each, ahead->stream[i].rows);
        const char *row = ahead->stream[i].row;
        for (int64_t r = 0; r < rows; r++, row += ahead->stream[i].step) {
            for (int64_t at = 0; at < ahead->bytes; at += LINE)
                __builtin_prefetch(row + at, 0, 2);
        }
        ahead->stream[i].row = row;
        ahead->stream[i].rows -= rows;
    }
}
