/* SPDX-License-Identifier: MIT
 *
 * decode_rows.c - shared by both passes over a few queries: which batch items go together, key ranges, rows of queries.
 */
#include "attend/solve/decode_plan.h"

#include "attend/solve/flash.h"
#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "attend/problem/operand.h"
#include "base/integers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Queries and sums of one work item fit in the first cache with the keys; the rows of a block and the prefetched ones
 * fit in the second. */
enum { HEADS_FLOATS = 8192, FETCHED_ROWS = 2 * (ATTN__DECODE_BLOCK + ATTN__DECODE_AHEAD) };

const char *attn__decode_refuse(const attn__canonical *canonical)
{
    if (canonical->query.size > ATTN__DECODE_QUERIES)
        return "more than 16 queries";
    bool hides = canonical->has_lens || canonical->problem.nbands;
    if (canonical->has_dropout)
        return "has dropout";
    if ((hides || canonical->has_mask) && canonical->problem.mask_fill != 0.0)
        return "masked keys take part";
    if (hides && canonical->key.n > 1)
        return "has bands or lengths on one of several key axes";
    if (!attn__offsets_adjacent(&canonical->contract, ATTN__STRIDE(dim.k)) ||
        !attn__offsets_adjacent(&canonical->value, ATTN__STRIDE(dim.v)))
        return "channels of k or v are not adjacent";
    return NULL;
}

/* How many indices of the last batch axis fit within the stride from key to key. */
static int64_t side_by_side(const attn__decode *f, const attn__canonical *canonical)
{
    const attn_dim *head = &canonical->batch.axis[canonical->batch.n - 1].dim;
    const attn_dim *key = &canonical->key.axis[canonical->key.n - 1].dim;
    int64_t most = HEADS_FLOATS / (canonical->query.size * (f->channels + f->values)), n = head->n;
    int64_t rows = canonical->caches.l2 / (int64_t)sizeof(float) / 2 / FETCHED_ROWS;
    most = attn__most(1, attn__least(most, rows / attn__most(f->channels, f->values)));
    if (n < 2 || head->k < 1 || head->v < 1 || n * head->k > key->k || n * head->v > key->v)
        return 1;
    while (n > most || n > ATTN__DECODE_HEADS || head->n % n != 0)
        n--;
    return n;
}

void attn__decode_describe(attn__decode *f, const attn__canonical *canonical)
{
    f->kernel = attn__decode_for(canonical->isa);
    f->channels = attn__round_up(canonical->contract.size, f->kernel->lanes);
    f->values = attn__round_up(canonical->value.size, f->kernel->lanes);
    f->heads = side_by_side(f, canonical);
    int64_t keys = canonical->key.size, items = attn__most(1, canonical->batch.size / f->heads);
    int64_t wanted = (ATTN__DECODE_ITEMS + items - 1) / items;
    f->parts = attn__most(1, attn__least(wanted, keys / ATTN__DECODE_PART));
    f->part = attn__most(ATTN__DECODE_BLOCK, attn__round_up((keys + f->parts - 1) / f->parts, ATTN__DECODE_BLOCK));
    f->parts = attn__most(1, (keys + f->part - 1) / f->part);
}

void attn__decode_settle(attn__recipe *recipe, const attn__decode *f, const attn__canonical *canonical, size_t thread,
                         size_t part)
{
    size_t parts = attn__size_mul((size_t)(canonical->batch.size * f->parts), part);
    recipe->workspace = attn__size_mul((size_t)canonical->threads, thread);
    if (f->parts > 1)
        recipe->workspace = attn__size_add(recipe->workspace, parts);
    snprintf(recipe->text, sizeof recipe->text, "%s %d queries of %d heads, keys in %d parts%s",
             attn__isa_text(f->kernel->isa), (int)canonical->query.size, (int)f->heads, (int)f->parts,
             f->stream ? ", gradients past the caches" : "");
}

