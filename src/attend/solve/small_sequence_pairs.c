/* SPDX-License-Identifier: MIT
 *
 * small_sequence_pairs.c - what a short head has for each pair: a bias and its gradient, a mask.
 */
#include "attend/solve/small_sequence_plan.h"

#include "base/constants.h"

#include <string.h>

/* The keys' offsets of a bias or mask; NULL where they are adjacent. */
static const int64_t *keys_at(const attn__small_sequence_head *h, attn__operand op)
{
    size_t stride = offsetof(attn__axis, dim) + attn__operand_table[op].offset;
    return attn__offsets_adjacent(&h->canonical->key, stride) ? NULL : h->plan->key_at[op];
}

static void load_bias(const attn__small_sequence_head *h)
{
    const attn__small_sequence *p = h->plan;
    const float *base = (const float *)h->arrays->bias + h->now.at.bias;
    const int64_t *queries = p->query_at[ATTN__OP_BIAS], *keys = keys_at(h, ATTN__OP_BIAS);
    attn__lane_view view = {(void *)(uintptr_t)base, ATTN_F32, queries, keys, p->keys, p->queries};
    if (h->canonical->backward)
        p->lanes->copy(base, ATTN_F32, queries, keys, p->queries, p->keys, h->m.bias, p->width);
    else
        p->lanes->gather(&view, h->m.bias, p->width, (float)ATTN__LOG2E);
}

static void load_mask(const attn__small_sequence_head *h)
{
    const attn__small_sequence *p = h->plan;
    const uint8_t *base = h->arrays->mask + h->now.at.mask;
    const int64_t *queries = p->query_at[ATTN__OP_MASK], *keys = p->key_at[ATTN__OP_MASK];
    attn__lane_view view = {(void *)(uintptr_t)base, ATTN_U8, queries, keys_at(h, ATTN__OP_MASK), p->keys, p->queries};
    if (!h->canonical->backward)
        p->lanes->gather(&view, h->m.flags, p->width, 1.0f);
    for (int64_t i = 0; h->canonical->backward && i < p->queries; i++)
        for (int64_t j = 0; j < p->keys; j++)
            h->m.mask[i * p->width + j] = base[queries[i] + keys[j]] != 0;
}

void attn__small_sequence_load_pairs(attn__small_sequence_head *h)
{
    const attn_dim *at = &h->now.at;
    if (h->plan->has_bias && !(h->loaded && h->bias == at->bias))
        load_bias(h);
    if (h->plan->has_mask && !(h->loaded && h->mask == at->mask))
        load_mask(h);
    h->loaded = true;
    h->bias = at->bias;
    h->mask = at->mask;
}

static void store(const attn__small_sequence_head *h, const float *sum)
{
    const attn__small_sequence *p = h->plan;
    const int64_t *queries = h->plan->query_at[ATTN__OP_DBIAS], *keys = keys_at(h, ATTN__OP_DBIAS);
    float *to = (float *)h->arrays->dbias + h->now.at.dbias;
    bool add = h->canonical->problem.accumulate;
    for (int64_t i = 0; i < p->queries; i++, sum += p->width) {
        float *row = to + queries[i];
        if (!keys)
            p->backward->store(row, sum, p->keys, 1.0f, add);
        for (int64_t j = 0; keys && j < p->keys; j++)
            row[keys[j]] = add ? row[keys[j]] + sum[j] : sum[j];
    }
}

void attn__small_sequence_store_dbias(const attn__small_sequence_head *h, float *parts, int64_t item)
{
    int64_t size = h->plan->queries * h->plan->width;
    if (!h->plan->joins)
        store(h, h->m.dbias);
    else
        memcpy(parts + item * size, h->m.dbias, (size_t)size * sizeof *parts);
}

void attn__small_sequence_join_dbias(const attn__small_sequence_head *h, const float *parts, int64_t first)
{
    int64_t size = h->plan->queries * h->plan->width;
    memcpy(h->m.dbias, parts + first * size, (size_t)size * sizeof *parts);
    for (int64_t i = 1; i < h->plan->parts; i++)
        h->plan->lanes->add(h->m.dbias, parts + (first + i) * size, size, 1.0f);
    store(h, h->m.dbias);
}
