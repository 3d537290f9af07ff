/* SPDX-License-Identifier: MIT
 *
 * table.h - the relative tables of a problem: single rows along the channels of its queries or values; and a table as
 * a panel, the rows that whole axes reach, for products with all rows that a tile of queries and keys reads.
 */
#ifndef ATTN_ATTEND_TABLE_H
#define ATTN_ATTEND_TABLE_H

#include "attend/block/rows.h"
#include "base/arena.h"
#include "base/integers.h"

/* The group of the table's channels. */
static inline const attn__group *attn__table_channels(const attn__canonical *canonical, int relative)
{
    return canonical->problem.relatives[relative].kind == ATTN_RELATIVE_VALUE ? &canonical->value
                                                                              : &canonical->contract;
}

/* The table's stride, as an argument of attn__offsets_one. */
static inline size_t attn__table_stride(int relative)
{
    return ATTN__STRIDE(table) + (size_t)relative * sizeof(int64_t);
}

/* Reads the row at `offset`: one number for each channel, 0 for channels outside of the table. */
void attn__table_gather(const attn__canonical *canonical, int relative, const void *table, int64_t offset, double *row);
/* sums[offset] += factor * row, for the channels of the table. */
void attn__table_add(const attn__canonical *canonical, int relative, double *sums, int64_t offset, double factor,
                     const double *row);

/* ------------------------------------------------------------------------------------------------ panels */

/* A panel of a table of queries or values: query i and key j, indices along its axes, read row j - i + queries - 1. */
typedef struct attn__table_panel {
    int relative; /* index of the table in the problem */
    int64_t queries, rows, channels;
    int64_t first;          /* the table's row that is the panel's row 0; may be outside the table */
    int64_t ld, ld_across;  /* row strides of attn__table_memory's `rows` (chosen by the solver) and `across` */
    const int64_t *channel; /* offset of each channel in a table row; INT64_MIN: the table has no such channel */
} attn__table_panel;

/* Why a solver cannot have panels of all tables; NULL if it can. */
const char *attn__table_panels_refuse(const attn__canonical *canonical);

/* Fills all but `channel`.  Rows across may be read from any place on in whole vectors of `lanes` floats. */
attn__table_panel attn__table_panel_make(const attn__canonical *canonical, int relative, int64_t ld, int64_t lanes);
/* Writes the offset of each of the table's contract or value channels; returns the place behind them. */
int64_t *attn__table_channel_offsets(const attn__canonical *canonical, int relative, int64_t *to);

/* Floats from row to row for rows of n: an odd number of cache lines, so that a column uses all sets of the first
 * cache.  At least one line more than n, so that a product may round n up to whole vectors. */
static inline int64_t attn__odd_lines(int64_t n)
{
    enum { LINE = 16 };
    return attn__round_up(n, 2 * LINE) + LINE;
}

/* One thread's panel. */
typedef struct attn__table_memory {
    float *rows;   /* [rows][ld]; NULL: the solver needs no rows */
    float *across; /* [channels][ld_across], the transposed rows */
    int64_t *at;   /* offset of the table in the panel; INT64_MIN: no table was read yet */
    bool *finite;  /* whether all numbers of the table are finite */
} attn__table_memory;

void attn__table_memory_take(const attn__table_panel *panel, attn__arena *arena, bool rows, attn__table_memory *memory);
/* Invalidates the table of an earlier execution. Each execution calls it first. */
static inline void attn__table_memory_start(const attn__table_memory *memory)
{
    *memory->at = INT64_MIN;
}

/* Reads the table at an element offset unless it is there already: to rows as it is, to across times `factor`.  Rows
 * that it does not have are 0. */
void attn__table_panel_read(const attn__table_panel *panel, const attn__canonical *canonical, const attn_arrays *arrays,
                            int64_t at, float factor, const attn__table_memory *memory);

/* The rows [low, low + n) of the panel that some queries and keys, given by their indices, reach. */
typedef struct attn__table_reach {
    int64_t low, n;
} attn__table_reach;
attn__table_reach attn__table_reach_of(const attn__table_panel *panel, const int64_t *query, int64_t queries,
                                       const int64_t *key, int64_t keys);

/* The largest number of rows that so many queries and keys reach, with both contiguous in their groups. */
int64_t attn__table_most_rows(const attn__canonical *canonical, int relative, int64_t queries, int64_t keys);

/* The keys [from, *end) are a run: true, their indices step by one; false, they are the same. */
static inline bool attn__table_run(const int64_t *key, int64_t from, int64_t keys, int64_t *end)
{
    bool steps = from + 1 == keys || key[from + 1] != key[from];
    int64_t to = from + 1;
    while (to < keys && key[to] == key[to - 1] + steps)
        to++;
    *end = to;
    return steps;
}

#endif
