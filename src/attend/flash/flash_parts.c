/* SPDX-License-Identifier: MIT
 *
 * flash_parts.c - the two products in the matrix unit, and what is between them.  Three parts of a number hold it as it
 * is, but not infinity: queries, or blocks of keys or values, that are not finite take the vector units' path.
 */
#include "attend/flash/flash_item.h"

#include "base/integers.h"
#include "kernels/parts/parts_cut.h"

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

/* ------------------------------------------------------------------------------------------- operands */

void attn__flash_parts_queries(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    attn__parts_rows q = rows_of(t, t->arrays->q, t->s.q_at, t->count, f->channels);
    if (f->nparts > 1) {
        q.factor = (float)scale_of(t);
        t->q_finite = attn__parts_cut(ATTN__PARTS_ACROSS, &q, &t->s.q_tiles);
        return;
    }
    f->parts->split_rows(&q, &t->s.q_tiles);
    f->parts->turn(t->s.q_tiles.data, t->padded / ATTN__PARTS_SIDE * t->s.q_tiles.block / ATTN__PARTS_TILE);
}

/* One part holds whatever the caller has. */
bool attn__flash_parts_panels(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn__parts_rows v = rows_of(t, t->arrays->v, t->s.v_at, b->keys, f->values);
    attn__parts_rows k = rows_of(t, t->arrays->k, t->s.k_at, b->keys, f->channels);
    if (f->nparts > 1) {
        b->parts = t->q_finite && attn__parts_cut(ATTN__PARTS_ALONG, &k, &t->s.k_tiles) &&
                   attn__parts_cut(ATTN__PARTS_TURNED, &v, &t->s.v_tiles);
        return b->parts;
    }
    b->parts = true;
    f->parts->split_rows(&k, &t->s.k_tiles);
    bool finite = f->parts->split_pairs(&v, &t->s.v_tiles);
    f->parts->turn(t->s.v_tiles.data, f->held / ATTN__PARTS_SIDE * t->s.v_tiles.block / ATTN__PARTS_TILE);
    return finite;
}

static attn__parts_args scores_of(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = t->flash;
    return (attn__parts_args){.m = attn__pieces(b->keys, ATTN__PARTS_SIDE),
                              .n = sub.width / ATTN__PARTS_SIDE,
                              .k = attn__pieces(f->channels, ATTN__PARTS_DEPTH),
                              .parts = f->nparts,
                              .a = t->s.k_tiles,
                              .b = moved(t->s.q_tiles, sub.lane / ATTN__PARTS_SIDE),
                              .c = t->s.s,
                              .ldc = sub.width};
}

static attn__aside beside(attn__flash_item *t)
{
    return (attn__aside){attn__ahead_fetch, &t->ahead};
}

void attn__flash_parts_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__parts_args parts = scores_of(t, b, sub);
    t->flash->parts->weigh(NULL, &parts, 1, beside(t));
}

int64_t attn__flash_parts_portions(const attn__flash_item *t, const attn__flash_keys *b)
{
    enum { SQUARE = 2 * ATTN__PARTS_SIDE, PAIRS = 6 };
    const attn__flash *f = t->flash;
    int64_t pairs = f->nparts == 1 ? 1 : PAIRS;
    int64_t scores = attn__pieces(b->keys, SQUARE) * attn__pieces(f->channels, ATTN__PARTS_DEPTH) * pairs;
    int64_t values = attn__pieces(f->held, SQUARE) * attn__pieces(b->keys, ATTN__PARTS_DEPTH) * pairs;
    return attn__pieces(scores + values, ATTN__PARTS_ASIDE);
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
    attn__flash_subtile sub = t->weighed.sub;
    attn__flash_span *span = &t->s.span[sub.index];
    attn__parts_args args = {.m = f->held / ATTN__PARTS_SIDE,
                             .n = sub.width / ATTN__PARTS_SIDE,
                             .k = attn__pieces(t->weighed.keys, ATTN__PARTS_DEPTH),
                             .parts = f->nparts,
                             .a = t->s.v_tiles,
                             .b = t->s.p_tiles[t->weighed.tiles],
                             .c = t->s.o + sub.lane * f->held,
                             .ldc = sub.width,
                             .accumulate = span->started};
    if (t->weighed.changed && span->started)
        f->lanes->scale(args.c, f->values, sub.width, t->s.shrink + sub.lane);
    span->started = true;
    t->weighed.any = false;
    return args;
}

