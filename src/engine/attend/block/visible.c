/* SPDX-License-Identifier: MIT */
#include "attend/block/visible.h"

#include "attend/block/items.h"
#include "attend/block/rows.h"
#include "attend/block/window_base.h"
#include "attend/problem/operand.h"
#include "base/constants.h"
#include "base/integers.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- the plan */

static void add_axis(attn__visible *visible, int axis)
{
    for (int a = 0; a < visible->axes; a++)
        if (visible->axis[a] == axis)
            return;
    visible->axis[visible->axes++] = axis;
}

static bool moves(const attn__group *group, size_t stride)
{
    for (int i = 0; i < group->n; i++)
        if (group->axis[i].dim.n > 1 && *(const int64_t *)(const void *)((const char *)&group->axis[i] + stride) != 0)
            return true;
    return false;
}

void attn__visible_make(attn__visible *visible, const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    *visible = (attn__visible){.mask = canonical->has_mask,
                               .blocks = canonical->has_blocks,
                               .windows = p->nwindows > 0,
                               .fills = p->mask_fill != 0};
    for (int i = 0; i < p->nbands; i++)
        add_axis(visible, p->bands[i].key_dim);
    if (canonical->has_lens)
        add_axis(visible, p->lens_dim);
    for (int i = 0; i < p->nwindows; i++)
        add_axis(visible, p->windows[i].key_dim);
    visible->ranges = visible->axes == 0 || (canonical->key.n == 1 && !visible->windows);
    visible->lens_by_query = canonical->has_lens && moves(&canonical->query, ATTN__STRIDE(dim.lens));
}

/* -------------------------------------------------------------------------------------- queries and keys */

static void *take(attn__arena *arena, bool wanted, int64_t count, size_t size)
{
    return wanted ? attn__arena_take(arena, count, size) : NULL;
}

static bool has_axis(const attn__visible *visible, int a)
{
    return a < visible->axes || (visible->ranges && a == 0);
}

void attn__visible_rows_take(attn__visible_rows *rows, const attn__visible *visible, attn__arena *arena, int64_t count,
                             unsigned parts)
{
    bool limits = parts & ATTN__VISIBLE_LIMITS, windows = visible->windows;
    *rows = (attn__visible_rows){.visible = visible, .parts = parts};
    for (int a = 0; a < ATTN__VISIBLE_AXES && has_axis(visible, a); a++) {
        rows->from[a] = take(arena, limits, count, sizeof(int32_t));
        rows->to[a] = take(arena, limits, count, sizeof(int32_t));
        rows->inside_from[a] = take(arena, limits && windows, count, sizeof(int32_t));
        rows->inside_to[a] = take(arena, limits && windows, count, sizeof(int32_t));
    }
    rows->begin = visible->ranges ? rows->from[0] : take(arena, limits, count, sizeof(int32_t));
    rows->end = visible->ranges ? rows->to[0] : take(arena, limits, count, sizeof(int32_t));
    rows->length = take(arena, limits && windows, count, sizeof(int32_t));
    rows->mask = take(arena, (parts & ATTN__VISIBLE_MASK) && visible->mask, count, sizeof(int64_t));
    rows->blocks = take(arena, (parts & ATTN__VISIBLE_BLOCKS) && visible->blocks, count, sizeof(int64_t));
}

void attn__visible_keys_take(attn__visible_keys *keys, const attn__visible *visible, attn__arena *arena, int64_t count,
                             unsigned parts)
{
    *keys = (attn__visible_keys){.visible = visible, .parts = parts};
    for (int a = 0; a < visible->axes; a++)
        keys->index[a] = take(arena, parts & ATTN__VISIBLE_LIMITS, count, sizeof(int32_t));
    keys->mask = take(arena, (parts & ATTN__VISIBLE_MASK) && visible->mask, count, sizeof(int64_t));
    keys->blocks = take(arena, (parts & ATTN__VISIBLE_BLOCKS) && visible->blocks, count, sizeof(int64_t));
}

