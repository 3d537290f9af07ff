/* SPDX-License-Identifier: MIT
 * Which keys the queries of a block see, and where a tile's pairs and columns stand. */
#include "attend/solve/blocked.h"

#include "attend/block/visible.h"
#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "attend/block/window_base.h"
#include "base/integers.h"

/* a + b, an end of the range of integers where it overflows. */
static int64_t add_bound(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b > 0 ? INT64_MAX : INT64_MIN) : sum;
}

static int64_t clamped(int64_t x, int64_t n)
{
    return x < 0 ? 0 : attn__least(x, n);
}

/* Where bands and lengths leave a row one range of keys. */
static bool has_ranges(const attn__canonical *canonical)
{
    return canonical->key.n == 1 && canonical->problem.nwindows == 0;
}

/* ------------------------------------------------------------------------------------------ of a block */

static int64_t base_of(const attn__blocked *b, const attn_window *w, int64_t query)
{
    const attn__canonical *canonical = b->canonical;
    return attn__window_base(w, canonical->key.axis[w->key_dim].dim.n,
                             attn__offsets_index(&canonical->query, w->query_dim, query));
}

static void find_range(const attn__blocked *b, int64_t query, int64_t *from, int64_t *to)
{
    const attn__canonical *canonical = b->canonical;
    const attn_problem *p = &canonical->problem;
    int64_t n = canonical->key.size;
    *from = 0;
    *to = n;
    for (int i = 0; i < p->nbands; i++) {
        int64_t at = attn__offsets_index(&canonical->query, p->bands[i].query_dim, query);
        *from = attn__most(*from, clamped(add_bound(at, p->bands[i].lo), n));
        *to = attn__least(*to, clamped(add_bound(add_bound(at, p->bands[i].hi), 1), n));
    }
    if (canonical->has_lens)
        *to = attn__least(*to, clamped(b->arrays->lens[attn__blocked_offset(b, ATTN__STRIDE(dim.lens), query)], n));
}

/* Columns along a key axis: the positions that any query of the block touches, or the taps if they all stand alike. */
static attn__blocked_axis axis_of(const attn__blocked *b, const attn__blocked_tile *t, int axis)
{
    const attn_window *w = attn__window_of(&b->canonical->problem, axis);
    int64_t taps = b->canonical->key.axis[axis].dim.n, least = INT64_MAX, most = INT64_MIN;
    if (!w)
        return (attn__blocked_axis){.start = 0, .step = 1, .spread = 1, .columns = taps};
    for (int64_t i = 0; i < t->queries; i++) {
        int64_t base = base_of(b, w, t->query + i);
        least = attn__least(least, base);
        most = attn__most(most, base);
    }
    if (least == most)
        return (attn__blocked_axis){.start = least, .step = w->dilation, .spread = 1, .columns = taps};
    return (attn__blocked_axis){
        .start = least, .step = 1, .spread = w->dilation, .columns = most - least + (taps - 1) * w->dilation + 1};
}

/* As an index of the plan's `positions`; -1: the column is outside. */
static int64_t position_of_column(const attn__blocked *b, int64_t column)
{
    const attn__group *positions = &b->plan->positions;
    int64_t position = 0, stride = 1;
    for (int a = positions->n - 1; a >= 0; a--) {
        const attn__blocked_axis *axis = &b->axis[a];
        int64_t at = axis->start + column % axis->columns * axis->step;
        if (at < 0 || at >= positions->axis[a].dim.n)
            return -1;
        position += at * stride;
        stride *= positions->axis[a].dim.n;
        column /= axis->columns;
    }
    return column == 0 ? position : -1; /* past the last: all blocks of a plan have as many columns */
}