/* All that waits, so that panels may change, or scores without a pipeline follow. */
void attn__flash_parts_end(attn__flash_item *t)
{
    attn__parts_args values;
    if (t->scored.any) {
        int count = t->weighed.any;
        if (count)
            values = begin_values(t);
        t->flash->parts->weigh(&t->scored.softmax, &values, count, beside(t));
        t->weighed = t->scored;
        t->scored.any = false;
    }
    if (t->weighed.any) {
        values = begin_values(t);
        t->flash->parts->weigh(NULL, &values, 1, beside(t));
    }
}

/* Weights that dropout changes after their sum is taken are split by themselves. */
static void weigh_and_drop(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__parts_rows p = {.data = t->s.s,
                          .dtype = ATTN_F32,
                          .ld = sub.width,
                          .rows = b->keys,
                          .columns = sub.width,
                          .factor = 1.0f,
                          .parts = t->flash->nparts};
    t->weighed = (attn__flash_waiting){.any = true, .keys = b->keys, .tiles = 0, .sub = sub};
    t->weighed.changed = attn__flash_weigh(t, b, sub, NULL);
    t->flash->parts->split_pairs(&p, &t->s.p_tiles[0]);
    attn__flash_parts_end(t);
}

/* The subtile's scores and the values of the one before the last, beside the exponentials of the last. */
static void score_beside(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__parts_args products[2];
    int count = 0;
    if (t->weighed.any)
        products[count++] = begin_values(t);
    products[count++] = scores_of(t, b, sub); /* last, so that they are at hand when their maxima are taken */
    t->flash->parts->weigh(t->scored.any ? &t->scored.softmax : NULL, products, count, beside(t));
    t->weighed = t->scored;
    t->scored.any = false;
}

/* Which weights its exponentials will be; until then scores lie in one of two places, which take turns. */
static void refer(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, float factor)
{
    int tiles = 1 - t->weighed.tiles;
    float *s = t->s.s;
    t->scored = (attn__flash_waiting){.any = true, .keys = b->keys, .tiles = tiles, .sub = sub};
    t->scored.softmax = (attn__parts_softmax){.s = s,
                                              .rows = b->keys,
                                              .width = sub.width,
                                              .factor = factor,
                                              .parts = t->flash->nparts,
                                              .m = t->s.m + sub.lane,
                                              .l = t->s.l + sub.lane,
                                              .shrink = t->s.shrink + sub.lane,
                                              .to = t->s.p_tiles[tiles]};
    t->scored.changed = t->flash->parts->refer(&t->scored.softmax);
    t->s.s = t->s.other_s;
    t->s.other_s = s;
}

void attn__flash_parts_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__task *task = t->task;
    const attn__flash_span *span = &t->s.span[sub.index];
    float factor = t->flash->nparts > 1 ? 1.0f : (float)scale_of(t);
    score_beside(t, b, sub);
    bool masks = task->has_bias || task->has_mask || b->at < span->open_begin || b->at + b->keys > span->open_end;
    if (masks || task->has_dropout || !(factor > 0.0f)) {
        attn__flash_parts_scale(t, b, sub);
        factor = 1.0f;
    }
    attn__flash_mask(t, b, sub);
    if (task->has_dropout)
        weigh_and_drop(t, b, sub);
    else
        refer(t, b, sub, factor);
}