void attn__decode_load(const attn__decode *decode, const attn__canonical *canonical, const attn__decode_operand *x,
                       int64_t batch, float *rows)
{
    attn_dtype dtype = canonical->problem.dtype;
    int64_t base = attn__offsets_one(&canonical->batch, x->stride, batch), n = x->channels->size;
    int64_t size = (int64_t)attn_dtype_size(dtype);
    bool adjacent = attn__offsets_adjacent(x->channels, x->stride);
    for (int64_t i = 0; i < canonical->query.size; i++, rows += x->padded) {
        int64_t at = base + attn__offsets_one(&canonical->query, x->stride, i);
        if (adjacent)
            decode->kernel->load((const char *)x->base + at * size, dtype, n, x->factor, rows);
        for (int64_t c = 0; c < n && !adjacent; c++) {
            int64_t channel = at + attn__offsets_one(x->channels, x->stride, c);
            rows[c] = (float)attn__load(dtype, x->base, channel) * x->factor;
        }
        for (int64_t c = n; c < x->padded; c++)
            rows[c] = 0.0f;
    }
}

static int64_t clamp(int64_t x, int64_t from, int64_t to)
{
    return x < from ? from : x > to ? to : x;
}

/* The keys in *range that a query may see; bounds of bands may be open ends. */
static void find_range(const attn__canonical *canonical, const int32_t *lens, int64_t batch, int64_t query,
                       attn__decode_range *range)
{
    const attn_problem *p = &canonical->problem;
    for (int i = 0; i < p->nbands; i++) {
        int64_t at = attn__offsets_index(&canonical->query, p->bands[i].query_dim, query), low, high;
        if (__builtin_add_overflow(at, p->bands[i].lo, &low))
            low = p->bands[i].lo;
        if (__builtin_add_overflow(at, p->bands[i].hi, &high) || high == INT64_MAX)
            high = p->bands[i].hi > 0 ? INT64_MAX - 1 : INT64_MIN;
        range->from = clamp(low, range->from, range->to);
        range->to = clamp(high + 1, range->from, range->to);
    }
    if (canonical->has_lens) {
        int64_t at = attn__offsets_one(&canonical->batch, ATTN__STRIDE(dim.lens), batch) +
                     attn__offsets_one(&canonical->query, ATTN__STRIDE(dim.lens), query);
        range->to = clamp(lens[at], range->from, range->to);
    }
}

static int64_t row_at(const attn__canonical *canonical, size_t stride, int64_t batch, int64_t query)
{
    return attn__offsets_one(&canonical->batch, stride, batch) + attn__offsets_one(&canonical->query, stride, query);
}

bool attn__decode_find_ranges(const attn__canonical *canonical, const int32_t *lens, int64_t batch, int64_t begin,
                              int64_t end, attn__decode_range *range)
{
    bool any = false;
    for (int64_t i = 0; i < canonical->query.size; i++) {
        range[i] = (attn__decode_range){begin, end, 0, 0};
        if (canonical->has_bias)
            range[i].bias = row_at(canonical, ATTN__STRIDE(dim.bias), batch, i);
        if (canonical->has_mask)
            range[i].mask = row_at(canonical, ATTN__STRIDE(dim.mask), batch, i);
        find_range(canonical, lens, batch, i, &range[i]);
        any = any || range[i].from < range[i].to;
    }
    return any;
}

void attn__decode_locate(const attn__canonical *canonical, size_t stride, int64_t first, int64_t *at)
{
    int64_t n = attn__least(canonical->key.size - first, ATTN__DECODE_BLOCK + ATTN__DECODE_AHEAD);
    attn__offsets_fill(&canonical->key, stride, first, n, at);
    for (int64_t i = n; i < 2 * ATTN__DECODE_BLOCK; i++)
        at[i] = at[n - 1];
}

/* ------------------------------------------------------------------------------------------- bias and mask */

