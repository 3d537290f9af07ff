/* SPDX-License-Identifier: MIT
 *
 * table_panel.h - a relative table of queries or values as a panel: the rows that whole axes reach, for products with
 * all rows that a tile of queries and keys reads.
 *
 * Query i and key j, as indices along the table's axes, read row j - i + queries - 1 of the panel.
 */
#ifndef ATTN_ATTEND_TABLE_PANEL_H
#define ATTN_ATTEND_TABLE_PANEL_H

#include "attend/block/table.h"
#include "base/arena.h"

typedef struct attn__table_panel {
    int relative; /* its number in the problem */
    int64_t queries, rows, channels;
    int64_t first;          /* of the table's rows the one that is the panel's row 0; may lie outside the table */
    int64_t ld, ld_across;  /* floats from row to row of attn__table_memory's rows (the solver's choice), and across */
    const int64_t *channel; /* offset in a row of the table, INT64_MIN where it does not serve the channel */
} attn__table_panel;

/* Why a solver cannot have panels of all tables; NULL: it can. */
const char *attn__table_panels_refuse(const attn__canonical *canonical);

/* Fills all but `channel`.  Rows across may be read from any place on in whole vectors of `lanes` floats. */
attn__table_panel attn__table_panel_make(const attn__canonical *canonical, int relative, int64_t ld, int64_t lanes);
/* Writes the offset of each of the table's contract or value channels; returns the place behind them. */
int64_t *attn__table_channel_offsets(const attn__canonical *canonical, int relative, int64_t *to);

/* Floats from row to row for rows of n: an odd number of cache lines, so that a column lies in all sets of the first
 * cache.  At least one line more than n, so that a product may round n up to whole vectors. */
int64_t attn__odd_lines(int64_t n);

/* One thread's panel. */
typedef struct attn__table_memory {
    float *rows;   /* [rows][ld], or NULL if the solver has no use for them */
    float *across; /* [channels][ld_across] */
    int64_t *at;   /* offset of the table that is there, INT64_MIN before the first */
    bool *finite;  /* whether that table is */
} attn__table_memory;

void attn__table_memory_take(const attn__table_panel *panel, attn__arena *arena, bool rows, attn__table_memory *memory);
/* Forgets the table of an earlier execution; before anything else of each. */
void attn__table_memory_start(const attn__table_memory *memory);
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

/* The most rows that so many queries and keys reach, each neighbours in their group. */
int64_t attn__table_most_rows(const attn__canonical *canonical, int relative, int64_t queries, int64_t keys);

/* The keys [from, *end) are a run: true, their indices step by one; false, they are the same. */
bool attn__table_run(const int64_t *key, int64_t from, int64_t keys, int64_t *end);

#endif
