/* SPDX-License-Identifier: MIT
 *
 * flash_tables.c - relative tables by products with all rows that a subtile reads.
 *
 * A subtile's queries and a block of keys meet at relative positions that lie close together.  For a table T of queries,
 * X = Q T^T has a row for each query and a column for each such position.  The terms of query i and keys 0, 1, 2, ...
 * are neighbours in row i, from a column on that depends on i: X read from there on is transposed to S^T, to which the
 * product of keys and queries is added.  For a table of values, D^T[d,i] is the sum of the weights that query i has for
 * keys at position d, and O^T += T^T D^T.
 */
#include "attend/solve/flash_item.h"

#include "attend/block/rows.h"
#include "base/integers.h"

#include <string.h>

void attn__flash_tables_choose(attn__flash *f, const attn__canonical *canonical)
{
    int64_t wide = f->tile->lanes * f->vectors;
    f->ntables = canonical->problem.nrelatives;
    for (int i = 0; i < f->ntables; i++) {
        attn__flash_table *table = &f->table[i];
        table->value = canonical->problem.relatives[i].kind == ATTN_RELATIVE_VALUE;
        table->panel = attn__table_panel_make(canonical, i, attn__odd_lines(f->values), f->tile->lanes);
        table->ld = attn__odd_lines(attn__table_most_rows(canonical, i, wide, f->key_block));
    }
}

void attn__flash_tables_take(const attn__flash *f, attn__arena *arena, attn__flash_scratch *s)
{
    int64_t wide = f->tile->lanes * f->vectors;
    for (int i = 0; i < f->ntables; i++) {
        attn__flash_table_memory *x = &s->table[i];
        attn__table_memory_take(&f->table[i].panel, arena, f->table[i].value, &x->panel);
        x->terms = attn__arena_take(arena, wide * f->table[i].ld, sizeof(float));
        x->query = attn__arena_take(arena, f->query_block, sizeof(int64_t));
        x->key = attn__arena_take(arena, f->key_block, sizeof(int64_t));
        x->lane = attn__arena_take(arena, wide, sizeof(int64_t));
    }
}

void attn__flash_tables_start(const attn__flash *f, const attn__flash_scratch *s)
{
    for (int i = 0; i < f->ntables; i++)
        attn__table_memory_start(&s->table[i].panel);
}

static void indices(const attn__group *group, int axis, int64_t first, int64_t n, int64_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = attn__offsets_index(group, axis, first + i);
}

void attn__flash_tables_begin(const attn__flash_item *t, int64_t batch)
{
    for (int i = 0; i < t->flash->ntables; i++) {
        int64_t at = attn__offsets_one(&t->canonical->batch, ATTN__STRIDE(table) + (size_t)i * sizeof(int64_t), batch);
        attn__table_panel_read(&t->flash->table[i].panel, t->canonical, t->arrays, at, 1.0f, &t->s.table[i].panel);
        indices(&t->canonical->query, t->canonical->problem.relatives[i].query_dim, t->first, t->count,
                t->s.table[i].query);
    }
}

void attn__flash_tables_keys(const attn__flash_item *t, const attn__flash_keys *b)
{
    for (int i = 0; i < t->flash->ntables; i++)
        indices(&t->canonical->key, t->canonical->problem.relatives[i].key_dim, b->at, b->keys, t->s.table[i].key);
}

static attn__table_reach reach_of(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    return attn__table_reach_of(&t->flash->table[i].panel, x->query + sub.lane, sub.lanes, x->key, b->keys);
}

/* ------------------------------------------------------------------------------------------------ of queries */

/* X, and where a key of index 0 would meet each lane. */
static void multiply(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i)
{
    const attn__flash *f = t->flash;
    const attn__flash_table *table = &f->table[i];
    const attn__flash_table_memory *x = &t->s.table[i];
    attn__table_reach reach = reach_of(t, b, sub, i);
    f->tile->run(&(attn__gemm_tile_args){.m = sub.lanes,
                                         .n = attn__round_up(reach.n, f->tile->lanes),
                                         .k = f->channels,
                                         .a = t->s.q + sub.lane * f->channels,
                                         .am = 1,
                                         .ak = sub.width,
                                         .b = x->panel.across + reach.low,
                                         .ldb = table->panel.ld_across,
                                         .c = x->terms,
                                         .ldc = table->ld});
    for (int64_t r = 0; r < sub.lanes; r++)
        x->lane[r] = r * table->ld - x->query[sub.lane + r] + table->panel.queries - 1 - reach.low;
}

