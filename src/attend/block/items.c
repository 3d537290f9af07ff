/* SPDX-License-Identifier: MIT
 * Batch indices, packed sequences and blocks of queries. */
#include "attend/block/items.h"

#include "attend/block/rows.h"
#include "attend/problem/operand.h"
#include "base/integers.h"

int64_t attn__packed_sequence(const attn__canonical *canonical, int64_t batch)
{
    return attn__offsets_index(&canonical->batch, canonical->problem.packed.batch_dim, batch);
}

/* How many rows (indices over all QUERY axes) a sequence has. */
static int64_t rows_of(const attn__canonical *canonical, const attn_arrays *arrays, int64_t sequence)
{
    int64_t longest = canonical->query.axis[canonical->problem.packed.query_dim].dim.n;
    int64_t length = arrays->q_offsets[sequence + 1] - arrays->q_offsets[sequence];
    return longest ? canonical->query.size / longest * length : 0;
}

static void shorten(attn__group *group, int axis, int64_t n)
{
    int64_t longest = group->axis[axis].dim.n;
    group->size = longest ? group->size / longest * n : 0;
    group->axis[axis].dim.n = n;
}

static const void *moved(const attn__canonical *canonical, const void *array, const attn__axis *axis, attn__operand op,
                         int64_t positions)
{
    int64_t size = (int64_t)attn_dtype_size(attn__operand_dtype(&canonical->problem, op));
    return array ? (const char *)array + positions * attn__stride(&axis->dim, op) * size : NULL;
}

static void *moved_output(const attn__canonical *canonical, void *array, const attn__axis *axis, attn__operand op,
                          int64_t positions)
{
    return (void *)(uintptr_t)moved(canonical, array, axis, op, positions);
}

/* An end of the range of integers lies beyond every distance, shifted or not. */
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

void attn__sequence_at(attn__sequence *one, const attn__canonical *canonical, const attn_arrays *arrays,
                       int64_t sequence)
{
    const attn_packed *packed = &canonical->problem.packed;
    const attn__axis *query = &canonical->query.axis[packed->query_dim], *key = &canonical->key.axis[packed->key_dim];
    int64_t q = arrays->q_offsets[sequence], queries = arrays->q_offsets[sequence + 1] - q;
    int64_t k = arrays->k_offsets[sequence], keys = arrays->k_offsets[sequence + 1] - k;
    one->canonical = *canonical;
    one->arrays = *arrays;
    shorten(&one->canonical.query, packed->query_dim, queries);
    shorten(&one->canonical.key, packed->key_dim, keys);
    if (packed->align_ends)
        shift_bands(&one->canonical.problem, keys - queries);
    attn_arrays *a = &one->arrays;
    a->q = moved(canonical, a->q, query, ATTN__OP_Q, q);
    a->k = moved(canonical, a->k, key, ATTN__OP_K, k);
    a->v = moved(canonical, a->v, key, ATTN__OP_V, k);
    a->o = moved_output(canonical, a->o, query, ATTN__OP_O, q);
    a->lse = moved_output(canonical, a->lse, query, ATTN__OP_LSE, q);
    a->dlse = moved(canonical, a->dlse, query, ATTN__OP_LSE, q);
    a->dout = moved(canonical, a->dout, query, ATTN__OP_DOUT, q);
    a->dq = moved_output(canonical, a->dq, query, ATTN__OP_DQ, q);
    a->dk = moved_output(canonical, a->dk, key, ATTN__OP_DK, k);
    a->dv = moved_output(canonical, a->dv, key, ATTN__OP_DV, k);
}

/* ------------------------------------------------------------------------------------------------- items */

attn__items attn__items_make(const attn__canonical *canonical, const attn_arrays *arrays, int64_t block)
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
