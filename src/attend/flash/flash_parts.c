/* SPDX-License-Identifier: MIT
 *
 * flash_parts.c - the two products in the matrix unit, and what is between them.  Three parts of a number hold it as it
 * is, but not infinity: queries, or blocks of keys or values, that are not finite take the vector units' path.
 */
#include "attend/flash/flash_item.h"

#include "base/integers.h"
#include "kernels/parts/parts_digits.h"

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

static void queries_to_parts(attn__flash_item *t)
{
    attn__parts_rows q = rows_of(t, t->arrays->q, t->s.q_at, t->count, t->flash->channels);
    q.factor = (float)scale_of(t);
    t->q_finite = attn__parts_cut(ATTN__PARTS_ACROSS, &q, &t->s.q_tiles);
    t->q_cut = true;
}

static bool queries_to_digits(attn__flash_item *t)
{
    attn__parts_rows q = rows_of(t, t->arrays->q, t->s.q_at, t->count, t->flash->channels);
    q.factor = (float)scale_of(t);
    if (!attn__parts_digits(ATTN__PARTS_ACROSS, &q, t->s.q_digits, t->s.q_unit))
        return false;
    for (int64_t i = t->count; i < t->padded; i++)
        t->s.q_unit[i] = q.factor;
    return true;
}

void attn__flash_parts_queries(attn__flash_item *t)
{
    const attn__flash *f = t->flash;
    t->q_digits = f->digits && queries_to_digits(t);
    if (t->q_digits)
        return;
    if (f->nparts > 1) {
        queries_to_parts(t);
        return;
    }
    attn__parts_rows q = rows_of(t, t->arrays->q, t->s.q_at, t->count, f->channels);
    f->parts->split_rows(&q, &t->s.q_tiles);
    f->parts->turn(t->s.q_tiles.data, t->padded / ATTN__PARTS_SIDE * t->s.q_tiles.block / ATTN__PARTS_TILE);
}

/* Keys in digits where queries are and they will do, else in parts, as queries are then, too. */
static bool keys_to_tiles(attn__flash_item *t, attn__flash_keys *b)
{
    attn__parts_rows k = rows_of(t, t->arrays->k, t->s.k_at, b->keys, t->flash->channels);
    b->digits = t->q_digits && attn__parts_digits(ATTN__PARTS_ALONG, &k, t->s.k_digits, t->s.k_unit);
    if (b->digits)
        return true;
    if (!t->q_cut)
        queries_to_parts(t);
    return t->q_finite && attn__parts_cut(ATTN__PARTS_ALONG, &k, &t->s.k_tiles);
}