void attn__decode_view_take(const attn__canonical *canonical, attn__arena *arena, attn__decode_view *view)
{
    bool any = canonical->has_bias || canonical->has_mask;
    view->bias_at = attn__arena_take(arena, canonical->has_bias ? 2 * ATTN__DECODE_BLOCK : 0, sizeof(int64_t));
    view->mask_at = attn__arena_take(arena, canonical->has_mask ? 2 * ATTN__DECODE_BLOCK : 0, sizeof(int64_t));
    view->bias = attn__arena_take(arena, any ? ATTN__DECODE_BLOCK : 0, sizeof(float));
    view->seen = attn__arena_take(arena, any ? ATTN__DECODE_BLOCK : 0, 1);
}

void attn__decode_view_start(const attn__canonical *canonical, int64_t first, const attn__decode_view *view)
{
    if (canonical->has_bias)
        attn__decode_locate(canonical, ATTN__STRIDE(dim.bias), first, view->bias_at);
    if (canonical->has_mask)
        attn__decode_locate(canonical, ATTN__STRIDE(dim.mask), first, view->mask_at);
}

bool attn__decode_view_read(const attn__canonical *canonical, const attn_arrays *arrays,
                            const attn__decode_range *range, int64_t from, int64_t to, const attn__decode_view *view)
{
    if (!canonical->has_bias && !canonical->has_mask)
        return false;
    memset(view->bias, 0, ATTN__DECODE_BLOCK * sizeof *view->bias);
    memset(view->seen, 0, ATTN__DECODE_BLOCK);
    const uint8_t *mask = arrays->mask;
    const float *bias = arrays->bias;
    for (int64_t j = from; j < to; j++)
        view->seen[j] = !canonical->has_mask || mask[range->mask + view->mask_at[j]] != 0;
    for (int64_t j = from; j < to && canonical->has_bias; j++) {
        view->bias[j] = bias[range->bias + view->bias_at[j]];
        view->seen[j] = view->seen[j] && view->bias[j] == -INFINITY ? 2 : view->seen[j];
    }
    return true;
}

bool attn__decode_next_run(const uint8_t *seen, int64_t to, int64_t *at, int64_t *end)
{
    while (*at < to && seen[*at] != 1)
        ++*at;
    *end = *at;
    while (*end < to && seen[*end] == 1)
        ++*end;
    return *at < to;
}

/* The rows of one operand that start at key at[0] of a batch item. */
static attn__decode_rows rows_of(const attn__canonical *canonical, size_t stride, const void *base, int64_t batch,
                                 const int64_t *at, int64_t keys, int64_t channels)
{
    attn_dtype dtype = attn__operand_dtype(&canonical->problem, ATTN__OP_K);
    int64_t start = attn__offsets_one(&canonical->batch, stride, batch) * (int64_t)attn_dtype_size(dtype);
    const char *first = (const char *)base + start;
    return (attn__decode_rows){first, dtype, at, keys, channels, first, at + ATTN__DECODE_AHEAD};
}

void attn__decode_block(attn__decode_rows *k, attn__decode_rows *v, const attn__decode *decode,
                        const attn__canonical *canonical, const attn_arrays *arrays, const attn__decode_place *place)
{
    int64_t batch = place->item + place->head, next = batch + 1;
    *k = rows_of(canonical, ATTN__STRIDE(dim.k), arrays->k, batch, place->k_at, place->keys, canonical->contract.size);
    *v = rows_of(canonical, ATTN__STRIDE(dim.v), arrays->v, batch, place->v_at, place->keys, canonical->value.size);
    if (!place->only_block)
        return;
    k->next = v->base;
    k->next_at = v->at;
    v->next = NULL;
    if (next < canonical->batch.size && (place->head + 1 < decode->heads || decode->parts == 1)) {
        v->next = rows_of(canonical, ATTN__STRIDE(dim.k), arrays->k, next, place->k_at, 0, 0).base;
        v->next_at = place->k_at;
    }
}
