/* SPDX-License-Identifier: MIT
 *
 * flash_tables.h - what both passes of flash attention share: relative tables in the plan, their memory in a thread,
 * and memory for AMX tiles.
 */
#ifndef ATTN_ATTEND_FLASH_TABLES_H
#define ATTN_ATTEND_FLASH_TABLES_H

#include "attend/block/table.h"
#include "kernels/bf16x3/bf16x3.h"

typedef struct attn__flash_table {
    bool value; /* true: a table of values; false: a table of queries */
    attn__table_panel panel;
    int64_t ld; /* row stride of terms and weights */
} attn__flash_table;

typedef struct attn__flash_tables {
    int n;
    attn__flash_table of[ATTN_MAX_RELATIVE];
} attn__flash_tables;

/* The memory of one table. `terms` are products of queries or dout with the table rows that they use. */
typedef struct attn__flash_table_memory {
    attn__table_memory panel;
    float *terms;
    int64_t *query, *key; /* indices along the table's axes of the queries and keys of a block */
    /* The following field is for the forward pass. */
    int64_t *lane; /* tables of queries: offset in `terms` of each lane's term for key index 0 */
    /* The following fields are for the backward pass. A query and a key have the term terms[query][key index - query
     * index]. */
    float *sums;             /* gradient of one item, shaped like the panel */
    float *weights;          /* sums of dS or P by distance, shaped like `terms` */
    attn__table_reach reach; /* table rows that the tile and the block of keys use */
} attn__flash_table_memory;

static inline int64_t attn__flash_table_at(const attn__canonical *canonical, int i, int64_t batch)
{
    return attn__offsets_one(&canonical->batch, ATTN__STRIDE(table) + (size_t)i * sizeof(int64_t), batch);
}

/* The panels have the row stride ld_query or ld_value. A product has at most `queries` queries and `keys` keys. */
static inline void attn__flash_tables_choose(attn__flash_tables *t, const attn__canonical *canonical, int64_t lanes,
                                             int64_t ld_query, int64_t ld_value, int64_t queries, int64_t keys)
{
    t->n = canonical->problem.nrelatives;
    for (int i = 0; i < t->n; i++) {
        attn__flash_table *x = &t->of[i];
        x->value = canonical->problem.relatives[i].kind == ATTN_RELATIVE_VALUE;
        x->panel = attn__table_panel_make(canonical, i, x->value ? ld_value : ld_query, lanes);
        x->ld = attn__odd_lines(attn__table_most_rows(canonical, i, queries, keys));
    }
}

static inline void attn__flash_tables_channels(attn__flash_tables *t, const attn__canonical *canonical, int64_t *room)
{
    for (int i = 0; i < t->n; i++) {
        t->of[i].panel.channel = room;
        room = attn__table_channel_offsets(canonical, i, room);
    }
}

/* Marks a thread's tables as not read. Each execution must call it first, because tables may have changed. */
static inline void attn__flash_tables_start(const attn__flash_tables *t, const attn__flash_table_memory *m)
{
    for (int i = 0; i < t->n; i++)
        attn__table_memory_start(&m[i].panel);
}

/* Writes the indices of keys [first, first + n) along each table's key axis. */
static inline void attn__flash_tables_keys(const attn__flash_tables *t, const attn__canonical *canonical, int64_t first,
                                           int64_t n, const attn__flash_table_memory *m)
{
    for (int i = 0; i < t->n; i++)
        attn__offsets_indices(&canonical->key, canonical->problem.relatives[i].key_dim, first, n, m[i].key);
}

/* Reports whether all value tables are finite. If `queries` is set, query tables must be finite too. */
static inline bool attn__flash_tables_finite(const attn__flash_tables *t, const attn__flash_table_memory *m,
                                             bool queries)
{
    bool finite = true;
    for (int i = 0; i < t->n; i++)
        finite = finite && (*m[i].panel.finite || !(t->of[i].value || queries));
    return finite;
}

/* Reserves AMX tiles for `blocks` blocks of 16 rows or columns. Each block has `steps` tiles along the summed index. */
static inline attn__bf16x3_side attn__flash_take_side(attn__arena *arena, int terms, int64_t blocks, int64_t steps)
{
    attn__bf16x3_side side = attn__bf16x3_packed(NULL, steps, terms);
    side.data = attn__arena_take(arena, blocks * side.block, sizeof *side.data);
    return side;
}

static inline attn__bf16x3_side attn__flash_from_block(attn__bf16x3_side side, int64_t block)
{
    side.data += block * side.block;
    return side;
}

#endif
