/* SPDX-License-Identifier: MIT
 *
 * flash_limits.c - bands and lengths as one range of key indices per query and key axis.
 */
#include "attend/solve/flash_item.h"
#include "attend/block/rows.h"

static int64_t clamp(int64_t x, int64_t n)
{
    return x < 0 ? 0 : x > n ? n : x;
}

/* index + bound without overflow; the bounds may be open ends, the index is not negative. */
static int64_t add_bound(int64_t index, int64_t bound)
{
    return bound > 0 && index > INT64_MAX - bound ? INT64_MAX : index + bound;
}

/* [from, to) of one query along one key axis. */
static void range_of(const attn__flash_item *t, int axis, int64_t lens_base, int64_t query, int64_t *from, int64_t *to)
{
    const attn__canonical *canonical = t->canonical;
    const attn_problem *p = &canonical->problem;
    int64_t n = canonical->key.axis[axis].dim.n;
    *from = 0;
    *to = n;
    for (int b = 0; b < p->nbands; b++) {
        if (p->bands[b].key_dim != axis)
            continue;
        int64_t i = attn__offsets_index(&canonical->query, p->bands[b].query_dim, query);
        int64_t low = clamp(add_bound(i, p->bands[b].lo), n), high = add_bound(i, p->bands[b].hi);
        high = clamp(high == INT64_MAX ? high : high + 1, n);
        *from = low > *from ? low : *from;
        *to = high < *to ? high : *to;
    }
    if (canonical->has_lens && p->lens_dim == axis) {
        int64_t len = t->arrays->lens[lens_base + attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.lens), query)];
        len = clamp(len, n);
        *to = len < *to ? len : *to;
    }
}

/* The intersection of a subtile's ranges, for one key axis. */
static void find_span(attn__flash_item *t, attn__flash_subtile sub)
{
    attn__flash_span span = {t->canonical->key.size, 0, 0, t->canonical->key.size, false};
    const int32_t *from = t->s.from[0], *to = t->s.to[0];
    for (int64_t i = sub.lane; i < sub.lane + sub.lanes; i++) {
        if (from[i] < to[i]) {
            span.begin = from[i] < span.begin ? from[i] : span.begin;
            span.end = to[i] > span.end ? to[i] : span.end;
        }
        span.open_begin = from[i] > span.open_begin ? from[i] : span.open_begin;
        span.open_end = to[i] < span.open_end ? to[i] : span.open_end;
    }
    t->s.span[sub.index] = span;
}

void attn__flash_find_limits(attn__flash_item *t, int64_t batch)
{
    const attn__flash *f = t->flash;
    int64_t keys = t->canonical->key.size;
    int64_t lens_base =
        t->canonical->has_lens ? attn__offsets_one(&t->canonical->batch, ATTN__STRIDE(dim.lens), batch) : 0;
    for (int l = 0; l < f->nlimits; l++) {
        int64_t from = 0, to = 0;
        for (int64_t i = 0; i < t->padded; i++) {
            if (i < t->count)
                range_of(t, f->limit_axis[l], lens_base, t->first + i, &from, &to);
            t->s.from[l][i] = (int32_t)from;
            t->s.to[l][i] = (int32_t)to;
        }
    }
    bool skips = f->skips && f->nlimits;
    t->key_begin = skips ? keys : 0;
    t->key_end = skips ? 0 : keys;
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_span *span = &t->s.span[i];
        *span = (attn__flash_span){0, keys, f->nlimits ? keys : 0, f->nlimits ? 0 : keys, false};
        if (!skips)
            continue;
        find_span(t, attn__flash_subtile_at(t, i));
        t->key_begin = span->begin < t->key_begin ? span->begin : t->key_begin;
        t->key_end = span->end > t->key_end ? span->end : t->key_end;
    }
    /* Blocks begin at the same keys whatever the queries. */
    t->key_begin -= t->key_begin % f->key_block;
}