/* Rows of k or v for the columns of the block. */
static const double *gather_columns(const attn__blocked *b, const attn__blocked_tile *t, const double *from, int64_t to,
                                    int64_t channels)
{
    const int64_t *position = attn__blocked_integers(b, b->plan->at.position_of);
    for (int64_t c = 0; c < t->columns; c++) {
        double *near = attn__blocked_at(b, to) + c * channels;
        if (position[c] < 0)
            memset(near, 0, (size_t)channels * sizeof *near);
        else
            memcpy(near, from + position[c] * channels, (size_t)channels * sizeof *near);
    }
    return attn__blocked_at(b, to);
}

static void find_columns(attn__blocked *b, attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    int64_t *position = attn__blocked_integers(b, at->position_of);
    for (int a = 0; a < canonical->key.n; a++)
        b->axis[a] = axis_of(b, t, a);
    t->columns = b->plan->columns;
    for (int64_t c = 0; c < t->columns; c++)
        position[c] = position_of_column(b, c);
    t->k = gather_columns(b, t, b->k, at->block_k, canonical->contract.size);
    t->v = gather_columns(b, t, b->v, at->block_v, canonical->value.size);
    attn__blocked_transpose(b, t->k, at->block_k_t, t->v, at->block_v_t, t->columns);
    t->k_t = attn__blocked_at(b, at->block_k_t);
    t->v_t = attn__blocked_at(b, at->block_v_t);
    t->dk = attn__blocked_at(b, at->block_dk);
    t->dv = attn__blocked_at(b, at->block_dv);
}

void attn__blocked_start_block(attn__blocked *b, attn__blocked_tile *t)
{
    int64_t *from = attn__blocked_integers(b, b->plan->at.from), *to = attn__blocked_integers(b, b->plan->at.to);
    for (int64_t i = 0; i < t->queries && has_ranges(b->canonical); i++)
        find_range(b, t->query + i, &from[i], &to[i]);
    if (b->canonical->problem.nwindows) {
        find_columns(b, t);
        return;
    }
    for (int a = 0; a < b->canonical->key.n; a++)
        b->axis[a] = (attn__blocked_axis){.start = 0, .step = 1, .spread = 1};
}

/* ------------------------------------------------------------------------------------------- of a tile */

/* Each pair's position along each key axis, and with windows its column, for a query whose windows stand at `start`. */
static void find_positions(const attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__group *key = &b->canonical->key;
    int64_t *position = attn__blocked_integers(b, b->plan->at.position),
            *column = attn__blocked_integers(b, b->plan->at.column), tap[ATTN_MAX_DIMS];
    bool windows = b->canonical->problem.nwindows;
    for (int64_t j = 0; j < t->pairs; j++) {
        int64_t at = 0;
        attn__split(key, t->pair + j, tap);
        for (int a = 0; a < key->n; a++) {
            const attn__blocked_axis *axis = &b->axis[a];
            position[a * b->plan->pairs + j] = axis->start + tap[a] * axis->spread * axis->step;
            at = at * axis->columns + tap[a] * axis->spread;
        }
        if (windows)
            column[j] = at;
    }
}

/* Offsets in the mask, whose KEY strides are per position. */
static void find_mask(const attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__group *key = &b->canonical->key;
    const int64_t *position = attn__blocked_integers(b, b->plan->at.position);
    int64_t *mask = attn__blocked_integers(b, b->plan->at.mask_at);
    memset(mask, 0, (size_t)t->pairs * sizeof *mask);
    for (int a = 0; a < key->n; a++)
        for (int64_t j = 0; j < t->pairs; j++)
            mask[j] += position[a * b->plan->pairs + j] * key->axis[a].dim.mask;
}

