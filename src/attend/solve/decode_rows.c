/* SPDX-License-Identifier: MIT
 * The keys that queries may see by bands and lengths. */
#include "attend/solve/decode_plan.h"

#include "attend/block/rows.h"

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
