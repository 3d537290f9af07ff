/* SPDX-License-Identifier: MIT */
#include "attend/block/table.h"

#include "attend/block/items.h"

#include <math.h>
#include <string.h>

void attn__table_gather(const attn__canonical *canonical, int relative, const void *table, int64_t offset, double *row)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    const attn__group *group = attn__table_channels(canonical, relative);
    const attn__axis *last = &group->axis[group->n - 1];
    attn_dtype dtype = canonical->problem.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    for (int64_t run = 0, n = last->dim.n; n && run < group->size; run += n) {
        int64_t at = offset + attn__offsets_one(group, attn__table_stride(relative), run);
        for (int64_t c = 0; c < n; c++)
            row[run + c] =
                c >= r->begin && c < r->end ? attn__load(dtype, table, at + (c - r->begin) * last->table[relative]) : 0;
    }
}

void attn__table_add(const attn__canonical *canonical, int relative, double *sums, int64_t offset, double factor,
                     const double *row)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    const attn__group *group = attn__table_channels(canonical, relative);
    const attn__axis *last = &group->axis[group->n - 1];
    for (int64_t run = 0, n = last->dim.n; n && run < group->size; run += n) {
        int64_t at = offset + attn__offsets_one(group, attn__table_stride(relative), run);
        for (int64_t c = r->begin; c < r->end; c++)
            sums[at + (c - r->begin) * last->table[relative]] += factor * row[run + c];
    }
}

/* ------------------------------------------------------------------------------------------------ panels */

/* The largest panel in floats. A thread may hold three arrays of that size: rows, transposed rows, and gradients. */
enum { MOST = 1 << 23 };

/* Returns the number of table rows that pairs of a query and a key along the two axes use. */
static int64_t reached(const attn__canonical *canonical, const attn_relative *r)
{
    return attn__max(canonical->query.axis[r->query_dim].dim.n + canonical->key.axis[r->key_dim].dim.n - 1, 0);
}

const char *attn__table_panels_refuse(const attn__canonical *canonical)
{
    const attn_problem *problem = &canonical->problem;
    if (problem->nrelatives && attn__is_packed(canonical))
        return "does not support relative tables of packed sequences";
    for (int i = 0; i < problem->nrelatives; i++) {
        const attn_relative *r = &problem->relatives[i];
        if (r->kind == ATTN_RELATIVE_KEY)
            return "does not support a relative table of keys";
        if (reached(canonical, r) > MOST / attn__max(1, attn__table_channels(canonical, i)->size))
            return "supports relative tables of at most 2^23 numbers";
    }
    return NULL;
}

attn__table_panel attn__table_panel_make(const attn__canonical *canonical, int relative, int64_t ld, int64_t lanes)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    int64_t queries = canonical->query.axis[r->query_dim].dim.n, rows = reached(canonical, r);
    return (attn__table_panel){.relative = relative,
                               .queries = queries,
                               .rows = rows,
                               .channels = attn__table_channels(canonical, relative)->size,
                               .first = r->offset + 1 - queries,
                               .ld = ld,
                               .ld_across = attn__odd_lines(rows + lanes)};
}

int64_t *attn__table_channel_offsets(const attn__canonical *canonical, int relative, int64_t *to)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    const attn__group *group = attn__table_channels(canonical, relative);
    for (int64_t c = 0; c < group->size; c++) {
        int64_t index[ATTN_MAX_DIMS], offset = 0, *last = &index[group->n - 1];
        attn__split(group, c, index);
        bool served = *last >= r->begin && *last < r->end;
        *last -= r->begin;
        for (int a = 0; a < group->n; a++)
            offset += index[a] * group->axis[a].table[relative];
        to[c] = served ? offset : INT64_MIN;
    }
    return to + group->size;
}

