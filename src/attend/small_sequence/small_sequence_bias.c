/* SPDX-License-Identifier: MIT
 *
 * small_sequence_bias.c - the bias of a short head, and its gradient.
 */
#include "attend/small_sequence/small_sequence_plan.h"

#include "base/constants.h"

#include <string.h>

/* The keys' offsets of a bias; NULL where they are adjacent. */
static const int64_t *keys_at(const attn__small_sequence_head *h, attn__operand op)
{
    size_t stride = offsetof(attn__axis, dim) + attn__operand_table[op].offset;
    return attn__offsets_adjacent(&h->canonical->key, stride) ? NULL : h->plan->key_at[op];
}

void attn__small_sequence_load_bias(attn__small_sequence_head *h)
{
    const attn__small_sequence *p = h->plan;
    const attn__small_sequence_scratch *m = &h->m;
    const float *base = (const float *)h->arrays->bias + h->now.at.bias;
    const int64_t *queries = p->query_at[ATTN__OP_BIAS], *keys = keys_at(h, ATTN__OP_BIAS);
    if (h->has_bias && h->bias == h->now.at.bias)
        return;
    h->has_bias = true;
    h->bias = h->now.at.bias;
    attn__lane_view view = {(void *)(uintptr_t)base, ATTN_F32, queries, keys, p->keys, p->queries};
    if (h->canonical->backward)
        p->lanes->copy(base, ATTN_F32, queries, keys, p->queries, p->keys, m->bias, p->width);
    else
        p->lanes->gather(&view, m->bias, p->width, (float)ATTN__LOG2E);
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