/* An iterator that computes the index along one axis for each element of a group in order. */
typedef struct walk {
    int64_t at, n, rest, inner;
} walk;

static walk walk_from(const attn__group *group, int axis, int64_t first)
{
    walk w = {.n = group->axis[axis].dim.n, .inner = 1};
    for (int i = axis + 1; i < group->n; i++)
        w.inner *= group->axis[i].dim.n;
    w.at = w.inner == 1 && group->n == 1 ? first : first / w.inner % w.n;
    w.rest = w.inner == 1 ? 0 : first % w.inner;
    return w;
}

static inline void step(walk *w)
{
    if (++w->rest < w->inner)
        return;
    w->rest = 0;
    w->at = w->at + 1 == w->n ? 0 : w->at + 1;
}

/* Returns index + bound, limited to [0, n].  The result is exact even if the sum saturates, because a saturated sum is
 * outside of [0, n] on the same side. */
static inline int64_t bounded(int64_t index, int64_t bound, int64_t n)
{
    return attn__clamp(attn__add_saturated(index, bound), 0, n);
}

/* Returns the first key whose distance exceeds `bound`, limited to [0, n]. */
static inline int64_t bounded_end(int64_t index, int64_t bound, int64_t n)
{
    return attn__clamp(attn__add_saturated(attn__add_saturated(index, bound), 1), 0, n);
}

/* Returns the first of n taps at position `least` or later. Tap t is at position base + t * dilation.  `least` may be
 * any number. The positions cannot overflow (problem/check.c). */
static int64_t first_tap(int64_t base, int64_t dilation, int64_t n, int64_t least)
{
    int64_t distance = attn__add_saturated(least, -base);
    if (distance <= 0)
        return 0;
    return distance > (n - 1) * dilation ? n : attn__ceil_div(distance, dilation);
}

static int64_t axis_length(const attn__canonical *canonical, const attn__visible *visible, int axis)
{
    if (visible->axes == 0)
        return attn__min(canonical->key.size, INT32_MAX);
    return canonical->key.axis[axis].dim.n;
}

static void narrow(const attn__visible_rows *rows, int a, int64_t i, int64_t from, int64_t to)
{
    rows->from[a][i] = (int32_t)attn__max(rows->from[a][i], from);
    rows->to[a][i] = (int32_t)attn__min(rows->to[a][i], to);
}

static void narrow_by_band(const attn__visible_rows *rows, int a, const attn_band *band)
{
    int64_t n = axis_length(rows->canonical, rows->visible, band->key_dim);
    walk w = walk_from(&rows->canonical->query, band->query_dim, rows->first);
    for (int64_t i = 0; i < rows->count; i++, step(&w))
        narrow(rows, a, i, bounded(w.at, band->lo, n), bounded_end(w.at, band->hi, n));
}

/* Applies a band to taps: lo <= base + tap * dilation - index * step <= hi. */
static void narrow_by_window_band(const attn__visible_rows *rows, int a, const attn_window *window,
                                  const attn_band *band)
{
    int64_t taps = rows->canonical->key.axis[window->key_dim].dim.n;
    walk w = walk_from(&rows->canonical->query, window->query_dim, rows->first);
    for (int64_t i = 0; i < rows->count; i++, step(&w)) {
        int64_t base = attn__window_base(window, taps, w.at) - w.at * window->step;
        int64_t to = band->hi == INT64_MAX ? taps : first_tap(base, window->dilation, taps, band->hi + 1);
        narrow(rows, a, i, first_tap(base, window->dilation, taps, band->lo), to);
    }
}

static void find_inside(const attn__visible_rows *rows, int a, const attn_window *window)
{
    int64_t taps = rows->canonical->key.axis[window->key_dim].dim.n;
    walk w = walk_from(&rows->canonical->query, window->query_dim, rows->first);
    for (int64_t i = 0; i < rows->count; i++, step(&w)) {
        int64_t base = attn__window_base(window, taps, w.at);
        rows->inside_from[a][i] = (int32_t)first_tap(base, window->dilation, taps, 0);
        rows->inside_to[a][i] = (int32_t)first_tap(base, window->dilation, taps, window->size);
    }
}

