/* SPDX-License-Identifier: MIT */
#include "attend/block/items.h"

#include "attend/block/rows.h"
#include "attend/problem/arrays.h"
#include "base/integers.h"

int64_t attn__packed_sequence(const attn__canonical *canonical, int64_t batch)
{
    return attn__offsets_index(&canonical->batch, canonical->problem.packed.batch_dim, batch);
}

/* A row is an index over all QUERY axes. */
static int64_t rows_of(const attn__canonical *canonical, const attn__execution *arrays, int64_t sequence)
{
    int64_t longest = canonical->query.axis[canonical->problem.packed.query_dim].dim.n;
    int64_t length = arrays->at.q_offsets[sequence + 1] - arrays->at.q_offsets[sequence];
    return longest ? canonical->query.size / longest * length : 0;
}

static void shorten(attn__group *group, int axis, int64_t n)
{
    int64_t longest = group->axis[axis].dim.n;
    group->size = longest ? group->size / longest * n : 0;
    group->axis[axis].dim.n = n;
}

/* Adds `by` to the bounds of bands along the packed axes. Open ends stay open, because the sum is limited to a value
 * beyond every distance. */
static void shift_bands(attn_problem *p, int64_t by)
{
    for (int i = 0; i < p->nbands; i++) {
        attn_band *band = &p->bands[i];
        if (band->query_dim != p->packed.query_dim || band->key_dim != p->packed.key_dim)
            continue;
        band->lo = attn__add_saturated(band->lo, by);
        band->hi = attn__add_saturated(band->hi, by);
    }
}

void attn__sequence_at(attn__sequence *one, const attn__canonical *canonical, const attn__execution *arrays,
                       int64_t sequence)
{
    const attn_packed *packed = &canonical->problem.packed;
    const attn__axis *query = &canonical->query.axis[packed->query_dim], *key = &canonical->key.axis[packed->key_dim];
    int64_t q = arrays->at.q_offsets[sequence], queries = arrays->at.q_offsets[sequence + 1] - q;
    int64_t k = arrays->at.k_offsets[sequence], keys = arrays->at.k_offsets[sequence + 1] - k;
    one->canonical = *canonical;
    one->arrays = *arrays;
    shorten(&one->canonical.query, packed->query_dim, queries);
    shorten(&one->canonical.key, packed->key_dim, keys);
    if (packed->align_ends)
        shift_bands(&one->canonical.problem, keys - queries);
    for (attn_array array = ATTN_ARRAY_Q; array < ATTN_ARRAY_COUNT; array++) {
        attn__operand op = attn__arrays_table[array].operand;
        char *data = attn__arrays_get(&arrays->at, array);
        bool by_query = attn__operand_packed(op, ATTN_ROLE_QUERY);
        if (!data || !(by_query || attn__operand_packed(op, ATTN_ROLE_KEY)))
            continue;
        int64_t elements = by_query ? q * attn__stride(&query->dim, op) : k * attn__stride(&key->dim, op);
        int64_t size = (int64_t)attn_dtype_size(attn__operand_dtype(&canonical->problem, op));
        attn__arrays_set(&one->arrays.at, array, data + elements * size);
    }
}

/* ------------------------------------------------------------------------------------------------- items */

attn__items attn__items_make(const attn__canonical *canonical, const attn__execution *arrays, int64_t block)
{
    int64_t blocks = attn__ceil_div(canonical->query.size, block);
    return (attn__items){canonical, arrays, block, blocks, canonical->batch.size * blocks};
}

bool attn__item_start(attn__item *item, const attn__items *items, int64_t number)
{
    int64_t next = number + 1;
    item->canonical = items->canonical;
    item->arrays = items->arrays;
    item->batch = number / items->blocks;
    item->first = (items->blocks - 1 - number % items->blocks) * items->block;
    item->next_batch = next < items->n ? next / items->blocks : -1;
    item->next_first = (items->blocks - 1 - next % items->blocks) * items->block;
    if (attn__is_packed(items->canonical)) {
        int64_t sequence = attn__packed_sequence(items->canonical, item->batch);
        if (item->first >= rows_of(items->canonical, items->arrays, sequence))
            return false;
        attn__sequence_at(&item->one, items->canonical, items->arrays, sequence);
        item->canonical = &item->one.canonical;
        item->arrays = &item->one.arrays;
        item->next_batch = -1;
    }
    item->count = attn__min(item->canonical->query.size - item->first, items->block);
    return true;
}