static void find_offsets(const attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    const struct {
        bool used;
        size_t stride;
        int64_t place;
    } parts[] = {{canonical->has_bias, ATTN__STRIDE(dim.bias), at->bias_at},
                 {canonical->problem.flags & ATTN_WANT_DBIAS, ATTN__STRIDE(dim.dbias), at->dbias_at},
                 {canonical->has_dropout, ATTN__STRIDE(drop), at->drop_at}};
    for (int i = 0; i < 3; i++) {
        if (parts[i].used)
            attn__offsets_fill(&canonical->key, parts[i].stride, t->pair, t->pairs,
                               attn__blocked_integers(b, parts[i].place));
    }
    if (canonical->has_blocks)
        attn__block_columns(canonical, t->pair, t->pairs, attn__blocked_integers(b, at->block_at));
    if (canonical->has_mask)
        find_mask(b, t);
}

static int64_t block_row(const attn__blocked *b, int64_t query)
{
    int64_t row;
    attn__block_rows(b->canonical, attn__offsets_one(&b->canonical->batch, ATTN__STRIDE(dim.blocks), b->batch), query,
                     1, &row);
    return row;
}

/* `last` is the row of blocks read before: a query with the same row sees nothing either, since the search ends at the
 * first query that sees a key. */
static bool sees_any(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int64_t *last)
{
    const int64_t *from = attn__blocked_integers(b, b->plan->at.from), *to = attn__blocked_integers(b, b->plan->at.to),
                  *column = attn__blocked_integers(b, b->plan->at.block_at);
    if (has_ranges(b->canonical) && attn__most(from[i], t->pair) >= attn__least(to[i], t->pair + t->pairs))
        return false;
    if (!b->canonical->has_blocks)
        return true;
    int64_t row = block_row(b, t->query + i), before = *last;
    *last = row;
    return row != before && attn__blocks_seen(b->arrays->blocks, &row, 1, column, t->pairs) != ATTN__BLOCKS_NONE;
}

bool attn__blocked_start_tile(attn__blocked *b, attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = canonical->contract.size, values = canonical->value.size;
    t->pairs = attn__least(canonical->key.size - t->pair, b->plan->pairs);
    if (canonical->problem.nwindows == 0) {
        t->columns = t->pairs;
        t->k = b->k + t->pair * channels;
        t->k_t = attn__blocked_at(b, at->k_t) + t->pair;
        t->v = b->v + t->pair * values;
        t->v_t = attn__blocked_at(b, at->v_t) + t->pair;
        t->dk = attn__blocked_at(b, at->dk) + t->pair * channels;
        t->dv = attn__blocked_at(b, at->dv) + t->pair * values;
    }
    find_positions(b, t);
    find_offsets(b, t);
    if (canonical->problem.mask_fill != 0) /* masked keys score */
        return true;
    for (int64_t i = 0, last = INT64_MIN; i < t->queries; i++)
        if (sees_any(b, t, i, &last))
            return true;
    return false;
}

/* ------------------------------------------------------------------------------------------ of a query */

/* How far the window of query i has moved along a key axis since `start`. */
static int64_t moved(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int axis)
{
    const attn_window *w = attn__window_of(&b->canonical->problem, axis);
    return w ? base_of(b, w, t->query + i) - b->axis[axis].start : 0;
}

int64_t attn__blocked_distance_shift(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int query_dim,
                                     int key_dim)
{
    const attn_window *w = attn__window_of(&b->canonical->problem, key_dim);
    int64_t index = attn__offsets_index(&b->canonical->query, query_dim, t->query + i);
    return moved(b, t, i, key_dim) - index * (w ? w->step : 1);
}

int64_t attn__blocked_column_shift(const attn__blocked *b, const attn__blocked_tile *t, int64_t i,
                                   const int64_t **column)
{
    const attn__canonical *canonical = b->canonical;
    int64_t at = 0;
    *column = canonical->problem.nwindows ? attn__blocked_integers(b, b->plan->at.column) : NULL;
    for (int a = 0; *column && a < canonical->key.n; a++) {
        const attn__blocked_axis *axis = &b->axis[a];
        at = at * axis->columns + moved(b, t, i, a); /* not 0 only where columns are a position apart */
    }
    return at;
}