enum { CHUNK = 64 };

/* Narrows the range of keys to the length of each query. If there are windows, sets rows->length instead. */
static void narrow_by_lengths(const attn__visible_rows *rows, int64_t batch)
{
    const attn__canonical *canonical = rows->canonical;
    int lens_dim = canonical->problem.lens_dim, a = 0;
    const attn_window *window = attn__window_of(&canonical->problem, lens_dim);
    int64_t n = canonical->key.axis[lens_dim].dim.n, at[CHUNK];
    const int32_t *lens = rows->arrays->at.lens + attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.lens), batch);
    while (rows->visible->axis[a] != lens_dim)
        a++;
    walk w = walk_from(&canonical->query, window ? window->query_dim : 0, rows->first);
    for (int64_t i = 0; i < rows->count; i++, step(&w)) {
        if (i % CHUNK == 0 && rows->visible->lens_by_query)
            attn__offsets_fill(&canonical->query, ATTN__STRIDE(dim.lens), rows->first + i,
                               attn__min(rows->count - i, CHUNK), at);
        int64_t length = lens[rows->visible->lens_by_query ? at[i % CHUNK] : 0];
        if (window)
            length = first_tap(attn__window_base(window, n, w.at), window->dilation, n, length);
        if (rows->visible->windows)
            rows->length[i] = (int32_t)attn__clamp(length, 0, n);
        else
            narrow(rows, a, i, 0, attn__clamp(length, 0, n));
    }
}

static void find_limits(attn__visible_rows *rows, int64_t batch)
{
    const attn__canonical *canonical = rows->canonical;
    const attn_problem *p = &canonical->problem;
    for (int a = 0; a < ATTN__VISIBLE_AXES && has_axis(rows->visible, a); a++) {
        int axis = rows->visible->axis[a];
        const attn_window *window = attn__window_of(p, axis);
        int32_t n = (int32_t)axis_length(canonical, rows->visible, axis);
        for (int64_t i = 0; i < rows->count; i++)
            rows->from[a][i] = 0, rows->to[a][i] = n;
        for (int64_t i = 0; i < rows->count && rows->visible->windows; i++)
            rows->inside_from[a][i] = 0, rows->inside_to[a][i] = n;
        if (window)
            find_inside(rows, a, window);
        for (int b = 0; b < p->nbands; b++)
            if (p->bands[b].key_dim == axis && window)
                narrow_by_window_band(rows, a, window, &p->bands[b]);
            else if (p->bands[b].key_dim == axis)
                narrow_by_band(rows, a, &p->bands[b]);
    }
    if (canonical->has_lens)
        narrow_by_lengths(rows, batch);
    int32_t keys = (int32_t)attn__min(canonical->key.size, INT32_MAX);
    for (int64_t i = 0; i < rows->count && !rows->visible->ranges; i++)
        rows->begin[i] = 0, rows->end[i] = keys;
}

static void repeat_last(void *array, size_t size, int64_t count, int64_t padded)
{
    char *x = array;
    for (int64_t i = count; x && i < padded; i++)
        memcpy(x + (size_t)i * size, x + (size_t)(count - 1) * size, size);
}

/* Computes offsets in the mask of blocks. Along `axis`, `size` adjacent indices are one block with one offset. */
static void find_blocks(const attn__group *group, int axis, int64_t size, int64_t base, int64_t first, int64_t count,
                        int64_t *out)
{
    int64_t stride = group->axis[axis].dim.blocks;
    attn__offsets_from(group, ATTN__STRIDE(dim.blocks), base, first, count, out);
    walk w = walk_from(group, axis, first);
    for (int64_t i = 0; i < count; i++, step(&w))
        out[i] += (w.at / size - w.at) * stride;
}