/* One part holds whatever the caller has. */
bool attn__flash_parts_panels(attn__flash_item *t, attn__flash_keys *b)
{
    const attn__flash *f = t->flash;
    attn__parts_rows v = rows_of(t, t->arrays->v, t->s.v_at, b->keys, f->values);
    if (f->nparts > 1) {
        b->parts = keys_to_tiles(t, b) && attn__parts_cut(ATTN__PARTS_TURNED, &v, &t->s.v_tiles);
        return b->parts;
    }
    b->parts = true;
    attn__parts_rows k = rows_of(t, t->arrays->k, t->s.k_at, b->keys, f->channels);
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

static attn__parts_scores digits_of(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    int64_t channels = t->flash->channels;
    return (attn__parts_scores){.m = attn__pieces(b->keys, ATTN__DIGITS_SIDE),
                                .n = sub.width / ATTN__DIGITS_SIDE,
                                .steps = attn__pieces(channels, ATTN__DIGITS_DEPTH),
                                .keys = t->s.k_digits,
                                .queries = t->s.q_digits + attn__parts_digits_bytes(sub.lane, channels),
                                .unit = t->s.k_unit,
                                .s = t->s.s,
                                .ld = sub.width,
                                .top = t->s.top};
}

static attn__aside beside(attn__flash_item *t)
{
    return (attn__aside){attn__ahead_fetch, &t->ahead};
}

void attn__flash_parts_score(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    attn__parts_args parts = scores_of(t, b, sub);
    attn__parts_scores digits = digits_of(t, b, sub);
    t->flash->parts->weigh(NULL, &parts, !b->digits, b->digits ? &digits : NULL, beside(t));
}

int64_t attn__flash_parts_portions(const attn__flash_item *t, const attn__flash_keys *b)
{
    enum { SQUARE = 2 * ATTN__PARTS_SIDE, PAIRS = 6 };
    const attn__flash *f = t->flash;
    int64_t pairs = f->nparts == 1 ? 1 : PAIRS;
    int64_t scores = attn__pieces(b->keys, SQUARE) * attn__pieces(f->channels, ATTN__PARTS_DEPTH) * pairs;
    int64_t values = attn__pieces(f->held, SQUARE) * attn__pieces(b->keys, ATTN__PARTS_DEPTH) * pairs;
    if (b->digits)
        scores = 2 * attn__pieces(b->keys, ATTN__DIGITS_SIDE) * attn__pieces(f->channels, ATTN__DIGITS_DEPTH);
    return attn__pieces(scores + values, ATTN__PARTS_ASIDE);
}

void attn__flash_parts_scale(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    float *factor = t->s.shrink + sub.lane;
    if (b->digits)
        factor = t->s.q_unit + sub.lane;
    else if (t->flash->nparts > 1)
        return;
    else
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
        t->flash->parts->weigh(&t->scored.softmax, &values, count, NULL, beside(t));
        t->weighed = t->scored;
        t->scored.any = false;
    }
    if (t->weighed.any) {
        values = begin_values(t);
        t->flash->parts->weigh(NULL, &values, 1, NULL, beside(t));
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
    attn__parts_scores scores = digits_of(t, b, sub);
    int count = 0;
    if (t->weighed.any)
        products[count++] = begin_values(t);
    if (!b->digits)
        products[count++] = scores_of(t, b, sub); /* last, so that they are at hand when their maxima are taken */
    t->flash->parts->weigh(t->scored.any ? &t->scored.softmax : NULL, products, count, b->digits ? &scores : NULL,
                           beside(t));
    t->weighed = t->scored;
    t->scored.any = false;
}

/* Scores on the way to weights: what they are to be multiplied by. */
typedef struct factors {
    float all;
    const float *each; /* of each lane; NULL: `all` */
    const float *top;  /* the largest score of each lane; NULL: not known */
} factors;

/* Which weights its exponentials will be; until then scores lie in one of two places, which take turns. */
static void refer(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub, factors factor)
{
    int tiles = 1 - t->weighed.tiles;
    float *s = t->s.s;
    t->scored = (attn__flash_waiting){.any = true, .keys = b->keys, .tiles = tiles, .sub = sub};
    t->scored.softmax = (attn__parts_softmax){.s = s,
                                              .rows = b->keys,
                                              .width = sub.width,
                                              .factor = factor.all,
                                              .factors = factor.each,
                                              .top = factor.top,
                                              .parts = t->flash->nparts,
                                              .m = t->s.m + sub.lane,
                                              .l = t->s.l + sub.lane,
                                              .shrink = t->s.shrink + sub.lane,
                                              .to = t->s.p_tiles[tiles]};
    t->scored.changed = t->flash->parts->refer(&t->scored.softmax);
    t->s.s = t->s.other_s;
    t->s.other_s = s;
}

/* Digits' largest scores are known of whole tiles of keys. */
static factors factors_of(const attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    if (!b->digits)
        return (factors){.all = t->flash->nparts > 1 ? 1.0f : (float)scale_of(t)};
    bool whole = b->keys == b->packed || b->keys % ATTN__DIGITS_SIDE == 0;
    return (factors){(float)scale_of(t), t->s.q_unit + sub.lane, whole ? t->s.top : NULL};
}

void attn__flash_parts_see(attn__flash_item *t, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__task *task = t->task;
    const attn__flash_span *span = &t->s.span[sub.index];
    factors factor = factors_of(t, b, sub);
    score_beside(t, b, sub);
    bool masks = task->has_bias || task->has_mask || b->at < span->open_begin || b->at + b->keys > span->open_end;
    if (masks || task->has_dropout || !(factor.all > 0.0f)) {
        attn__flash_parts_scale(t, b, sub);
        factor = (factors){.all = 1.0f};
    }
    attn__flash_mask(t, b, sub);
    if (task->has_dropout)
        weigh_and_drop(t, b, sub);
    else
        refer(t, b, sub, factor);
}
