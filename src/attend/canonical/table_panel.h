/* SPDX-License-Identifier: MIT
 *
 * table_panel.h - a relative table of queries or values as a panel: the rows that whole axes reach, for products with
 * all rows that a tile of queries and keys reads.
 *
 * Query i and key j, as indices along the table's axes, read row j - i + queries - 1 of the panel.
 */
#ifndef ATTN_ATTEND_TABLE_PANEL_H
#define ATTN_ATTEND_TABLE_PANEL_H

#include "base/arena.h"
#include "attend/canonical/table.h"

typedef struct attn__table_panel {
    int relative; /* its number in the problem */
    int64_t queries, rows, channels;
    int64_t first;          /* the panel's first row is this one of the table, which may have no such row */
    int64_t ld, ld_across;  /* from row to row: of rows, chosen by the solver, and of the transposed ones */
    const int64_t *channel; /* offset in a row of the table, INT64_MIN where it does not serve the channel */
} attn__table_panel;

/* Why a solver cannot have panels of all tables; NULL: it can. */
const char *attn__table_panels_refuse(const attn__canonical *canonical);

/* All but `channel`, with vectors of `lanes` floats. */
attn__table_panel attn__table_panel_make(const attn__canonical *canonical, int relative, int64_t ld, int64_t lanes);
/* Writes the offset of each of the table's contract or value channels; returns the place behind them. */
int64_t *attn__table_channel_offsets(const attn__canonical *canonical, int relative, int64_t *to);

/* Floats from row to row for rows of n: an odd number of cache lines, so that a column lies in all sets of the first
 * cache. */
int64_t attn__odd_lines(int64_t n);

/* One thread's panel. */
typedef struct attn__table_memory {
    float *rows;   /* [rows][ld], or NULL if the solver has no use for them */
    float *across; /* [channels][ld_across] */
    int64_t *at;   /* of the table that is there, INT64_MIN before the first */
    bool *finite;
} attn__table_memory;

void attn__table_memory_take(const attn__table_panel *panel, attn__arena *arena, bool rows, attn__table_memory *memory);
/* Before anything else of each execution. */
void attn__table_memory_start(const attn__table_memory *memory);
/* Reads the table at an element offset unless it is there: as it is to rows, times `factor` to across.  Rows that it
 * does not have are 0. */
void attn__table_panel_read(const attn__table_panel *panel, const attn__canonical *canonical, const attn_arrays *arrays,
                            int64_t at, float factor, const attn__table_memory *memory);

/* The rows [low, low + n) of the panel that some queries and keys, given by their indices, reach. */
typedef struct attn__table_reach {
    int64_t low, n;
} attn__table_reach;
attn__table_reach attn__table_reach_of(const attn__table_panel *panel, const int64_t *query, int64_t queries,
                                       const int64_t *key, int64_t keys);

/* The most rows that so many queries and keys reach, each neighbours in their group. */
int64_t attn__table_most_rows(const attn__canonical *canonical, int relative, int64_t queries, int64_t keys);

/* The keys [from, *end) are a run: true, their indices step by one; false, they are the same. */
bool attn__table_run(const int64_t *key, int64_t from, int64_t keys, int64_t *end);

#endif