/* Computes the queries' offsets in the mask. Each window adds the position of its tap 0. */
static void find_mask(const attn__visible_rows *rows, int64_t batch)
{
    const attn__canonical *canonical = rows->canonical;
    attn__query_offsets(canonical, ATTN__STRIDE(dim.mask), batch, rows->first, rows->count, rows->mask);
    for (int n = 0; n < canonical->problem.nwindows; n++) {
        const attn_window *window = &canonical->problem.windows[n];
        const attn_dim *key = &canonical->key.axis[window->key_dim].dim;
        walk w = walk_from(&canonical->query, window->query_dim, rows->first);
        for (int64_t i = 0; i < rows->count; i++, step(&w))
            rows->mask[i] += attn__window_base(window, key->n, w.at) * key->mask;
    }
}

void attn__visible_rows_start(attn__visible_rows *rows, const attn__canonical *canonical, const attn__execution *arrays,
                              int64_t batch, int64_t first, int64_t count, int64_t lanes)
{
    int64_t padded = attn__round_up(count, lanes);
    rows->canonical = canonical;
    rows->arrays = arrays;
    rows->first = first;
    rows->count = count;
    if (count < 1)
        return;
    if (rows->parts & ATTN__VISIBLE_LIMITS)
        find_limits(rows, batch);
    if (rows->mask)
        find_mask(rows, batch);
    if (rows->blocks)
        find_blocks(&canonical->query, canonical->problem.blocks.query_dim, canonical->problem.blocks.queries,
                    attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.blocks), batch), first, count, rows->blocks);
    if (padded == count)
        return;
    for (int a = 0; a < ATTN__VISIBLE_AXES && has_axis(rows->visible, a); a++) {
        int32_t *const arrays32[] = {rows->from[a], rows->to[a], rows->inside_from[a], rows->inside_to[a]};
        for (int i = 0; i < 4; i++)
            repeat_last(arrays32[i], sizeof(int32_t), count, padded);
    }
    if (!rows->visible->ranges) {
        repeat_last(rows->begin, sizeof(int32_t), count, padded);
        repeat_last(rows->end, sizeof(int32_t), count, padded);
    }
    repeat_last(rows->length, sizeof(int32_t), count, padded);
    repeat_last(rows->mask, sizeof(int64_t), count, padded);
    repeat_last(rows->blocks, sizeof(int64_t), count, padded);
}

static void find_key_mask(const attn__visible_keys *keys, const attn__canonical *canonical)
{
    attn__offsets_fill(&canonical->key, ATTN__STRIDE(dim.mask), keys->first, keys->count, keys->mask);
    for (int n = 0; n < canonical->problem.nwindows; n++) {
        const attn_window *window = &canonical->problem.windows[n];
        int64_t more = (window->dilation - 1) * canonical->key.axis[window->key_dim].dim.mask;
        walk w = walk_from(&canonical->key, window->key_dim, keys->first);
        for (int64_t j = 0; j < keys->count; j++, step(&w))
            keys->mask[j] += w.at * more;
    }
}

void attn__visible_keys_start(attn__visible_keys *keys, const attn__canonical *canonical, int64_t first, int64_t count)
{
    keys->first = first;
    keys->count = count;
    keys->adjacent = !keys->visible->windows && attn__offsets_adjacent(&canonical->key, ATTN__STRIDE(dim.mask));
    if (count < 1)
        return;
    for (int a = 0; a < keys->visible->axes && keys->index[a]; a++) {
        walk w = walk_from(&canonical->key, keys->visible->axis[a], first);
        for (int64_t j = 0; j < count; j++, step(&w))
            keys->index[a][j] = (int32_t)w.at;
    }
    if (keys->mask)
        find_key_mask(keys, canonical);
    if (keys->blocks)
        find_blocks(&canonical->key, canonical->problem.blocks.key_dim, canonical->problem.blocks.keys, 0, first, count,
                    keys->blocks);
}

/* --------------------------------------------------------------------------------------------- spans */

