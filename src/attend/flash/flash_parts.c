/* SPDX-License-Identifier: MIT
 *
 * flash_parts.c - the two products in the matrix unit, and what is between them.  Three parts of a number hold it as it
 * is, but not infinity: queries, or blocks of keys or values, that are not finite take the vector units' path.
 */
#include "attend/flash/flash_item.h"

#include "base/integers.h"

static const double log2_e = 1.44269504088896340736;

static double scale_of(const attn__flash_item *t)
{
    return t->task->problem.scale * log2_e;
}

static attn__parts_side moved(attn__parts_side side, int64_t blocks)
{
    side.data += blocks * side.block;
    return side;
}

static attn__parts_rows rows_of(const attn__flash_item *t, const void *data, const int64_t *at, int64_t rows,
                                int64_t columns)
{
    return (attn__parts_rows){.data = data,
                              .dtype = t->task->problem.dtype,
                              .row_at = at,
                              .rows = rows,
                              .columns = columns,
                              .factor = 1.0f,
                              .parts = t->flash->nparts};
}

void attn__flash_parts_queries(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    attn__parts_rows q = rows_of(t, t->arrays->q, t->s.q_at, t->count, f->channels);
    if (q.dtype == ATTN_F32)
        q.factor = (float)scale_of(t);
    t->q_finite = f->parts->split_rows(&q, &t->s.q_tiles);
    f->parts->turn(t->s.q_tiles.data, t->padded / ATTN__PARTS_SIDE * t->s.q_tiles.block / ATTN__PARTS_TILE);
}

/* One part holds whatever the caller has. */
bool attn__flash_parts_panels(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    bool any = f->nparts == 1;
    b->parts = any || t->q_finite;
    if (!b->parts)
        return false;
    attn__parts_rows k = rows_of(t, t->arrays->k, t->s.k_at, b->keys, f->channels);
    attn__parts_rows v = rows_of(t, t->arrays->v, t->s.v_at, b->keys, f->values);
    b->parts = f->parts->split_rows(&k, &t->s.k_tiles) || any;
    bool finite = b->parts && f->parts->split_pairs(&v, &t->s.v_tiles);
    b->parts = b->parts && (finite || any);
    if (b->parts)
        f->parts->turn(t->s.v_tiles.data, f->held / ATTN__PARTS_SIDE * t->s.v_tiles.block / ATTN__PARTS_TILE);
    return finite;
}

void attn__flash_parts_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    attn__parts_args args = {.m = attn__pieces(b->keys, ATTN__PARTS_SIDE), .n = sub.width / ATTN__PARTS_SIDE,
                             .k = attn__pieces(f->channels, ATTN__PARTS_DEPTH), .parts = f->nparts,
                             .b = moved(t->s.q_tiles, sub.lane / ATTN__PARTS_SIDE), .c = t->s.s, .ldc = sub.width};
    for (int64_t all = args.m, at = 0; at < all; at += ATTN__FLASH_ROWS) {
        args.m = attn__least(all - at, ATTN__FLASH_ROWS);
        args.a = moved(t->s.k_tiles, at);
        args.c = t->s.s + at * ATTN__PARTS_SIDE * sub.width;
        f->parts->run(&args);
        attn__ahead_fetch(&t->ahead);
    }
}

void attn__flash_parts_scale(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    float *factor = t->s.shrink + sub.lane;
    if (t->flash->nparts > 1)
        return;
    for (int64_t i = 0; i < sub.width; i++)
        factor[i] = (float)scale_of(t);
    t->flash->lanes->scale(t->s.s, b->keys, sub.width, factor);
}

/* ------------------------------------------------------------------------------------------- weights and values */

/* The product of the weights that wait with the values of their keys. */
static attn__parts_args begin_values(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    attn__flash_subtile sub = t->waiting.sub;
    attn__flash_span *span = &t->s.span[sub.index];
    attn__parts_args args = {.m = f->held / ATTN__PARTS_SIDE, .n = sub.width / ATTN__PARTS_SIDE,
                             .k = attn__pieces(t->waiting.keys, ATTN__PARTS_DEPTH), .parts = f->nparts,
                             .a = t->s.v_tiles, .b = t->s.p_tiles[t->waiting.tiles], .c = t->s.o + sub.lane * f->held,
                             .ldc = sub.width, .accumulate = span->started};
    if (t->waiting.changed && span->started)
        f->lanes->scale(args.c, f->values, sub.width, t->s.shrink + sub.lane);
    span->started = true;
    t->waiting.any = false;
    return args;
}

void attn__flash_parts_end(attn__flash_item *t)
{
    if (!t->waiting.any)
        return;
    attn__parts_args values = begin_values(t);
    t->flash->parts->run(&values);
}

/* Weights that dropout changes after their sum is taken are split by themselves. */
static bool weigh_and_drop(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub,
                           const attn__parts_side *to)
{
    bool changed = attn__flash_weigh(t, b, sub, NULL);
    attn__parts_rows p = {.data = t->s.s, .dtype = ATTN_F32, .ld = sub.width, .rows = b->keys, .columns = sub.width,
                          .factor = 1.0f, .parts = t->flash->nparts};
    t->flash->parts->split_pairs(&p, to);
    attn__flash_parts_end(t);
    return changed;
}

/* Exponentials beside the product of the weights before. */
static bool weigh(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, float factor,
                  const attn__parts_side *to)
{
    const attn__parts_kernel *kernel = t->flash->parts;
    attn__parts_softmax softmax = {.s = t->s.s, .rows = b->keys, .width = sub.width, .factor = factor,
                                   .parts = t->flash->nparts, .m = t->s.m + sub.lane, .l = t->s.l + sub.lane,
                                   .shrink = t->s.shrink + sub.lane, .to = *to};
    bool changed = kernel->refer(&softmax);
    if (t->waiting.any) {
        attn__parts_args values = begin_values(t);
        kernel->weigh(&softmax, &values);
    } else {
        kernel->weigh(&softmax, NULL);
    }
    return changed;
}

void attn__flash_parts_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__task *task = t->task;
    const attn__flash_span *span = &t->s.span[sub.index];
    int into = 1 - t->waiting.tiles;
    float factor = t->flash->nparts > 1 ? 1.0f : (float)scale_of(t);
    attn__flash_parts_score(t, b, sub);
    bool masks = task->has_bias || task->has_mask || b->at < span->open_begin || b->at + b->keys > span->open_end;
    if (masks || task->has_dropout || !(factor > 0.0f)) {
        attn__flash_parts_scale(t, b, sub);
        factor = 1.0f;
    }
    attn__flash_mask(t, b, sub);
    bool changed = task->has_dropout ? weigh_and_drop(t, b, sub, &t->s.p_tiles[into])
                                     : weigh(t, b, sub, factor, &t->s.p_tiles[into]);
    t->waiting.any = true;
    t->waiting.changed = changed;
    t->waiting.keys = b->keys;
    t->waiting.tiles = into;
    t->waiting.sub = sub;
}
