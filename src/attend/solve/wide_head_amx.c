/* SPDX-License-Identifier: MIT
 *
 * wide_head_amx.c - wide heads on AMX in bf16: packs chunks and weights as tiles and multiplies them.
 */
#include "attend/solve/wide_head_item.h"

#include "base/integers.h"

void attn__wide_head_amx_scores(attn__wide_head_item *x, const attn__flash_keys *b, int64_t first, int64_t n)
{
    attn__flash_item *t = &x->t;
    const attn__flash *f = t->flash;
    attn__bf16x3_side *q = &t->s.tiles.q, *k = &t->s.tiles.k;
    attn__wide_head_split(&(attn__wide_head_chunk){attn__wide_head_keys(x, b), first, n}, f,
                          &(attn__wide_head_panel){t->s.k, f->ldk, x->table}, k);
    attn__wide_head_split(&(attn__wide_head_chunk){attn__wide_head_queries(x), first, n}, f,
                          &(attn__wide_head_panel){t->s.q, f->channels, x->table}, q);
    f->amx->transpose(q->data, t->padded / ATTN__BF16X3_SIDE * q->block / ATTN__BF16X3_TILE);
    attn__wide_head_plan_prefetch(x, b, first + n);
    attn__bf16x3_args args = {.m = attn__pieces(b->keys, ATTN__BF16X3_SIDE),
                              .k = attn__pieces(n, ATTN__BF16X3_DEPTH),
                              .parts = f->terms,
                              .a = *k,
                              .b = *q,
                              .accumulate = first > 0};
    for (int64_t i = 0; i < t->subtiles; i++) {
        if (!attn__wide_head_sees(x, b, i))
            continue;
        attn__flash_subtile sub = attn__flash_subtile_at(t, i);
        args.n = sub.width / ATTN__BF16X3_SIDE;
        args.b.data = q->data + sub.lane / ATTN__BF16X3_SIDE * q->block;
        args.c = x->s + sub.lane * b->packed;
        args.ldc = sub.width;
        f->amx->run(&args);
        attn__prefetch_portion(&x->prefetch);
    }
}

void attn__wide_head_split_weights(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub)
{
    const attn__flash *f = x->t.flash;
    attn__bf16x3_side to = x->p;
    to.data += sub.lane / ATTN__BF16X3_SIDE * to.block;
    attn__bf16x3_rows p = {.data = x->t.s.s,
                           .dtype = ATTN_F32,
                           .ld = sub.width,
                           .rows = b->keys,
                           .columns = sub.width,
                           .factor = 1.0f,
                           .parts = f->terms};
    f->amx->split_pairs(&p, &to);
    f->amx->transpose(to.data, sub.width / ATTN__BF16X3_SIDE * to.block / ATTN__BF16X3_TILE);
}

void attn__wide_head_load_values(attn__wide_head_item *x, attn__flash_keys *b, int64_t first, int64_t n)
{
    attn__flash_item *t = &x->t;
    const attn__flash *f = t->flash;
    bool finite = false, hides = attn__flash_may_hide(t->canonical, f);
    attn__wide_head_chunk v = {attn__wide_head_values(x, b), first, n};
    attn__wide_head_panel panel = {t->s.v, f->ldv, x->table};
    b->amx = false;
    if (f->amx) {
        finite = attn__wide_head_split_pairs(&v, f, &panel, &t->s.tiles.v);
        b->amx = finite || !hides; /* one part holds any number */
    }
    if (!b->amx)
        finite = attn__wide_head_copy(&v, f->lanes, &panel);
    b->careful = !finite && hides;
}

void attn__wide_head_amx_values(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub, int64_t n)
{
    const attn__flash *f = x->t.flash;
    attn__bf16x3_args args = {.m = sub.width / ATTN__BF16X3_SIDE,
                              .n = attn__pieces(n, ATTN__BF16X3_SIDE),
                              .k = attn__pieces(b->keys, ATTN__BF16X3_DEPTH),
                              .parts = f->terms,
                              .a = x->p,
                              .b = x->t.s.tiles.v,
                              .c = x->t.s.o,
                              .ldc = attn__wide_head_whole_lanes(f, n)};
    args.a.data += sub.lane / ATTN__BF16X3_SIDE * args.a.block;
    f->amx->run(&args);
    attn__prefetch_portion(&x->prefetch);
}
