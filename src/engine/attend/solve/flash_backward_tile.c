/* SPDX-License-Identifier: MIT
 *
 * flash_backward_tile.c - runs one tile: the packed queries with the strips of the packed keys. Finds what a tile and
 * its strips attend; the products are those of the plan.
 */
#include "attend/solve/flash_backward.h"

#include "base/integers.h"

/* ---------------------------------------------------------------------------------------------- what a tile attends */

/* Returns the parts that hide keys of the block from rows of the tile. */
static unsigned find_hidden(const attn__flash_backward_run *run, const attn__visible_tile *tile)
{
    attn__visible_span span = attn__visible_span_of(&run->m.see, tile->row, tile->nrows);
    return attn__visible_of(tile, &span);
}

bool attn__flash_backward_tile_start(attn__flash_backward_run *run)
{
    attn__flash_backward_scratch *m = &run->m;
    attn__visible_rows_start(&m->see, run->canonical, run->arrays, run->batch, run->tile, run->tile_n, 1);
    attn__visible_tile tile = {&m->see, 0, run->tile_n, &m->keys_of_block.see, 0, run->block_n};
    return run->block_n > 0 && find_hidden(run, &tile) != ATTN__VISIBLE_NONE;
}

/* --------------------------------------------------------------------------------------------- what a strip attends */

/* The part of a strip that any query attends: rows [row, row + rows) and the first `keys` keys. `full` is true if all
 * of these rows attend all of these keys. */
typedef struct extent {
    int64_t row, rows, keys;
    bool full;
} extent;

/* Finds the extent of the strip after bands and lengths are applied. */
static extent find_range(const attn__flash_backward_run *run, int64_t key, int64_t n)
{
    extent e = {.row = run->tile_n, .keys = 0, .full = true};
    int64_t end = 0;
    for (int64_t r = 0; r < run->tile_n; r++) {
        int64_t from = run->m.see.begin[r] - key, to = run->m.see.end[r] - key;
        e.full = e.full && from <= 0 && to >= n;
        if (from >= n || to <= 0 || from >= to)
            continue;
        e.row = r < e.row ? r : e.row;
        e.keys = to > e.keys ? to : e.keys;
        end = r + 1;
    }
    if (run->canonical->problem.mask_fill != 0.0) /* masked keys have a weight */
        return (extent){.rows = run->tile_n, .keys = n, .full = e.full};
    e.row -= e.row % run->plan->products->row_step;
    e.rows = end > e.row ? end - e.row : 0;
    e.keys = e.keys < n ? e.keys : n;
    return e;
}

static bool sees_block(const attn__flash_backward_run *run, int64_t row, int64_t first, int64_t n)
{
    attn__visible_tile tile = {&run->m.see, row, 1, &run->m.keys_of_block.see, first, n};
    return attn__visible_of(&tile, NULL) != ATTN__VISIBLE_NONE;
}

/* Finds the extent of the strip after ranges and the mask of blocks are applied. Rows at both ends are cut off if they
 * attend no key. */
static extent find_extent(const attn__flash_backward_run *run, int64_t first, int64_t n)
{
    extent e = find_range(run, run->block + first, n);
    bool cuts = run->canonical->has_blocks && run->canonical->problem.mask_fill == 0.0;
    while (cuts && e.rows > 0 && !sees_block(run, e.row + e.rows - 1, first, e.keys))
        e.rows--;
    int64_t skipped = 0;
    while (cuts && skipped < e.rows && !sees_block(run, e.row + skipped, first, e.keys))
        skipped++;
    skipped -= skipped % run->plan->products->row_step;
    e.row += skipped;
    e.rows -= skipped;
    return e;
}

static attn__tile describe(attn__flash_backward_run *run, int64_t first, extent e)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    bool scores = run->want & (ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES);
    bool finite = run->keys.finite && run->queries.finite && attn__flash_tables_finite(&plan->tables, m->table, true);
    int64_t skip = e.row * plan->strip;
    return (attn__tile){.plan = &plan->tiles,
                        .canonical = run->canonical,
                        .arrays = run->arrays,
                        .see = &m->see,
                        .rows = &m->rows,
                        .row = e.row,
                        .nrows = e.rows,
                        .keys = &m->keys_of_block,
                        .key = first,
                        .nkeys = e.keys,
                        .ld = plan->strip,
                        .s = m->s + skip,
                        .ds = scores ? m->ds + skip : NULL,
                        .dbias = m->dbias != m->ds && (run->want & ATTN_WANT_DBIAS) ? m->dbias + skip : NULL,
                        .bias = m->bias + skip,
                        .mask = m->mask + skip,
                        .alive = finite ? NULL : m->alive + skip};
}

/* Describes a strip of n keys. Returns false if no query attends a key of the strip. */
static bool prepare_strip(attn__flash_backward_strip *x, int64_t first, int64_t n)
{
    attn__flash_backward_run *run = x->run;
    const attn__tile_plan *tiles = &run->plan->tiles;
    const attn__visible *visible = &tiles->visible;
    extent e = find_extent(run, first, n);
    bool by_ranges = visible->ranges && !visible->mask && !visible->blocks; /* then `e` already includes all masks */
    if (!e.rows)
        return false;
    x->t = describe(run, first, e);
    if (!by_ranges) {
        attn__visible_span span = attn__visible_span_of(&run->m.see, e.row, e.rows);
        if (!attn__tile_sees(&x->t, &span))
            return false;
    }
    x->t.full = e.full;
    run->plain = tiles->kind == ATTN__WEIGHTS_SOFTMAX && !x->t.alive && e.full && !x->t.hidden &&
                 !tiles->visible.mask && visible->ranges && !tiles->has_bias && !tiles->has_dropout &&
                 !(tiles->softcap > 0.0f);
    return true;
}

/* --------------------------------------------------------------------------------------------------------- a strip */

/* Runs keys [first, first + n) of the block with the tile of queries. n is at most `strip`. */
static void run_strip(attn__flash_backward_run *run, int64_t first, int64_t n)
{
    attn__flash_backward_strip x = {.run = run};
    if (!prepare_strip(&x, first, n))
        return;
    unsigned want = run->want;
    run->want = run->plan->products->run(&x);
    if (run->want) /* these products cannot hold the strip's numbers */
        attn__flash_backward_by_vectors.run(&x);
    run->want = want;
    if (want & ATTN_WANT_DBIAS)
        attn__tile_dbias(&x.t, true);
}

void attn__flash_backward_tile_run(attn__flash_backward_run *run)
{
    for (int64_t s = 0; s < run->block_n; s += run->plan->strip)
        run_strip(run, s, attn__min(run->plan->strip, run->block_n - s));
    if (run->plan->products->finish)
        run->plan->products->finish(run);
}
