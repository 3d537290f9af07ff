/* SPDX-License-Identifier: MIT
 * Rows of relative tables. */
#include "attend/block/table.h"

#include <string.h>

const attn__group *attn__table_channels(const attn__canonical *canonical, int relative)
{
    return canonical->problem.relatives[relative].kind == ATTN_RELATIVE_VALUE ? &canonical->value
                                                                              : &canonical->contract;
}

attn__strides attn__table_strides(const attn__canonical *canonical, int relative)
{
    const attn__group *group = attn__table_channels(canonical, relative);
    attn__strides s = {{0}};
    for (int i = 0; i < group->n; i++)
        s.at[i] = group->axis[i].table[relative];
    return s;
}

bool attn__table_is_whole(const attn__canonical *canonical, int relative)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    const attn__group *group = attn__table_channels(canonical, relative);
    return r->end - r->begin == group->axis[group->n - 1].dim.n;
}

void attn__table_served(const attn__canonical *canonical, int relative, attn__group *served)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    *served = *attn__table_channels(canonical, relative);
    attn__axis *last = &served->axis[served->n - 1];
    served->size = last->dim.n ? served->size / last->dim.n * (r->end - r->begin) : 0;
    last->dim.n = r->end - r->begin;
}

void attn__table_gather(const attn__canonical *canonical, int relative, const attn__strides *strides, const void *table,
                        int64_t offset, double *row)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    const attn__group *group = attn__table_channels(canonical, relative);
    attn_dtype dtype = canonical->problem.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if (attn__table_is_whole(canonical, relative)) {
        attn__gather(group, strides, dtype, table, offset, row);
        return;
    }
    attn__group served;
    attn__table_served(canonical, relative, &served);
    attn__gather(&served, strides, dtype, table, offset, row);
    int64_t n = group->axis[group->n - 1].dim.n, width = r->end - r->begin;
    for (int64_t run = n ? group->size / n : 0; run-- > 0;) { /* from the back: nothing is overwritten unread */
        memmove(row + run * n + r->begin, row + run * width, (size_t)width * sizeof *row);
        for (int64_t c = 0; c < n; c++)
            if (c < r->begin || c >= r->end)
                row[run * n + c] = 0;
    }
}

void attn__table_add(const attn__canonical *canonical, int relative, const attn__strides *strides, double *sums,
                     int64_t offset, double factor, const double *row, double *scratch)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    const attn__group *group = attn__table_channels(canonical, relative);
    int64_t n = group->axis[group->n - 1].dim.n, at = 0;
    for (int64_t run = 0; n && run < group->size; run += n)
        for (int64_t c = r->begin; c < r->end; c++)
            scratch[at++] = factor * row[run + c];
    if (attn__table_is_whole(canonical, relative)) {
        attn__scatter_add(group, strides, sums, offset, scratch);
        return;
    }
    attn__group served;
    attn__table_served(canonical, relative, &served);
    attn__scatter_add(&served, strides, sums, offset, scratch);
}