static int32_t least32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* Finds a range [first, last) that contains all keys that may have a weight. */
static void find_keys(const attn__visible_rows *rows, attn__visible_span *span)
{
    const attn__visible *visible = rows->visible;
    int64_t keys = rows->canonical->key.size;
    span->first = 0;
    span->last = keys;
    for (int a = 0; !visible->fills && a < visible->axes; a++) {
        int64_t n = rows->canonical->key.axis[visible->axis[a]].dim.n;
        if (span->begin[a] >= span->end[a]) {
            span->first = span->last = 0;
            return;
        }
        if (visible->axis[a] == 0 && n > 0) { /* keys with the same index along the outermost axis are contiguous */
            span->first = keys / n * span->begin[a];
            span->last = keys / n * span->end[a];
        }
    }
}

attn__visible_span attn__visible_span_of(const attn__visible_rows *rows, int64_t row, int64_t nrows)
{
    attn__visible_span span;
    for (int a = 0; a < ATTN__VISIBLE_AXES && has_axis(rows->visible, a); a++) {
        const int32_t *from = rows->from[a] + row, *to = rows->to[a] + row;
        int32_t begin = INT32_MAX, end = 0, open_begin = 0, open_end = INT32_MAX;
        for (int64_t i = 0; i < nrows; i++) {
            bool any = from[i] < to[i];
            begin = any ? least32(begin, from[i]) : begin;
            end = any ? most32(end, to[i]) : end;
            open_begin = most32(open_begin, from[i]);
            open_end = least32(open_end, to[i]);
        }
        for (int64_t i = row; i < row + nrows && rows->visible->windows; i++) {
            open_begin = most32(open_begin, rows->inside_from[a][i]);
            open_end = least32(open_end, rows->inside_to[a][i]);
            if (rows->canonical->has_lens && rows->visible->axis[a] == rows->canonical->problem.lens_dim)
                open_end = least32(open_end, rows->length[i]);
        }
        span.begin[a] = least32(begin, end);
        span.end[a] = end;
        span.open_begin[a] = open_begin;
        span.open_end[a] = open_end;
    }
    find_keys(rows, &span);
    return span;
}

/* ------------------------------------------------------------------------------------------ of a tile */

static unsigned limits_of(const attn__visible_tile *t, const attn__visible_span *span)
{
    const attn__visible *visible = t->rows->visible;
    unsigned view = ATTN__VISIBLE_ALL;
    for (int a = 0; a < visible->axes; a++) {
        int32_t first, last;
        if (visible->ranges) {
            first = (int32_t)(t->keys->first + t->key);
            last = (int32_t)(first + t->nkeys - 1);
        } else {
            first = last = t->keys->index[a][t->key];
            for (int64_t j = t->key + 1; j < t->key + t->nkeys; j++) {
                first = least32(first, t->keys->index[a][j]);
                last = most32(last, t->keys->index[a][j]);
            }
        }
        if (last < span->begin[a] || first >= span->end[a])
            return ATTN__VISIBLE_NONE;
        if (first < span->open_begin[a] || last >= span->open_end[a])
            view = ATTN__VISIBLE_LIMITS;
    }
    return view;
}

static unsigned part_of(bool any, bool all, unsigned part)
{
    return all ? ATTN__VISIBLE_ALL : any ? part : ATTN__VISIBLE_NONE;
}

/* Returns whether the mask of blocks hides all, some or no keys of the tile. Adjacent keys or rows with the same offset
 * are read once. */
static unsigned blocks_of(const attn__visible_tile *t)
{
    const int64_t *rows = t->rows->blocks + t->row, *columns = t->keys->blocks + t->key;
    bool any = false, all = true;
    for (int64_t r = 0; r < t->nrows; r++) {
        if (r > 0 && rows[r] == rows[r - 1])
            continue;
        for (int64_t c = 0; c < t->nkeys; c++) {
            if (c > 0 && columns[c] == columns[c - 1])
                continue;
            bool sees = t->rows->arrays->at.blocks[rows[r] + columns[c]] != 0;
            any = any || sees;
            all = all && sees;
        }
    }
    return part_of(any, all, ATTN__VISIBLE_BLOCKS);
}

