/* SPDX-License-Identifier: MIT
 *
 * flash_tables.h - what flash attention's two passes share: relative tables, in the plan and in the memory of a thread, and
 * memory for tiles of AMX.
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

/* One table's memory; `terms`: its products with queries, or dout, by the rows that they reach. */
typedef struct attn__flash_table_memory {
    attn__table_memory panel;
    float *terms;
    int64_t *query, *key; /* indices of a block's queries and keys along the table's axes */
    /* Forward. */
    int64_t *lane; /* tables of queries, for each lane: the offset in terms of the key of index 0 */
    /* Backward: indices of queries are such that they meet keys at terms[query][key index - query index]. */
    float *sums;             /* the gradient of one item, with the shape of the panel */
    float *weights;          /* sums of dS or of P, with the shape of terms */
    attn__table_reach reach; /* the range of table rows of the tile and the block of keys */
} attn__flash_table_memory;

/* The offset at which the table of a batch index begins. */
static inline int64_t attn__flash_table_at(const attn__canonical *canonical, int i, int64_t batch)
{
    return attn__offsets_one(&canonical->batch, ATTN__STRIDE(table) + (size_t)i * sizeof(int64_t), batch);
}

/* Rows of panels are ld_query or ld_value numbers apart.  So many queries and keys meet at once. */
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

/* Writes the offsets of their channels to `room`. */
static inline void attn__flash_tables_channels(attn__flash_tables *t, const attn__canonical *canonical, int64_t *room)
{
    for (int i = 0; i < t->n; i++) {
        t->of[i].panel.channel = room;
        room = attn__table_channel_offsets(canonical, i, room);
    }
}

/* Before an execution, of each thread. */
static inline void attn__flash_tables_start(const attn__flash_tables *t, const attn__flash_table_memory *m)
{
    for (int i = 0; i < t->n; i++)
        attn__table_memory_start(&m[i].panel);
}

/* The indices of keys [first, first + n). */
static inline void attn__flash_tables_keys(const attn__flash_tables *t, const attn__canonical *canonical, int64_t first,
                                           int64_t n, const attn__flash_table_memory *m)
{
    for (int i = 0; i < t->n; i++)
        attn__offsets_indices(&canonical->key, canonical->problem.relatives[i].key_dim, first, n, m[i].key);
}

/* Whether all tables are finite, of these kinds. */
static inline bool attn__flash_tables_finite(const attn__flash_tables *t, const attn__flash_table_memory *m,
                                             bool queries)
{
    bool finite = true;
    for (int i = 0; i < t->n; i++)
        finite = finite && (*m[i].panel.finite || !(t->of[i].value || queries));
    return finite;
}

/* Tiles of so many blocks of 16 rows or columns, with `steps` tiles along the product's sum. */
static inline attn__bf16x3_side attn__flash_take_side(attn__arena *arena, int terms, int64_t blocks, int64_t steps)
{
    attn__bf16x3_side side = attn__bf16x3_packed(NULL, steps, terms);
    side.data = attn__arena_take(arena, blocks * side.block, sizeof *side.data);
    return side;
}

/* The same tiles from this block on. */
static inline attn__bf16x3_side attn__flash_from_block(attn__bf16x3_side side, int64_t block)
{
    side.data += block * side.block;
    return side;
}

#endif
