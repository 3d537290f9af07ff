/* SPDX-License-Identifier: MIT
 *
 * wide_head_item.h - the state of one work item over wide heads, shared by the files of its forward pass.
 */
#ifndef ATTN_ATTEND_WIDE_HEAD_ITEM_H
#define ATTN_ATTEND_WIDE_HEAD_ITEM_H

#include "attend/solve/wide_head_stream.h"

typedef struct attn__wide_head_item {
    attn__flash_item t;
    const attn__wide_head *wide_head;
    attn__wide_head_operand q, k, v, o;
    float *s;            /* scores, then weights, of all subtiles: [subtile][key_block][width] */
    uint8_t *hidden;     /* the same */
    attn__bf16x3_side p; /* weights as A, of all subtiles */
    float *sums;         /* [query_block][values] where the output cannot hold them */
    int64_t *sums_at;
    float *factor, *was; /* of the output's rows */
    int64_t *table;      /* offsets of a chunk's channels */
    attn__prefetch prefetch;
    attn__wide_head_stream stream;
    bool weights_finite; /* those of the stream */
} attn__wide_head_item;

static inline int64_t attn__wide_head_whole_lanes(const attn__flash *f, int64_t n)
{
    return (n + f->tile->lanes - 1) / f->tile->lanes * f->tile->lanes;
}

/* The rows of a block of keys, of its values, and of the item's queries. */
static inline attn__wide_head_rows attn__wide_head_keys(const attn__wide_head_item *x, const attn__flash_keys *b)
{
    return (attn__wide_head_rows){&x->k, x->t.arrays->k, x->t.s.key_at.k, b->keys};
}

static inline attn__wide_head_rows attn__wide_head_values(const attn__wide_head_item *x, const attn__flash_keys *b)
{
    return (attn__wide_head_rows){&x->v, x->t.arrays->v, x->t.s.key_at.v, b->keys};
}

static inline attn__wide_head_rows attn__wide_head_queries(const attn__wide_head_item *x)
{
    return (attn__wide_head_rows){&x->q, x->t.arrays->q, x->t.s.query_at.q, x->t.count};
}

/* Points the scratch scores at the subtile; b->packed is their number of rows, a multiple of 16 on AMX. */
static inline void attn__wide_head_aim(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub)
{
    x->t.s.s = x->s + sub.lane * b->packed;
    x->t.s.hidden = x->hidden + sub.lane * b->packed;
}

static inline bool attn__wide_head_sees(const attn__wide_head_item *x, const attn__flash_keys *b, int64_t i)
{
    const attn__flash_span *span = &x->t.s.span[i];
    return b->at < span->end && b->at + b->keys > span->begin;
}

/* Prefetches, in portions, what follows channels [.., next) of the scores. */
void attn__wide_head_plan_prefetch(attn__wide_head_item *x, const attn__flash_keys *b, int64_t next);

/* On AMX in bf16.  Scores of a chunk; */
void attn__wide_head_amx_scores(attn__wide_head_item *x, const attn__flash_keys *b, int64_t first, int64_t n);
/* weights of a subtile to tiles; */
void attn__wide_head_split_weights(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub);
/* packs a chunk of values as tiles or as a panel, sets b->amx and b->careful; */
void attn__wide_head_load_values(attn__wide_head_item *x, attn__flash_keys *b, int64_t first, int64_t n);
/* O[queries, chunk] = P V. */
void attn__wide_head_amx_values(attn__wide_head_item *x, const attn__flash_keys *b, attn__flash_subtile sub, int64_t n);

/* On AMX in f32 (wide_head_stream.h): a work item and its block of keys; */
typedef struct attn__wide_head_viewer {
    attn__wide_head_item *x;
    attn__flash_keys *b;
} attn__wide_head_viewer;
/* scores, or values (false if nothing was done).  `plain` computes chunks that bf16 terms cannot hold; its argument is
 * an attn__wide_head_viewer. */
void attn__wide_head_score_in_stream(attn__wide_head_item *x, attn__flash_keys *b, attn__wide_head_plain *plain);
bool attn__wide_head_add_values_in_stream(attn__wide_head_item *x, attn__flash_keys *b, attn__wide_head_plain *plain);

#endif