static unsigned mask_of_row(const uint8_t *row, int64_t keys)
{
    if (row[0])
        return part_of(true, !memchr(row, 0, (size_t)keys), ATTN__VISIBLE_MASK);
    return part_of(memcmp(row, row + 1, (size_t)keys - 1) != 0, false, ATTN__VISIBLE_MASK);
}

/* Finds whether the mask hides all, some or no keys of the tile. Stops when two rows differ. */
static unsigned mask_of(const attn__visible_tile *t)
{
    const uint8_t *mask = t->rows->arrays->at.mask + t->keys->mask[t->key];
    const int64_t *rows = t->rows->mask + t->row;
    if (!t->keys->adjacent || t->nrows < 1 || t->nkeys < 1)
        return ATTN__VISIBLE_MASK;
    unsigned first = mask_of_row(mask + rows[0], t->nkeys);
    for (int64_t r = 1; r < t->nrows && first != ATTN__VISIBLE_MASK; r++)
        if (rows[r] != rows[r - 1] && mask_of_row(mask + rows[r], t->nkeys) != first)
            return ATTN__VISIBLE_MASK;
    return first;
}

unsigned attn__visible_of(const attn__visible_tile *t, const attn__visible_span *span)
{
    unsigned view = span ? limits_of(t, span) : (unsigned)ATTN__VISIBLE_ALL;
    if (view != ATTN__VISIBLE_NONE && t->rows->blocks)
        view |= blocks_of(t);
    if (!(view & ATTN__VISIBLE_NONE) && t->rows->mask && span)
        view |= mask_of(t);
    if (!(view & ATTN__VISIBLE_NONE))
        return view;
    return t->rows->visible->fills ? ATTN__VISIBLE_ANY : ATTN__VISIBLE_NONE;
}

/* Clears the bytes of the keys that bands and lengths exclude from the row. */
static void clear_outside(const attn__visible_tile *t, int64_t row, uint8_t *out)
{
    const attn__visible_rows *rows = t->rows;
    int64_t n = t->nkeys;
    if (rows->visible->ranges) {
        int64_t first = t->keys->first + t->key, from = attn__clamp(rows->begin[row] - first, 0, n);
        int64_t to = attn__clamp(rows->end[row] - first, from, n);
        memset(out, 0, (size_t)from);
        memset(out + to, 0, (size_t)(n - to));
        return;
    }
    for (int a = 0; a < rows->visible->axes; a++) {
        const int32_t *index = t->keys->index[a] + t->key;
        int32_t from = rows->from[a][row], to = rows->to[a][row];
        for (int64_t j = 0; j < n; j++)
            out[j] &= (uint8_t)(index[j] >= from && index[j] < to);
    }
}

/* State bits of a tap of a window. */
enum { HIDDEN = 1, BEHIND_MASKING_BORDER = 2, OUTSIDE = 4, BEHIND_LENGTH = 8 };

static void find_taps(const attn__visible_tile *t, int64_t row, uint8_t *out)
{
    const attn__visible_rows *rows = t->rows;
    const attn_problem *p = &rows->canonical->problem;
    memset(out, 0, (size_t)t->nkeys);
    for (int a = 0; a < rows->visible->axes; a++) {
        const int32_t *index = t->keys->index[a] + t->key;
        const attn_window *window = attn__window_of(p, rows->visible->axis[a]);
        uint8_t outside = window && window->border == ATTN_BORDER_MASK ? OUTSIDE | BEHIND_MASKING_BORDER : OUTSIDE;
        int32_t from = rows->from[a][row], to = rows->to[a][row];
        int32_t inside_from = rows->inside_from[a][row], inside_to = rows->inside_to[a][row];
        bool lens = rows->canonical->has_lens && p->lens_dim == rows->visible->axis[a];
        int32_t length = lens ? rows->length[row] : INT32_MAX;
        for (int64_t j = 0; j < t->nkeys; j++) {
            int32_t tap = index[j]; /* NOLINT: each axis has its index */
            out[j] |=
                (uint8_t)((tap < from || tap >= to ? HIDDEN : 0) |
                          (tap < inside_from || tap >= inside_to ? outside : 0) | (tap >= length ? BEHIND_LENGTH : 0));
        }
    }
}