/* The terms of one table, to rows of s. */
static void transpose(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i, float *s)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    for (int64_t from = 0, end = 0; from < b->keys; from = end) {
        bool steps = attn__table_run(x->key, from, b->keys, &end);
        float *first = s + from * sub.width;
        attn__lane_view view = {x->terms + x->key[from], ATTN_F32, x->lane, NULL, steps ? end - from : 1, sub.lanes};
        t->flash->lanes->gather(&view, first, sub.width, 1.0f);
        for (int64_t key = from + 1; !steps && key < end; key++)
            memcpy(s + key * sub.width, first, (size_t)sub.width * sizeof *s);
    }
}

bool attn__flash_tables_terms(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    bool any = false;
    for (int i = 0; i < t->flash->ntables; i++) {
        if (t->flash->table[i].value)
            continue;
        multiply(t, b, sub, i);
        transpose(t, b, sub, i, any ? t->s.extra : t->s.s);
        if (any)
            t->flash->lanes->add(t->s.s, t->s.extra, b->keys * sub.width, 1.0f);
        any = true;
    }
    return any;
}

/* ------------------------------------------------------------------------------------------------- of values */

bool attn__flash_tables_finite(const attn__flash_item *t)
{
    bool finite = true;
    for (int i = 0; i < t->flash->ntables; i++)
        finite = finite && (!t->flash->table[i].value || *t->s.table[i].panel.finite);
    return finite;
}

/* Pair by pair, without those that do not see each other: a product would have each row meet weights of 0. */
static void add_carefully(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i,
                          int64_t low)
{
    const attn__table_panel *panel = &t->flash->table[i].panel;
    const attn__flash_table_memory *x = &t->s.table[i];
    float *o = t->s.o + sub.lane * t->flash->held;
    for (int64_t key = 0; key < b->keys; key++)
        for (int64_t lane = 0; lane < sub.lanes; lane++) {
            float p = t->s.s[key * sub.width + lane];
            int64_t row = low + x->key[key] - x->query[sub.lane + lane];
            bool counts = p != 0.0f || !t->s.hidden[key * sub.width + lane];
            for (int64_t c = 0; counts && c < panel->channels; c++)
                o[c * sub.width + lane] += p * x->panel.rows[row * panel->ld + c];
        }
}

/* D^T. */
static void collect(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, int i,
                    attn__table_reach reach, int64_t low)
{
    const attn__flash_table_memory *x = &t->s.table[i];
    const int64_t *query = x->query + sub.lane;
    memset(x->terms, 0, (size_t)(reach.n * sub.width) * sizeof(float));
    for (int64_t key = 0; key < b->keys; key++)
        for (int64_t lane = 0; lane < sub.lanes; lane++)
            x->terms[(low + x->key[key] - query[lane] - reach.low) * sub.width + lane] +=
                t->s.s[key * sub.width + lane];
}

void attn__flash_tables_values(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    for (int i = 0; i < f->ntables; i++) {
        const attn__table_panel *panel = &f->table[i].panel;
        const attn__flash_table_memory *x = &t->s.table[i];
        int64_t low = panel->queries - 1;
        if (!f->table[i].value)
            continue;
        if (b->careful) {
            add_carefully(t, b, sub, i, low);
            continue;
        }
        attn__table_reach reach = reach_of(t, b, sub, i);
        collect(t, b, sub, i, reach, low);
        f->tile->run(&(attn__gemm_tile_args){.m = f->values,
                                             .n = sub.width,
                                             .k = reach.n,
                                             .a = x->panel.rows + reach.low * panel->ld,
                                             .am = 1,
                                             .ak = panel->ld,
                                             .b = x->terms,
                                             .ldb = sub.width,
                                             .c = t->s.o + sub.lane * f->held,
                                             .ldc = sub.width,
                                             .accumulate = true});
    }
}