void attn__table_memory_take(const attn__table_panel *panel, attn__arena *arena, bool rows, attn__table_memory *memory)
{
    memory->rows = attn__arena_take(arena, rows ? panel->rows * panel->ld : 0, sizeof(float));
    memory->across = attn__arena_take(arena, panel->channels * panel->ld_across, sizeof(float));
    memory->at = attn__arena_take(arena, 1, sizeof *memory->at);
    memory->finite = attn__arena_take(arena, 1, sizeof *memory->finite);
    if (!rows)
        memory->rows = NULL;
}

enum { RUN = 64 }; /* rows per pass; these rows stay in the L1 cache while all channels are read */

/* Reads channel c of n table rows, from row `row` on. Returns whether all numbers read are finite. */
static bool read_channel(const attn__table_panel *panel, const float *numbers, int64_t step, int64_t row, int64_t n,
                         int64_t c, float factor, const attn__table_memory *memory)
{
    float *across = memory->across + c * panel->ld_across + row;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        float number = numbers[i * step];
        across[i] = number * factor;
        finite &= isfinite(number) != 0;
    }
    for (int64_t i = 0; i < n && memory->rows; i++)
        memory->rows[(row + i) * panel->ld + c] = numbers[i * step];
    return finite;
}

void attn__table_panel_read(const attn__table_panel *panel, const attn__canonical *canonical,
                            const attn__execution *arrays, int64_t at, float factor, const attn__table_memory *memory)
{
    const attn_relative *r = &canonical->problem.relatives[panel->relative];
    const float *table = (const float *)arrays->at.table[panel->relative] + at;
    bool finite = true;
    if (*memory->at == at)
        return;
    *memory->at = at;
    memset(memory->across, 0, (size_t)(panel->channels * panel->ld_across) * sizeof(float));
    if (memory->rows)
        memset(memory->rows, 0, (size_t)(panel->rows * panel->ld) * sizeof(float));
    int64_t end = attn__min(panel->rows, r->rows - panel->first);
    for (int64_t row = attn__max(0, -panel->first); row < end; row += RUN)
        for (int64_t c = 0; c < panel->channels; c++)
            if (panel->channel[c] != INT64_MIN)
                finite &= read_channel(panel, table + (panel->first + row) * r->row_stride + panel->channel[c],
                                       r->row_stride, row, attn__min(RUN, end - row), c, factor, memory);
    *memory->finite = finite;
}

typedef struct range {
    int64_t low, high;
} range;

static range range_of(const int64_t *index, int64_t n)
{
    range r = {index[0], index[0]};
    for (int64_t i = 1; i < n; i++) {
        r.low = attn__min(r.low, index[i]);
        r.high = attn__max(r.high, index[i]);
    }
    return r;
}

attn__table_reach attn__table_reach_of(const attn__table_panel *panel, const int64_t *query, int64_t queries,
                                       const int64_t *key, int64_t keys)
{
    range i = range_of(query, queries), j = range_of(key, keys);
    return (attn__table_reach){.low = j.low - i.high + panel->queries - 1, .n = j.high - j.low + i.high - i.low + 1};
}

/* Returns the largest range of indices along an axis that n neighbours of the group can have.  If n neighbours can
 * cross a step of an outer axis, the result is the whole axis, because the indices start again at that step. */
static int64_t widest_range(const attn__group *group, int axis, int64_t n)
{
    int64_t all = group->axis[axis].dim.n, inner = 1, outer = 1;
    for (int a = 0; a < group->n; a++)
        *(a < axis ? &outer : &inner) *= a == axis ? 1 : group->axis[a].dim.n;
    return outer > 1 ? all : attn__min(attn__ceil_div(n - 1, inner) + 1, all);
}

int64_t attn__table_most_rows(const attn__canonical *canonical, int relative, int64_t queries, int64_t keys)
{
    const attn_relative *r = &canonical->problem.relatives[relative];
    return widest_range(&canonical->query, r->query_dim, queries) + widest_range(&canonical->key, r->key_dim, keys) - 1;
}