static void see_bands(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, uint8_t *seen)
{
    const attn_problem *p = &b->canonical->problem;
    for (int n = 0; n < p->nbands; n++) {
        const attn_band *band = &p->bands[n];
        const int64_t *position = attn__blocked_integers(b, b->plan->at.position) + band->key_dim * b->plan->pairs;
        int64_t distance = attn__blocked_distance_shift(b, t, i, band->query_dim, band->key_dim);
        int64_t least = band->lo == INT64_MIN ? INT64_MIN : add_bound(band->lo, -distance);
        int64_t most = band->hi == INT64_MAX ? INT64_MAX : add_bound(band->hi, -distance);
        for (int64_t j = 0; j < t->pairs; j++)
            seen[j] &= position[j] >= least && position[j] <= most;
    }
}

static void see_blocks(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, uint8_t *seen)
{
    const int64_t *column = attn__blocked_integers(b, b->plan->at.block_at);
    const uint8_t *row = b->arrays->blocks + block_row(b, t->query + i);
    for (int64_t j = 0; j < t->pairs; j++)
        seen[j] &= row[column[j]] != 0;
}

/* Clears `inside` where a tap of query i stands outside along a window's axis; `masks`: only of masking borders. */
static void see_borders(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, bool masks, uint8_t *inside)
{
    const attn_problem *p = &b->canonical->problem;
    for (int n = 0; n < p->nwindows; n++) {
        const attn_window *w = &p->windows[n];
        const int64_t *position = attn__blocked_integers(b, b->plan->at.position) + w->key_dim * b->plan->pairs;
        int64_t shift = moved(b, t, i, w->key_dim);
        for (int64_t j = 0; (!masks || w->border == ATTN_BORDER_MASK) && j < t->pairs; j++)
            inside[j] &= position[j] + shift >= 0 && position[j] + shift < w->size;
    }
}

/* The mask's bytes of query i, whose pairs lie at `mask_at`. */
static const uint8_t *mask_row(const attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__group *key = &b->canonical->key;
    int64_t row = attn__blocked_offset(b, ATTN__STRIDE(dim.mask), t->query + i);
    for (int a = 0; a < key->n; a++)
        row += moved(b, t, i, a) * key->axis[a].dim.mask;
    return b->arrays->mask + row;
}

static void see_mask(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, uint8_t *seen)
{
    const attn__group *key = &b->canonical->key;
    const int64_t *at = attn__blocked_integers(b, b->plan->at.mask_at);
    const uint8_t *row = mask_row(b, t, i);
    if (key->n == 1 && key->axis[0].dim.mask == 1) {
        for (int64_t j = 0; j < t->pairs; j++)
            seen[j] &= row[at[0] + j] != 0;
        return;
    }
    for (int64_t j = 0; j < t->pairs; j++)
        seen[j] &= row[at[j]] != 0;
}

static int64_t length_of(const attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    int64_t len = b->arrays->lens[attn__blocked_offset(b, ATTN__STRIDE(dim.lens), t->query + i)];
    return len - moved(b, t, i, b->canonical->problem.lens_dim);
}

static void see_lengths(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, uint8_t *seen)
{
    const int64_t *position =
        attn__blocked_integers(b, b->plan->at.position) + b->canonical->problem.lens_dim * b->plan->pairs;
    int64_t len = length_of(b, t, i);
    for (int64_t j = 0; j < t->pairs; j++)
        seen[j] &= position[j] < len;
}

