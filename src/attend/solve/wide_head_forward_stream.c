/* SPDX-License-Identifier: MIT
 *
 * wide_head_forward_stream.c - the two f32 products of the forward pass over wide heads on AMX.
 */
#include "attend/solve/wide_head_item.h"

#include "base/integers.h"
#include "base/constants.h"

void attn__wide_head_score_in_stream(attn__wide_head_item *x, attn__flash_keys *b, attn__wide_head_plain *plain)
{
    const attn__flash_item *t = &x->t;
    attn__wide_head_viewer l = {x, b};
    attn__wide_head_scores scores = {.a = attn__wide_head_keys(x, b),
                                     .b = attn__wide_head_queries(x),
                                     .factor = (float)(t->canonical->problem.scale * ATTN__LOG2E),
                                     .channels = x->wide_head->channels,
                                     .plain = plain,
                                     .user = &l};
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        if (attn__wide_head_sees(x, b, i))
            scores.strip[scores.strips++] = (attn__wide_head_strip){
                sub.lane / ATTN__BF16X3_SIDE, sub.width / ATTN__BF16X3_SIDE, x->s + sub.lane * b->packed, sub.width};
    }
    attn__wide_head_stream_scores(&x->stream, &scores);
}

/* The queries that see the block, if those are neighbours: the output's other rows are left alone. */
static bool neighbours_see(const attn__wide_head_item *x, const attn__flash_keys *b, attn__wide_head_products *products)
{
    const attn__flash_item *t = &x->t;
    int64_t end = -1;
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        if (!attn__wide_head_sees(x, b, i))
            continue;
        if (end < 0)
            products->first = sub.lane;
        else if (end != sub.lane)
            return false;
        end = sub.lane + sub.width;
    }
    products->out.rows = attn__least(end, t->count) - products->first;
    products->out.at = t->s.query_at.o + products->first;
    return end >= 0;
}

bool attn__wide_head_add_values_in_stream(attn__wide_head_item *x, attn__flash_keys *b, attn__wide_head_plain *plain)
{
    const attn__flash_item *t = &x->t;
    attn__wide_head_viewer l = {x, b};
    attn__wide_head_products products = {.in = attn__wide_head_values(x, b),
                                         .out = {.operand = &x->o, .base = t->arrays->o},
                                         .channels = x->wide_head->values,
                                         .factor = x->factor,
                                         .plain = plain,
                                         .user = &l};
    if (!x->weights_finite || !neighbours_see(x, b, &products))
        return false;
    bool started = false;
    for (int64_t i = 0; i < t->subtiles; i++) {
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        started = started || t->s.span[i].started;
        for (int64_t r = 0; r < sub.lanes && !t->s.span[i].started; r++)
            x->was[sub.lane + r] = -1.0f;
    }
    products.was = started ? x->was : NULL;
    attn__wide_head_stream_products(&x->stream, &products);
    return true;
}
