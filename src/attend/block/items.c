/* SPDX-License-Identifier: MIT
 * Batch indices and blocks of queries. */
#include "attend/block/items.h"

#include "base/integers.h"

attn__items attn__items_make(const attn__canonical *canonical, const attn_arrays *arrays, int64_t block)
{
    int64_t blocks = attn__pieces(canonical->query.size, block);
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
        if (item->first >= attn__packed_rows(items->canonical, items->arrays, sequence))
            return false;
        attn__sequence_at(&item->one, items->canonical, items->arrays, sequence);
        item->canonical = &item->one.canonical;
        item->arrays = &item->one.arrays;
        item->next_batch = -1;
    }
    item->count = attn__least(item->canonical->query.size - item->first, items->block);
    return true;
}