/* Lengths and the mask with windows: they say nothing about positions that do not exist. */
static void see_inside(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, uint8_t *inside, uint8_t *seen)
{
    const attn__canonical *canonical = b->canonical;
    const int64_t *at = attn__blocked_integers(b, b->plan->at.mask_at);
    const int64_t *position =
        attn__blocked_integers(b, b->plan->at.position) + canonical->problem.lens_dim * b->plan->pairs;
    int64_t len = canonical->has_lens ? length_of(b, t, i) : 0;
    const uint8_t *row = canonical->has_mask ? mask_row(b, t, i) : NULL;
    memset(inside, 1, (size_t)t->pairs);
    see_borders(b, t, i, false, inside);
    for (int64_t j = 0; j < t->pairs; j++)
        if (inside[j] && ((canonical->has_lens && position[j] >= len) || (row && !row[at[j]])))
            seen[j] = 0;
}

const uint8_t *attn__blocked_classify(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, int64_t *from,
                                      int64_t *to)
{
    const attn__canonical *canonical = b->canonical;
    const attn_problem *p = &canonical->problem;
    uint8_t *seen = (uint8_t *)attn__blocked_at(b, b->plan->at.seen), *inside = seen + b->plan->pairs;
    bool ranges = has_ranges(canonical), softmax = p->normalization == ATTN_NORMALIZATION_SOFTMAX;
    *from = ranges ? clamped(attn__blocked_integers(b, b->plan->at.from)[i] - t->pair, t->pairs) : 0;
    *to = ranges ? clamped(attn__blocked_integers(b, b->plan->at.to)[i] - t->pair, t->pairs) : t->pairs;
    *to = attn__most(*to, *from);
    if (ranges && softmax && p->mask_fill == 0 && !canonical->has_mask && !canonical->has_blocks)
        return NULL;
    memset(seen, 0, (size_t)t->pairs);
    memset(seen + *from, ATTN__BLOCKED_KEY, (size_t)(*to - *from));
    if (!ranges)
        see_bands(b, t, i, seen);
    if (canonical->has_blocks)
        see_blocks(b, t, i, seen);
    if (p->nwindows && (canonical->has_lens || canonical->has_mask))
        see_inside(b, t, i, inside, seen);
    if (!p->nwindows && !ranges && canonical->has_lens)
        see_lengths(b, t, i, seen);
    if (!p->nwindows && canonical->has_mask)
        see_mask(b, t, i, seen);
    for (int64_t j = 0; j < t->pairs && p->mask_fill != 0; j++)
        seen[j] = seen[j] ? ATTN__BLOCKED_KEY : ATTN__BLOCKED_FILL;
    if (p->nwindows) { /* taps outside of masking borders do not exist */
        memset(inside, 1, (size_t)t->pairs);
        see_borders(b, t, i, true, inside);
        for (int64_t j = 0; j < t->pairs; j++)
            seen[j] = inside[j] ? seen[j] : ATTN__BLOCKED_OUT;
    }
    return seen;
}

/* ------------------------------------------------------------------------------------- columns and pairs */

double *attn__blocked_gather_pairs(const attn__blocked *b, const attn__blocked_tile *t, int64_t place, int64_t i)
{
    const attn__blocked_places *at = &b->plan->at;
    const int64_t *column;
    double *row = attn__blocked_row(b, place, i);
    int64_t first = attn__blocked_column_shift(b, t, i, &column);
    if (!column)
        return row;
    double *pairs = attn__blocked_at(b, place == at->s ? at->pairs : at->dpairs);
    for (int64_t j = 0; j < t->pairs; j++)
        pairs[j] = row[first + column[j]];
    return pairs;
}

void attn__blocked_scatter_pairs(const attn__blocked *b, const attn__blocked_tile *t, int64_t place, int64_t i)
{
    const attn__blocked_places *at = &b->plan->at;
    const int64_t *column;
    double *row = attn__blocked_row(b, place, i);
    int64_t first = attn__blocked_column_shift(b, t, i, &column);
    if (!column)
        return;
    const double *pairs = attn__blocked_at(b, place == at->s ? at->pairs : at->dpairs);
    memset(row, 0, (size_t)t->columns * sizeof *row);
    for (int64_t j = 0; j < t->pairs; j++)
        row[first + column[j]] = pairs[j];
}