/* The mask and the lengths do not apply to taps outside of the axis. */
static void find_window_kinds(const attn__visible_tile *t, int64_t row, uint8_t *kinds)
{
    const attn__visible_rows *rows = t->rows;
    const uint8_t *mask = rows->mask ? rows->arrays->at.mask + rows->mask[row] : NULL;
    uint8_t masked = rows->visible->fills ? ATTN__VISIBLE_FILL : ATTN__VISIBLE_OUT;
    find_taps(t, row, kinds);
    for (int64_t j = 0; j < t->nkeys; j++) {
        bool hidden = kinds[j] & HIDDEN;
        if (!(kinds[j] & OUTSIDE))
            hidden = hidden || (kinds[j] & BEHIND_LENGTH) || (mask && !mask[t->keys->mask[t->key + j]]);
        kinds[j] = kinds[j] & BEHIND_MASKING_BORDER ? ATTN__VISIBLE_OUT : hidden ? masked : ATTN__VISIBLE_KEY;
    }
}

static void find_bytes(const attn__visible_tile *t, int64_t row, unsigned parts, uint8_t *out)
{
    const attn__visible_rows *rows = t->rows;
    const attn__visible_keys *keys = t->keys;
    int64_t n = t->nkeys;
    if (rows->mask && (parts & ATTN__VISIBLE_MASK)) {
        const int64_t *at = keys->mask + t->key;
        const uint8_t *mask = rows->arrays->at.mask + rows->mask[row], *adjacent = mask + (n > 0 ? at[0] : 0);
        for (int64_t j = 0; keys->adjacent && j < n; j++)
            out[j] = adjacent[j] != 0;
        for (int64_t j = 0; !keys->adjacent && j < n; j++)
            out[j] = mask[at[j]] != 0;
    } else {
        memset(out, 1, (size_t)n);
    }
    if (rows->blocks && (parts & ATTN__VISIBLE_BLOCKS)) {
        const uint8_t *blocks = rows->arrays->at.blocks + rows->blocks[row];
        for (int64_t j = 0; j < n; j++)
            out[j] &= (uint8_t)(blocks[keys->blocks[t->key + j]] != 0);
    }
    if (parts & ATTN__VISIBLE_LIMITS)
        clear_outside(t, row, out);
}

void attn__visible_bytes(const attn__visible_tile *t, unsigned parts, uint8_t *out, int64_t ld)
{
    for (int64_t r = 0; t->nkeys > 0 && r < t->nrows; r++, out += ld) {
        if (!t->rows->visible->windows) {
            find_bytes(t, t->row + r, parts, out);
            continue;
        }
        find_window_kinds(t, t->row + r, out);
        for (int64_t j = 0; j < t->nkeys; j++)
            out[j] = out[j] == ATTN__VISIBLE_KEY;
    }
}

void attn__visible_kinds(const attn__visible_tile *t, uint8_t *kinds)
{
    const attn__visible *visible = t->rows->visible;
    if (t->nkeys < 1)
        return;
    if (visible->windows)
        find_window_kinds(t, t->row, kinds);
    else
        find_bytes(t, t->row, ATTN__VISIBLE_ANY, kinds);
    for (int64_t j = 0; !visible->windows && visible->fills && j < t->nkeys; j++)
        kinds[j] = kinds[j] ? ATTN__VISIBLE_KEY : ATTN__VISIBLE_FILL;
}

