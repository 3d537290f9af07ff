/* SPDX-License-Identifier: MIT
 * Relative tables by products: an entry for each distance of the tile. */
#include "attend/solve/blocked.h"

#include "attend/block/table.h"
#include "base/integers.h"

static bool is_of(const attn__blocked *b, int i, attn_relative_kind kind)
{
    return b->canonical->problem.relatives[i].kind == kind;
}

/* The row of the table, counted from its `begin`, that pair j of query i reads is position[j] + this. */
static int64_t row_shift(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int table)
{
    const attn_relative *r = &b->canonical->problem.relatives[table];
    return attn__blocked_distance_shift(b, t, i, r->query_dim, r->key_dim) + r->offset - b->plan->table[table].begin;
}

static const int64_t *positions_of(const attn__blocked *b, int table)
{
    return attn__blocked_integers(b, b->plan->at.position) +
           b->canonical->problem.relatives[table].key_dim * b->plan->pairs;
}

/* Covers every row that a pair reads which is not masked.  It begins at a K block of the products, so that sums over rows
 * have one order whatever the tile. */
static void find_span(attn__blocked *b, const attn__blocked_tile *t, int table)
{
    const int64_t *position = positions_of(b, table);
    int64_t rows = b->plan->table[table].rows, least = INT64_MAX, nearest = INT64_MAX;
    for (int64_t j = 0; j < t->pairs; j++)
        nearest = attn__least(nearest, position[j]);
    for (int64_t i = 0; i < t->queries; i++)
        least = attn__least(least, row_shift(b, t, i, table));
    int64_t first = attn__least(attn__most(nearest + least, 0), rows - 1) / ATTN__BLOCKED_ROWS * ATTN__BLOCKED_ROWS;
    b->span[table].first = first;
    b->span[table].n = attn__least(rows - first, b->plan->table[table].most);
}

/* The rows of what the table is multiplied with: keys, queries, or dout. */
static const double *rows_of(const attn__blocked *b, const attn__blocked_tile *t, int table, int64_t *n)
{
    *n = is_of(b, table, ATTN_RELATIVE_KEY) ? t->columns : t->queries;
    return is_of(b, table, ATTN_RELATIVE_KEY) ? t->k : is_of(b, table, ATTN_RELATIVE_QUERY) ? b->q : b->dout;
}

static void clear(const attn__blocked *b, int64_t place, int table, int64_t rows)
{
    memset(attn__blocked_at(b, place), 0, (size_t)(rows * b->plan->table[table].ld) * sizeof(double));
}

void attn__blocked_multiply_tables(attn__blocked *b, const attn__blocked_tile *t)
{
    for (int i = 0; i < b->canonical->problem.nrelatives; i++) {
        const attn__blocked_table *table = &b->plan->table[i];
        int64_t rows, channels = attn__table_channels(b->canonical, i)->size;
        const double *a = rows_of(b, t, i, &rows);
        find_span(b, t, i);
        if (is_of(b, i, ATTN_RELATIVE_VALUE) && !b->canonical->backward)
            continue;
        attn__blocked_multiply(b, &(attn__blocked_product){.a = a,
                                                           .lda = channels,
                                                           .b = attn__blocked_at(b, table->t_t) + b->span[i].first,
                                                           .ldb = table->ld_t,
                                                           .c = attn__blocked_at(b, table->x),
                                                           .ldc = table->ld,
                                                           .m = rows,
                                                           .n = b->span[i].n,
                                                           .k = channels});
        if (b->canonical->backward && is_of(b, i, ATTN_RELATIVE_KEY))
            clear(b, table->g, i, rows);
    }
}

/* The row of x or g of each pair: that of the query, or of the pair's column. */
typedef struct walk {
    const int64_t *position, *column; /* column: NULL: the pair's own index */
    int64_t row, n, first_column;
    bool by_key;
} walk;

static walk walk_of(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int table)
{
    walk w = {.position = positions_of(b, table),
              .row = row_shift(b, t, i, table) - b->span[table].first,
              .n = b->span[table].n,
              .by_key = is_of(b, table, ATTN_RELATIVE_KEY)};
    w.first_column = attn__blocked_column_shift(b, t, i, &w.column);
    return w;
}

