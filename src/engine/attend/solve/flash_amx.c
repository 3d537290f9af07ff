/* SPDX-License-Identifier: MIT
 *
 * flash_amx.c - the two products of flash attention on AMX, and the steps between them.  Three bf16 terms represent
 * every finite f32 number. If queries, or a block of keys or values, have NaN or infinity, the vector units compute the
 * products.
 */
#include "attend/solve/flash.h"

#include "attend/block/scores.h"
#include "base/integers.h"
#include "kernels/bf16x3/bf16x3_split_rows.h"

static attn__bf16x3_rows rows_of(const attn__flash_item *t, const void *data, const int64_t *at, int64_t rows,
                                 int64_t columns)
{
    return (attn__bf16x3_rows){.data = data,
                               .dtype = t->canonical->problem.dtype,
                               .row_at = at,
                               .rows = rows,
                               .columns = columns,
                               .factor = 1.0f,
                               .parts = t->flash->terms};
}

/* ------------------------------------------------------------------------------------------- operands */

void attn__flash_amx_queries(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    attn__bf16x3_rows q = rows_of(t, t->arrays->at.q, t->s.at[ATTN__OP_Q], t->count, f->channels);
    if (f->terms > 1) {
        q.factor = attn__score_factor(t->canonical);
        t->q_finite = attn__bf16x3_split_rows(ATTN__BF16X3_ACROSS, &q, &t->s.tiles.q);
        return;
    }
    f->amx->split_rows(&q, &t->s.tiles.q);
    f->amx->transpose(t->s.tiles.q.data, t->padded / ATTN__BF16X3_SIDE * t->s.tiles.q.block / ATTN__BF16X3_TILE);
}

/* For bf16 it always sets b->amx, because a single term represents every bf16 number. */
bool attn__flash_amx_panels(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn__bf16x3_rows v = rows_of(t, t->arrays->at.v, t->s.at[ATTN__OP_V], b->keys, f->values);
    attn__bf16x3_rows k = rows_of(t, t->arrays->at.k, t->s.at[ATTN__OP_K], b->keys, f->channels);
    if (f->terms > 1) {
        b->amx = t->q_finite && attn__bf16x3_split_rows(ATTN__BF16X3_ALONG, &k, &t->s.tiles.k) &&
                 attn__bf16x3_split_rows(ATTN__BF16X3_TRANSPOSED, &v, &t->s.tiles.v);
        return b->amx;
    }
    b->amx = true;
    f->amx->split_rows(&k, &t->s.tiles.k);
    bool finite = f->amx->split_pairs(&v, &t->s.tiles.v);
    f->amx->transpose(t->s.tiles.v.data, f->held / ATTN__BF16X3_SIDE * t->s.tiles.v.block / ATTN__BF16X3_TILE);
    return finite;
}

static attn__bf16x3_args scores_of(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    return (attn__bf16x3_args){.m = attn__ceil_div(b->keys, ATTN__BF16X3_SIDE),
                               .n = sub.width / ATTN__BF16X3_SIDE,
                               .k = attn__ceil_div(f->channels, ATTN__BF16X3_DEPTH),
                               .parts = f->terms,
                               .a = t->s.tiles.k,
                               .b = attn__flash_from_block(t->s.tiles.q, sub.lane / ATTN__BF16X3_SIDE),
                               .c = t->s.s,
                               .ldc = sub.width};
}

static attn__tile_hook interleaved(attn__flash_item *t)
{
    return (attn__tile_hook){attn__prefetch_portion, &t->prefetch};
}

/* Multiplies the scores by the scale, unless the queries include it. */
static void scale(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    float *factor = t->s.rows.shrink + sub.lane;
    if (t->flash->terms > 1)
        return;
    for (int64_t i = 0; i < sub.width; i++)
        factor[i] = attn__score_factor(t->canonical);
    t->flash->tiles.lanes->scale(t->s.s, b->keys, sub.width, factor);
}

void attn__flash_amx_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__bf16x3_args scores = scores_of(t, b, sub);
    t->flash->amx->weigh(NULL, &scores, 1, interleaved(t));
    scale(t, b, sub);
}

/* ------------------------------------------------------------------------------------------- weights and values */