static int64_t count_filled(const attn__visible_rows *rows, int64_t row)
{
    enum { ARRAYS = ATTN__VISIBLE_AXES + 2 };
    _Alignas(64) char memory[ARRAYS * CHUNK * sizeof(int64_t)];
    uint8_t kinds[CHUNK];
    attn__arena arena = {memory, 0};
    attn__visible_keys keys;
    int64_t filled = 0, n = rows->canonical->key.size;
    attn__visible_keys_take(&keys, rows->visible, &arena, CHUNK, ATTN__VISIBLE_ANY);
    for (int64_t at = 0; at < n; at += CHUNK) {
        attn__visible_keys_start(&keys, rows->canonical, at, attn__min(CHUNK, n - at));
        attn__visible_tile tile = {rows, row, 1, &keys, 0, keys.count};
        attn__visible_kinds(&tile, kinds);
        for (int64_t j = 0; j < keys.count; j++)
            filled += kinds[j] == ATTN__VISIBLE_FILL;
    }
    return filled;
}

/* Returns a bound of the rounding error of an f32 log-sum-exp near `fill`. */
static double slack_of(double fill)
{
    return 2.5e-7 * fabs(fill);
}

/* Reports whether masked keys may have nearly all of the row's weight. */
static bool dominates(const attn__canonical *canonical, float lse)
{
    double fill = canonical->problem.mask_fill, slack = slack_of(fill);
    return fabs(fill) > 256.0 && lse - fill >= -slack && lse - fill <= log((double)canonical->key.size) + slack;
}

/* An unmasked key keeps its own weight, even if its score is near mask_fill. */
float attn__visible_fill_weight(const attn__visible_rows *rows, int64_t row, float lse)
{
    double fill = rows->canonical->problem.mask_fill;
    double masked = dominates(rows->canonical, lse) ? (double)count_filled(rows, row) : 0;
    bool alone = masked > 0 && fabs(lse - fill - log(masked)) <= slack_of(fill);
    double weight = alone ? -log(masked) : lse == -INFINITY ? -INFINITY : fill - (double)lse;
    return weight > 0.0 ? 0.0f : (float)(weight * ATTN__LOG2E);
}

/* Sets the scores of pairs that the mask of blocks hides to `fill`. Padding lanes keep undefined scores. */
static void hide_blocks(const attn__visible_tile *t, float *s, int64_t width, float fill)
{
    const int64_t *rows = t->rows->blocks + t->row;
    for (int64_t key = 0; key < t->nkeys; key++, s += width) {
        const uint8_t *column = t->rows->arrays->at.blocks + t->keys->blocks[t->key + key];
        for (int64_t i = 0; i < t->nrows; i++)
            s[i] = column[rows[i]] ? s[i] : fill;
    }
}

/* Converts the mask's bytes to floats, with one query per lane. */
static void gather_mask(const attn__visible_tile *t, const attn__online_softmax_kernel *lanes, float *to, int64_t width)
{
    const int64_t *at = t->keys->mask + t->key;
    bool adjacent = t->keys->adjacent && t->nkeys > 0;
    void *base = (void *)(uintptr_t)(t->rows->arrays->at.mask + (adjacent ? at[0] : 0));
    attn__lane_view view = {base, ATTN_U8, t->rows->mask + t->row, adjacent ? NULL : at, t->nkeys, t->nrows};
    lanes->gather(&view, to, width, 1.0f);
}

void attn__visible_hide(const attn__visible_tile *t, unsigned parts, const attn__online_softmax_kernel *lanes, float *s,
                        int64_t width, float fill, float *scratch)
{
    bool flags = scratch == s, mask = t->rows->mask && (parts & ATTN__VISIBLE_MASK);
    if (mask)
        gather_mask(t, lanes, scratch, width);
    for (int64_t i = 0; flags && !mask && i < t->nkeys * width; i++)
        s[i] = 1.0f;
    if (mask && !flags)
        lanes->hide(s, scratch, t->nkeys * width, fill);
    if (t->rows->blocks && (parts & ATTN__VISIBLE_BLOCKS))
        hide_blocks(t, s, width, fill);
    for (int a = 0; (parts & ATTN__VISIBLE_LIMITS) && a < t->rows->visible->axes; a++)
        lanes->limit(s, t->nkeys, width, t->keys->index[a] + t->key, t->rows->from[a] + t->row, t->rows->to[a] + t->row,
                     fill);
}