static int64_t entry_of(const walk *w, int64_t i, int64_t j, int64_t ld)
{
    int64_t at = attn__least(attn__most(w->position[j] + w->row, 0), w->n - 1); /* a masked pair may ask for others */
    return (w->by_key ? w->first_column + (w->column ? w->column[j] : j) : i) * ld + at;
}

void attn__blocked_add_tables(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, bool values, double *x)
{
    for (int n = 0; n < b->canonical->problem.nrelatives; n++) {
        const attn__blocked_table *table = &b->plan->table[n];
        if (is_of(b, n, ATTN_RELATIVE_VALUE) != values)
            continue;
        walk w = walk_of(b, t, i, n);
        const double *from = attn__blocked_at(b, table->x);
        for (int64_t j = 0; j < t->pairs; j++)
            x[j] += from[entry_of(&w, i, j, table->ld)];
    }
}

void attn__blocked_sum_tables(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, bool values,
                              const double *x)
{
    for (int n = 0; n < b->canonical->problem.nrelatives; n++) {
        const attn__blocked_table *table = &b->plan->table[n];
        bool by_key = is_of(b, n, ATTN_RELATIVE_KEY);
        if (is_of(b, n, ATTN_RELATIVE_VALUE) != values)
            continue;
        walk w = walk_of(b, t, i, n);
        double *to = attn__blocked_at(b, by_key ? table->g : table->x);
        if (!by_key)
            memset(to + i * table->ld, 0, (size_t)b->span[n].n * sizeof *to);
        for (int64_t j = 0; j < t->pairs; j++)
            to[entry_of(&w, i, j, table->ld)] += x[j];
    }
}

/* rows += sums by distance * the table. */
static void apply(attn__blocked *b, int table, double *rows, int64_t n)
{
    const attn__blocked_table *of = &b->plan->table[table];
    int64_t channels = attn__table_channels(b->canonical, table)->size;
    bool by_key = is_of(b, table, ATTN_RELATIVE_KEY);
    attn__blocked_multiply_masked(
        b, &(attn__blocked_product){.a = attn__blocked_at(b, by_key ? of->g : of->x),
                                    .lda = of->ld,
                                    .b = attn__blocked_at(b, of->t) + b->span[table].first * channels,
                                    .ldb = channels,
                                    .c = rows,
                                    .ldc = channels,
                                    .m = n,
                                    .n = channels,
                                    .k = b->span[table].n,
                                    .add = true});
}

void attn__blocked_apply_value_tables(attn__blocked *b, const attn__blocked_tile *t)
{
    for (int i = 0; i < b->canonical->problem.nrelatives; i++)
        if (is_of(b, i, ATTN_RELATIVE_VALUE))
            apply(b, i, attn__blocked_at(b, b->plan->at.o), t->queries);
}

void attn__blocked_apply_score_tables(attn__blocked *b, const attn__blocked_tile *t)
{
    for (int i = 0; i < b->canonical->problem.nrelatives; i++) {
        if (is_of(b, i, ATTN_RELATIVE_QUERY))
            apply(b, i, attn__blocked_at(b, b->plan->at.dq), t->queries);
        if (is_of(b, i, ATTN_RELATIVE_KEY))
            apply(b, i, t->dk, t->columns);
    }
}

void attn__blocked_sum_table_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    for (int i = 0; i < b->canonical->problem.nrelatives; i++) {
        const attn__blocked_table *table = &b->plan->table[i];
        int64_t rows, channels = attn__table_channels(b->canonical, i)->size;
        const double *with = rows_of(b, t, i, &rows);
        bool by_key = is_of(b, i, ATTN_RELATIVE_KEY);
        if (!b->sums->at[ATTN__SUM_TABLE + i])
            continue;
        attn__blocked_multiply_masked(
            b, &(attn__blocked_product){.a = attn__blocked_at(b, by_key ? table->g : table->x),
                                        .lda = table->ld,
                                        .b = with,
                                        .ldb = channels,
                                        .c = attn__blocked_at(b, table->dt) + b->span[i].first * channels,
                                        .ldc = channels,
                                        .m = b->span[i].n,
                                        .n = channels,
                                        .k = rows,
                                        .transposed = true,
                                        .add = true});
    }
}