/* Returns the arguments of the pending product of weights and values. */
static attn__bf16x3_args begin_values(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    attn__flash_subtile sub = t->weighed.sub;
    attn__flash_span *span = &t->s.span[sub.index];
    attn__bf16x3_args args = {.m = f->held / ATTN__BF16X3_SIDE,
                              .n = sub.width / ATTN__BF16X3_SIDE,
                              .k = attn__ceil_div(t->weighed.keys, ATTN__BF16X3_DEPTH),
                              .parts = f->terms,
                              .a = t->s.tiles.v,
                              .b = t->s.tiles.p[t->weighed.tiles],
                              .c = t->s.o + sub.lane * f->held,
                              .ldc = sub.width,
                              .accumulate = span->started};
    if (t->weighed.changed && span->started)
        f->tiles.lanes->scale(args.c, f->values, sub.width, t->s.rows.shrink + sub.lane);
    span->started = true;
    t->weighed.any = false;
    return args;
}

void attn__flash_amx_end(attn__flash_item *t)
{
    attn__bf16x3_args values;
    if (t->scored.any) {
        int count = t->weighed.any;
        if (count)
            values = begin_values(t);
        t->flash->amx->weigh(&t->scored.softmax, &values, count, interleaved(t));
        t->weighed = t->scored;
        t->scored.any = false;
    }
    if (t->weighed.any) {
        values = begin_values(t);
        t->flash->amx->weigh(NULL, &values, 1, interleaved(t));
    }
}

/* Computes weights and their sums, applies dropout, and splits the weights into terms. */
static void weigh_and_drop(attn__flash_item *t, const attn__tile *tile, const attn__flash_keys *b,
                           attn__flash_subtile sub)
{
    attn__bf16x3_rows p = {.data = t->s.s,
                           .dtype = ATTN_F32,
                           .ld = sub.width,
                           .rows = b->keys,
                           .columns = sub.width,
                           .factor = 1.0f,
                           .parts = t->flash->terms};
    t->weighed = (attn__flash_pending){.any = true, .keys = b->keys, .tiles = 0, .sub = sub};
    t->weighed.changed = attn__tile_softmax(tile, NULL);
    t->flash->amx->split_pairs(&p, &t->s.tiles.p[0]);
    attn__flash_amx_end(t);
}

/* Runs the subtile's scores and the pending product of values. Meanwhile the exponentials of the last scores run. */
static void score_interleaved(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__bf16x3_args products[2];
    int count = 0;
    if (t->weighed.any)
        products[count++] = begin_values(t);
    products[count++] = scores_of(t, b, sub); /* scores run last, so that they are in the cache afterwards */
    t->flash->amx->weigh(t->scored.any ? &t->scored.softmax : NULL, products, count, interleaved(t));
    t->weighed = t->scored;
    t->scored.any = false;
}

/* Prepares the exponentials of the subtile's scores, which are computed later. The next scores use another array. */
static void refer(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, float factor)
{
    int tiles = 1 - t->weighed.tiles;
    float *s = t->s.s;
    t->scored = (attn__flash_pending){.any = true, .keys = b->keys, .tiles = tiles, .sub = sub};
    t->scored.softmax = (attn__bf16x3_softmax){.s = s,
                                               .rows = b->keys,
                                               .width = sub.width,
                                               .factor = factor,
                                               .parts = t->flash->terms,
                                               .m = t->s.rows.m + sub.lane,
                                               .l = t->s.rows.l + sub.lane,
                                               .shrink = t->s.rows.shrink + sub.lane,
                                               .to = t->s.tiles.p[tiles]};
    t->scored.changed = t->flash->amx->refer(&t->scored.softmax);
    t->s.s = t->s.other_s;
    t->s.other_s = s;
}

void attn__flash_amx_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__canonical *canonical = t->canonical;
    float factor = t->flash->terms > 1 ? 1.0f : attn__score_factor(t->canonical);
    score_interleaved(t, b, sub);
    bool masks = canonical->problem.softcap != 0 || canonical->has_bias || canonical->has_mask ||
                 canonical->has_blocks || attn__flash_hidden(t, b, sub) != ATTN__VISIBLE_ALL;
    if (masks || canonical->has_dropout || !(factor > 0.0f)) {
        scale(t, b, sub);
        factor = 1.0f;
    }
    attn__tile tile = attn__flash_tile(t, b, sub);
    attn__tile_scores(&tile);
    if (canonical->has_dropout)
        weigh_and_drop(t, &tile, b, sub);
    else
        refer(t, b, sub, factor);
}
