/* SPDX-License-Identifier: MIT
 *
 * flash_backward_mask.c - which keys a query attends, and the additive bias.
 *
 * With one KEY axis, bands and lengths leave each row an interval of keys.  With several, they become bytes,
 * as a boolean mask is.
 */
#include "attend/solve/flash_backward.h"

#include <string.h>

bool attn__flash_backward_one_key_axis(const attn__canonical *canonical)
{
    return canonical->key.n == 1;
}

static bool lens_per_query(const attn__canonical *canonical)
{
    for (int a = 0; a < canonical->query.n; a++)
        if (canonical->query.axis[a].dim.n > 1 && canonical->query.axis[a].dim.lens != 0)
            return true;
    return false;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Past this key no query of the item attends any: keys that only pad a batch cost nothing. */
int64_t attn__flash_backward_key_end(const attn__flash_backward_run *run)
{
    const attn__canonical *canonical = run->canonical;
    if (!canonical->has_lens || !attn__flash_backward_one_key_axis(canonical) || lens_per_query(canonical) ||
        canonical->problem.mask_fill != 0.0)
        return run->plan->nk;
    return clamp(run->arrays->lens[run->item.at.lens], 0, run->plan->nk);
}

static void limit_band(const attn__flash_backward_run *run, const attn_band *band, const int64_t *index)
{
    const int64_t far = INT64_C(1) << 40, nk = run->plan->nk;
    int64_t lo = clamp(band->lo, -far, far), hi = clamp(band->hi, -far, far);
    for (int64_t r = 0; r < run->tile_n; r++) {
        int32_t from = (int32_t)clamp(index[r] + lo, 0, nk), to = (int32_t)clamp(index[r] + hi + 1, 0, nk);
        if (from > run->m.from[r])
            run->m.from[r] = from;
        if (to < run->m.to[r])
            run->m.to[r] = to;
    }
}

/* The interval of keys of each row of the tile, and the row's place along the axis of each band. */
void attn__flash_backward_limits(attn__flash_backward_run *run)
{
    const attn__canonical *canonical = run->canonical;
    const attn__flash_backward_plan *plan = run->plan;
    for (int64_t r = 0; r < run->tile_n; r++) {
        run->m.from[r] = 0;
        run->m.to[r] = (int32_t)plan->nk;
    }
    if (canonical->has_blocks)
        attn__block_rows(canonical, run->item.at.blocks, run->tile, run->tile_n, run->m.query_at.block);
    for (int b = 0; b < canonical->problem.nbands; b++) {
        int64_t *index = run->m.q_index + b * plan->tile_q;
        attn__flash_backward_index(&canonical->query, canonical->problem.bands[b].query_dim, run->tile, run->tile_n,
                                   index);
        if (attn__flash_backward_one_key_axis(canonical))
            limit_band(run, &canonical->problem.bands[b], index);
    }
    if (!canonical->has_lens)
        return;
    attn__flash_backward_walk(&canonical->query, ATTN__STRIDE(dim.lens), run->tile, run->tile_n, run->item.at.lens,
                              run->m.query_at.lens);
    for (int64_t r = 0; r < run->tile_n && attn__flash_backward_one_key_axis(canonical); r++) {
        int32_t to = (int32_t)clamp(run->arrays->lens[run->m.query_at.lens[r]], 0, plan->nk);
        if (to < run->m.to[r])
            run->m.to[r] = to;
    }
}

static void mask_structure(const attn__flash_backward_run *run, int64_t first, int64_t n, int64_t r, uint8_t *mask)
{
    const attn_problem *problem = &run->canonical->problem;
    const attn__flash_backward_plan *plan = run->plan;
    for (int b = 0; b < problem->nbands; b++) {
        const int64_t *j = run->m.k_index + b * plan->block_k + first, i = run->m.q_index[b * plan->tile_q + r];
        for (int64_t c = 0; c < n; c++)
            mask[c] &= (uint8_t)(j[c] - i >= problem->bands[b].lo && j[c] - i <= problem->bands[b].hi);
    }
    if (run->canonical->has_lens) {
        const int64_t *j = run->m.k_index + ATTN_MAX_BANDS * plan->block_k + first;
        int64_t length = run->arrays->lens[run->m.query_at.lens[r]];
        for (int64_t c = 0; c < n; c++)
            mask[c] &= (uint8_t)(j[c] < length);
    }
}

static bool keys_adjacent(const attn__canonical *canonical)
{
    return attn__flash_backward_one_key_axis(canonical) && canonical->key.axis[0].dim.mask == 1;
}

attn__block_view attn__flash_backward_mask_seen(const attn__flash_backward_run *run, int64_t first, int64_t n,
                                                int64_t row, int64_t rows)
{
    if (!run->canonical->has_mask || run->canonical->has_blocks || !keys_adjacent(run->canonical))
        return ATTN__BLOCKS_SOME;
    return attn__mask_seen(run->arrays->mask + run->m.key_at.mask[first], run->m.query_at.mask + row, rows, n);
}

/* Bytes for keys first .. first + n of the block; nothing to do where intervals say it all. */
void attn__flash_backward_mask(const attn__flash_backward_run *run, int64_t first, int64_t n)
{
    const attn__canonical *canonical = run->canonical;
    bool close = keys_adjacent(canonical);
    for (int64_t r = 0; r < run->tile_n; r++) {
        uint8_t *mask = run->m.mask + r * run->plan->strip;
        memset(mask, 1, (size_t)run->plan->strip);
        if (canonical->has_mask) {
            const int64_t *at = run->m.key_at.mask + first;
            const uint8_t *row = run->arrays->mask + run->m.query_at.mask[r], *from = row + at[0];
            for (int64_t c = 0; close && c < n; c++)
                mask[c] = from[c] != 0;
            for (int64_t c = 0; !close && c < n; c++)
                mask[c] = row[at[c]] != 0;
        }
        for (int64_t c = 0; canonical->has_blocks && c < n; c++)
            mask[c] &= run->arrays->blocks[run->m.query_at.block[r] + run->m.key_at.block[first + c]] != 0;
        if (!attn__flash_backward_one_key_axis(canonical))
            mask_structure(run, first, n, r, mask);
    }
}

static bool sees(const attn__flash_backward_run *run, int64_t r, int64_t j)
{
    const attn__canonical *canonical = run->canonical;
    const attn_problem *problem = &canonical->problem;
    bool seen = j >= run->m.from[r] && j < run->m.to[r];
    if (canonical->has_mask)
        seen =
            seen &&
            run->arrays->mask[run->m.query_at.mask[r] + attn__offsets_one(&canonical->key, ATTN__STRIDE(dim.mask), j)];
    if (canonical->has_blocks) {
        int64_t column;
        attn__block_columns(canonical, j, 1, &column);
        seen = seen && run->arrays->blocks[run->m.query_at.block[r] + column];
    }
    if (attn__flash_backward_one_key_axis(canonical))
        return seen;
    for (int b = 0; b < problem->nbands; b++) {
        int64_t apart = attn__offsets_index(&canonical->key, problem->bands[b].key_dim, j) -
                        run->m.q_index[b * run->plan->tile_q + r];
        seen = seen && apart >= problem->bands[b].lo && apart <= problem->bands[b].hi;
    }
    if (canonical->has_lens)
        seen = seen &&
               attn__offsets_index(&canonical->key, problem->lens_dim, j) < run->arrays->lens[run->m.query_at.lens[r]];
    return seen;
}

/* Counts the masked keys of row r of the tile, for rows that see no other key. */
int64_t attn__flash_backward_count_masked(const attn__flash_backward_run *run, int64_t r)
{
    int64_t masked = 0;
    for (int64_t j = 0; j < run->plan->nk; j++)
        masked += !sees(run, r, j);
    return masked;
}

attn__block_view attn__flash_backward_blocks_seen(const attn__flash_backward_run *run, int64_t row, int64_t rows,
                                                  int64_t first, int64_t n)
{
    if (!run->canonical->has_blocks)
        return ATTN__BLOCKS_ALL;
    return attn__blocks_seen(run->arrays->blocks, run->m.query_at.block + row, rows, run->m.key_at.block + first, n);
}

void attn__flash_backward_bias(const attn__flash_backward_run *run, int64_t first, int64_t n)
{
    const float *bias = run->arrays->bias;
    bool close = attn__flash_backward_one_key_axis(run->canonical) && run->canonical->key.axis[0].dim.bias == 1;
    for (int64_t r = 0; r < run->tile_n; r++) {
        float *row = run->m.bias + r * run->plan->strip;
        const float *from = bias + run->m.query_at.bias[r];
        if (close)
            memcpy(row, from + run->m.key_at.bias[first], (size_t)n * sizeof *row);
        else
            for (int64_t c = 0; c < n; c++)
                row[c] = from[run->m.key_at.bias[first + c]];
        memset(row + n, 0, (size_t)(run->plan->strip - n) * sizeof *row);
    }
}

/* dbias += dS; adds in sequence where a broadcast bias shares entries. */
void attn__flash_backward_add_dbias(const attn__flash_backward_run *run, int64_t first, int64_t row, int64_t rows,
                                    int64_t n)
{
    float *dbias = run->arrays->dbias;
    bool close = attn__flash_backward_one_key_axis(run->canonical) && run->canonical->key.axis[0].dim.dbias == 1;
    for (int64_t r = row; r < row + rows; r++) {
        const float *ds = run->m.dbias + r * run->plan->strip;
        float *to = dbias + run->m.query_at.dbias[r];
        const int64_t *at = run->m.key_at.dbias + first;
        if (close)
            run->plan->backward->store(to + at[0], ds, n, 1.0f, true);
        else
            for (int64_t c = 0; c < n; c++)
                to[at[c]] += ds[c];
    }
}
