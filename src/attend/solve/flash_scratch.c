/* SPDX-License-Identifier: MIT
 *
 * flash_scratch.c - divides one thread's memory.
 */
#include "attend/solve/flash.h"

#include "base/arena.h"
#include "base/integers.h"

static void take_queries(attn__arena *p, const attn__flash *f, const attn__canonical *canonical, attn__flash_scratch *s)
{
    int64_t n = f->query_block;
    s->q = attn__arena_take(p, n * f->channels, sizeof(float));
    s->o = attn__arena_take(p, n * f->held, sizeof(float));
    s->pairs.q = attn__arena_take(p, f->pairs ? n * f->channel_pairs : 0, sizeof(uint32_t));
    s->m = attn__arena_take(p, n, sizeof(float));
    s->l = attn__arena_take(p, n, sizeof(float));
    s->shrink = attn__arena_take(p, n, sizeof(float));
    s->query_at.q = attn__arena_take(p, n, sizeof(int64_t));
    s->query_at.o = attn__arena_take(p, n, sizeof(int64_t));
    s->query_at.lse = attn__arena_take(p, n, sizeof(int64_t));
    s->query_at.bias = attn__arena_take(p, canonical->has_bias ? n : 0, sizeof(int64_t));
    s->query_at.mask = attn__arena_take(p, canonical->has_mask ? n : 0, sizeof(int64_t));
    s->query_at.block = attn__arena_take(p, canonical->has_blocks ? n : 0, sizeof(int64_t));
    s->row = attn__arena_take(p, canonical->has_dropout || (canonical->extras & ATTN__SINKS) ? n : 0, sizeof(int64_t));
    s->key_low = attn__arena_take(p, canonical->has_dropout ? n : 0, sizeof(uint32_t));
    s->key_high = attn__arena_take(p, canonical->has_dropout ? n : 0, sizeof(uint32_t));
    s->span = attn__arena_take(p, f->subtiles, sizeof(attn__flash_span));
    for (int i = 0; i < f->nlimits; i++) {
        s->from[i] = attn__arena_take(p, n, sizeof(int32_t));
        s->to[i] = attn__arena_take(p, n, sizeof(int32_t));
    }
}

static void take_keys(attn__arena *p, const attn__flash *f, const attn__canonical *canonical, attn__flash_scratch *s)
{
    int64_t n = f->key_block, width = f->tile->lanes * f->vectors, square = n * width;
    int64_t group = f->tile->group, groups = attn__round_up(f->values, group);
    s->s = attn__arena_take(p, square, sizeof(float));
    s->other_s = attn__arena_take(p, f->parts ? attn__round_up(n, ATTN__BF16X3_SIDE) * width : 0, sizeof(float));
    s->top = attn__arena_take(p, width, sizeof(float));
    bool extra = canonical->has_bias || canonical->has_mask || f->ntables > 1;
    s->extra = attn__arena_take(p, extra ? square : 0, sizeof(float));
    s->hidden = attn__arena_take(p, square, 1);
    s->k = attn__arena_take(p, f->pairs ? 0 : n * f->ldk, sizeof(float));
    s->pairs.k = attn__arena_take(p, f->pairs ? n * f->ld_pairs : 0, sizeof(uint32_t));
    s->pairs.v = attn__arena_take(p, f->pairs ? (n + 1) / 2 * f->ldv : 0, sizeof(uint32_t));
    s->pairs.p = attn__arena_take(p, f->pairs ? square : 0, sizeof(uint32_t));
    s->v = attn__arena_take(p, n * (groups > f->ldv ? groups : f->ldv), sizeof(float));
    s->key_at.k = attn__arena_take(p, n, sizeof(int64_t));
    s->key_at.v = attn__arena_take(p, n, sizeof(int64_t));
    s->key_at.bias = attn__arena_take(p, canonical->has_bias ? n : 0, sizeof(int64_t));
    s->key_at.mask = attn__arena_take(p, canonical->has_mask ? n : 0, sizeof(int64_t));
    s->key_at.block = attn__arena_take(p, canonical->has_blocks ? n : 0, sizeof(int64_t));
    s->key_at.column = attn__arena_take(p, canonical->has_dropout ? n : 0, sizeof(int64_t));
    s->column = attn__arena_take(p, canonical->has_dropout ? n : 0, sizeof(uint32_t));
    for (int i = 0; i < f->nlimits; i++)
        s->index[i] = attn__arena_take(p, n, sizeof(int32_t));
}

/* Tiles of `blocks` times 16 rows or columns and `depth` numbers of each. */
static attn__bf16x3_side take_tiles(attn__arena *p, const attn__flash *f, int64_t blocks, int64_t depth)
{
    attn__bf16x3_side side = attn__bf16x3_packed(NULL, attn__pieces(depth, ATTN__BF16X3_DEPTH), f->nparts);
    side.data = attn__arena_take(p, blocks * side.block, sizeof *side.data);
    return side;
}

static void take_parts(attn__arena *p, const attn__flash *f, attn__flash_scratch *s)
{
    enum { SIDE = ATTN__BF16X3_SIDE };
    s->tiles.q = take_tiles(p, f, f->query_block / SIDE, f->channels);
    s->tiles.k = take_tiles(p, f, attn__round_up(f->key_block, SIDE) / SIDE, f->channels);
    s->tiles.v = take_tiles(p, f, f->held / SIDE, f->key_block);
    for (int i = 0; i < 2; i++)
        s->tiles.p[i] = take_tiles(p, f, f->vectors, f->key_block);
}

size_t attn__flash_divide(const attn__flash *flash, const attn__canonical *canonical, char *base,
                          attn__flash_scratch *scratch)
{
    attn__arena p = {base, 0};
    take_queries(&p, flash, canonical, scratch);
    take_keys(&p, flash, canonical, scratch);
    attn__flash_tables_take(flash, &p, scratch);
    if (flash->parts)
        take_parts(&p, flash, scratch);
    return p.used;
}
