/* SPDX-License-Identifier: MIT
 *
 * table.h - the relative tables of a problem.  Rows are read one by one, or all together as a panel.  A panel holds
 * each row that some pair of a query and a key uses. Products with tiles of queries and keys read panels.
 */
#ifndef ATTN_ATTEND_TABLE_H
#define ATTN_ATTEND_TABLE_H

#include "attend/block/rows.h"
#include "base/arena.h"
#include "base/integers.h"

static inline const attn__group *attn__table_channels(const attn__canonical *canonical, int relative)
{
    return canonical->problem.relatives[relative].kind == ATTN_RELATIVE_VALUE ? &canonical->value
                                                                              : &canonical->contract;
}

/* Returns the table's stride, as an argument for attn__offsets_one. */
static inline size_t attn__table_stride(int relative)
{
    return ATTN__STRIDE(table) + (size_t)relative * sizeof(int64_t);
}

/* Reads the table row at `offset`. Channels outside of the table become 0. */
void attn__table_gather(const attn__canonical *canonical, int relative, const void *table, int64_t offset, double *row);
/* Adds factor * row to the sums at `offset`, for the channels of the table. */
void attn__table_add(const attn__canonical *canonical, int relative, double *sums, int64_t offset, double factor,
                     const double *row);

/* ------------------------------------------------------------------------------------------------ panels */

/* A panel of a table of queries or values. Query index i and key index j along the table's axes use row j - i + queries
 * - 1. */
typedef struct attn__table_panel {
    int relative;
    int64_t queries, rows, channels;
    int64_t first;          /* the table row that is row 0 of the panel; may be outside of the table */
    int64_t ld, ld_across;  /* row strides of `rows` and `across` of attn__table_memory; the solver chooses `ld` */
    const int64_t *channel; /* offset of each channel in a table row; INT64_MIN if the table lacks the channel */
} attn__table_panel;

/* Returns the reason why a solver cannot use panels for the problem's tables, or NULL if it can. */
const char *attn__table_panels_refuse(const attn__canonical *canonical);

/* Sets all fields except `channel`. Rows of `across` are so long that `lanes` floats can be loaded from any column. */
attn__table_panel attn__table_panel_make(const attn__canonical *canonical, int relative, int64_t ld, int64_t lanes);
/* Writes the offsets of the table's contract or value channels. Returns the end of the memory used. */
int64_t *attn__table_channel_offsets(const attn__canonical *canonical, int relative, int64_t *to);

/* Returns a row stride in floats for rows of n numbers: an odd number of cache lines, so that a column uses all sets of
 * the L1 cache.  The stride exceeds n by at least one line, so that a product may round n up to whole vectors. */
static inline int64_t attn__odd_lines(int64_t n)
{
    enum { LINE = 16 };
    return attn__round_up(n, 2 * LINE) + LINE;
}

/* The panel of one thread. */
typedef struct attn__table_memory {
    float *rows;   /* [rows][ld]; NULL if the solver needs no rows */
    float *across; /* [channels][ld_across], the transposed rows */
    int64_t *at;   /* offset of the table that the panel holds; INT64_MIN if the panel is empty */
    bool *finite;
} attn__table_memory;

void attn__table_memory_take(const attn__table_panel *panel, attn__arena *arena, bool rows, attn__table_memory *memory);
/* Marks the panel as empty. Each execution calls it first, because the table may have changed. */
static inline void attn__table_memory_start(const attn__table_memory *memory)
{
    *memory->at = INT64_MIN;
}

/* Reads the table at an element offset, unless the panel already holds that table. Writes the numbers to `rows`, and
 * the numbers times `factor` to `across`.  Rows outside of the table are 0. */
void attn__table_panel_read(const attn__table_panel *panel, const attn__canonical *canonical,
                            const attn__execution *arrays, int64_t at, float factor, const attn__table_memory *memory);

/* Rows [low, low + n) of the panel, which the pairs of some queries and keys use. */
typedef struct attn__table_reach {
    int64_t low, n;
} attn__table_reach;
attn__table_reach attn__table_reach_of(const attn__table_panel *panel, const int64_t *query, int64_t queries,
                                       const int64_t *key, int64_t keys);

/* Returns the largest number of rows that pairs of `queries` and `keys` contiguous queries and keys can use. */
int64_t attn__table_most_rows(const attn__canonical *canonical, int relative, int64_t queries, int64_t keys);

/* Finds a run of keys [from, *end) whose indices increase by one (returns true) or are equal (returns false). */
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
